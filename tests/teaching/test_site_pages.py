"""What the site is staged from: links that lead somewhere, prose that is prose, exercises that fold, API pages."""

import ast
import doctest
import importlib
import json
import re
from pathlib import Path

import pytest
import yaml
from drawings import markdown

from book.tools import api, stage
from book.tools.docstrings import as_markdown
from book.tools.drawings import two_papers
from book.tools.markdown import BLANK, prose, with_links, with_pictures, with_terms
from book.tools.notebooks import FOLD_ENDS, notebook
from book.tools.pages import course_map, glossary_page, markdown_page
from book.tools.places import Places, relative
from course_lib.classroom.course_map import CHAPTERS, notebooks_folder
from course_lib.classroom.glossary import Term

ROOT = Path(__file__).parents[2]
CACHE = Term("cache", "08", "work", 'What is "kept".')


def visible(text):
    return prose(text).replace(BLANK, "").split()


# Prose


@pytest.mark.parametrize("text", [
    "# The cache", "```python\ncache\n```", "~~~\ncache\n~~~", "`cache`", "``a ` cache``", "[the cache](x.md)",
    "[`cache`](x.md \"cache\")", "![a cache](cache.svg)", "![a cache](cache.svg)\n*the cache*", "| cache | 1 |",
    "<details><summary>cache</summary>\n\ncache\n\n</details>", "<div>\ncache\n</div>", "    cache",
    "<a href='x'>cache</a>", "<b title='cache'></b>", "https://x.org/cache", "<!-- cache -->",
    "[a [nested] cache](x.md)", "> ```\n> x\n> ```\n\n```\ncache\n```",
])
def test_what_is_not_prose(text):
    assert "cache" not in visible(text)


@pytest.mark.parametrize("text", [
    "a cache here", "**cache** is", "> **Predict.** A cache", "*cache* is", "<em>cache</em> is", "- cache",
    "`x` cache `y`", "[x](y.md) cache [x](y.md)", "1 < 2, cache, 3 > 2", "`a`\n\ncache\n\n`b`", "x [1] cache (2)",
])
def test_what_is_prose(text):
    assert any("cache" in word for word in visible(text))


def test_blanking_moves_nothing():
    text = "# a\n`b` c [d](e)\n<details>f\n</details> g"
    assert len(prose(text)) == len(text) and prose(text).count("\n") == text.count("\n")
    assert prose(text)[text.index("c")] == "c" and prose(text)[text.rindex("g")] == "g"


def test_a_term_is_linked_once_and_says_what_it_means():
    seen = set()
    assert with_terms("# Cache\n\nA cache, a cache.", (CACHE,), seen) == \
        '# Cache\n\nA [cache](glossary.html#term-cache "What is &quot;kept&quot;."), a cache.'
    assert with_terms("A cache.", (CACHE,), seen) == "A cache."


def test_only_addresses_of_links_change():
    text = '[a](b) `[a](b)` ![a](b) <a href="b">b</a>\n```\n[a](b)\n```\n[![x](b)](b) [a](b "b")'
    assert with_links(text, lambda address: address * 2) == \
        '[a](bb) `[a](b)` ![a](b) <a href="bb">b</a>\n```\n[a](b)\n```\n[![x](b)](bb) [a](bb "b")'
    assert with_pictures("![a [1]](b.svg) `![a](b)`", str.upper) == "![A [1]](B.SVG) `![a](b)`"


# Links


