"""A file is replaced in one step: under its name is all of the new content, or what was there before."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, private: bool = False, new: bool = False) -> None:
    """Write a file, text as UTF-8, so that nobody ever reads a part of it (with `new`, for a moment an empty file).

    A file that was there keeps its rights; any other gets those of a new file.

    Args:
        private: only its owner may read and write it.
        new: nothing may be there yet under this name.

    Raises:
        FileExistsError: `new`, and something is.
        OSError: the disk is full, there is no such folder, or it may not be written to.
    """
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if new:
            open(path, "xb").close()  # takes the name, or fails where somebody was faster
        if not private:  # as a temporary file is
            os.chmod(temporary, _rights(path))
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _rights(path: Path) -> int:
    """Those of the file, or of a new one: what the system's mask leaves, which a temporary file does not follow."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
