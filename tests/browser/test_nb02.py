"""The map of words of notebook 02 in a real JupyterLab: kinds are ticked and a word is typed from the keyboard."""

from test_widgets_in_lab import both_themes

MAP = ".course-mapper .course-map"
KINDS = f"document.querySelector('{MAP}').dataset.kinds"
WORD = f"document.querySelector('{MAP}').dataset.word"
DRAWN = f"document.querySelector('{MAP} svg[role=img]').outerHTML"


def test_map_widget(opened, picture):
    page = opened.page
    chart = opened.locate(MAP)
    both_themes(opened, picture, ".course-mapper", "map")
    boxes = page.locator(".course-mapper input[type=checkbox]")
    ticked = sum(box.is_checked() for box in boxes.all())
    assert 1 <= ticked < boxes.count() and chart.get_attribute("data-kinds") == str(ticked)
    assert "ringed" in chart.locator("svg[role=img]").get_attribute("aria-label")
    words = chart.locator("svg[role=img] title").count()
    assert words >= 10, "every mark names its word when pointed at"

    before = page.evaluate(DRAWN)
    boxes.first.focus()
    changed = -1 if boxes.first.is_checked() else 1
    page.keyboard.press("Space")
    opened.until(f"([n]) => {KINDS} === n", str(ticked + changed))
    assert page.evaluate(DRAWN) != before
    page.keyboard.press("Space")
    opened.until(f"([old]) => {DRAWN} === old", before)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "checkbox", "Tab leads from one box to the next"

    nearest = page.locator(f"{MAP} li bdi").first.inner_text().lstrip("␣")
    field = page.locator(".course-mapper input[type=text]")
    field.fill(nearest)
    page.keyboard.press("Enter")
    opened.until(f"([word]) => {WORD} === word", nearest)
    assert page.locator(f"{MAP} li").count() == 8 and page.evaluate(DRAWN) != before


def test_map_widget_says_what_is_wrong_and_goes_on(opened, picture):
    page = opened.page
    opened.locate(MAP)
    field = page.locator(".course-mapper input[type=text]")
    first, before = field.input_value(), page.evaluate(DRAWN)
    field.fill("supercalifragilistic<b>")
    page.keyboard.press("Enter")
    message = opened.locate(".course-mapper .course-message [role=alert]")
    assert "must be one token" in message.inner_text() and page.evaluate(DRAWN) == before
    picture(opened.locate(".course-mapper"), "map-message")
    field.fill(first)
    page.keyboard.press("Enter")
    opened.until("() => !document.querySelector('.course-mapper .course-message [role=alert]')")
    for box in page.locator(".course-mapper input[type=checkbox]").all():
        if box.is_checked():
            box.focus()
            page.keyboard.press("Space")
    assert "choose a kind of words" in opened.locate(".course-mapper .course-message [role=alert]").inner_text()
