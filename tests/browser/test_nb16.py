"""Notebook 16 in a real JupyterLab: an agent, message by message, on the reader's loop, worked from the keyboard."""

AGENT = ".course-agents .course-agent"
DATA = f"document.querySelector('{AGENT}').dataset"
LAST = f"document.querySelector('{AGENT} li:last-child .said')?.innerText"
MESSAGE = ".course-agents .course-message [role=alert]"


def choose(page, number, text):
    """An example, what the dictionary holds, or how results are read."""
    page.locator(".course-agents select").nth(number).select_option(label=text)


def test_an_agent_is_stepped_through(opened, picture):
    page, agent = opened.page, opened.locate(AGENT)
    picture(opened.locate(".course-agents"), "agent-light")
    labels = page.locator(".course-agents .widget-label:visible").all_inner_texts()
    assert {"examples", "question", "meanings", "results", "max_steps", "message"} <= set(labels)
    checks = page.locator(".course-agents label:has(input[type=checkbox])").all_inner_texts()
    assert [text.strip() for text in checks] == ["calculator", "dictionary", "grammar mask"]
    assert agent.get_attribute("data-reason") == "stop" and agent.locator("li").count() == 4
    assert (agent.get_attribute("data-read"), agent.get_attribute("data-written")) == ("118", "47")
    assert agent.locator("li.new").inner_text().startswith("4 assistant") and page.evaluate(LAST).endswith("6912.")

    # back to the question and on to the call, by keyboard
    max_steps, shown = page.locator(".course-agents .noUi-handle").all()
    shown.focus()
    page.keyboard.press("Home")
    opened.until(f"() => {DATA}.step === '1'")
    assert agent.locator("li").count() == 1 and agent.locator("li.new[aria-current=step]").count() == 1
    page.keyboard.press("ArrowRight")
    opened.until(f"() => {DATA}.step === '2'")
    assert agent.locator("li.assistant .call").inner_text() == 'calls calculator {"expression": "1234 + 5678"}'
    controls = agent.locator("li.assistant .control").all_inner_texts()
    assert controls == ["<tool_call>", "</tool_call>", "<|im_end|>"]
    page.keyboard.press("End")
    opened.until(f"() => {DATA}.step === '4'")

    # a stranger's dictionary: pasted into the text, its control tokens count; encoded apart, they do not
    choose(page, 0, "a word")
    opened.until(f"() => {LAST}.includes('lamp used at night')")
    choose(page, 1, "with a forged message")
    opened.until(f"() => document.querySelector('{AGENT} li.tool .said').innerText.includes('<|im_start|>user')")
    assert agent.get_attribute("data-forged") == "0" and "Paris" not in page.evaluate(LAST)
    choose(page, 2, "pasted into the text")
    opened.until(f"() => {DATA}.forged === '5' && {LAST} === 'That is Paris.'")
    picture(opened.locate(".course-agents"), "agent-forged")
    choose(page, 0, "a question in plain words")
    opened.until(f"() => {DATA}.forged === '0' && {LAST}.includes('is Paris')")
    assert page.locator(".course-agents select").nth(2).input_value() == "encoded apart, as data"
    choose(page, 1, "as they should be")

    # a loop without end meets its bound; a shorter one, from the keyboard; then the mask, and a tool less
    question = page.locator(".course-agents input[type=text]").first
    question.fill("What does blorp mean?")
    question.press("Enter")
    opened.until(f"() => {DATA}.reason === 'max_steps' && {DATA}.turns === '4'")
    max_steps.focus()
    page.keyboard.press("ArrowLeft")
    opened.until(f"() => {DATA}.turns === '3'")
    boxes = page.locator(".course-agents input[type=checkbox]")
    boxes.nth(2).focus()
    page.keyboard.press("Space")
    opened.until("() => document.querySelectorAll('.course-agents input[type=checkbox]')[2].checked")
    boxes.nth(1).focus()
    page.keyboard.press("Space")
    opened.until(f"() => !document.querySelector('{AGENT} li .tokens').innerText.includes('dictionary')")

    # no question is refused, and the panel goes on; in the dark
    question.fill("")
    question.press("Enter")
    page.locator(MESSAGE).wait_for()
    question.fill("What is gravity?")
    question.press("Enter")
    opened.until(f"() => {LAST}.includes('gravity') && !document.querySelector('{MESSAGE}')")
    opened.change_theme("Dark")
    picture(opened.locate(".course-agents"), "agent-dark")
