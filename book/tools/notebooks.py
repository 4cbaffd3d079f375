"""The notebooks as the site needs them: places for links, drawings for both papers, exercises that fold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.tools.markdown import with_links, with_pictures, with_terms
from book.tools.places import Places
from course_lib.classroom.glossary import Term
from course_lib.config import require

Cell = dict[str, Any]
EXERCISE = re.compile(r"^### Exercise \d+\.\d+", re.M)
FOLD_ENDS = "</details><!-- exercise -->"  # the extension opens the block before the exercise's heading
CELLS_OF_AN_EXERCISE = 2  # after its card: the function to fill in, and what helps who is stuck
LEGEND = "legend"
SOURCE = re.compile(r"(?<![\[`])`(course_lib/[\w/]+\.py)`(?![\]`])")  # a file that a text names without a link


def notebook(path: Path, places: Places, terms: tuple[Term, ...]) -> str:
    """A notebook, as JSON, with nothing in it that depends on where it lies."""
    record = json.loads(path.read_text("utf-8"))
    page = Page(path.stem, places, terms)
    record["cells"] = [staged for cell in record["cells"] for staged in page.cells(cell)]
    return json.dumps(record, ensure_ascii=False, indent=1) + "\n"


class Page:
    """One notebook on its way to the site.

    Args:
        name: of the file, without its suffix.
        terms: of the glossary; the first use of each is linked.
    """

    def __init__(self, name: str, places: Places, terms: tuple[Term, ...]) -> None:
        self.name, self.places, self.terms = name, places, terms
        self.seen: set[str] = set()
        self.left = 0  # code cells that still belong to the exercise above

    def cells(self, cell: Cell) -> Iterator[Cell]:
        """The cell, with its place before it; a card is cut where its exercise begins.

        Raises:
            ValueError: an exercise is not a card, its function and its help, one after the other.
        """
        if cell["cell_type"] == "markdown":
            require(self.left == 0, f"{self.name}: cell in an exercise", cell["id"], "a code cell")
            yield from self.markdown(cell)
            return
        yield markdown_cell(place(cell["id"]), f"{cell['id']}-place")
        yield self.code(cell)
        if self.left:
            self.left -= 1
            if self.left == 0:
                yield markdown_cell(FOLD_ENDS, f"{cell['id']}-end")

    def markdown(self, cell: Cell) -> Iterator[Cell]:
        """A text with links, terms and drawings of the site."""
        text = with_links("".join(cell["source"]), self.link)
        if cell["id"] != LEGEND:
            text = with_terms(text, self.terms, self.seen)
        text = placed(with_pictures(text, both_papers), cell["id"])
        text = SOURCE.sub(lambda path: f"[{path[0]}]({self.link('../' + path[1])})", text)
        card = EXERCISE.search(text)
        if card is None:
            yield markdown_cell(text, cell["id"])
            return
        self.left = CELLS_OF_AN_EXERCISE
        if text[:card.start()].strip():
            yield markdown_cell(text[:card.start()].rstrip(), cell["id"])
        yield markdown_cell(text[card.start():], f"{cell['id']}-card")

    def code(self, cell: Cell) -> Cell:
        """A code cell; links in what it put out lead to pages, too."""
        for output in cell["outputs"]:
            for kind in {"text/html", "text/markdown"} & set(output.get("data", {})):
                output["data"][kind] = with_links("".join(output["data"][kind]), self.link)
        return cell

    def link(self, address: str) -> str:
        """A link of the notebook, seen from its page."""
        return self.places.address(address, source=f"notebooks/{self.name}.ipynb", page=self.name)


def place(cell: str) -> str:
    """Where a link to a cell leads; JupyterLab's name for it."""
    return f'<div id="cell-id={cell}" class="place"></div>'


def placed(text: str, cell: str) -> str:
    """A text with its place; before everything, but after a first heading that is the title of the page."""
    title = re.match(r"# .*\n", text)
    if title:
        return f"{title[0]}\n{place(cell)}\n\n{text[title.end():].lstrip()}"
    return f"{place(cell)}\n\n{text}"


def both_papers(picture: str) -> str:
    """A drawing twice: once for light paper, once for dark paper."""
    if not picture.endswith(".svg)"):
        return picture
    return f"{picture}{{.only-light}}{picture.removesuffix('.svg)')}.dark.svg){{.only-dark}}"


def markdown_cell(text: str, name: str) -> Cell:
    """A cell of Markdown."""
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}
