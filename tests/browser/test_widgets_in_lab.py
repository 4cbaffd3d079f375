"""The notebooks with widgets, in a real JupyterLab: run all, then work the knobs from the keyboard."""

import pytest

DISTRIBUTION = ".course-sampling .course-distribution svg"
STATE = f"""document.querySelector('{DISTRIBUTION}').outerHTML"""
WRITTEN = "document.querySelector('.course-sampling .completion').textContent"
TOKENS = ".course-tokenizer .course-tokens"


@pytest.fixture
def opened(request, root, notebook):
    """The notebook that the test names, all cells run; afterwards the page has had no error and asked
    nobody but the server."""
    [path] = root.glob(request.param)
    notebook.open(path.name)
    notebook.run_all()
    yield notebook
    assert notebook.errors == []
    assert notebook.strangers == []


def only(number):
    """Run the test on one notebook."""
    return pytest.mark.parametrize("opened", [f"{number}_*.ipynb"], ids=[number], indirect=True)


def both_themes(notebook, picture, selector, name):
    """Pictures in the dark theme and the light one, which the page has afterwards."""
    picture(notebook.locate(selector), f"{name}-light")
    notebook.change_theme("Dark")
    picture(notebook.locate(selector), f"{name}-dark")
    notebook.change_theme("Light")


@only("00")
def test_sampling_widget(opened, picture):
    page = opened.page
    svg = opened.locate(DISTRIBUTION)
    both_themes(opened, picture, ".course-sampling", "sampling")
    assert svg.get_attribute("aria-label").startswith("Next-token distribution")

    first = page.evaluate(WRITTEN)
    page.locator(".course-sampling input[type=number]").fill("3")
    page.keyboard.press("Enter")
    opened.until("() => document.querySelector('.course-sampling .params').textContent.includes('seed=3')")
    opened.until(f"([old]) => {WRITTEN} !== old", first)
    picture(opened.locate(".course-sampling"), "sampling-another-seed")

    temperature, top_p, top_k = page.locator(".course-sampling .noUi-handle").all()
    top_p.focus()
    page.keyboard.press("End")
    top_k.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    opened.until(f"() => document.querySelector('{DISTRIBUTION}').dataset.kept === '1'")
    assert svg.get_attribute("data-top") == "1.000000"
    before = page.evaluate(STATE), page.evaluate(WRITTEN)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    opened.until(f"() => document.querySelector('{DISTRIBUTION}').dataset.kept === '4'")
    assert page.evaluate(STATE) != before[0]

    page.keyboard.press("Home")
    temperature.focus()
    page.keyboard.press("End")
    opened.until("() => document.querySelector('.course-sampling .params').textContent.includes('temperature=2')")
    opened.until(f"([old]) => {WRITTEN} !== old", before[1])
    assert float(svg.get_attribute("data-top")) < 1
    assert page.locator(".course-sampling .params").inner_text().startswith("SamplingParams(temperature=2")


@only("00")
def test_sampling_widget_says_what_is_wrong_and_goes_on(opened, picture):
    page = opened.page
    before = page.evaluate(STATE)
    prompt = page.locator(".course-sampling input[type=text]").first
    first = prompt.input_value()
    prompt.fill("What is gravity? " * 300)
    page.keyboard.press("Enter")
    message = opened.locate(".course-sampling .course-message [role=alert]")
    assert "Not updated." in message.inner_text() and page.evaluate(STATE) == before
    picture(opened.locate(".course-sampling"), "sampling-message")
    prompt.fill(f"{first} Once")
    page.keyboard.press("Enter")
    opened.until(f"([old]) => {STATE} !== old && !document.querySelector('.course-message [role=alert]')", before)


@only("01")
def test_tokenizer_widget(opened, picture):
    page = opened.page
    tokens = opened.locate(TOKENS)
    both_themes(opened, picture, ".course-tokenizer", "tokenizer")
    box = page.locator(".course-tokenizer textarea")
    box.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("a<script>b")
    opened.until(f"() => document.querySelector('{TOKENS}').dataset.bytes === '10'")
    assert "".join(page.locator(f"{TOKENS} bdi").all_inner_texts()) == "a<script>b"
    assert tokens.locator("script").count() == 0
    page.keyboard.type("\n日本")
    opened.until(f"() => document.querySelector('{TOKENS}').dataset.bytes === '17'")
    assert "↵" in "".join(page.locator(f"{TOKENS} bdi").all_inner_texts())
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    opened.until(f"() => document.querySelector('{TOKENS}').dataset.tokens === '0'")
    page.keyboard.type("What is gravity?")
    opened.until(f"() => document.querySelector('{TOKENS}').dataset.bytes === '16'")
    assert int(tokens.get_attribute("data-tokens")) == page.locator(f"{TOKENS} li").count() > 1

    few = int(tokens.get_attribute("data-tokens"))
    choice = page.locator(".course-tokenizer select")
    choice.select_option(index=1)
    opened.until(f"([few]) => Number(document.querySelector('{TOKENS}').dataset.tokens) > few", few)
    choice.select_option("pocket")
    opened.until(f"([few]) => Number(document.querySelector('{TOKENS}').dataset.tokens) === few", few)

    box.focus()
    page.keyboard.press("Control+End")
    page.keyboard.type("<|endoftext|>")
    opened.until(f"() => document.querySelector('{TOKENS}').dataset.bytes === '29'")
    assert page.locator(f"{TOKENS} li.special").count() == 0, "the text of a special token is data"
    page.locator(".course-tokenizer input[type=checkbox]").focus()
    page.keyboard.press("Space")
    opened.until(f"() => document.querySelectorAll('{TOKENS} li.special').length === 1")
