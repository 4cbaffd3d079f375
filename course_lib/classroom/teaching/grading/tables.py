"""The two tables of a grading: a row for each student, and a row for each answer."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.classroom.checks import find
from course_lib.classroom.teaching.grading.judge import FIELDS, MISSING, Verdict
from course_lib.classroom.whole_file import write_whole

FORMULA = "=+-@\t\r"  # at the beginning of a cell, a spreadsheet takes the rest for a formula
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
ANSWER_COLUMNS = ("student", "exercise", "title", "status", "credit", "basis", *FIELDS, "message", "remarks", "file",
                  "cell", "seconds")
BY_JUDGE, IN_PART, NOBODY = "judged", "judged; side effects reported by the student's process", ""


@dataclass
class Graded:
    """One student's results.

    Attributes:
        verdicts: on the exercises that were found.
        problems: what could not be read.
        page: file name of the student's page.
    """

    student: str
    verdicts: list[Verdict]
    problems: list[str]
    page: str


def basis(verdict: Verdict) -> str:
    """On whose word a verdict rests; nothing where there is none."""
    if not verdict.status.startswith(("right", "not right", "error")):
        return NOBODY
    return IN_PART if verdict.reported else BY_JUDGE


def safe_cell(value: object) -> str:
    """A value as a cell of a table that a spreadsheet shows as text.

    >>> safe_cell("=1+1"), safe_cell(-2), safe_cell("a\\nb")
    ("'=1+1", '-2', 'a b')
    """
    if isinstance(value, int | float):
        return f"{value:g}"
    text = CONTROL.sub(" ", str(value))
    return f"'{text}" if str(value)[:1] in tuple(FORMULA) or text[:1] in tuple(FORMULA) else text


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([safe_cell(cell) for cell in row] for row in rows)
    return file.getvalue()


def grades(results: Sequence[Graded], exercise_ids: Sequence[str]) -> str:
    """`grades.csv`: 1 or 0 for each exercise, how many are right, and how many there are."""
    rows = [["student", *exercise_ids, "right", "of"]]
    for graded in results:
        credit = {verdict.exercise: verdict.credit for verdict in graded.verdicts}
        marks = [credit.get(i, 0) for i in exercise_ids]
        rows.append([graded.student, *marks, sum(marks), len(marks)])
    return csv_text(rows)


def answers(results: Sequence[Graded], exercise_ids: Sequence[str]) -> str:
    """`answers.csv`: what came of each answer."""
    rows: list[Sequence[object]] = [ANSWER_COLUMNS]
    for graded in results:
        found = {verdict.exercise: verdict for verdict in graded.verdicts}
        for i in exercise_ids:
            rows.append(answer_row(graded.student, found.get(i, Verdict(i, MISSING))))
    return csv_text(rows)


def answer_row(student: str, verdict: Verdict) -> list[object]:
    """One row of `answers.csv`."""
    fields = verdict.fields
    others = [line for line in verdict.lines if line.partition(":")[0] not in FIELDS]
    return [student, verdict.exercise, find(verdict.exercise).title, verdict.status, verdict.credit, basis(verdict),
            *(fields.get(name, "") for name in FIELDS), " / ".join([*others, *verdict.problems]),
            "; ".join(verdict.remarks), verdict.file, verdict.cell or "", round(verdict.seconds, 2)]


def write_file(path: Path, text: str) -> None:
    """Replace a file in one step, so that an interruption leaves the old one or the new one."""
    write_whole(path, text.encode(errors="backslashreplace"), private=True)
