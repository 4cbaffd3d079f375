"""The site as a reader gets it: every page in Chromium, every link, search, theme, a phone, and what folds.

`make test-browser` builds it first, in build/site. COURSE_SITE names another folder.
"""

import os
import re
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

from course_lib.classroom.checks import exercises_of
from course_lib.classroom.course_map import CHAPTERS
from course_lib.classroom.glossary import glossary

SITE = Path(os.environ.get("COURSE_SITE", Path(__file__).parents[2] / "build/site"))
NOTEBOOKS = [f"{chapter.file}.html" for chapter in CHAPTERS]
OTHERS = ["index.html", "glossary.html", "claims.html", "model_card.html", "architecture.html", "stage.html",
          "weights.html", "drawings.html", "contributing.html", "api/index.html", "api/kv_cache.html",
          "api/training.html"]
WITHOUT_TEXT = {"genindex.html", "search.html"}  # Sphinx makes them
SLOW_MS = 30_000
BROKEN = """() => [...document.images].filter(image => !image.complete || !image.naturalWidth).map(image => image.src)
"""
WIDER = """() => document.scrollingElement.scrollWidth - innerWidth"""
DARKNESS = """selector => {
    const found = document.querySelector(selector);
    return getComputedStyle(found).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number);
}"""

# Texts that hardly stand out from what is painted under them: a contrast below 3, as WCAG computes it.
FAINT = """() => {
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(x => x / 255)
        .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
        .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
    const under = element => {
        for (let one = element; one; one = one.parentElement) {
            const color = numbers(getComputedStyle(one).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const faint = [], walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
        if (!text || element.closest('svg, script, style') || !element.checkVisibility()) continue;
        const [a, b] = [numbers(getComputedStyle(element).color), under(element)].map(light).sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 3) faint.push(text.slice(0, 60));
    }
    return faint;
}"""


class Anchors(HTMLParser):
    """Addresses that a page names, and the places in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.places = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.places += [attributes[name] for name in ("id", "name") if attributes.get(name) and tag != "meta"]
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag in ("script", "img", "iframe", "source"):
            self.loaded += [attributes["src"]] if attributes.get("src") else []
        if tag == "link" and attributes.get("rel") not in ("next", "prev", "search", "index", "canonical"):
            self.loaded.append(attributes["href"])


@pytest.fixture(scope="module")
def pages():
    """Every page by its address inside the site."""
    assert (SITE / "index.html").exists(), f"there is no site in {SITE}: run make site"
    return {path.relative_to(SITE).as_posix(): Anchors(path.read_text("utf-8")) for path in SITE.rglob("*.html")
            if path.relative_to(SITE).parts[0] not in ("_static", "files")}


@pytest.fixture(scope="module")
def address():
    """The site on a free port of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def end_headers(self):
            self.send_header("Cache-Control", "max-age=600")
            super().end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Reader:
    """A browser page that writes down what goes wrong, and who is asked for something."""

    def __init__(self, page, address):
        self.page, self.address, self.errors, self.strangers = page, address, [], []
        page.set_default_timeout(SLOW_MS)
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self.asked)

    def asked(self, request):
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.strangers.append(request.url)

    def open(self, name):
        self.page.goto(self.address + name, wait_until="load")
        return self.page


