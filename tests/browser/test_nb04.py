"""The knock-out widget of notebook 04 in a real JupyterLab: layer, part and question from the keyboard."""

from test_widgets_in_lab import both_themes

PANEL = ".course-knockouts"
VIEW = f"{PANEL} .course-knockout"
SHOWN = f"document.querySelector('{VIEW}').innerHTML"
SUMMARY = f"document.querySelector('{VIEW} .summary').textContent"
ALERT = f"{PANEL} .course-message [role=alert]"


def test_knockout_widget(opened, picture):
    page = opened.page
    opened.locate(VIEW)
    both_themes(opened, picture, PANEL, "knockout")
    intact = page.locator(f"{VIEW} .answer.intact").inner_text()
    assert page.locator(f"{VIEW} li").count() > 3 and intact
    assert page.locator(f"{VIEW} .is").first.inner_text().endswith("%"), "a number beside the shade"

    part = page.locator(f"{PANEL} select")
    part.focus()
    page.keyboard.press("End")
    opened.until(f"() => {SUMMARY}.startsWith('Without nothing the answer stays the same')")
    assert page.locator(f"{VIEW} .answer.same").inner_text() == intact

    slider = page.locator(f"{PANEL} .noUi-handle")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    part.focus()
    page.keyboard.press("Home")
    opened.until(f"() => {SUMMARY}.startsWith('Without the attention of layer 1 ')")

    before = page.evaluate(SHOWN)
    question = page.locator(f"{PANEL} input[type=text]").first
    first = question.input_value()
    question.fill("")
    page.keyboard.press("Enter")
    assert "must be not empty" in opened.locate(ALERT).inner_text() and page.evaluate(SHOWN) == before
    picture(opened.locate(PANEL), "knockout-message")
    question.fill("What is <b>a volcano</b>?")
    page.keyboard.press("Enter")
    opened.until(f"([old]) => {SHOWN} !== old && !document.querySelector('{ALERT}')", before)
    assert page.locator(f"{VIEW} .answer b").count() == 0, "what is typed never becomes markup"
    question.fill(first)
    page.keyboard.press("Enter")
    opened.until(f"([old]) => {SHOWN} === old", before)
