"""Notebook 10 in a real JupyterLab: a row tile by tile, worked by its button and from the keyboard."""

ROW = ".course-tile-steps .course-tiles"
DATA = f"document.querySelector('{ROW}').dataset"


def slider(page, number):
    """The handle of layer, head, keys in a tile or tile."""
    return page.locator(".course-tile-steps .noUi-handle").nth(number)


def test_tile_by_tile(opened, picture):
    page, row = opened.page, opened.locate(ROW)
    picture(opened.locate(".course-tile-steps"), "tiles-light")
    steps = int(row.get_attribute("data-steps"))
    keys = row.locator("svg rect.past, svg rect.now, svg rect.later").count()
    assert steps == -(-keys // 4) and row.locator("svg rect.tile").count() == 1
    assert "Tile" in row.locator("svg").get_attribute("aria-label")

    # the button, to the last tile: nothing is missing; once more: the first again
    button = page.locator(".course-tile-steps button", has_text="next tile")
    for step in range(int(row.get_attribute("data-step")) + 1, steps + 1):
        button.click()
        opened.until(f"([n]) => {DATA}.step === String(n)", step)
    assert "o / l is the output of the whole row." in row.inner_text()
    assert row.locator("svg rect.later").count() == 0 and float(row.get_attribute("data-gap")) < 1e-3
    button.focus()
    page.keyboard.press("Enter")
    opened.until(f"() => {DATA}.step === '1'")
    assert "The first maximum is" in row.inner_text()

    # from the keyboard: the last tile, then tiles of a single key
    slider(page, 3).focus()
    page.keyboard.press("End")
    opened.until(f"([n]) => {DATA}.step === String(n)", steps)
    slider(page, 2).focus()
    page.keyboard.press("Home")
    opened.until(f"([n]) => {DATA}.steps === String(n) && {DATA}.step === '1'", keys)
    assert "all scores of the row would be" in row.inner_text() and f"{4 * keys} bytes" in row.inner_text()

    # another row of the model
    before = row.get_attribute("data-m")
    slider(page, 1).focus()
    page.keyboard.press("End")
    opened.until(f"([m]) => {DATA}.m !== m", before)
    slider(page, 0).focus()
    page.keyboard.press("Home")
    assert page.locator(".course-tile-steps .course-message [role=alert]").count() == 0
    opened.change_theme("Dark")
    picture(opened.locate(".course-tile-steps"), "tiles-dark")
