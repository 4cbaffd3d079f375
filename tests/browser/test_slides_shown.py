"""Slides in a browser, from a file: nothing lies outside a slide, keys work, and nothing is asked of the network."""

from pathlib import Path

import pytest

from course_lib.classroom.checks import notebooks
from course_lib.classroom.teaching import slides
from course_lib.classroom.teaching.notebook_files import notebook_file

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SMALLEST_TYPE, SMALLEST_PICTURE = 12, 200  # pixels of 720

# What of the slide that is shown lies outside it, is cut off, or is too small to read from the last row.
FAULTS = """([type, picture]) => {
    const slide = Reveal.getCurrentSlide(), frame = slide.getBoundingClientRect(), faults = [];
    const name = element => `${element.tagName} ${element.className} ${element.textContent.slice(0, 30)}`;
    if (frame.width < 1279 || frame.height < 719) faults.push(`the slide is ${frame.width} x ${frame.height}`);
    for (const element of slide.querySelectorAll('h2, .section, .block, .block *')) {
        const box = element.getBoundingClientRect();
        if (box.right > frame.right + 1 || box.bottom > frame.bottom + 1 || box.left < frame.left - 1 || box.top < -1)
            faults.push(`outside: ${name(element)}`);
    }
    for (const element of slide.querySelectorAll('.body, pre'))
        if (element.scrollHeight > element.clientHeight + 1 || element.scrollWidth > element.clientWidth + 1)
            faults.push(`cut off: ${name(element)}`);
    const zoom = Number(slide.querySelector('.stack').style.zoom || 1);
    for (const element of slide.querySelectorAll('.block'))
        if (zoom * parseFloat(getComputedStyle(element.querySelector('pre') ?? element).fontSize) < type)
            faults.push(`too small: ${name(element)}`);
    for (const image of slide.querySelectorAll('img')) {
        const {width, height} = image.getBoundingClientRect();
        if (!image.naturalWidth || Math.max(width, height) < picture) faults.push(`picture of ${width} x ${height}`);
    }
    return faults.map(fault => `slide ${Reveal.getSlidePastCount() + 1}, ${slide.ariaLabel}: ${fault}`);
}"""
READY = "() => window.Reveal?.isReady?.()"


class Show:
    """Slides on a screen of 1280 x 720, and what the page complained of or asked for."""

    def __init__(self, browser, path):
        self.context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="dark")
        self.page, self.complaints = self.context.new_page(), []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text)
                     if message.type in ("error", "warning") else None)
        self.page.on("request", lambda request: self.complaints.append(request.url)
                     if not request.url.startswith((path.as_uri(), "data:")) else None)
        self.page.goto(path.as_uri())
        self.page.wait_for_function(READY)

    def faults(self):
        """The faults of all slides, with every fragment shown."""
        found = []
        for index in range(self.page.evaluate("Reveal.getTotalSlides()")):
            self.page.evaluate("([index]) => Reveal.slide(index, 0, 99)", [index])
            found += self.page.evaluate(FAULTS, [SMALLEST_TYPE, SMALLEST_PICTURE])
        return found


@pytest.fixture
def show(browser, tmp_path):
    shows = []

    def open_page(html):
        (tmp_path / "slides.html").write_text(html, encoding="utf-8")
        shows.append(Show(browser, tmp_path / "slides.html"))
        return shows[-1]

    yield open_page
    for one in shows:
        one.context.close()


@pytest.mark.parametrize("number", notebooks())
def test_nothing_lies_outside_a_slide(number, show):
    made = show(slides.page(notebook_file(number, NOTEBOOKS)))
    assert made.page.evaluate("Reveal.getTotalSlides()") >= 6
    assert made.faults() == [] and made.complaints == []
    assert made.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def with_blocks(blocks):
    """A page with one slide."""
    made = slides.page(notebook_file("03", NOTEBOOKS))
    head, tail = made.index("<section "), made.rindex("</section>")
    return (f'{made[:head]}<section class="plain" aria-label="Full"><h2>Full</h2><div class="body"><div class="stack">'
            f'{blocks}</div></div><aside class="notes">Say it.</aside>{made[tail:]}')


PARAGRAPH = f'<div class="block paragraph"><p>{"A few words more. " * 30}</p></div>'
QUESTION = '<div class="block quote"><blockquote>Why?</blockquote></div><div class="block answer fragment">So.</div>'


@pytest.mark.parametrize("blocks, least", [
    (f'<div class="block output"><pre>{"x" * 400}</pre></div>', 1),
    (f'<div class="block code"><pre>{"0123456789" * 8}\n</pre></div>' * 12, 1),
    (PARAGRAPH * 12, 3),
    (QUESTION * 9, 2),
], ids=["a line of 400 characters", "twelve cells", "twelve paragraphs", "nine questions"])
def test_too_much_goes_on_on_another_slide(blocks, least, show):
    made = show(with_blocks(blocks))
    assert made.faults() == [] and made.page.evaluate("Reveal.getTotalSlides()") >= least
    shown = made.page.evaluate("[...document.querySelectorAll('.block')].length")
    assert shown == blocks.count('class="block'), "nothing is lost"


def test_the_measure_sees_what_does_not_fit(show):
    made = show(with_blocks('<div class="block paragraph"><p>Short.</p></div>'))
    assert made.faults() == []
    made.page.evaluate("document.querySelector('.block').style.cssText = 'font-size: 300px; width: 1500px'")
    assert {fault.split(": ")[1] for fault in made.faults()} >= {"outside", "cut off"}
    made.page.evaluate("document.querySelector('.block').style.cssText = 'font-size: 9px'")
    assert {fault.split(": ")[1] for fault in made.faults()} == {"too small"}


def test_keys_show_an_answer_then_what_follows_and_then_the_next_slide(show):
    html = with_blocks('<div class="block quote"><blockquote>Why?</blockquote></div>'
                       '<div class="block answer fragment" data-fragment-index="1">So.</div>'
                       '<div class="block output fragment" data-fragment-index="2"><pre>3</pre></div>')
    page = show(html).page
    for visible in ([False, False], [True, False], [True, True]):
        seen = [page.locator(f".block.{kind}").evaluate("e => getComputedStyle(e).visibility") == "visible"
                for kind in ("answer", "output")]
        assert seen == visible
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(300)


def test_the_speaker_sees_the_notes(show):
    made = show(with_blocks('<div class="block paragraph"><p>Short.</p></div>'))
    with made.context.expect_page() as opened:
        made.page.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    notes.get_by_text("Say it.").wait_for(timeout=20_000)
