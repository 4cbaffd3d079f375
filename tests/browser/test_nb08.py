"""Notebook 08 in a real JupyterLab: will it fit, worked from the keyboard; and a formula of the reader's own."""

FIT = ".course-fits .course-fit"
DATA = f"document.querySelector('{FIT}').dataset"


def slider(page, number):
    """The handle of texts or of tokens each."""
    return page.locator(".course-fits .noUi-handle").nth(number)


def choose(page, number, text):
    """An entry of model, device or weights."""
    page.locator(".course-fits select").nth(number).select_option(label=text)


def test_will_it_fit(opened, picture):
    page, row = opened.page, opened.locate(FIT)
    picture(opened.locate(".course-fits"), "fit-light")
    assert row.get_attribute("data-largest") == "59" and row.get_attribute("data-fits") == "true"
    assert "At most 59 texts of this length fit." in row.inner_text()
    assert row.locator("svg rect").count() == 3 and "16.1 GB" in row.locator("svg").get_attribute("aria-label")

    # more texts, from the keyboard, until they no longer fit
    slider(page, 0).focus()
    page.keyboard.press("End")
    opened.until(f"() => {DATA}.fits === 'false'")
    assert "are more than 80 GB" in row.inner_text()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.fits === 'true'")

    # another model: the weights alone are too large; on a server they are not
    choose(page, 0, "Llama-3-70B")
    opened.until(f"() => {DATA}.largest === '0'")
    assert "the weights alone, 141 GB, are larger than 80 GB" in row.inner_text()
    choose(page, 2, "4 bits")
    opened.until(f"() => {DATA}.largest !== '0'")
    choose(page, 1, "8 × 80 GB (a server)")
    opened.until(f"() => Number({DATA}.largest) > 200")

    # a longer text than the model takes: the panel says so, and goes on
    slider(page, 1).focus()
    page.keyboard.press("End")
    message = opened.locate(".course-fits .course-message [role=alert]")
    assert "the positions of Llama-3-70B" in message.inner_text()
    choose(page, 0, "Llama-3.1-405B")
    opened.until("() => !document.querySelector('.course-fits .course-message [role=alert]')")
    assert "Llama-3.1-405B" in row.inner_text()
    opened.change_theme("Dark")
    picture(opened.locate(".course-fits"), "fit-dark")
