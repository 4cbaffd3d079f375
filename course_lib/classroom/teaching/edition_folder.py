"""A folder with an edition of the notebooks: what was written there, and whether it still stands so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from course_lib.classroom.teaching.pristine import set_aside
from course_lib.classroom.whole_file import write_whole
from course_lib.command_line import UsageError

MARKER = ".edition.json"  # in the folder: the kind of the edition, and of each file in it the SHA-256


@dataclass
class EditionFolder:
    """Files of one edition. `open_folder` makes it.

    Attributes:
        kind: `student` or `solutions`.
        written: of each file the SHA-256 with which it was written.
        force: whether files that are not ours are replaced; they are kept under another name.
    """

    folder: Path
    kind: str
    written: dict[str, str]
    force: bool = False

    def put(self, name: str, content: str | bytes) -> str:
        """Write a file of the edition, unless somebody has worked on the one that is there.

        Returns:
            What was done: `written`, `kept` (left alone, since somebody worked on it), or the name under which the
            present file is kept.

        Raises:
            OSError: it cannot be written; what was there still is.
        """
        path, data = self.folder / name, content.encode() if isinstance(content, str) else content
        remark = "written"
        if path.exists() and digest(path.read_bytes()) not in (self.written.get(name), digest(data)):
            if not self.force:
                return "kept"
            remark = set_aside(path, "before_edition").name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        self.written[name] = digest(data)
        write_whole(self.folder / MARKER, json.dumps({"kind": self.kind, "files": self.written}, indent=1) + "\n")
        return remark


def open_folder(folder: Path, kind: str, *, force: bool = False) -> EditionFolder:
    """The folder of an edition: a new one, an empty one, or one that holds an earlier edition of the same kind.

    Raises:
        UsageError: it holds something else, and `force` is not set.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; an edition needs a folder of its own")
    marker = folder / MARKER
    try:
        earlier = json.loads(marker.read_text(encoding="utf-8"))
        earlier_kind, written = earlier["kind"], dict(earlier["files"])
    except FileNotFoundError:
        earlier_kind, written = kind if not folder.exists() or not any(folder.iterdir()) else None, {}
    except (ValueError, KeyError, TypeError):
        earlier_kind, written = None, {}
    if earlier_kind != kind and not force:
        held = f"a {earlier_kind} edition" if earlier_kind else "something else than an earlier edition"
        raise UsageError(f"{folder} holds {held}: choose another folder, or --force, which keeps a file that is there "
                         "under another name before it writes one of the same name")
    return EditionFolder(folder, kind, written, force)


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return sha256(data).hexdigest()
