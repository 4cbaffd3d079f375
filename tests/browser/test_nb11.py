"""Notebook 11 in a real JupyterLab: how many bits, worked from the keyboard."""

PANEL = ".course-roundings .course-rounding"
DATA = f"document.querySelector('{PANEL}').dataset"


def test_how_many_bits(opened, picture):
    page, row = opened.page, opened.locate(PANEL)
    picture(opened.locate(".course-roundings"), "bits-light")
    assert "A hallucination is a stiff something" in row.inner_text()
    assert 12 <= int(row.get_attribute("data-marks")) <= 16
    assert row.locator("svg rect").count() == 48
    assert "one scale for the matrix" in row.locator("svg").get_attribute("aria-label")

    # a scale for each row brings India back
    page.locator(".course-roundings select").nth(0).select_option(label="channel")
    opened.until(f"() => Number({DATA}.perplexity) < 4")
    assert "New Delhi" in row.inner_text()

    # fewer bits, from the keyboard, until it is lost
    handle = page.locator(".course-roundings .noUi-handle").first
    handle.focus()
    page.keyboard.press("End")
    opened.until(f"() => Number({DATA}.marks) <= 4")
    assert "New Delhi" not in row.inner_text()
    page.keyboard.press("Home")
    opened.until(f"() => Number({DATA}.marks) > 100")
    assert "New Delhi" in row.inner_text()

    # another matrix
    zeros = row.get_attribute("data-zeros")
    page.locator(".course-roundings select").nth(1).select_option(index=3)
    opened.until(f"() => {DATA}.zeros !== '{zeros}'")
    opened.change_theme("Dark")
    picture(opened.locate(".course-roundings"), "bits-dark")