@pytest.fixture
def reader(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    reader = Reader(context.new_page(), address)
    yield reader
    context.close()
    assert reader.errors == [] and reader.strangers == []


# Links, without a browser


def test_the_pages_are_there(pages):
    assert {*NOTEBOOKS, *OTHERS, "search.html"} <= set(pages)


def test_no_link_is_dead(pages):
    dead = []
    for name, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            target, place = urldefrag(urljoin(name, link))
            target = unquote(target)
            if not (SITE / target).is_file():
                dead.append((name, link))
            elif place and target in pages and unquote(place) not in pages[target].places:
                dead.append((name, link))
    assert dead == []


def test_no_page_loads_anything_from_elsewhere(pages):
    assert [(name, address) for name, page in pages.items() for address in page.loaded
            if urlsplit(address).scheme not in ("", "data") or address.startswith("//")] == []


def test_no_place_is_there_twice(pages):
    twice = {name: {place for place in page.places if page.places.count(place) > 1} for name, page in pages.items()
             if name in NOTEBOOKS}
    assert {name: places for name, places in twice.items() if places} == {}


def test_next_and_previous_lead_through_all_notebooks(pages):
    for first, second in zip(["index.html", *NOTEBOOKS], NOTEBOOKS):
        text = (SITE / first).read_text("utf-8")
        [after] = re.findall(r'<a class="right-next"\s+href="([^"]+)"', text)
        [before] = re.findall(r'<a class="left-prev"\s+href="([^"]+)"', (SITE / second).read_text("utf-8"))
        assert (after, before) == (second, first)


def test_every_term_leads_to_its_cell_and_its_first_use_to_the_glossary(pages):
    files = {chapter.number: f"{chapter.file}.html" for chapter in CHAPTERS}
    assert {f"{files[term.notebook]}#cell-id={term.cell}" for term in glossary()} <= {*pages["glossary.html"].links}
    for name in NOTEBOOKS:
        terms = [link for link in pages[name].links if link.startswith("glossary.html#")]
        assert terms and len(set(terms)) == len(terms), name


# In Chromium


def test_every_page_opens_on_a_phone(reader, pages):
    """Nothing is asked from outside, nothing is broken, and nothing is wider than the screen."""
    reader.page.set_viewport_size({"width": 390, "height": 844})
    wrong = {}
    for name in sorted(pages):
        page = reader.open(name)
        found = [*page.evaluate(BROKEN), *reader.errors, *reader.strangers]
        found += [f"{wider} pixels too wide"] if (wider := page.evaluate(WIDER)) > 0 else []
        found += [] if name in WITHOUT_TEXT or page.locator(".bd-article h1").count() else ["no title"]
        wrong |= {name: found} if found else {}
        reader.errors.clear()
        reader.strangers.clear()
    assert wrong == {}


CUT = """() => [...document.querySelectorAll('.cell_input pre')].filter(pre => pre.scrollWidth > pre.clientWidth + 1)
    .map(pre => pre.innerText.slice(0, 40))"""


@pytest.mark.parametrize("width", [1280, 1440])
def test_code_can_be_read_without_scrolling_on_a_laptop(reader, width):
    reader.page.set_viewport_size({"width": width, "height": 800})
    cut = {name: reader.open(name).evaluate(CUT) for name in NOTEBOOKS}
    assert {name: cells for name, cells in cut.items() if cells} == {}


def test_the_search_finds_speculative_decoding(reader):
    page = reader.open("search.html?q=speculative")
    found = page.locator("#search-results ul.search a[href^='12_speculative_decoding']")
    found.first.wait_for()
    assert found.count() >= 1


@pytest.mark.parametrize("name", ["03_attention.html", "index.html"])
def test_the_theme_is_switched_and_kept(reader, name):
    page = reader.open(name)
    page.evaluate("() => { localStorage.setItem('mode', 'light'); localStorage.setItem('theme', 'light'); }")
    page.reload()
    assert min(page.evaluate(DARKNESS, "body")) > 230
    drawings = page.locator(".bd-article img.only-light"), page.locator(".bd-article img.only-dark")
    assert drawings[0].first.is_visible() and not drawings[1].first.is_visible()
    button = page.locator("button.theme-switch-button:visible").first
    for _ in range(3):  # light, dark, as the system says
        if page.locator("html").get_attribute("data-theme") != "dark":
            button.click()
    assert max(page.evaluate(DARKNESS, "body")) < 60
    assert drawings[1].first.is_visible() and not drawings[0].first.is_visible()
    reader.open("glossary.html")
    assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_told_from_its_paper(reader, theme):
    page = reader.open("index.html")
    page.evaluate("theme => { localStorage.setItem('mode', theme); localStorage.setItem('theme', theme); }", theme)
    faint = {}
    for name in [*NOTEBOOKS, *OTHERS]:
        reader.open(name)
        assert page.locator("html").get_attribute("data-theme") == theme
        faint[name] = page.evaluate(FAINT)
    assert {name: texts for name, texts in faint.items() if texts} == {}


def test_no_table_stays_as_it_was_typed(pages):
    assert [name for name in pages if re.search(r"\|\s*:?-{3,}:?\s*\|", (SITE / name).read_text("utf-8"))] == []


def test_an_exercise_folds_with_its_function_and_its_help(reader):
    page = reader.open("03_attention.html")
    blocks = page.locator("details.exercise")
    assert blocks.count() == len(exercises_of("03"))
    block = blocks.first
    inside = [block.locator("p").first, block.get_by_text("def attention_weights"), block.get_by_text("# Stuck?")]
    assert all(part.is_visible() for part in inside)
    block.locator("summary").first.click()
    assert not any(part.is_visible() for part in inside) and block.locator("h3").is_visible()
    block.locator("summary").first.click()
    assert all(part.is_visible() for part in inside)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_the_exercises_of_a_notebook_are_blocks(pages, chapter):
    text = (SITE / f"{chapter.file}.html").read_text("utf-8")
    assert text.count('<details class="exercise" open>') == len(exercises_of(chapter.number))


def test_an_option_of_the_quiz_unfolds(reader):
    page = reader.open("03_attention.html")
    option = page.locator(".course-quiz details").first
    reason = option.locator("p")
    assert not reason.is_visible()
    option.locator("summary").click()
    assert reason.is_visible() and re.match(r"✓ Right\.|✗ No\.", reason.inner_text())


def test_what_is_checked_is_folded_away(reader):
    page = reader.open("03_attention.html")
    cell = page.locator("div.cell.tag_hide-cell").first
    assert not cell.get_by_text("Holds: this is softmax over the keys.").is_visible()
    cell.locator("summary").first.click()
    assert cell.get_by_text("Holds: this is softmax over the keys.").is_visible()


def test_a_link_to_a_cell_lands_on_it(reader):
    page = reader.open("claims.html")
    page.locator("a[href*='03_attention.html#cell-id=leak']").first.click()
    page.wait_for_url("**/03_attention.html#cell-id=leak")
    page.get_by_text("changed = x.clone()").wait_for()
    assert 0 <= page.locator("[id='cell-id=leak']").bounding_box()["y"] < 450


def test_it_opens_without_a_server(browser):
    """From a folder, as from a memory stick; the address of a file is its own origin."""
    page = browser.new_page()
    reader = Reader(page, SITE.resolve().as_uri() + "/")
    reader.open("03_attention.html")
    assert page.locator(".bd-article h1").inner_text().startswith("03 · Attention") and page.evaluate(BROKEN) == []
    assert reader.errors == [] and reader.strangers == []
    page.close()
