"""The notebooks as HTML pages, made without a network: every picture is there and says what it shows."""

import re
from functools import cache
from pathlib import Path

import pages
import prose
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


page = cache(pages.page)


@every_notebook
def test_every_picture_is_embedded_and_has_an_alt_text(path):
    pictures = re.findall(r"<img\b[^>]*>", page(path))
    assert len(pictures) >= 5
    for picture in pictures:
        alt = re.search(r'alt="([^"]+)"', picture)
        assert alt and len(alt[1]) > 40 and "No description" not in alt[1], picture[:200]
        assert re.search(r'src="data:image/(png|svg\+xml);base64,', picture), picture[:200]


@every_notebook
def test_formulas_need_no_network(path):
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<pre.*?</pre>|<code>.*?</code>", " ", page(path), flags=re.S)
    assert re.findall(r"(?<![\w\\])\$[^$\n]{1,80}\$(?!\d)", re.sub(r"<[^>]+>", " ", text)) == []


@every_notebook
def test_what_is_folded_closes_where_it_should(path):
    """nbconvert ends a `<details>` at a code fence inside it, and unfolds what follows."""
    for block in re.findall(r"<details>.*?</details>", page(path), flags=re.S):
        assert block.count("<summary>") == 1 and "```" not in block
    assert page(path).count("<details>") == page(path).count("</details>")


@every_notebook
def test_folded_cells_are_left_out(path):
    folded = [cell for cell in prose.read_as_is(path).cells if "hide-cell" in cell.metadata.get("tags", [])]
    assert folded and "Holds: " not in page(path)


def test_links_to_cells_of_other_notebooks_lead_to_cells_of_their_pages():
    links = re.findall(r'href="(\w+\.(?:html|ipynb))#([^"]+)"', page(NOTEBOOKS[17]))
    assert len(links) >= 27
    for name, anchor in links:
        assert name.endswith(".html") and f'id="{anchor}"' in page(NOTEBOOKS[0].parent / f"{name[:-5]}.ipynb"), name


def test_the_command_writes_pages(tmp_path, capsys):
    assert pages.main(["--out", str(tmp_path / "out"), str(NOTEBOOKS[0])]) == 0
    text = (tmp_path / "out" / f"{NOTEBOOKS[0].stem}.html").read_text("utf-8")
    assert text == page(NOTEBOOKS[0]) and "@media print" in text