@pytest.mark.parametrize("link, source, page, address", [
    ("04_transformer_block.ipynb#cell-id=lines", "notebooks/03_attention.ipynb", "03_attention",
     "04_transformer_block.html#cell-id=lines"),
    ("../course_lib/layers.py", "notebooks/03_attention.ipynb", "03_attention", "api/layers.html"),
    ("../course_lib/training/guidance.py", "notebooks/03_attention.ipynb", "03_attention",
     "api/training.html#guidance"),
    ("../course_lib/display/diagrams/drawing.py", "book/drawings.md", "drawings",
     "api/display.html#diagrams.drawing"),
    ("../course_lib/models/pocket/README.md", "notebooks/00_x.ipynb", "00_x", "model_card.html"),
    ("../notebooks/03_attention.ipynb#cell-id=hand", "teaching/03_attention.md", "teaching/03_attention",
     "../03_attention.html#cell-id=hand"),
    ("../course_lib/training/shapes.csv", "notebooks/05_x.ipynb", "05_x",
     "files/course_lib/training/shapes.csv.txt"),
    ("../course_lib/classroom/checks/nb08.py", "book/stage.md", "stage",
     "files/course_lib/classroom/checks/nb08.py.txt"),
    ("glossary.md", "book/index.md", "index", "glossary.html"),
    ("api/index.md", "book/index.md", "index", "api/index.html"),
    ("LICENSE", "CONTRIBUTING.md", "contributing", "files/LICENSE.txt"),
    ("https://example.org/a.md#b", "CONTRIBUTING.md", "contributing", "https://example.org/a.md#b"),
    ("#a", "CONTRIBUTING.md", "contributing", "#a"),
])
def test_a_link_of_a_file_leads_to_a_page(link, source, page, address):
    assert Places().address(link, source=source, page=page) == address


@pytest.mark.parametrize("link", ["03_atention.ipynb", "../course_lib/nothing.py", "glossary.md"])
def test_a_dead_link_stops_the_build(link):
    with pytest.raises(ValueError, match=re.escape(f"link in notebooks/x.ipynb = '{link}'")):
        Places().address(link, source="notebooks/x.ipynb", page="x")


def test_a_file_without_a_page_is_copied():
    places = Places()
    places.address("../Makefile", source="book/index.md", page="index")
    assert places.files == {"Makefile"}
    with pytest.raises(ValueError, match="a file, or something that has a page"):
        places.address("../tests/tools", source="book/index.md", page="index")


def test_addresses_are_seen_from_the_page():
    assert relative("images/x.svg", "teaching/wrong_answers/03") == "../../images/x.svg"


# Notebooks


