"""What people say about language models: said, measured, verdict, with the numbers that the notebooks have stored.

`course_claims.toml` says where each number stands. `collect` reads them from executed notebooks, the reader's own
included; what it found in those of the course is kept in `course_claims.json`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import unescape
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("course_claims.toml")
STORED = Path(__file__).with_name("course_claims.json")
COLUMNS = ("said", "measured", "verdict")


@dataclass(frozen=True)
class CourseClaim:
    """One row of the table.

    Attributes:
        number: 1 to 27.
        said: what people say.
        measured: a sentence with this run's numbers.
        verdict: in a word or three; `truth` in a sentence.
        notebook, cell: the file and the id of the cell that measured it.
        heading: that the cell stands under.
    """

    number: int
    said: str
    measured: str
    verdict: str
    truth: str
    notebook: str
    cell: str
    heading: str

    @property
    def link(self) -> str:
        """To the cell, in Markdown, by its heading; JupyterLab and exported pages go to the cell itself."""
        heading = self.heading.removesuffix(" · further")
        return f"[{self.notebook[:2]}, {heading}]({self.notebook}#cell-id={self.cell})"

    @property
    def row(self) -> tuple[str, str, str]:
        """What `COLUMNS` says."""
        return f"{self.number} · {self.said}", f"{self.measured} ({self.link})", f"**{self.verdict}** {self.truth}"


class ClaimNotFound(ValueError):
    """A notebook does not hold what a claim rests on."""


def course_claims() -> list[CourseClaim]:
    """Those of the course's own notebooks, in order."""
    return [CourseClaim(**record) for record in json.loads(STORED.read_text("utf-8"))]


def table(claims: Iterable[CourseClaim]) -> str:
    """Markdown, a row for each claim."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---|"]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", r"\|") for cell in claim.row) + " |"
                              for claim in claims])


def collect(folder: str | Path = ".", *, skip_missing: bool = False) -> list[CourseClaim]:
    """Read the claims out of the executed notebooks of a folder; a notebook that is not there has none.

    Args:
        skip_missing: leave out claims whose numbers or statements are not stored, as in a run with another model.

    Raises:
        ClaimNotFound: a notebook is there, and something that a claim rests on is not in it.
    """
    paths = {path.name[:2]: path for path in sorted(Path(folder).glob("[0-9][0-9]_*.ipynb"))}
    books = {number: read(path) for number, path in paths.items()}
    found = []
    for source in sources():
        number, cell = source["cell"].split(":")
        if number not in books or not cell:  # the notebook is not here, or does not measure it yet
            continue
        try:
            found.append(claim_from(source, books, paths[number].name))
        except ClaimNotFound:
            if not skip_missing:
                raise
    return found


def sources() -> list[dict[str, Any]]:
    """Where each claim is measured."""
    return tomllib.loads(SOURCES.read_text("utf-8"))["claims"]


@dataclass(frozen=True)
class Book:
    """What is needed of an executed notebook: the outputs of each cell by its id, as plain text, and its headings."""

    outputs: Mapping[str, str]
    headings: Mapping[str, str]
    statements: frozenset[str]


def read(path: Path) -> Book:
    """A notebook as it is stored."""
    outputs, headings, statements, heading = {}, {}, set(), ""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            titles = re.findall(r"^##? (.+)$", "".join(cell["source"]), flags=re.M)
            heading = titles[-1] if titles else heading
            continue
        texts = [plain(output) for output in cell.get("outputs", [])]
        headings[cell["id"]] = heading
        outputs[cell["id"]] = " ".join(" ".join(texts).split())
        statements |= set(re.findall(r"^Holds: (.+)\.$", "\n".join(texts), flags=re.M))
    return Book(outputs, headings, frozenset(statements))


def plain(output: Mapping[str, Any]) -> str:
    """The text of one output; of HTML without tags, drawings and scripts."""
    data = output.get("data", {})
    text = "".join(output.get("text", "") or data.get("text/html") or data.get("text/markdown")
                   or data.get("text/plain", ""))
    if "text/html" in data:
        text = re.sub(r"<(style|svg|script)\b.*?</\1>", " ", text, flags=re.S)
        text = unescape(re.sub(r"<[^>]+>", " ", text))
    return text


def claim_from(source: Mapping[str, Any], books: Mapping[str, Book], file: str) -> CourseClaim:
    """A claim with its numbers, if everything that it rests on is there."""
    number, said, (notebook, cell) = source["number"], source["said"], source["cell"].split(":")
    if cell not in books[notebook].headings:
        raise ClaimNotFound(f"claim {number}: {file} has no cell {cell!r}; name it in {SOURCES.name}")
    for statement in source.get("holds", ()):
        if statement not in books[notebook].statements:
            raise ClaimNotFound(f"claim {number}: {file} does not print 'Holds: {statement}.'")
    values = {name: number_from(place, pattern, books, number)
              for name, (place, pattern) in source.get("numbers", {}).items()}
    return CourseClaim(number, said, source["measured"].format(**values), source["verdict"], source["truth"], file,
                       cell, books[notebook].headings[cell])


def number_from(place: str, pattern: str, books: Mapping[str, Book], number: int) -> str:
    """What a pattern finds in the outputs of a cell."""
    notebook, cell = place.split(":")
    text = books[notebook].outputs.get(cell, "")
    match = re.search(pattern, text)
    if match is None:
        raise ClaimNotFound(f"claim {number}: {pattern!r} is not in the outputs of cell {place}: {text[:300]!r}")
    return match[1]


def dumps(claims: Sequence[CourseClaim]) -> str:
    """As they are stored."""
    return json.dumps([asdict(claim) for claim in claims], ensure_ascii=False, indent=1) + "\n"
