"""The surprisal widget of notebook 06 in a real JupyterLab: a text is typed, a token is picked by the keyboard."""

from test_widgets_in_lab import both_themes

VIEW = ".course-surpriser .course-surprisal"
DATA = f"document.querySelector('{VIEW}').dataset"


def test_surprisal_widget(opened, picture):
    page = opened.page
    view = opened.locate(VIEW)
    both_themes(opened, picture, ".course-surpriser", "surprisal")
    tokens = page.locator(f"{VIEW} li")
    assert tokens.count() == int(view.get_attribute("data-tokens")) > 5
    assert "bits, probability" in tokens.last.get_attribute("title")
    assert [text for text in page.locator(f"{VIEW} .bits").all_inner_texts() if text] != []

    handle = page.locator(".course-surpriser .noUi-handle")
    handle.focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.chosen === '0'")
    assert "not predicted" in page.locator(VIEW).inner_text()
    page.keyboard.press("ArrowRight")
    opened.until(f"() => {DATA}.chosen === '1'")
    assert page.locator(f"{VIEW} table tr.itself").count() == 1
    assert page.locator(f"{VIEW} li[aria-current=true]").count() == 1

    box = page.locator(".course-surpriser textarea")
    first, before = box.input_value(), view.get_attribute("data-tokens")
    box.fill("The cat <script>x")
    page.keyboard.press("Tab")
    opened.until(f"([old]) => {DATA}.tokens !== old", before)
    assert view.locator("script").count() == 0
    assert "".join(page.locator(f"{VIEW} bdi").all_inner_texts()).replace("␣", " ") == "The cat <script>x"

    box.fill("")
    page.keyboard.press("Tab")
    message = opened.locate(".course-surpriser .course-message [role=alert]")
    assert "Not updated." in message.inner_text()
    picture(opened.locate(".course-surpriser"), "surprisal-message")
    box.fill(first)
    page.keyboard.press("Tab")
    opened.until(f"([old]) => {DATA}.tokens === old && !document.querySelector('.course-message [role=alert]')", before)