def cells(tmp_path, *staged, terms=()):
    path = tmp_path / "03_attention.ipynb"
    records = [{"cell_type": kind, "id": name, "metadata": {}, "source": source,
                **({"outputs": outputs, "execution_count": 1} if kind == "code" else {})}
               for kind, name, source, *outputs in staged]
    path.write_text(json.dumps({"cells": records, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return json.loads(notebook(path, Places(), terms))["cells"]


CARD = ("markdown", "card", "Before.\n\n### Exercise 3.1 · build · 8 min · core\n\nWrite it.")
STUB, HELP = ("code", "stub", "..."), ("code", "help", "# Stuck?")


def test_a_card_is_cut_where_its_exercise_begins_and_closed_after_the_help(tmp_path):
    made = [cell["source"] for cell in cells(tmp_path, CARD, STUB, HELP, ("markdown", "next", "After."))]
    assert made[0].endswith("Before.") and made[1].startswith("### Exercise 3.1") and made[1].endswith("Write it.")
    assert made[3] == "..." and made[5] == "# Stuck?" and made[6] == FOLD_ENDS and made[7].endswith("After.")


def test_an_exercise_that_is_not_whole_stops_the_build(tmp_path):
    with pytest.raises(ValueError, match="03_attention: cell in an exercise = 'between'"):
        cells(tmp_path, CARD, STUB, ("markdown", "between", "Well."), HELP)


def test_every_cell_has_its_place_and_the_title_stays_first(tmp_path):
    made = cells(tmp_path, ("markdown", "title", "# 03 · Attention\n\nText."), ("code", "a", "1"))
    place = '<div id="cell-id={}" class="place"></div>'.format
    assert made[0]["source"] == f"# 03 · Attention\n\n{place('title')}\n\nText."
    assert [cell["source"] for cell in made[1:]] == [place("a"), "1"]


def test_a_drawing_is_there_for_both_papers_and_a_photograph_once(tmp_path):
    [made] = cells(tmp_path, ("markdown", "a", "![x](images/a.svg)\n\n![y](images/b.png)"))
    assert "![x](images/a.svg){.only-light}![x](images/a.dark.svg){.only-dark}" in made["source"]
    assert made["source"].endswith("![y](images/b.png)")


def test_links_in_outputs_lead_to_pages(tmp_path):
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {
        "text/html": '<a href="08_kv_cache.ipynb">x</a>', "text/markdown": "[x](01_tokenizer.ipynb#cell-id=a)"}}
    _, made = cells(tmp_path, ("code", "a", "1", output))
    assert made["outputs"][0]["data"] == {"text/html": '<a href="08_kv_cache.html">x</a>',
                                          "text/markdown": "[x](01_tokenizer.html#cell-id=a)"}


def test_a_file_that_a_text_names_is_linked(tmp_path):
    [made] = cells(tmp_path, ("markdown", "a", "Here: `course_lib/layers.py`, "
                                               "[`course_lib/model.py`](../course_lib/model.py)."))
    assert made["source"].endswith("Here: [`course_lib/layers.py`](api/layers.html), "
                                   "[`course_lib/model.py`](api/model.html).")


def test_the_first_use_in_a_notebook_is_linked(tmp_path):
    made = cells(tmp_path, ("markdown", "a", "## Cache"), ("markdown", "b", "A cache."), ("markdown", "c", "A cache."),
                 terms=(CACHE,))
    assert [cell["source"].count("glossary.html") for cell in made] == [0, 1, 0]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_every_notebook_can_be_staged(chapter):
    path = notebooks_folder() / f"{chapter.file}.ipynb"
    source, made = path.read_text("utf-8"), notebook(path, Places(), ())
    assert made.count(json.dumps(FOLD_ENDS)) == len(re.findall(r'"### Exercise \d', source)) >= 3
    before, after = ([cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
                     for text in (source, made))
    assert [cell["source"] for cell in before] == [cell["source"] for cell in after]
    assert not re.search(r"\]\([^)\s]*\.ipynb", made)


# Drawings


def test_each_paper_has_its_own_colours():
    svg = (notebooks_folder() / "images/08_ring.svg").read_text("utf-8")
    light, dark = two_papers(svg)
    assert "@media" not in light + dark and ".f-ink{fill:#e8eaed}" in dark and ".f-ink{" not in light
    with pytest.raises(ValueError, match="colours for dark paper = 0"):
        two_papers("<svg></svg>")


# Pages


def test_the_map_links_every_notebook_and_says_its_minutes():
    rows = course_map().split("\n")[2:]
    assert len(rows) == len(CHAPTERS)
    assert all(re.search(rf"\[{re.escape(chapter.title)}\]\({chapter.file}\.html\).*\| \d\d \+ \d+ \|$", row)
               for chapter, row in zip(CHAPTERS, rows))


def test_pictures_of_the_sites_own_pages_have_the_alt_texts_of_the_catalogue():
    found = [picture for path in (ROOT / "book").glob("*.md")
             for picture in re.findall(r"!\[[^\]]*\]\(\.\./notebooks/images/\w+\.svg\)", path.read_text("utf-8"))]
    assert len(found) >= 4
    for picture in found:
        assert picture.replace("../notebooks/", "") == markdown(picture[picture.rindex("/") + 1:-5])


def test_a_term_leads_back_to_the_cell_that_defines_it():
    page = glossary_page((CACHE, Term("top-k", "07", "cut", "Few are left.", ("top k",))))
    assert '<div id="term-cache" class="place"></div>\n\n**cache**\\\nWhat is "kept".' in page
    assert "[08, KV cache](08_kv_cache.html#cell-id=work)" in page and "*(also: top k)*" in page
    assert page.index("## C") < page.index("cache**") < page.index("## T")


def test_pictures_of_other_pages_come_from_the_folder_of_images(tmp_path):
    for name in ("notebooks/images", "teaching"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "teaching/x.md").write_text("![a](../notebooks/images/a.svg)")
    page, text = markdown_page("teaching/x.md", Places(tmp_path), root=tmp_path)
    assert page == "teaching/x"
    assert text == "![a](../images/a.svg){.only-light}![a](../images/a.dark.svg){.only-dark}"


def test_the_table_of_contents_holds_every_page_once():
    texts = {name: "" for name in ("teaching/03_attention", "teaching/README", "teaching/wrong_answers/03",
                                   "teaching/wrong_answers/05", "teaching/a_term", "api/model", "api/index", "index",
                                   "glossary", "claims", "model_card", *stage.MADE)}
    contents = stage.contents(texts)
    named = re.findall(r"file: (\S+)", yaml.safe_dump(contents))
    assert sorted([*named, "index"]) == sorted([*texts, *(chapter.file for chapter in CHAPTERS)])
    assert contents["parts"][2]["chapters"] == [
        {"file": "teaching/README"},
        {"file": "teaching/03_attention", "sections": [{"file": "teaching/wrong_answers/03"}]},
        {"file": "teaching/a_term"}, {"file": "teaching/wrong_answers/05"}]


# The library


@pytest.fixture(scope="module")
def pages():
    return api.pages()


def test_there_is_a_page_for_every_stage_and_every_room(pages):
    stages = {path.stem for path in (ROOT / "course_lib").glob("*.py") if not path.stem.startswith("__")}
    assert set(pages) == {f"api/{name}" for name in {*stages, "server", "training", "analysis", "display",
                                                     "classroom", "index"}}
    assert {*re.findall(r"\]\((\w+)\.html\)", pages["api/index"])} >= stages


def test_a_page_says_what_the_docstring_says(pages):
    page = pages["api/kv_cache"]
    assert "Keys and values of the positions already seen" in page and "### `DynamicCache.crop`" in page
    assert "def crop(self, length: int) -> None" in page and "Forget every position from `length` on" in page
    assert "[`load`](checkpoint.html#load)" in pages["api/index"] and '<div id="load"' in pages["api/checkpoint"]


def test_answers_are_not_shown(pages):
    assert "write_in_place" not in pages["api/classroom"] and "answers" in pages["api/classroom"]


def test_a_docstring_as_markdown():
    text = as_markdown("""Half of a_b * 2.

    Args:
        x, y: numbers, >= 0,
            not both.
        *rest: more.

    Raises:
        ValueError: x < 0.

    >>> half(
    ...     2)
    1
    >>> half(4)
    2

    The end.
    """)
    assert text == r"""Half of a\_b \* 2.


**Args**

- `x, y`: numbers, >= 0, not both.
- `*rest`: more.


**Raises**

- `ValueError`: x \< 0.

```pycon
>>> half(
...     2)
1
>>> half(4)
2
```

The end."""


@pytest.mark.parametrize("source, written", [
    ("def f(a, b: int=1, *, c=2) -> int: ...", "def f(a, b: int = 1, *, c=2) -> int"),
    ("def f(a, /, *b: int, **c): ...", "def f(a, /, *b: int, **c)"),
    ("async def f(): ...", "async def f()"),
    ("@property\ndef f(self): ...", "@property\ndef f(self)"),
    ("class A(B):\n def __init__(self, a: int): ...", "class A(B)\n\nA(a: int)"),
    ("def f(a: dict[str, int], b: tuple[int, ...] = (1, 2), *, long_name: int = 3, longer_name: str = 'x, y'): ...",
     "def f(\n    a: dict[str, int],\n    b: tuple[int, ...] = (1, 2),\n    *,\n    long_name: int = 3,\n"
     "    longer_name: str = 'x, y',\n)"),
])
def test_a_signature_as_it_is_written(source, written):
    [node] = ast.parse(source).body
    assert api.signature(node) == written


# The tools of the site


def test_requirements_are_flat():
    _, *lines = (ROOT / "book/requirements.txt").read_text().splitlines()
    assert len(lines) > 50 and lines == [line for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)]


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(ValueError, match="holds something else"):
        stage.main([str(tmp_path)])
    assert (tmp_path / "letters.txt").read_text() == "dear"


@pytest.mark.parametrize("path", sorted((ROOT / "book/tools").glob("*.py")), ids=lambda path: path.stem)
def test_examples_in_docstrings(path):
    assert doctest.testmod(importlib.import_module(f"book.tools.{path.stem}")).failed == 0
