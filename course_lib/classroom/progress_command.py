"""`python -m course_lib progress`: what is done, what is next, the minutes left; to another machine and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from course_lib.classroom.checks import notebooks
from course_lib.classroom.kept_answers import KeptAnswer, answers_path, course_version, makes_sense, read_answers
from course_lib.classroom.progress_file import is_progress, locked, progress_path, read_progress, write_json
from course_lib.classroom.progress_report import report
from course_lib.command_line import Parser, UsageError

KIND = "progress in the course How a language model generates text"


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = Parser(prog="python -m course_lib progress", description=__doc__)
    parser.add_argument("notebooks", nargs="*", metavar="NB", help="two digits each; default: all")
    take = parser.add_mutually_exclusive_group()
    take.add_argument("--export", type=Path, metavar="FILE", help="write progress and kept answers to one file")
    take.add_argument("--import", type=Path, metavar="FILE", dest="load",
                      help="add what such a file holds; nothing that is here is lost")
    parser.add_argument("--without-answers", action="store_true",
                        help="leave the answers out: they are code, which my-engine runs, so import only your own")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.notebooks) - set(notebooks())):
        raise UsageError(f"there is no notebook {unknown[0]!r}: must be one of {', '.join(notebooks())}")
    if options.export:
        print(write_out(options.export, with_answers=not options.without_answers))
    elif options.load:
        print(read_in(options.load, with_answers=not options.without_answers))
    else:
        passed = read_progress(progress_path())["passed"]
        print(*report(passed, options.notebooks or notebooks()), f"Kept in {progress_path()}", sep="\n")
    return 0


def write_out(path: Path, *, with_answers: bool = True) -> str:
    """Write what is known of the reader to one file; the result says what that was.

    Raises:
        OSError: it cannot be written.
    """
    passed = read_progress(progress_path())["passed"]
    answers = {key: asdict(answer) for key, answer in read_answers().items()} if with_answers else {}
    write_json(path, {"kind": KIND, "version": course_version(), "passed": passed, "answers": answers})
    return f"{path}: {len(passed)} exercises done, {len(answers)} answers"


def read_in(path: Path, *, with_answers: bool = True) -> str:
    """Add what an exported file holds to what is here; of two answers to an exercise the later one stays.

    Raises:
        UsageError: it is not such a file; nothing is changed.
        OSError: it cannot be read, or what is here cannot be written.
    """
    data = exported(path)
    progress, kept = progress_path(), answers_path()
    progress.parent.mkdir(parents=True, exist_ok=True)
    with locked(progress):
        held = read_progress(progress)
        new = sorted(set(data["passed"]) - set(held["passed"]))
        write_json(progress, held | {"passed": sorted({*held["passed"], *data["passed"]})})
    added = add_answers(kept, data["answers"]) if with_answers and data["answers"] else 0
    return f"{len(new)} exercises and {added} answers are new here; {len(data['passed']) - len(new)} were done already"


def add_answers(path: Path, answers: dict[str, Any]) -> int:
    """Merge answers into the file of kept ones; the number of those that it did not hold."""
    with locked(path):
        held = read_answers(path)
        later = {key: KeptAnswer(**answer) for key, answer in answers.items()
                 if key not in held or answer["kept_at"] > held[key].kept_at}
        merged = held | later
        write_json(path, {"answers": {key: asdict(merged[key]) for key in sorted(merged)}})
    return len(later)


def exported(path: Path) -> dict[str, Any]:
    """The content of a file that `write_out` wrote.

    Raises:
        UsageError: it is something else.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}); expected a file written by progress --export") from error
    if not (is_progress(data) and makes_sense(data) and data.get("kind") == KIND):
        raise UsageError(f"{path} is not a file written by progress --export: no {KIND!r} in it")
    return data
