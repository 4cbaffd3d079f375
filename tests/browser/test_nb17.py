"""Notebook 17 in a real JupyterLab: settings for a customer on the reader's functions, worked from the keyboard."""

PANEL = ".course-levers"
NEEDS = f"{PANEL} .course-needs"
DATA = f"document.querySelector('{NEEDS}').dataset"
STATUS = f"document.querySelector('{NEEDS} [role=status]').innerText"
MESSAGE = f"{PANEL} .course-message [role=alert]"
PAPER = f"getComputedStyle(document.querySelector('{NEEDS} svg rect')).fill"
FIRST_TOKEN, GAP, MEMORY = range(3)  # of the sliders


def choose(page, number, text):
    """An entry of customer, wants, across or up."""
    page.locator(f"{PANEL} select").nth(number).select_option(label=text)


def press(page, number, key):
    """A key on the slider of a limit."""
    page.locator(f"{PANEL} .noUi-handle").nth(number).focus()
    page.keyboard.press(key)


def test_three_customers(opened, picture):
    page, needs = opened.page, opened.locate(NEEDS)
    picture(opened.locate(PANEL), "levers-light")
    labels = page.locator(f"{PANEL} .widget-label:visible").all_inner_texts()
    assert {"customer", "wants", "across", "up", "first token", "gap", "memory", "perplexity", "capitals",
            "tool calls"} <= set(labels)
    assert needs.get_attribute("data-customer") == "chat" and int(needs.get_attribute("data-allowed")) > 0
    drawn = needs.locator("svg").first
    assert drawn.get_attribute("aria-label").startswith("Customer: chat, wants the lowest cost. Limits: time to first")
    assert drawn.locator("text", has_text="plain").count() > 0
    settings = needs.locator("details tbody tr").count()
    assert settings >= 10

    # the phone: bytes are exact, so two settings fit, whatever the speed
    choose(page, 0, "phone")
    opened.until(f"() => {DATA}.customer === 'phone' && {DATA}.allowed === '2'")
    assert needs.get_attribute("data-chosen") in ("int8 + int8 cache", "int4 + int8 cache")
    assert "is chosen" in page.evaluate(STATUS) and needs.locator("table.tempting tbody tr").count() > 0
    assert "memory" in needs.locator("table.tempting").inner_text()

    # a limit of one's own, from the keyboard: no limit of memory, and everything is allowed
    press(page, MEMORY, "End")
    opened.until(f"() => {DATA}.customer === 'your own' && {DATA}.allowed === '{settings}'")
    assert page.locator(f"{PANEL} select").first.input_value() == "your own"
    press(page, MEMORY, "Home")
    opened.until(f"() => {DATA}.allowed === '0' && {STATUS}.startsWith('Nobody is chosen')")
    choose(page, 0, "nightly")
    opened.until(f"() => {DATA}.customer === 'nightly' && {DATA}.chosen.includes('batch 32')")

    # a limit on an axis is a line, and settings beyond it are crossed
    choose(page, 0, "chat")
    opened.until(f"() => {DATA}.customer === 'chat'")
    assert drawn.locator("[stroke-dasharray]").count() == 1
    press(page, GAP, "End")
    opened.until(f"() => {DATA}.customer === 'your own'"
                 f" && !document.querySelector('{NEEDS} svg [stroke-dasharray]')")

    # other axes; the same column twice is refused, and the panel goes on
    choose(page, 2, "memory")
    opened.until(f"() => {DATA}.x === 'nbytes'")
    choose(page, 3, "memory")
    page.locator(MESSAGE).wait_for()
    choose(page, 3, "gap")
    opened.until(f"() => {DATA}.y === 'gap_s' && !document.querySelector('{MESSAGE}')")

    # the table opens from the keyboard; in the dark the paper is dark
    needs.locator("summary").focus()
    page.keyboard.press("Enter")
    opened.until(f"() => document.querySelector('{NEEDS} details').open")
    assert needs.locator("tr[aria-current=true]").count() == 1
    light = page.evaluate(PAPER)
    opened.change_theme("Dark")
    opened.until(f"() => {PAPER} === 'rgb(31, 35, 40)'")
    assert light == "rgb(255, 255, 255)"
    picture(opened.locate(PANEL), "levers-dark")
