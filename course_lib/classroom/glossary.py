"""The terms of the course: what each means, the cell that defines it, and where a text uses it for the first time."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.classroom.course_map import CHAPTERS
from course_lib.config import require

FOLDER = Path(__file__).with_name("glossary")
REQUIRED, OPTIONAL = {"term", "notebook", "cell", "text"}, {"also"}
LONGEST = 60  # words that a definition may have


@dataclass(frozen=True)
class Term:
    """An entry of the glossary.

    Attributes:
        term: as it is written inside a sentence.
        also: other forms that mean the same; the plural of each form is known without being listed.
        notebook, cell: two digits, and the id of the cell that defines it.
        text: what it means, in a sentence or two.
    """

    term: str
    notebook: str
    cell: str
    text: str
    also: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """The term as the name of a place on a page.

        >>> Term("top-k sampling", "07", "a", "").slug
        'term-top-k-sampling'
        """
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.term.lower()).strip("-")

    @property
    def forms(self) -> tuple[str, ...]:
        """Everything that a text may say for it, plurals included."""
        return tuple(dict.fromkeys(chain.from_iterable((form, plural(form)) for form in (self.term, *self.also))))


class Use(NamedTuple):
    """A term in a text, from `start` up to `end`."""

    start: int
    end: int
    term: Term


def glossary(folder: Path = FOLDER) -> tuple[Term, ...]:
    """All entries, in the order of the alphabet.

    Args:
        folder: of files named nb00.toml to nb17.toml, each with the terms that its notebook defines.

    Raises:
        ValueError: a file, an entry or a form that two entries share is not as it should be.
    """
    found = [term for path in sorted(folder.glob("*.toml")) for term in entries(path)]
    owners: dict[str, Term] = {}
    for term in found:
        for form in term.forms:
            other = owners.setdefault(form.lower(), term)
            require(other is term, "term", form, f"in one entry only, not in those of {other.notebook} and "
                                                 f"{term.notebook}")
    slugs = {term.slug for term in found}
    require(len(slugs) == len(found), "terms", len(found), "different in their letters and digits")
    return tuple(sorted(found, key=lambda term: term.term.lower()))


def entries(path: Path) -> list[Term]:
    """Those of one file.

    Raises:
        ValueError: the file is not TOML or its name is not that of a notebook, or a key or a value is wrong.
    """
    numbers = [chapter.number for chapter in CHAPTERS]
    require(path.stem in {f"nb{number}" for number in numbers}, "file", path.name, "nb00.toml to nb17.toml")
    try:
        records = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name}: not a TOML file: {error}") from error
    require(set(records) == {"terms"}, f"{path.name}: tables", sorted(records), "[[terms]] alone")
    return [entry(record, path) for record in records["terms"]]


def entry(record: dict[str, Any], path: Path) -> Term:
    """One record, checked."""
    where = f"{path.name}, {record.get('term', record)!r}"
    require(set(record) - OPTIONAL == REQUIRED, f"{where}: keys", sorted(record),
            f"{', '.join(sorted(REQUIRED))} and, if you like, also")
    also = record.get("also", [])
    require(isinstance(also, list), f"{where}: also", also, "a list")
    for name, value in [*((name, record[name]) for name in sorted(REQUIRED)), *(("also", form) for form in also)]:
        require(isinstance(value, str) and value == value.strip() != "", f"{where}: {name}", value,
                "a text without spaces around it")
    require(path.stem == f"nb{record['notebook']}", f"{where}: notebook", record["notebook"], "that of the file's name")
    words = len(record["text"].split())
    require(3 <= words <= LONGEST, f"{where}: words of the text", words, f"3 to {LONGEST}")
    require(record["text"][-1] in ".!?)”", f"{where}: end of the text", record["text"][-1], "the end of a sentence")
    return Term(record["term"], record["notebook"], record["cell"], record["text"], tuple(also))


def missing_cells(terms: Iterable[Term], folder: Path) -> list[str]:
    """The places of terms that no notebook in a folder has, such as `nb03: scores`."""
    cells = {path.name[:2]: {cell["id"] for cell in json.loads(path.read_text("utf-8"))["cells"]}
             for path in folder.glob("[0-9][0-9]_*.ipynb")}
    return [f"nb{term.notebook}: {term.cell}" for term in terms if term.cell not in cells.get(term.notebook, ())]


def plural(form: str) -> str:
    """The regular plural of an English word or of the last word of a phrase.

    >>> [plural(word) for word in ("KV cache", "query", "key", "batch", "loss")]
    ['KV caches', 'queries', 'keys', 'batches', 'losses']
    """
    if re.search(r"[^aeiou]y$", form):
        return form[:-1] + "ies"
    return form + ("es" if re.search(r"(s|x|z|ch|sh)$", form) else "s")


def first_uses(text: str, terms: Sequence[Term], *, seen: set[str] | None = None) -> list[Use]:
    """Where a text uses each term for the first time: whole words, and of two terms at a place the longer.

    The first letter may be a capital. The other letters are as in the entry, so `RoPE` is not a rope.

    Args:
        seen: slugs of terms that were used before; those found are added to it.

    >>> terms = [Term("cache", "08", "a", ""), Term("KV cache", "08", "b", "")]
    >>> [use[:2] for use in first_uses("The KV caches are caches. Caches, caches!", terms)]
    [(4, 13), (18, 24)]
    """
    seen = set() if seen is None else seen
    owners = {form[0].lower() + form[1:]: term for term in terms for form in term.forms}
    if not owners:
        return []
    uses = []
    for match in re.finditer(pattern(owners), text):
        found = " ".join(match[0].split())
        term = owners[found[0].lower() + found[1:]]
        if term.slug not in seen:
            seen.add(term.slug)
            uses.append(Use(match.start(), match.end(), term))
    return uses


def pattern(forms: Iterable[str]) -> str:
    """A regular expression for whole forms, the longest first; a space may be a line break."""
    ordered = sorted(forms, key=lambda form: (-len(form), form))
    alternatives = (rf"[{re.escape(form[0] + form[0].upper())}]" + re.escape(form[1:]).replace(r"\ ", r"\s+")
                    for form in ordered)
    return rf"(?<![\w/-])(?:{'|'.join(alternatives)})(?![\w/-])"
