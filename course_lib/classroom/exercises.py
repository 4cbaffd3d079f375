"""Exercises in a notebook: check the reader's function, hints, solutions, and what is done so far.

    @exercise("01.2")
    def merge(ids, pair, new_id):
        \"\"\"Replace each `pair` in `ids`, from left to right and without overlap, by `new_id`.\"\"\"
        ...

With the body left at `...` the name `merge` is bound to the finished version, so the notebook runs to
its end. With a body of the reader's own it is checked at once; a right answer is what the rest of the
notebook runs on. A wrong answer is explained and never raises. Nothing leaves the machine.
"""

from __future__ import annotations

import dis
import inspect
import json
import os
import re
import sys
import sysconfig
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from course_lib.classroom.checks import exercises_of, find, notebooks
from course_lib.classroom.checks.compare import CheckFailed, show, without_addresses

OURS = "the rest of the notebook uses course_lib's version."
LINE_LIMIT = 200_000  # lines in one call; a right answer on a check's small input runs some hundreds
FRAMES_SHOWN = 6
LIBRARIES = tuple({os.path.join(path, "") for path in (
    str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))})

_hints_given: Counter[str] = Counter()  # in this kernel; a new one starts from the first hint


def exercise(exercise_id: str) -> Callable[[Callable], Callable]:
    """Check the decorated function, say what came of it, and return what the name shall stand for.

    Returns:
        A decorator. It gives back the reader's function where its checks pass, and the finished
        version where they fail or where there is nothing but a docstring and `...`.

    Raises:
        ValueError: there is no such exercise. Whatever the reader's function does is printed.

    >>> @exercise("01.2")
    ... def merge(ids, pair, new_id): ...
    Exercise 01.2 is not attempted: the rest of the notebook uses course_lib's version.
    """
    this = find(exercise_id)

    def decorate(function: Callable) -> Callable:
        if is_stub(function):
            print(f"Exercise {this.id} is not attempted: {OURS}")
            return this.finished
        attempt = Attempt(function, this.finished)
        if complaint := explain(this.check, attempt):
            headline, *details = complaint
            print(f"Exercise {this.id} {headline}", *(f"  {line}" for line in details),
                  OURS[0].upper() + OURS[1:], sep="\n")
            return this.finished
        print(f"Exercise {this.id} is right: the rest of the notebook runs on your {function.__name__}.")
        record(this.id)
        return function

    return decorate


def hint(exercise_id: str) -> None:
    """Print the next hint of an exercise."""
    hints = find(exercise_id).hints
    given = _hints_given[exercise_id]
    if given == len(hints):
        print(f"No more hints for {exercise_id}: solution({exercise_id!r}) shows the finished version.")
        return
    _hints_given[exercise_id] += 1
    print(f"Hint {given + 1} of {len(hints)}: {hints[given]}")


def solution(exercise_id: str) -> None:
    """Print the source of the finished version, the one that runs where an exercise is not attempted."""
    finished = find(exercise_id).finished
    print(f"# {finished.__module__}.{finished.__qualname__}", inspect.getsource(finished).rstrip(), sep="\n")


def progress(notebook: str | None = None) -> None:
    """Print which exercises are done, in one notebook or in all; read from a file on this machine."""
    chosen = notebooks() if notebook is None else [notebook]
    try:
        done = read_progress(progress_path())["passed"]
    except (OSError, RuntimeError) as error:
        print(f"Progress cannot be read ({reason(error)}).")
        done = []
    for name in chosen:
        exercises = exercises_of(name)
        print(f"Notebook {name}: {sum(e.id in done for e in exercises)} of {len(exercises)} done")
        for e in exercises:
            print(f"  {'done' if e.id in done else 'open'}  {e.id}  {e.title} ({e.kind}, {e.minutes} min)")


def is_stub(function: Callable) -> bool:
    """True for a body of nothing but a docstring, `...` and `pass`; the source is not needed.

    >>> def stub(x):
    ...     '''What x shall become.'''
    ...     ...
    >>> is_stub(stub), is_stub(lambda x: x), is_stub(print)
    (True, False, False)
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and instructions(code) == instructions(_nothing.__code__)


def _nothing() -> None: ...


def instructions(code: Any) -> list[tuple[str, Any]]:
    """What a function does, without the instructions that only mark lines and entry."""
    return [(i.opname, i.argval) for i in dis.get_instructions(code) if i.opname not in ("NOP", "RESUME")]


class EndlessLoop(RuntimeError):
    """The reader's function was stopped because it did not come to an end."""


