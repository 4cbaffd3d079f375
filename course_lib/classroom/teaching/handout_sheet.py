"""A notebook as a sheet to print: what is asked on the sheet, and the answers in a key that starts on its own page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

from course_lib.classroom.answers import LIBRARY, answer
from course_lib.classroom.checks import find
from course_lib.classroom.quiz_questions import LETTERS, marked_up, questions
from course_lib.classroom.teaching.answered import exercise_id
from course_lib.classroom.teaching.blocks import (
    Block,
    answer_html,
    highlight,
    markdown_blocks,
    output_blocks,
    plain,
    running_heads,
    source_block,
    summary,
)

PLUMBING = ("# Stuck?", "progress(")  # how cells begin that do nothing on paper
CARD = re.compile(r"^### (?:Exercise|Pencil|Open question)", re.M)
SPARE_LINES = 5  # of a place to write, more than the answer has


class Item(NamedTuple):
    """Something on the sheet: a kind, which is its class in the style sheet, HTML, and empty lines to write on."""

    kind: str
    html: str
    lines: int = 0


class Answer(NamedTuple):
    """An answer to a prediction or a pencil problem: number, section, question, and the answer as HTML."""

    number: int
    section: str
    question: str
    html: str


class Solution(NamedTuple):
    """An exercise in the key: its id, title, hints and code as HTML, and what the library has that does more."""

    exercise: str
    title: str
    hints: list[str]
    code: str
    library: str | None


@dataclass
class Sheet:
    """All that is printed, in its order.

    Attributes:
        items: what is on the sheet.
        answers: for the key.
        solutions: for the key.
    """

    items: list[Item] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    solutions: list[Solution] = field(default_factory=list)


def sheet(notebook: NotebookNode, folder: Path, *, exercises_only: bool = False) -> Sheet:
    """A notebook for paper, without what only a screen needs: folded cells, and cells that print hints or progress.

    Args:
        folder: where the notebook's images are.
        exercises_only: leave all out but the tasks: cards with a place to write.

    Raises:
        FileNotFoundError: an image is missing.
    """
    made, first_code = Sheet(), next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    for index, (cell, section) in enumerate(zip(notebook.cells, running_heads(notebook))):
        exercise = exercise_id(cell)
        if "hide-cell" in cell.metadata.get("tags", ()) or cell.source.startswith(PLUMBING):
            continue
        if exercises_only and not (exercise or is_task(cell) or index in (0, 1)):
            continue
        if asks := re.fullmatch(r'quiz\("(\d\d)"\)', cell.source):
            add_quiz(made, asks[1], section)
        elif cell.cell_type == "markdown":
            blocks = markdown_blocks(cell.source, folder)
            add_text(made, heading_only(blocks) if exercises_only and index == 0 else blocks, section,
                     room=exercises_only)
        else:
            made.items += code_items(cell, small=cell is first_code, stub=exercises_only)
        if exercise:
            made.solutions.append(solution(exercise))
            made.items += [Item("room", "", made.solutions[-1].code.count("\n") + SPARE_LINES)] * exercises_only
    return made


def is_task(cell: NotebookNode) -> bool:
    """Whether a text sets an exercise, a pencil problem or an open question."""
    return cell.cell_type == "markdown" and CARD.search(cell.source) is not None


def heading_only(blocks: Iterable[Block]) -> list[Block]:
    """Of the title cell the title."""
    return [block for block in blocks if block.kind == "heading"]


def add_text(made: Sheet, blocks: Iterable[Block], section: str, *, room: bool) -> None:
    """Put text on the sheet. An answer goes to the key, and its number stays where it was asked."""
    question = ""
    for block in blocks:
        if block.kind == "heading" and block.level == 2:
            section = block.text
        if block.kind == "answer":
            number, asked = len(made.answers) + 1, summary(block.html)
            if asked != "Answer":
                made.items.append(Item("paragraph", f"<p>{escape(asked)}</p>"))
            made.answers.append(Answer(number, section, question if asked == "Answer" else asked,
                                       answer_html(block.html)))
            made.items.append(Item("asked", f"Answer {number}", 6 if room else 1))
        else:
            made.items.append(Item(item_kind(block), block.html))
        if block.kind in ("quote", "paragraph", "heading"):
            question = re.sub(r"^Predict\.\s*", "", block.text)


def add_quiz(made: Sheet, notebook: str, section: str) -> None:
    """Put the questions of a notebook on the sheet, options open, and what is right into the key."""
    for question in questions(notebook):
        options = list(zip(LETTERS, question.options))
        texts = "<br>".join(f"{letter}. {marked_up(option.text)}" for letter, option in options)
        made.items.append(Item("paragraph", f"<p><strong>{marked_up(question.text)}</strong><br>{texts}</p>"))
        [right] = [f"{letter}. {marked_up(option.why)}" for letter, option in options if option.right]
        made.answers.append(Answer(len(made.answers) + 1, section, question.text, f"<p>{right}</p>"))
        made.items.append(Item("asked", f"Answer {len(made.answers)}", 1))


def item_kind(block: Block) -> str:
    """The class of a block on paper; block quotes have that of their first word, such as `quote predict`."""
    first = re.match(r"\w*", block.text)[0].lower()
    return f"quote {first}" if block.kind == "quote" else block.kind


def code_items(cell: NotebookNode, *, small: bool, stub: bool) -> list[Item]:
    """The source of a cell, and below it what the cell gave; of a stub only its lines up to `...`."""
    source = source_block(cell)
    if stub:
        return [Item("code stub", highlight(re.sub(r"\n\s*\.\.\.\s*$", "", cell.source)))]
    if exercise_id(cell):
        return [Item("code stub", source.html)]
    return [Item("code small" if small else "code", source.html),
            *(Item(block.kind, block.html) for block in output_blocks(cell))]


def solution(exercise: str) -> Solution:
    """What the key says about an exercise."""
    this = find(exercise)
    return Solution(exercise, f"{this.title} ({this.kind}, {this.minutes} min)",
                    [coded(hint) for hint in this.hints], highlight(inspect.getsource(answer(exercise)).rstrip()),
                    LIBRARY.get(exercise))


def coded(text: str) -> str:
    """A hint as HTML, with what stands in backticks as code.

    >>> coded("`tril` of x < y")
    '<code>tril</code> of x &lt; y'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def shortened(text: str, most: int = 120) -> str:
    """The beginning of a text, cut between words.

    >>> shortened("one two three four", 12)
    'one two …'
    """
    text = plain(text)
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} …"
