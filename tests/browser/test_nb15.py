"""Notebook 15 in a real JupyterLab: the best size for a budget on the reader's formulas, worked from the keyboard."""

CHART = ".course-scaling .course-isoflop"
DATA = f"document.querySelector('{CHART}').dataset"
MESSAGE = ".course-scaling .course-message [role=alert]"


def slider(page, number):
    """The handle of FLOPs or of the served tokens."""
    return page.locator(".course-scaling .noUi-handle").nth(number)


def test_best_size_for_a_budget(opened, picture):
    page, chart = opened.page, opened.locate(CHART)
    picture(opened.locate(".course-scaling"), "scaling-light")
    assert chart.get_attribute("data-law") == "Besiroglu et al. 2024"
    labels = page.locator(".course-scaling .widget-label:visible").all_inner_texts()
    assert {"law", "FLOPs", "served"} <= set(labels)
    assert "Training alone: the best model has" in chart.locator("svg").get_attribute("aria-label")
    assert chart.locator("circle").count() == 1 and chart.locator("path.known").count() >= 1
    first = float(chart.get_attribute("data-size"))

    # the still that GitHub and print show has both curves, and both best models within what was measured
    assert chart.get_attribute("data-served") == "1e+12" and chart.locator("svg rect").count() == 1
    assert "Within the measured range" in chart.inner_text()

    # nothing served, then as much as the slider has, then a little less: the best model gets smaller
    served = slider(page, 1)
    served.focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.served === '0' && {DATA}.paid === '0'")
    assert chart.locator("svg rect").count() == 0
    page.keyboard.press("End")
    opened.until(f"() => Number({DATA}.served) === 1e15 && Number({DATA}.paid) > 0")
    assert float(chart.get_attribute("data-paid")) < first / 100
    assert "Serving makes the best model" in chart.locator("[role=status]").inner_text()
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    opened.until(f"() => Number({DATA}.served) === 1e12 && Number({DATA}.paid) > 0")
    assert first / 4 < float(chart.get_attribute("data-paid")) < first
    assert chart.locator("svg rect").count() == 1 and chart.locator("path.curve.paid").count() >= 1

    # a larger budget from the keyboard; then one that does not pay for what is to be served
    flops = slider(page, 0)
    flops.focus()
    page.keyboard.press("End")
    opened.until(f"() => Number({DATA}.flops) === 5e27")
    assert float(chart.get_attribute("data-size")) > 100 * first
    assert "Extrapolated" in chart.inner_text() and chart.locator("path.curve.beyond").count() >= 1
    page.keyboard.press("Home")
    opened.until(f"() => document.querySelector('{MESSAGE}')?.innerText.includes('1,000 parameters')")
    served.focus()
    page.keyboard.press("Home")
    opened.until(f"() => Number({DATA}.flops) === 1e11 && !document.querySelector('{MESSAGE}')")
    flops.focus()
    for _ in range(30):  # ten powers of ten
        page.keyboard.press("ArrowRight")
    opened.until(f"() => Number({DATA}.flops) === 1e21")
    assert "Within the measured range" in chart.inner_text()

    # another law, another size
    page.locator(".course-scaling select").select_option(label="Hoffmann et al. 2022")
    opened.until(f"() => {DATA}.law === 'Hoffmann et al. 2022'")
    assert page.locator(MESSAGE).count() == 0
    opened.change_theme("Dark")
    served.focus()
    for _ in range(14):
        page.keyboard.press("ArrowRight")
    opened.until(f"() => Number({DATA}.served) === 3e12 && Number({DATA}.paid) > 0")
    picture(opened.locate(".course-scaling"), "scaling-dark")
