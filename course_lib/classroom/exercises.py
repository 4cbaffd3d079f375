"""Exercises in a notebook: check the reader's function, hints, solutions.

    @exercise("01.2")
    def merge(ids, pair, new_id):
        \"\"\"Replace each `pair` in `ids`, from left to right and without overlap, by `new_id`.\"\"\"
        ...

With the body left at `...` the name `merge` is bound to the finished version, so the notebook runs to
its end. With a body of the reader's own it is checked at once; a right answer is what the rest of the
notebook runs on. A wrong answer is explained and never raises. What passes is kept on this machine, for
the engine of notebook 17 (`course_lib.classroom.kept_answers`). Nothing leaves the machine.
"""

from __future__ import annotations

import dis
import inspect
import re
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from course_lib.classroom.answers import LIBRARY, answer
from course_lib.classroom.attempt import Attempt, is_readers, usual_settings
from course_lib.classroom.checks import find
from course_lib.classroom.checks.compare import CheckFailed, cut, without_addresses
from course_lib.classroom.kept_answers import keep
from course_lib.classroom.progress_file import record

OURS = "the rest of the notebook uses course_lib's version."
FRAMES_SHOWN = 6
LINES_SHOWN, WIDTH_SHOWN = 8, 400  # of an error's own text

_hints_given: Counter[str] = Counter()  # in this kernel; a new one starts from the first hint


def exercise(exercise_id: str) -> Callable[[Callable], Callable]:
    """Check the decorated function, say what came of it, and return what the name shall mean.

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
        attempt, name = Attempt(function, this.finished), this.finished.__name__
        own = [attempt.name] if attempt.name.isidentifier() else []
        with attempt.bound(name, *own), usual_settings():
            complaint = explain(this.check, attempt)
        if complaint:
            headline, *details = complaint
            print(f"Exercise {this.id} {headline}", *(f"  {line}" for line in details),
                  OURS[0].upper() + OURS[1:], sep="\n")
            return this.finished
        print(f"Exercise {this.id} is right: the rest of the notebook runs on your {attempt.name}.")
        if own and own != [name]:
            print(f"  But the cells below call {name}, not {attempt.name}: give it that name and run this cell again.")
        if record(this.id):
            keep(this, function, explain)
        return function

    return decorate


def hint(exercise_id: str) -> None:
    """Print the next hint of an exercise."""
    hints = find(exercise_id).hints
    given = _hints_given[exercise_id]
    if given == len(hints):
        print(f"No more hints for {exercise_id}: solution({exercise_id!r}) shows an answer.")
        return
    _hints_given[exercise_id] += 1
    print(f"Hint {given + 1} of {len(hints)}: {hints[given]}")


def solution(exercise_id: str) -> None:
    """Print a short answer to an exercise and, where the library has something that can do more, its name."""
    print(inspect.getsource(answer(exercise_id)).rstrip())
    if exercise_id in LIBRARY:
        print(f"\n# Compare {LIBRARY[exercise_id]}.")


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


def explain(check: Callable, attempt: Attempt) -> list[str] | None:
    """Run a check: None when it passes, else a headline and the lines that say what is wrong.

    Raises:
        KeyboardInterrupt: the reader stopped it; anything else is the reader's to see, and explained.
    """
    try:
        check(attempt)
        return None
    except CheckFailed as failed:
        return ["is not right yet.", f"call:      {attempt.last_call}", f"expected:  {failed.expected}",
                f"got:       {failed.got}", f"differs:   {failed.where}", f"likely:    {failed.likely}"]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, or a panic in somebody's Rust code, must not end the kernel
        return ["stopped with an error in your function.", f"call: {attempt.last_call}",
                *reader_frames(error, attempt.file), *words_of(error, attempt.name),
                *transposed_too_far(error, attempt.file)]


def words_of(error: BaseException, name: str) -> list[str]:
    """An error's type and text in a few lines, and what is known about it."""
    try:
        text = without_addresses(str(error))
    except Exception:  # the reader's own class
        text = "(its text cannot be shown)"
    lines = [cut(line, WIDTH_SHOWN) for line in text.splitlines()] or [""]
    lines[0] = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
    if len(lines) > LINES_SHOWN:
        lines[LINES_SHOWN - 1 :] = [f"... {len(lines) - LINES_SHOWN + 1} more lines ..."]
    if isinstance(error, RecursionError):
        lines.append(f"likely: an endless recursion: {name} runs on itself alone, so one of the calls has to answer "
                     "without another")
    return lines


def reader_frames(error: BaseException, file: str | None) -> list[str]:
    """Where the reader's own code was when the error came, outermost first; no library's frames."""
    lines = [f"{place(frame)}, in {frame.name}{': ' + frame.line if frame.line else ''}"
             for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == file or is_readers(frame.filename)]
    if len(lines) > FRAMES_SHOWN:
        lines[3:-2] = [f"... {len(lines) - 5} more ..."]
    return lines


def transposed_too_far(error: BaseException, file: str | None) -> list[str]:
    """What is likely where PyTorch refuses two sizes and the reader's line says `.T` of more than two axes."""
    if not isinstance(error, RuntimeError) or "size" not in str(error).lower():
        return []
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame, summary in zip(frames, traceback.extract_tb(error.__traceback__)):
        names = re.findall(r"(\w+)\.T\b", summary.line or "")
        if summary.filename == file or is_readers(summary.filename):
            values = [(name, frame.f_locals.get(name, frame.f_globals.get(name))) for name in names]
            for name, value in values:
                if isinstance(value, Tensor) and value.dim() > 2:
                    return [f"likely: .T exchanges all axes; {name}.transpose(-1, -2) exchanges the last two"]
    return []


def place(frame: traceback.FrameSummary) -> str:
    """`answers.py, line 3`, or `line 3 of the cell`."""
    name = Path(frame.filename)
    return f"{name.name}, line {frame.lineno}" if name.is_file() else f"line {frame.lineno} of the cell"
