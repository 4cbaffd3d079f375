"""Sheets as Chromium prints them: nothing is cut off at the edge of the paper, and the PDF has it all."""

import re
from pathlib import Path

import pytest

from course_lib.classroom.checks import notebooks
from course_lib.classroom.teaching import handout
from course_lib.classroom.teaching.notebook_files import notebook_file

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MARGINS = 32  # mm, left and right together
WIDTHS = {"A4": 210 - MARGINS, "letter": 216 - MARGINS}  # mm
HEIGHT = 297 - 35  # mm between the margins
PIXELS = 96 / 25.4  # of a mm

# What is wider than the paper, and what may not be split but is higher than a page.
FAULTS = """([width, height]) => {
    const faults = [], name = element => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`;
    for (const element of document.body.querySelectorAll('*')) {
        const box = element.getBoundingClientRect();
        if (box.right > width + 1 || element.scrollWidth > Math.max(element.clientWidth, 1) + 1
            && getComputedStyle(element).display !== 'inline') faults.push(`wide: ${name(element)}`);
        if (getComputedStyle(element).breakInside === 'avoid' && box.height > height)
            faults.push(`high: ${name(element)}`);
    }
    for (const image of document.images)
        if (!image.naturalWidth || image.offsetWidth < 150)
            faults.push(`picture of ${image.offsetWidth}: ${image.alt}`);
    return faults;
}"""


@pytest.fixture
def paper(browser, tmp_path):
    """A function that lays a page out as wide as the paper's text, and returns the page."""
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()

    def lay_out(html, size="A4"):
        (tmp_path / "sheet.html").write_text(html, encoding="utf-8")
        page.set_viewport_size({"width": int(WIDTHS[size] * PIXELS), "height": 1000})
        page.emulate_media(media="print")
        page.goto((tmp_path / "sheet.html").as_uri())
        return page

    yield lay_out
    context.close()


def faults(page, size="A4"):
    return page.evaluate(FAULTS, [int(WIDTHS[size] * PIXELS), HEIGHT * PIXELS])


@pytest.mark.parametrize("number", notebooks())
def test_nothing_is_cut_off(number, paper):
    path = notebook_file(number, NOTEBOOKS)
    assert faults(paper(handout.page(path))) == []
    assert faults(paper(handout.page(path, paper="letter", exercises_only=True), "letter"), "letter") == []


def test_the_measure_sees_what_is_cut_off(paper):
    page = paper(handout.page(notebook_file("03", NOTEBOOKS)))
    page.evaluate("document.querySelector('pre').style.whiteSpace = 'pre'")
    page.evaluate("document.querySelector('pre').textContent = 'x'.repeat(200)")
    page.evaluate("document.querySelector('figure').style.height = '300mm'")
    assert {fault.split(":")[0] for fault in faults(page)} == {"wide", "high"}


@pytest.mark.parametrize("size, box", [("A4", (595, 842)), ("letter", (612, 792))])
def test_a_pdf_has_pages_of_its_paper_and_the_key_on_its_own(size, box):
    path = notebook_file("03", NOTEBOOKS)
    with_key, without = (handout.pdf(handout.page(path, paper=size, exercises_only=True, key=key))
                         for key in (True, False))
    assert with_key.startswith(b"%PDF")
    boxes = {tuple(round(float(number)) for number in found.split()[2:])
             for found in re.findall(rb"/MediaBox ?\[([^]]*)\]", with_key)}
    assert boxes == {box}
    count, fewer = (len(re.findall(rb"/Type ?/Page\b", pdf)) for pdf in (with_key, without))
    assert fewer >= 3 and count >= fewer + 1
