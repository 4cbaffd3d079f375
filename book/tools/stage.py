"""Everything that the site is built from, in one folder: notebooks, pages, drawings, settings and a table of contents.

    python -m book.tools.stage build/book

It runs in the environment of the course. What turns the folder into HTML has an environment of its own.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from book.tools import api
from book.tools.drawings import write_drawings
from book.tools.notebooks import notebook
from book.tools.pages import claims_page, glossary_page, repository_pages
from book.tools.places import FILES, ROOT, Places
from course_lib.classroom.course_map import CHAPTERS, notebooks_folder
from course_lib.classroom.glossary import glossary, missing_cells
from course_lib.command_line import UsageError
from course_lib.config import require

MADE = ("architecture", "stage", "drawings", "weights", "contributing")  # how it is made
BOOK = ROOT / "book"
COPIED = ("static", "extension", "_config.yml")
EXTRA = "extra"  # the folder of what is copied to the site without being read


def stage(folder: Path) -> None:
    """Write the sources of the site, over what a former run has left there.

    Raises:
        ValueError: a link, a term or a notebook is not as it should be.
    """
    terms = glossary()
    missing = missing_cells(terms, notebooks_folder())
    require(not missing, "cells of the glossary", missing, "cells that their notebooks have")
    places = Places()
    texts = {**repository_pages(places), **api.pages(), "glossary": glossary_page(terms),
             "claims": claims_page(places)}
    books = {chapter.file: notebook(notebooks_folder() / f"{chapter.file}.ipynb", places, terms)
             for chapter in CHAPTERS}
    shutil.rmtree(folder, ignore_errors=True)
    write_texts(folder, {**{f"{name}.md": text for name, text in texts.items()},
                         **{f"{name}.ipynb": text for name, text in books.items()},
                         "_toc.yml": yaml.safe_dump(contents(texts), sort_keys=False)})
    write_drawings(notebooks_folder() / "images", folder / "images")
    for name in COPIED:
        copy = shutil.copytree if (BOOK / name).is_dir() else shutil.copy
        copy(BOOK / name, folder / name)
    copy_files(places.files, folder / EXTRA / FILES)


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Files of text, with the folders that they need."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def copy_files(linked: set[str], target: Path) -> None:
    """The files that pages link to, and the library's source; those that a browser would not show end in .txt."""
    library = {path.relative_to(ROOT).as_posix() for path in (ROOT / "course_lib").rglob("*.py")}
    places = Places()
    for name in sorted(linked | library):
        path = target / places.file(name).removeprefix(f"{FILES}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, path)


def contents(texts: Mapping[str, str]) -> dict[str, object]:
    """The table of contents, as jupyter-book reads it."""
    modules = [name for name in sorted(texts) if name.startswith("api/") and name != "api/index"]
    parts = {"The notebooks": [{"file": chapter.file} for chapter in CHAPTERS],
             "To look things up": [{"file": "glossary"}, {"file": "claims"},
                                   {"file": "model_card", "title": "The model, pocket"},
                                   {"file": "api/index", "sections": [{"file": name} for name in modules]}],
             "For instructors": instructors([name for name in texts if name.startswith("teaching/")]),
             "How it is made": [{"file": name} for name in MADE]}
    return {"format": "jb-book", "root": "index",
            "parts": [{"caption": caption, "chapters": chapters} for caption, chapters in parts.items() if chapters]}


def instructors(names: Sequence[str]) -> list[dict[str, object]]:
    """Their pages: how to use them first, then each notebook's with its wrong answers beneath, then the rest."""
    pages = sorted((name for name in names if name.count("/") == 1),
                   key=lambda name: (not name.endswith("README"), not name.split("/")[1][:2].isdigit(), name))
    beneath = {page: [{"file": name} for name in sorted(names) if name.count("/") > 1
                      and page.split("/")[1][:2] == name.rsplit("/", 1)[1]] for page in pages}
    placed = {section["file"] for sections in beneath.values() for section in sections}
    return [*({"file": page, **({"sections": beneath[page]} if beneath[page] else {})} for page in pages),
            *({"file": name} for name in sorted(names) if name.count("/") > 1 and name not in placed)]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the sources go; what is in it is replaced")
    options = parser.parse_args(argv)
    if options.folder.exists() and not (options.folder / "_toc.yml").exists():
        raise UsageError(f"{options.folder} holds something else: name a folder that is not there, or one made before")
    stage(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
