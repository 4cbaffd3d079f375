"""The sampling laboratory of notebook 07 in a real JupyterLab, worked from the keyboard and timed."""

from statistics import median

import pytest

LAB = ".course-lab"
CHAIN = f"{LAB} .course-chain svg[data-kept]"
KEPT = f"document.querySelector('{CHAIN}').dataset.kept"
LINE = f"document.querySelector('{LAB} .course-chain .params').textContent"
TEXTS = f"[...document.querySelectorAll('{LAB} .course-texts li')].map(item => item.textContent)"
STALE = f"[...document.querySelectorAll('{LAB} .course-texts section')].map(column => column.className)"

# From a key press to the end of the frame in which the new picture is painted.
STOPWATCH = """([lab]) => {
    window.waits = [];
    let pressed = null;
    document.addEventListener('keydown', () => { pressed = performance.now(); }, true);
    new MutationObserver(() => {
        if (pressed === null) return;
        const since = pressed;
        pressed = null;
        requestAnimationFrame(() => setTimeout(() => window.waits.push(performance.now() - since)));
    }).observe(document.querySelector(lab + ' .course-picture'), {childList: true, subtree: true});
}"""

# How long the kernel takes to do nothing, in ms.
ECHO = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const asked = performance.now();
    await kernel.requestExecute({code: 'pass', silent: true}).done;
    return performance.now() - asked;
}"""
OWN_SHARE = 100  # ms that the laboratory may add to an empty request: 60 to 66 alone, 76 to 82 beside another browser


@pytest.fixture
def opened(root, notebook):
    """Notebook 07, all cells run; afterwards the page has had no error and asked nobody but the server."""
    [path] = root.glob("07_*.ipynb")
    notebook.open(path.name)
    notebook.run_all(timeout_s=300)
    yield notebook
    assert notebook.errors == []
    assert notebook.strangers == []


def knob(page, label):
    """The handle of the slider with this label."""
    return page.locator(f"{LAB} .widget-slider").filter(has_text=label).locator(".noUi-handle")


def test_the_sampling_lab(opened, picture):
    page = opened.page
    svg = opened.locate(CHAIN)
    assert svg.get_attribute("aria-label").startswith("Next-token distribution step by step")
    picture(opened.locate(LAB), "lab")

    # Every knob is reached by its label, answers the arrow keys, and shows in the line to copy.
    for label, name in (("repetition", "repetition_penalty"), ("presence", "presence_penalty"),
                        ("frequency", "frequency_penalty"), ("top-k", "top_k"), ("min-p", "min_p")):
        knob(page, label).focus()
        page.keyboard.press("ArrowRight")
        opened.until(f"([name]) => {LINE}.includes(name + '=')", name)
        page.keyboard.press("ArrowLeft")
        opened.until(f"([name]) => !{LINE}.includes(name + '=')", name)

    # What is removed says so, and the counts go down from step to step.
    knob(page, "top-k").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    opened.until(f"() => {LINE}.includes('top_k=3')")
    kept = [int(n) for n in page.evaluate(KEPT).split()]
    assert kept == sorted(kept, reverse=True) and kept[-1] <= 3
    shown = page.locator(f"{CHAIN} text").all_text_contents()
    assert "removed" in shown and not {"0.0 %", "0 %", "0.00 %"} & set(shown)
    assert any("top_k=3 removed" in step for step in page.locator(f"{LAB} .steps li").all_text_contents())
    picture(opened.locate(LAB), "lab-top-k")


def test_a_knob_adds_less_than_100_ms_to_an_empty_request(opened):
    page = opened.page
    opened.locate(CHAIN)
    page.evaluate(STOPWATCH, [LAB])
    knob(page, "temperature").focus()
    own = float("inf")
    for _ in range(3):  # a machine that does other things gets three tries
        echoes, done = [], len(page.evaluate("window.waits"))
        for press in range(20):
            before = page.evaluate(LINE)
            page.keyboard.press("ArrowRight" if press < 10 else "ArrowLeft")
            opened.until(f"([n, before]) => window.waits.length === n && {LINE} !== before", done + press + 1, before)
            echoes.append(page.evaluate(ECHO))
        waits = page.evaluate("window.waits")[done:]
        own = min(own, median(waits) - median(echoes))
        print(f"from key press to painted picture: median {median(waits):.0f} ms, longest {max(waits):.0f} ms; "
              f"an empty request: median {median(echoes):.0f} ms")
        if own < OWN_SHARE:
            break
    assert own < OWN_SHARE


def test_held_keys_queue_up_no_generations(opened, picture):
    page = opened.page
    opened.locate(CHAIN)
    assert page.evaluate(TEXTS) == [], "nothing is written before the button is pressed"
    knob(page, "top-k").focus()
    for _ in range(40):
        page.keyboard.down("ArrowRight")  # repeats, as a held key does
    page.keyboard.up("ArrowRight")
    opened.until(f"() => {LINE}.includes('top_k=40')", timeout_s=20)
    assert page.evaluate(TEXTS) == []

    button = page.locator(f"{LAB} button", has_text="Write")
    button.focus()
    for _ in range(10):
        page.keyboard.press("Enter")
    opened.until(f"() => {TEXTS}.length === 6")
    written = page.evaluate(TEXTS)
    assert page.evaluate(STALE) == ["fresh", "fresh"] and len(set(written)) > 1
    opened.until("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'")
    picture(opened.locate(LAB), "lab-texts")

    knob(page, "top-k").focus()
    page.keyboard.press("ArrowRight")
    opened.until(f"() => {STALE}.join() === 'stale,fresh'")
    assert page.evaluate(TEXTS) == written, "a knob marks the texts and leaves them"
    page.locator(f"{LAB} .widget-toggle-button", has_text="B").focus()
    page.keyboard.press("Enter")
    opened.until(f"() => {LINE}.includes('min_p=0.05')")
    assert "0.05" in page.locator(f"{LAB} .widget-slider").filter(has_text="min-p").inner_text()
