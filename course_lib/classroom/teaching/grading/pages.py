"""The pages of a grading: one for each student, and a summary for the teacher. Whatever a student wrote is escaped."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape

from course_lib.classroom.checks import find
from course_lib.classroom.teaching.grading.judge import (
    BROKEN,
    ERROR,
    FIELDS,
    MISSING,
    NONE,
    RIGHT,
    STUB,
    WRONG,
    Verdict,
    missing,
)
from course_lib.classroom.teaching.grading.tables import IN_PART, Graded, basis

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; border-top: 1px solid #888; padding-top: 1rem; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .2rem .7rem; }
td, dd { overflow-wrap: anywhere; } tr { border-bottom: 1px solid #bbb; }
dl { display: grid; grid-template-columns: 6rem 1fr; } dt { font-weight: 600; } dd { margin: 0; }
code, pre, dd { font-family: ui-monospace, monospace; font-size: .9rem; } pre { white-space: pre-wrap; }
@media print { body { margin: 0; } h2 { break-after: avoid; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing is loaded and nothing runs, whatever a page holds
MARKS = {RIGHT: "✓", WRONG: "✗", ERROR: "✗", NONE: "?", BROKEN: "?", STUB: "·", MISSING: "·"}
FREQUENT, NAMES_SHOWN = 2, 8


def page(title: str, body: Iterable[str]) -> str:
    """A whole page; the title is escaped here, the body is HTML."""
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width">', f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>", "</head>", "<body>", f"<h1>{escape(title)}</h1>", *body, "</body>", "</html>", ""])


def page_name(student: str) -> str:
    """The file name of a student's page: letters that every system allows, and a few more to keep names apart.

    >>> page_name("ada")
    'ada-fdee430d.html'
    """
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", student)[:60].strip("_") or "student"
    return f"{plain}-{hashlib.sha256(student.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}.html"


def student_page(graded: Graded, exercise_ids: Sequence[str]) -> str:
    """What a student gets back: for each exercise what came of it, in the words of its check."""
    verdicts = missing(exercise_ids, graded.verdicts)
    right = sum(verdict.credit for verdict in verdicts)
    body = [f"<p>{right} of {len(verdicts)} exercises are right.</p>"]
    if graded.problems:
        body += ["<p>What could not be read:</p>", listing(graded.problems)]
    for verdict in verdicts:
        body += answer_part(verdict)
    return page(graded.student, body)


def answer_part(verdict: Verdict) -> list[str]:
    """One exercise on a student's page."""
    title = f"{verdict.exercise} {find(verdict.exercise).title}: {verdict.status}"
    part = [f"<h2>{MARKS[verdict.status]} {escape(title)}</h2>"]
    if verdict.cell:
        part.append(f"<p>{escape(verdict.file)}, cell {verdict.cell}</p>")
    fields = verdict.fields
    if fields:
        items = (f"<dt>{name}</dt><dd>{escape(fields[name])}</dd>" for name in FIELDS if name in fields)
        part += ["<dl>", *items, "</dl>"]
    if others := [line for line in verdict.lines if line.partition(":")[0] not in FIELDS]:
        part.append(f"<pre>{escape(chr(10).join(others))}</pre>")
    if verdict.problems and not verdict.credit:
        part += ["<p>Statements that the answer may need, and that raised an error:</p>", listing(verdict.problems)]
    return part


def listing(items: Iterable[str]) -> str:
    """A list of texts."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def summary(results: Sequence[Graded], exercise_ids: Sequence[str], facts: Sequence[str]) -> str:
    """The teacher's page: who has what, which wrong answers came often, and what to look at.

    Args:
        facts: how it was graded, in sentences.
    """
    table = {graded.student: missing(exercise_ids, graded.verdicts) for graded in results}
    body = [*(f"<p>{escape(fact)}</p>" for fact in facts), "<h2>Who has what</h2>", *overview(results, table)]
    body += ["<h2>Frequent mistakes</h2>", *mistakes(table)]
    body += ["<h2>Answers to look at</h2>", *remarkable(table)]
    body += ["<h2>What could not be read</h2>"]
    said = [f"{graded.student}: {problem}" for graded in results for problem in graded.problems]
    return page("Summary", [*body, listing(said) if said else "<p>Nothing.</p>"])


def overview(results: Sequence[Graded], table: dict[str, list[Verdict]]) -> list[str]:
    """A row for each student and a column for each exercise."""
    ids = [verdict.exercise for verdict in next(iter(table.values()), [])]
    rows = ["<table>", "<tr><th>student</th>" + "".join(f"<th>{i}</th>" for i in ids) + "<th>right</th></tr>"]
    for graded in results:
        verdicts = table[graded.student]
        cells = "".join(f'<td title="{escape(verdict.status)}">{MARKS[verdict.status]}</td>' for verdict in verdicts)
        link = f'<a href="students/{escape(graded.page)}">{escape(graded.student)}</a>'
        rows.append(f"<tr><td>{link}</td>{cells}<td>{sum(verdict.credit for verdict in verdicts)}</td></tr>")
    right = [sum(verdicts[i].credit for verdicts in table.values()) for i in range(len(ids))]
    rows.append("<tr><th>right</th>" + "".join(f"<td>{n}</td>" for n in right) + f"<td>{sum(right)}</td></tr>")
    return [*rows, "</table>", "<p>✓ right, ✗ wrong or an error, ? no verdict, · not attempted or not handed in</p>"]


def mistakes(table: dict[str, list[Verdict]]) -> list[str]:
    """Wrong answers of the same sort, the most frequent first."""
    groups: dict[tuple[str, str], list[tuple[str, Verdict]]] = defaultdict(list)
    for student, verdicts in table.items():
        for verdict in verdicts:
            if verdict.status in (WRONG, ERROR, NONE):
                words = verdict.fields.get("likely") or (verdict.lines[-1] if verdict.lines else verdict.status)
                groups[verdict.exercise, words].append((student, verdict))
    frequent = sorted(((key, found) for key, found in groups.items() if len(found) >= FREQUENT),
                      key=lambda item: (-len(item[1]), item[0]))
    if not frequent:
        return [f"<p>None came from {FREQUENT} students or more.</p>"]
    rows = ["<table>", "<tr><th>exercise</th><th>students</th><th>likely</th><th>for example</th></tr>"]
    for (exercise_id, words), found in frequent:
        names = ", ".join(student for student, _ in found[:NAMES_SHOWN])
        names += f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
        example = found[0][1].fields.get("differs", "")
        rows.append(f"<tr><td>{exercise_id}</td><td>{len(found)}: {escape(names)}</td><td>{escape(words)}</td>"
                    f"<td>{escape(example)}</td></tr>")
    return [*rows, "</table>"]


def remarkable(table: dict[str, list[Verdict]]) -> list[str]:
    """Answers with remarks, without a verdict, or whose judgement rests in part on the student's process."""
    said = [f"{student}, {verdict.exercise}: {'; '.join(notes)}" for student, verdicts in table.items()
            for verdict in verdicts if (notes := notes_on(verdict))]
    return [listing(said) if said else "<p>None.</p>",
            "<p>Remarks come from reading the code. They prove nothing, and their absence proves nothing.</p>"]


def notes_on(verdict: Verdict) -> list[str]:
    """What to say of an answer in the teacher's list."""
    notes = list(verdict.remarks)
    if verdict.status == NONE:
        notes.append("no verdict: " + " / ".join(verdict.lines))
    if basis(verdict) == IN_PART and verdict.credit:
        notes.append(IN_PART)
    return notes
