"""`python -m course_lib class grade DIR`: run what students sent in, each answer apart from all others.

DIR holds a notebook for each student, `ada.ipynb`, or a folder for each, `ada/` with any notebooks in it. Answers are
found by their `@exercise("03.1")`. In the folder of the results you find

    grades.csv      a row for each student: 1 or 0 for each exercise
    answers.csv     a row for each answer, with what its check said
    summary.html    for you: who has what, frequent mistakes, answers to look at
    students/       a page for each student, to be given back
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from course_lib.classroom.checks import exercises_of, find, notebooks
from course_lib.classroom.teaching.grading.judge import SandboxFailed, judge
from course_lib.classroom.teaching.grading.layers import choose_layers
from course_lib.classroom.teaching.grading.pages import page_name, student_page, summary
from course_lib.classroom.teaching.grading.sandbox import Limits, Sandbox
from course_lib.classroom.teaching.grading.submissions import Submission, find_submissions
from course_lib.classroom.teaching.grading.tables import Graded, answers, grades, write_file
from course_lib.command_line import Parser, UsageError, in_range

SECONDS, MEMORY_MB, DISK_MB = 60.0, 1024, 64


def grade(argv: Sequence[str]) -> int:
    """Run the command; the result is the exit status, 0 if every submission could be read."""
    args = parser().parse_args(argv)
    if not sys.platform.startswith("linux"):
        raise UsageError("grading runs students' code, and only Linux has what holds it: use WSL on Windows, or a "
                         "container; grading.md in the folder teaching says how")
    folder = Path(args.folder)
    submissions = find_submissions(folder)
    out = results_folder(folder, args.out)
    warm_up()
    wanted = chooser(args.notebook)
    layers = choose_layers(folder, args.unprotected)
    sandbox = Sandbox(Limits(args.seconds, args.memory_mb, args.disk_mb), layers)
    facts = [f"Each answer ran in a process of its own, for at most {args.seconds:g} seconds, with {args.memory_mb:,} "
             f"MB of memory and {args.disk_mb:,} MB of files.", in_force(layers)]
    print(facts[1])
    results = grade_all(submissions, sandbox, wanted, lambda graded: write_all(out, graded, args.notebook, facts))
    print(f"{len(results)} students: open {out / 'summary.html'}")
    return int(any(graded.problems for graded in results))


def warm_up() -> None:
    """Let PyTorch look at the processor, which it cannot where a student's code runs, and start no threads.

    No gradient may be computed in this process: a fork of it then could compute none.
    """
    torch.set_num_threads(1)
    torch.ones(64, dtype=torch.float16).float().bfloat16() @ torch.ones(64, dtype=torch.bfloat16)


def parser() -> Parser:
    """The options."""
    made = Parser(prog="python -m course_lib class grade", description=__doc__.split("\n\n")[0])
    made.add_argument("folder", metavar="DIR", help="holds ada.ipynb, or ada/ with notebooks, for each student")
    made.add_argument("--notebook", choices=notebooks(), metavar="NN", help="grade the exercises of this notebook only")
    made.add_argument("--out", metavar="DIR", help="the folder of the results; DIR-grades beside DIR by default")
    made.add_argument("--seconds", type=in_range(1, 3600, float), default=SECONDS,
                      help=f"for one answer ({SECONDS:g} by default)")
    made.add_argument("--memory-mb", type=in_range(64, 1 << 20), default=MEMORY_MB,
                      help=f"beyond what Python and PyTorch take ({MEMORY_MB} by default)")
    made.add_argument("--disk-mb", type=in_range(1, 1 << 20), default=DISK_MB,
                      help=f"of files that an answer may write ({DISK_MB} by default)")
    made.add_argument("--unprotected", action="store_true",
                      help="grade although this machine cannot hold students' code; for code that you trust")
    return made


def results_folder(folder: Path, out: str | None) -> Path:
    """The folder of the results, made if there is none.

    Raises:
        UsageError: it lies in the folder of the submissions, or is no folder.
    """
    folder = folder.resolve()
    path = Path(out).resolve() if out else folder.with_name(f"{folder.name}-grades")
    if path == folder or folder in path.parents:
        raise UsageError(f"the results cannot go to {str(path)!r}, among the submissions: choose another --out")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{str(path)!r} is no folder")
    (path / "students").mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o700)
    return path


def chooser(notebook: str | None) -> Callable[[str], bool]:
    """Which exercise ids are graded."""
    return lambda exercise_id: notebook is None or exercise_id.partition(".")[0] == notebook


def in_force(layers: Sequence[str]) -> str:
    """What held the students' code, in a sentence."""
    if not layers:
        return "Nothing but limits held the students' code (--unprotected)."
    return f"Layers of protection in force: {', '.join(layers)}."


def grade_all(submissions: Sequence[Submission], sandbox: Sandbox, wanted: Callable[[str], bool],
              write: Callable[[list[Graded]], None]) -> list[Graded]:
    """Judge one submission after the other; the results are written after each, so that they can be read early.

    Raises:
        UsageError: processes can no longer be started.
    """
    results: list[Graded] = []
    for submission in submissions:
        try:
            verdicts, problems = judge(submission, sandbox, wanted)
        except SandboxFailed as error:
            raise UsageError(f"{submission.student}: {error} The results so far are written") from error
        results.append(Graded(submission.student, verdicts, problems, page_name(submission.student)))
        write(results)
        right = sum(verdict.credit for verdict in verdicts)
        print(f"{printable(submission.student)}: {right} of {len(verdicts)} answers are right"
              + (f"; {printable(problems[0])}" if problems else ""), flush=True)
    return results


def printable(text: str) -> str:
    """A text without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


def columns(results: Sequence[Graded], notebook: str | None) -> list[str]:
    """The exercises of the tables: all of each notebook of which there is an answer."""
    found = {notebook} if notebook else {find(verdict.exercise).notebook for graded in results
                                         for verdict in graded.verdicts}
    return [exercise.id for name in sorted(found) for exercise in exercises_of(name)]


def write_all(out: Path, results: list[Graded], notebook: str | None, facts: Sequence[str]) -> None:
    """Write both tables, the summary and the pages; each file is replaced in one step."""
    ids = columns(results, notebook)
    write_file(out / "grades.csv", grades(results, ids))
    write_file(out / "answers.csv", answers(results, ids))
    write_file(out / "summary.html", summary(results, ids, facts))
    for graded in results:
        own = {find(verdict.exercise).notebook for verdict in graded.verdicts} or {i[:2] for i in ids}
        write_file(out / "students" / graded.page, student_page(graded, [i for i in ids if i[:2] in own]))
