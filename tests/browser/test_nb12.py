"""Notebook 12 in a real JupyterLab: proposals watched pass by pass, from the keyboard."""

PASSES = ".course-speculation .course-passes"
DATA = f"document.querySelector('{PASSES}').dataset"


def slider(page, number):
    """The handle of temperature, k or up to pass."""
    return page.locator(".course-speculation .noUi-handle").nth(number)


def test_proposals_are_watched(opened, picture):
    page, row = opened.page, opened.locate(PASSES)
    picture(opened.locate(".course-speculation"), "passes-light")
    all_of_them = int(row.get_attribute("data-passes"))
    assert all_of_them > 3 and row.locator(".pass").count() == all_of_them
    rejected = row.locator(".token.rejected").count()
    assert row.locator(".token.rejected small", has_text="rejected").count() == rejected > 0
    assert row.locator(".token.accepted").count() == int(row.get_attribute("data-accepted"))

    # back to the first pass, and on by one
    slider(page, 2).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.passes === '1'")
    page.keyboard.press("ArrowRight")
    opened.until(f"() => {DATA}.passes === '2'")

    # no proposals: each pass writes one token of its own
    slider(page, 1).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.accepted === '0' && {DATA}.passes === {DATA}.tokens")
    assert row.locator(".token.own small").first.inner_text() == "bonus"
    page.keyboard.press("End")
    opened.until(f"() => Number({DATA}.accepted) > 0")

    # another question, and an empty one
    field = page.locator(".course-speculation input[type=text]").first
    field.fill("Why do we dream?")
    field.press("Enter")
    opened.until(f"() => document.querySelector('{PASSES} .written').innerText.includes('leep')"
                 f" || document.querySelector('{PASSES} .written').innerText.includes('dream')")
    field.fill(" ")
    field.press("Enter")
    message = opened.locate(".course-speculation .course-message [role=alert]")
    assert "Not updated." in message.inner_text()
    field.fill("What is rain?")
    field.press("Enter")
    opened.until("() => !document.querySelector('.course-speculation .course-message [role=alert]')")
    opened.change_theme("Dark")
    picture(opened.locate(".course-speculation"), "passes-dark")
