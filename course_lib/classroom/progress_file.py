"""The file that says which exercises are done: one for all notebooks, shared by all kernels on this machine."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from course_lib.classroom.whole_file import write_whole

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PATIENCE_S = 10.0  # how long to wait for another kernel, which needs milliseconds


def progress_path() -> Path:
    """`$COURSE_PROGRESS`, or `course_lib/progress.json` where this platform keeps a user's data; links followed."""
    if chosen := os.environ.get("COURSE_PROGRESS"):
        return Path(chosen).expanduser().resolve()
    base = {"win32": os.environ.get("LOCALAPPDATA") or "~/AppData/Local",
            "darwin": "~/Library/Application Support"}.get(
        sys.platform, os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    return (Path(base).expanduser() / "course_lib" / "progress.json").resolve()


def record(exercise_id: str) -> bool:
    """Record that an exercise is done; where that cannot be written, say so in one line, return False and go on."""
    try:
        path = progress_path()
        if exercise_id in read_progress(path)["passed"]:
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path):  # what another kernel wrote in the meantime is read again
            data = read_progress(path)
            write_json(path, data | {"passed": sorted({*data["passed"], exercise_id})})
        return True
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        print(f"Progress is not saved ({reason(error)}); COURSE_PROGRESS can name another file.")
        return False


def read_progress(path: Path) -> dict[str, Any]:
    """The file's content, `{"passed": []}` where there is none; the rest as for `read_json`."""
    return read_json(path, {"passed": []}, is_progress, "The progress file")


def is_progress(data: Any) -> bool:
    """Whether a file's content is that of a progress file."""
    return isinstance(data, dict) and isinstance(data.get("passed"), list) \
        and all(isinstance(name, str) for name in data["passed"])


def read_json(path: Path, empty: dict[str, Any], makes_sense: Callable[[Any], bool], what: str) -> dict[str, Any]:
    """A file's content, `empty` where there is none; a file that makes no sense is set aside, and `what` it is is said.

    Raises:
        OSError: it cannot be read, or it is not a regular file: a device is neither read nor moved.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        data = json.loads(path.read_bytes())  # UTF-8, and what editors of Windows make of it
        if makes_sense(data):
            return data
    except FileNotFoundError:
        return empty
    except ValueError:
        pass
    aside = next(name for i in range(1, 1000)
                 if not (name := path.with_name(f"{path.name}.unreadable-{i}")).exists())
    path.rename(aside)
    print(f"{what} makes no sense: it is kept as {aside.name}, and a new one is begun.")
    return empty


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Replace the file in one step: a reader sees the old content or the new, never a part."""
    write_whole(path, json.dumps(data, indent=1), private=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `<path>.lock`, so that no two kernels read and replace the file at the same time.

    The operating system frees the lock when its holder ends, however it ends; the empty file stays.

    Raises:
        OSError: another kernel holds it for `PATIENCE_S` seconds, or it cannot be made.
    """
    with open(path.with_name(f"{path.name}.lock"), "a") as file:
        deadline = time.monotonic() + PATIENCE_S
        while not take(file.fileno()):
            if time.monotonic() > deadline:
                raise OSError(errno.EAGAIN, "another kernel is writing it")
            time.sleep(0.01)
        yield  # closing the file frees the lock


def take(handle: int) -> bool:
    """Lock an open file for this process unless another one has it."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def reason(error: Exception) -> str:
    """Why, without the path, which differs between machines."""
    return getattr(error, "strerror", None) or re.sub(r"\s+", " ", str(error))
