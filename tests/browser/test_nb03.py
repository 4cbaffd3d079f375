"""Notebook 03 in a real JupyterLab: the attention widget, worked by clicks and from the keyboard."""

import re

ROW = ".course-attention .course-row"
DATA = f"document.querySelector('{ROW}').dataset"


def weights(notebook):
    return [float(li.get_attribute("data-weight")) for li in notebook.page.locator(f"{ROW} li").all()]


def slider(page, number):
    """The handle of layer, head, query or key."""
    return page.locator(".course-attention .noUi-handle").nth(number)


def test_attention_widget(opened, picture):
    page, row = opened.page, opened.locate(ROW)
    picture(opened.locate(".course-attention"), "attention-light")
    n = page.locator(f"{ROW} li").count()
    assert page.locator(".course-attention .widget-toggle-button").count() == n > 8
    assert row.get_attribute("data-query") == str(n - 1)
    assert abs(sum(weights(opened)) - 1) < 1e-4

    active = page.locator(".course-attention .widget-toggle-button.mod-active")
    assert active.all_inner_texts() == [page.locator(".course-attention .widget-toggle-button").last.inner_text()]

    # arrow keys: the query one token back, and its row ends earlier
    slider(page, 2).focus()
    page.keyboard.press("ArrowLeft")
    opened.until(f"([n]) => {DATA}.query === String(n - 2)", n)
    assert weights(opened)[-1] == 0 and abs(sum(weights(opened)) - 1) < 1e-4

    # a click: the first token, which has nothing but itself
    page.locator(".course-attention .widget-toggle-button").first.click()
    opened.until(f"() => {DATA}.query === '0'")
    assert weights(opened) == [1.0] + [0.0] * (n - 1)
    assert "100 %" in row.inner_text() and row.locator("li.later").count() == n - 1

    # another cell of the row: one from the future is masked
    slider(page, 3).focus()
    page.keyboard.press("ArrowRight")
    opened.until(f"() => {DATA}.key === '1'")
    assert "masked" in row.locator(".cell").inner_text()

    # other heads: the last query again, then layer and head
    page.locator(".course-attention .widget-toggle-button").last.click()
    opened.until(f"([n]) => {DATA}.query === String(n - 1)", n)
    before = weights(opened)
    slider(page, 0).focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.layer === '0'")
    slider(page, 1).focus()
    page.keyboard.press("End")
    opened.until(f"() => Number({DATA}.head) > 0 && {DATA}.layer === '0'")
    assert weights(opened) != before and abs(sum(weights(opened)) - 1) < 1e-4
    assert row.locator("svg rect").count() == int(re.search(r"sum of (\d+) products", row.inner_text())[1])

    # another text, whatever is in it; and none
    text = page.locator(".course-attention textarea")
    text.fill("a<b>c")
    page.keyboard.press("Tab")
    opened.until(f"() => [...document.querySelectorAll('{ROW} bdi')].map(e => e.textContent).join('') === 'a<b>c'")
    assert page.locator(f"{ROW} bdi b").count() == 0
    text.fill("")
    page.keyboard.press("Tab")
    message = opened.locate(".course-attention .course-message [role=alert]")
    assert "at least one token" in message.inner_text()
    text.fill("The dog did not cross the street because it was too tired.")
    page.keyboard.press("Tab")
    opened.until(f"() => !document.querySelector('.course-message [role=alert]') && "
                 f"document.querySelectorAll('{ROW} li').length > 8")
    opened.change_theme("Dark")
    picture(opened.locate(".course-attention"), "attention-dark")
