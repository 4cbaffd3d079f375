"""Notebook 09 in a real JupyterLab: the roofline explorer on the reader's formulas, worked from the keyboard."""

ROOF = ".course-roofline .course-roof"
DATA = f"document.querySelector('{ROOF}').dataset"
PLACE = f"Number(document.querySelector('{ROOF} circle').getAttribute('cx'))"
MESSAGE = ".course-roofline .course-message [role=alert]"


def slider(page, number):
    """The handle of batch or of context."""
    return page.locator(".course-roofline .noUi-handle").nth(number)


def choose(page, number, text):
    """An entry of model, machine or weights."""
    page.locator(".course-roofline select").nth(number).select_option(label=text)


def test_roofline_explorer(opened, picture):
    page, roof = opened.page, opened.locate(ROOF)
    picture(opened.locate(".course-roofline"), "roofline-light")
    assert (roof.get_attribute("data-decode"), roof.get_attribute("data-prefill")) == ("memory", "compute")
    words = roof.inner_text()
    assert "221 in all" in words and "14.4 ms to the first token" in words and "Critical batch: 295 rows." in words
    assert "Bounds, not promises" in words and "Fits: 16.1 GB" in words
    assert "limited by memory" in roof.locator("svg").get_attribute("aria-label")
    labels = page.locator(".course-roofline .widget-label:visible").all_inner_texts()
    assert {"model", "machine", "weights", "batch", "context"} <= set(labels)

    # a larger batch, from the keyboard: the dot goes to the right along the roof
    before = page.evaluate(f"() => {PLACE}")
    slider(page, 0).focus()
    page.keyboard.press("End")
    opened.until(f"() => {DATA}.batch === '512'")
    assert page.evaluate(f"() => {PLACE}") > before + 100
    assert "caches, which rows do not share" in roof.inner_text()

    # short contexts: decode is limited by compute, and prefill by memory
    slider(page, 1).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.decode === 'compute' && {DATA}.prefill === 'memory'")
    slider(page, 0).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.batch === '1'")

    # a model that one machine has no memory for; with 4 bits it has
    choose(page, 0, "Llama 3 70B")
    opened.until(f"() => {DATA}.machines === '2'")
    assert "The numbers are for 2 x H100 SXM" in roof.inner_text()
    choose(page, 2, "4 bits")
    opened.until(f"() => {DATA}.machines === '1'")
    rate = float(roof.get_attribute("data-rate"))
    choose(page, 1, "laptop")
    opened.until(f"() => {DATA}.machines === '2'")
    assert float(roof.get_attribute("data-rate")) < rate / 10
    assert page.locator(MESSAGE).count() == 0
    opened.change_theme("Dark")
    picture(opened.locate(".course-roofline"), "roofline-dark")
