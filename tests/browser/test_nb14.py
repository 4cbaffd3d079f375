"""Notebook 14 in a real JupyterLab: the slots of a server on the reader's functions, worked from the keyboard."""

SLOTS = ".course-batching .course-slots"
DATA = f"document.querySelector('{SLOTS}').dataset"
MESSAGE = ".course-batching .course-message [role=alert]"


def slider(page, number):
    """The handle of slots, pages, arrivals or the time."""
    return page.locator(".course-batching .noUi-handle").nth(number)


def choose(page, number, text):
    """An entry of policy or lengths."""
    page.locator(".course-batching select").nth(number).select_option(label=text)


def test_slots_of_a_server(opened, picture):
    page, slots = opened.page, opened.locate(SLOTS)
    picture(opened.locate(".course-batching"), "batching-light")
    assert slots.get_attribute("data-policy") == "continuous" and slots.get_attribute("data-slots") == "4"
    labels = page.locator(".course-batching .widget-label:visible").all_inner_texts()
    assert {"policy", "lengths", "slots", "pages", "arrivals", "seed", "time"} <= set(labels)
    assert "slot" in slots.locator("svg.time").get_attribute("aria-label")
    assert slots.locator("svg.time .prefill").count() > 0 and slots.locator("svg.time .decode").count() > 20
    rate = float(slots.get_attribute("data-rate"))

    # static batches: rows that have ended are padding, and it is slower
    choose(page, 0, "static batches")
    opened.until(f"() => {DATA}.policy === 'static'")
    assert slots.locator("svg.time [data-kind=pad]").count() > 0
    assert float(slots.get_attribute("data-rate")) < rate
    assert slots.locator("thead [aria-current]").inner_text() == "static batches"
    choose(page, 0, "continuous")
    opened.until(f"() => {DATA}.policy === 'continuous'")

    # few pages, from the keyboard: somebody loses theirs
    slider(page, 1).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.pages === '8' && Number({DATA}.out) > 0")
    assert "pages taken away" in slots.locator("table").inner_text()

    # along the time, to the end and back
    slider(page, 3).focus()
    page.keyboard.press("End")
    opened.until(f"() => Number({DATA}.start) > 0")
    page.keyboard.press("Home")
    opened.until(f"() => Number({DATA}.start) === 0")

    # one slot, then requests that all come at once and are all alike
    slider(page, 0).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.slots === '1' && {DATA}.out === '0'")
    choose(page, 1, "all equal")
    slider(page, 2).focus()
    page.keyboard.press("End")
    opened.until(f"() => document.querySelector('{SLOTS} [role=status]').innerText.includes('all at once, lengths: all"
                 " equal; 1 slot')")
    assert page.locator(MESSAGE).count() == 0
    opened.change_theme("Dark")
    choose(page, 0, "chunked prefill")
    opened.until(f"() => {DATA}.policy === 'chunked'")
    picture(opened.locate(".course-batching"), "batching-dark")
