"""Five questions to a notebook: each option unfolds into an explanation, in a notebook, on a page, without a kernel."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from IPython.display import HTML, display

from course_lib.classroom.course_map import CHAPTERS
from course_lib.config import require

FOLDER = Path(__file__).with_name("quizzes")
QUESTIONS, OPTIONS = 5, (3, 4)
LETTERS = "ABCD"


@dataclass(frozen=True)
class Option:
    """What can be answered, whether it is right, and why or why not."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True)
class Question:
    """A question and its three or four options, one of which is right."""

    text: str
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        require(len(self.options) in OPTIONS, "options", len(self.options), f"one of {OPTIONS}")
        right = sum(option.right for option in self.options)
        require(right == 1, "right options", right, f"1, in {self.text!r}")
        require(all(option.text and option.why for option in self.options), "options", self.text, "texts and reasons")


def questions(notebook: str) -> tuple[Question, ...]:
    """The questions of a notebook, given its two digits.

    Raises:
        ValueError: there is no such notebook, or its file does not hold five questions.

    >>> len(questions("03"))
    5
    """
    known = [chapter.number for chapter in CHAPTERS]
    require(notebook in known, "notebook", notebook, f"one of {', '.join(known)}")
    records = tomllib.loads((FOLDER / f"nb{notebook}.toml").read_text("utf-8"))["questions"]
    require(len(records) == QUESTIONS, "questions", len(records), f"{QUESTIONS} for notebook {notebook}")
    return tuple(Question(record["text"], tuple(Option(**option) for option in record["options"]))
                 for record in records)


def as_html(notebook: str) -> str:
    """The questions as a list whose options unfold; nothing in it runs."""
    return "\n".join(['<div class="course-quiz">', "<ol>", *map(item, questions(notebook)), "</ol>", "</div>"])


def item(question: Question) -> str:
    """One question with its options."""
    return f"<li><p>{marked_up(question.text)}</p>\n{''.join(folded(question))}</li>"


def folded(question: Question) -> Iterator[str]:
    """Its options, each with what it says when it is opened."""
    for letter, option in zip(LETTERS, question.options):
        verdict = "✓ Right." if option.right else "✗ No."
        yield (f"<details><summary>{letter}. {marked_up(option.text)}</summary>"
               f"<p><strong>{verdict}</strong> {marked_up(option.why)}</p></details>\n")


def marked_up(text: str) -> str:
    """HTML of a line in which `code` and *stress* may be marked.

    >>> marked_up("*Time* sees `S - T` keys")
    '<em>Time</em> sees <code>S - T</code> keys'
    """
    parts = re.split(r"(`[^`]+`)", escape(text, quote=False))
    return "".join(f"<code>{part[1:-1]}</code>" if part[:1] == "`" else re.sub(r"\*([^*]+)\*", r"<em>\1</em>", part)
                   for part in parts)


def quiz(notebook: str) -> None:
    """Show the questions of a notebook; an option says, once it is opened, why it is right or wrong."""
    display(HTML(as_html(notebook)))
