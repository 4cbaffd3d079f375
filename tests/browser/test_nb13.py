"""Notebook 13 in a real JupyterLab: a stream, token by token, on the reader's functions, worked from the keyboard."""

STREAM = ".course-streaming .course-stream"
DATA = f"document.querySelector('{STREAM}').dataset"
CLIENT = f"document.querySelector('{STREAM} .line .got')?.innerText"
MESSAGE = ".course-streaming .course-message [role=alert]"


def test_a_stream_is_stepped_through(opened, picture):
    page, stream = opened.page, opened.locate(STREAM)
    picture(opened.locate(".course-streaming"), "stream-light")
    labels = page.locator(".course-streaming .widget-label:visible").all_inner_texts()
    assert {"text", "stop strings", "up to token"} <= set(labels)
    assert stream.get_attribute("data-stop") == "User:" and int(stream.get_attribute("data-broken")) >= 3
    assert page.evaluate(CLIENT).endswith("Use␣salt.↵") and stream.locator(".thrown").inner_text() == "User:"

    # back to the first token, and on to a character of three
    text, stops = page.locator(".course-streaming textarea").all()
    text.fill("I ♥ it.\nUser: why?")
    opened.until(f"() => {CLIENT} === 'I␣♥␣it.↵'")
    page.locator(".course-streaming .noUi-handle").focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.tick === '1'")
    assert stream.locator("tbody tr").count() == 1 and page.evaluate(CLIENT) == "I"
    for tick, held in (("2", []), ("3", ["E2"]), ("4", ["E2", "99"]), ("5", [])):
        page.keyboard.press("ArrowRight")
        opened.until(f"() => {DATA}.tick === '{tick}'")
        assert stream.locator("tbody .new .held").all_inner_texts() == held
    assert page.evaluate(CLIENT) == "I␣♥" and "U+FFFD 3 times" in stream.locator("[role=status]").inner_text()
    page.keyboard.press("End")
    opened.until(f"() => {DATA}.tick === {DATA}.ticks")

    # another text and other stop strings, one of which needs the line break
    text.fill("日本\n\n🙂 <b>")
    opened.until(f"() => {DATA}.stop === '' && {CLIENT} === '日本↵↵🙂␣<b>'")
    stops.fill("User:\n\\n\\n")
    opened.until(f"() => {DATA}.stop === '↵↵' && {CLIENT} === '日本'")
    stops.fill("")
    before = int(stream.get_attribute("data-ticks"))
    text.fill("The cat sat.")
    opened.until(f"() => {CLIENT} === 'The␣cat␣sat.'")
    words = int(stream.get_attribute("data-ticks"))
    page.locator(".course-streaming input[type=checkbox]").focus()
    page.keyboard.press("Space")
    opened.until(f"() => {DATA}.ticks === '13'")
    assert words < 13 and before > words and stream.get_attribute("data-broken") == "0"
    assert page.locator(MESSAGE).count() == 0
    opened.change_theme("Dark")
    picture(opened.locate(".course-streaming"), "stream-dark")
