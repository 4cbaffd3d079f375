"""Where everything that the repository holds lies on the site, and how one page links to another."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from course_lib.config import require

ROOT = Path(__file__).resolve().parents[2]
FILES = "files"  # the folder of the site for files that have no page
NAMED = {"README.md": "index", "CONTRIBUTING.md": "contributing", "course_lib/models/pocket/README.md": "model_card"}
MADE_HERE = {f"book/{name}.md": name for name in ("glossary", "claims", "api/index")}  # pages without such a file
PACKAGES = {"server"}  # stages of the pipeline that are a folder
ROOMS = ("training", "analysis", "display", "classroom")
ONLY_NAMED = {"answers", "checks"}  # of the classroom: a module for each notebook, which no page shows
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.I)


class Places:
    """The addresses of the site; what is linked and has no page is kept in `files`, to be copied.

    Args:
        root: of the repository.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.files: set[str] = set()

    def page(self, path: str) -> str | None:
        """The page of a file or folder of the repository, as an address without a suffix; None if it has none.

        >>> [Places().page(path) for path in ("course_lib/kv_cache.py", "course_lib/server/app.py", "Makefile")]
        ['api/kv_cache', 'api/server', None]
        """
        parts = path.rstrip("/").split("/")
        if path in NAMED or path in MADE_HERE:
            return NAMED.get(path) or MADE_HERE[path]
        if parts[0] == "notebooks" and path.endswith(".ipynb"):
            return parts[-1].removesuffix(".ipynb")
        if parts[0] == "teaching" and path.endswith(".md"):
            return path.removesuffix(".md")
        if parts[0] == "book" and len(parts) == 2 and path.endswith(".md"):
            return parts[1].removesuffix(".md")
        if parts[:2] == ["course_lib", "classroom"] and len(parts) == 4 and parts[2] in ONLY_NAMED:
            return module_page(parts[1:]) if parts[3] == "__init__.py" else None
        if parts[0] == "course_lib" and (path.endswith(".py") or (self.root / path).is_dir()):
            return module_page(parts[1:])
        return None

    def address(self, link: str, *, source: str, page: str) -> str:
        """A link of a file as a link of its page.

        Args:
            link: as it stands in the file; one to another site does not change.
            source: the file, from the root of the repository.
            page: its page, without a suffix.

        Raises:
            ValueError: there is no such file.
        """
        if OUTSIDE.match(link) or not link:
            return link
        target, _, fragment = link.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        require(path in MADE_HERE or (self.root / path).exists(), f"link in {source}", link, "to a file that exists")
        found = self.page(path)
        if found is None:
            return relative(self.file(path), page)
        if path.startswith("course_lib/") and found.startswith("api/") and not fragment:
            fragment = place_in_room(path)
        return relative(found + ".html", page) + (f"#{fragment}" if fragment else "")

    def file(self, path: str) -> str:
        """The address of a file that is copied to the site; one that a browser would not show becomes text.

        Raises:
            ValueError: it is a folder.
        """
        require((self.root / path).is_file(), "linked file", path, "a file, or something that has a page")
        self.files.add(path)
        shown = posixpath.splitext(path)[1] in {".txt", ".png", ".svg", ".pdf", ".html"}
        return f"{FILES}/{path}" + ("" if shown else ".txt")


def relative(address: str, page: str) -> str:
    """An address of the site, seen from a page.

    >>> relative("glossary.html", "teaching/03_attention"), relative("api/model.html", "api/index")
    ('../glossary.html', 'model.html')
    """
    return posixpath.relpath(address, posixpath.dirname(page) or ".")


def module_page(parts: list[str]) -> str:
    """The API page that a module stands on, given its path inside course_lib."""
    first = parts[0].removesuffix(".py") if parts else ""
    if first in ("", "__init__", "__main__", "models"):
        return "api/index"
    return f"api/{first}"


def place_in_room(path: str) -> str:
    """The place of a module on the page of its room; empty for a module that has the page for itself.

    >>> place_in_room("course_lib/training/guidance.py"), place_in_room("course_lib/model.py")
    ('guidance', '')
    """
    parts = path.removesuffix(".py").split("/")[2:]
    return ".".join(part for part in parts if part != "__init__")