class Attempt:
    """The reader's function as a check sees it: it remembers its last call and cannot run for ever.

    Args:
        function: the reader's.
        finished: the finished version, whose parameter names stand for arguments too long to print.
    """

    def __init__(self, function: Callable, finished: Callable) -> None:
        self.function = function
        self.parameters = list(inspect.signature(finished).parameters)
        self.last_call = ""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        values = [show(arg) for arg in args]
        short = [value if len(value) <= 80 and not value.startswith("<") else name
                 for value, name in zip(values, self.parameters)]
        short += [f"{name}={show(value)}" for name, value in settings.items()]
        self.last_call = f"{self.function.__name__}({', '.join(short)})"
        with line_limit(self.file):
            return self.function(*args, **settings)

    @property
    def file(self) -> str | None:
        """The file, or the name of the cell, that the function was written in."""
        return getattr(getattr(inspect.unwrap(self.function), "__code__", None), "co_filename", None)


@contextmanager
def line_limit(file: str | None) -> Iterator[None]:
    """Raise `EndlessLoop` when code of `file` runs more than `LINE_LIMIT` lines; gives way to a debugger.

    Lines are counted and not seconds, so the result does not depend on the machine. What runs no line,
    a call that waits or an empty `while True: pass`, is for the reader to interrupt.
    """
    left = LINE_LIMIT

    def trace(frame: FrameType, event: str, _: Any) -> Callable | None:
        nonlocal left
        if frame.f_code.co_filename != file:
            return None
        left -= event == "line"
        if left < 0:
            raise EndlessLoop(f"no end after {LINE_LIMIT:,} lines: does the loop advance every time?")
        return trace

    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def explain(check: Callable, attempt: Attempt) -> list[str] | None:
    """Run a check: None when it passes, else a headline and the lines that say what is wrong."""
    try:
        check(attempt)
        return None
    except CheckFailed as failed:
        return ["is not right yet.", f"call:      {attempt.last_call}", f"expected:  {failed.expected}",
                f"got:       {failed.got}", f"differs:   {failed.where}", f"likely:    {failed.likely}"]
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, it is the reader's to see
        message = without_addresses(str(error)).splitlines() or [""]
        error_lines = [f"{type(error).__name__}: {message[0]}".removesuffix(": "), *message[1:]]
        return ["stopped with an error in your function.", f"call: {attempt.last_call}",
                *reader_frames(error, attempt.file), *error_lines]


def reader_frames(error: BaseException, file: str | None) -> list[str]:
    """Where the reader's own code was when the error came, outermost first; no library's frames."""
    lines = [f"{place(frame)}, in {frame.name}{': ' + frame.line if frame.line else ''}"
             for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == file or is_readers(frame.filename)]
    if len(lines) > FRAMES_SHOWN:
        lines[3:-2] = [f"... {len(lines) - 5} more ..."]
    return lines


def is_readers(filename: str) -> bool:
    """True for a notebook's cell and for a file that is not part of Python, a package or `course_lib`."""
    return not filename.startswith((*LIBRARIES, "<frozen"))


def place(frame: traceback.FrameSummary) -> str:
    """`answers.py, line 3`, or `line 3 of the cell`."""
    name = Path(frame.filename)
    return f"{name.name}, line {frame.lineno}" if name.is_file() else f"line {frame.lineno} of the cell"


def progress_path() -> Path:
    """`$COURSE_PROGRESS`, or `course_lib/progress.json` where this platform keeps a user's data."""
    if chosen := os.environ.get("COURSE_PROGRESS"):
        return Path(chosen).expanduser()
    base = {"win32": os.environ.get("LOCALAPPDATA") or "~/AppData/Local",
            "darwin": "~/Library/Application Support"}.get(
        sys.platform, os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    return Path(base).expanduser() / "course_lib" / "progress.json"


def record(exercise_id: str) -> None:
    """Note that an exercise is done; where that cannot be written, say so in one line and go on."""
    try:
        path = progress_path()
        data = read_progress(path)
        if exercise_id not in data["passed"]:
            write_progress(path, data | {"passed": sorted({*data["passed"], exercise_id})})
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        print(f"Progress is not saved ({reason(error)}); COURSE_PROGRESS can name another file.")


def read_progress(path: Path) -> dict[str, Any]:
    """The file's content, `{"passed": []}` where there is none; a file that makes no sense is set aside.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and isinstance(data.get("passed"), list) \
                and all(isinstance(name, str) for name in data["passed"]):
            return data
    except FileNotFoundError:
        return {"passed": []}
    except ValueError:
        pass
    aside = next(name for i in range(1, 1000)
                 if not (name := path.with_name(f"{path.name}.unreadable-{i}")).exists())
    path.rename(aside)
    print(f"The progress file makes no sense: it is kept as {aside.name}, and a new one is begun.")
    return {"passed": []}


def write_progress(path: Path, data: dict[str, Any]) -> None:
    """Replace the file in one step: whoever reads it sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def reason(error: Exception) -> str:
    """Why, without the path, which differs between machines."""
    return getattr(error, "strerror", None) or re.sub(r"\s+", " ", str(error))
