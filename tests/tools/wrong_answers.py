"""Known wrong answers for whoever teaches: what students write, what they see, what to say.

    python tests/tools/wrong_answers.py              write teaching/wrong_answers/*.md afresh
    python tests/tools/wrong_answers.py --missing 03 list the wrong answers that nothing is said to yet

The answers are the mutants of tests/mutants/, the messages are those of the checks, and what to say stands in
teaching/say/, one file for each notebook.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutants import marked

from course_lib.classroom.attempt import Attempt, usual_settings
from course_lib.classroom.checks import find, notebooks
from course_lib.classroom.course_map import CHAPTERS
from course_lib.classroom.exercises import explain

ROOT = Path(__file__).parents[2]
SAY, PAGES = ROOT / "teaching" / "say", ROOT / "teaching" / "wrong_answers"
EXPECT = ("often", "sometimes", "rarely")
SHOWN = 3  # ways of writing one mistake
LINE = 110


class Mistake(NamedTuple):
    """Wrong answers to one exercise that are refused in the same words."""

    exercise_id: str
    words: str
    answers: tuple[Callable, ...]


class Said(NamedTuple):
    """What to answer a student, and how often a teacher should expect to."""

    expect: str
    say: str


def mistakes(notebook: str) -> list[Mistake]:
    """The mistakes of a notebook in the order of its exercises."""
    wrong = [answer for answer in marked(importlib.import_module(f"mutants.nb{notebook}")) if answer.words]
    wrong.sort(key=lambda answer: answer.exercise_id)
    kinds: dict[tuple[str, str], list[Callable]] = {}
    for answer in wrong:
        kinds.setdefault((answer.exercise_id, answer.words), []).append(answer)
    return [Mistake(*key, tuple(answers)) for key, answers in kinds.items()]


def said(notebook: str) -> dict[tuple[str, str], Said]:
    """What to say, by exercise and words; empty where nothing is written yet.

    Raises:
        ValueError: `expect` is none of `EXPECT`, or a mistake is answered twice.
    """
    path = SAY / f"{notebook}.toml"
    found: dict[tuple[str, str], Said] = {}
    for exercise_id, entries in (tomllib.loads(path.read_text("utf-8")) if path.exists() else {}).items():
        for entry in entries:
            key = exercise_id, entry["words"]
            if entry["expect"] not in EXPECT or key in found:
                raise ValueError(f"{path.name}: {key} has expect {entry['expect']!r}, must be one of {EXPECT}, once")
            found[key] = Said(entry["expect"], entry["say"])
    return found


def message(answer: Callable) -> list[str]:
    """What a student who writes this is told."""
    exercise = find(answer.exercise_id)
    attempt, name = Attempt(answer, exercise.finished), exercise.finished.__name__
    attempt.name = name
    with warnings.catch_warnings(), attempt.bound(name), usual_settings():
        warnings.simplefilter("ignore")
        complaint = explain(exercise.check, attempt)
    if complaint is None:
        raise ValueError(f"{answer.__name__} passes")
    return [f"Exercise {exercise.id} {complaint[0]}", *(line for line in complaint[1:] if "nb" + exercise.notebook
                                                      + ".py, line" not in line)]


def source(answer: Callable) -> str:
    """The answer as a student would type it: its body, under the name of the exercise."""
    function = ast.parse(textwrap.dedent(inspect.getsource(answer))).body[0]
    lines = inspect.getsource(answer).splitlines()[function.lineno - 1 :]
    return "\n".join([lines[0].replace(answer.__name__, find(answer.exercise_id).finished.__name__), *lines[1:]])


def leans_on(tree: ast.AST, module: ModuleType, done: set[str]) -> Iterator[str]:
    """Source of the module's own functions and constants that some code names, the deepest first; `done` grows."""
    text = inspect.getsource(module)
    own = {name: node for node in ast.parse(text).body for name in names_made(node)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in sorted(used & own.keys() - done, key=lambda name: own[name].lineno):
        done.add(name)
        yield from leans_on(own[name], module, done)
        yield ast.get_source_segment(text, own[name])


def names_made(node: ast.stmt) -> list[str]:
    """The names that a statement of a module binds, imports left out."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def page(notebook: str) -> str:
    """The page of a notebook."""
    [chapter] = [chapter for chapter in CHAPTERS if chapter.number == notebook]
    answers = said(notebook)
    lines = [f"# Known wrong answers, notebook {notebook} · {chapter.title}", "",
             f"[Teaching page](../{chapter.file}.md). Each answer below was given to the check, and the message is "
             "what the check said. *Often*, *sometimes* and *rarely* are what a teacher should be ready for; nobody "
             "has counted. This file is written by `tests/tools/wrong_answers.py`."]
    shown: set[str] = set()
    for exercise_id, group in groupby(mistakes(notebook), key=lambda mistake: mistake.exercise_id):
        exercise, wrong = find(exercise_id), list(group)
        lines += ["", f"## {exercise.heading.partition(' · ')[0]} · {exercise.title}"]
        if shared := [part for mistake in wrong for answer in mistake.answers[:SHOWN]
                      for part in leans_on(ast.parse(source(answer)), inspect.getmodule(answer), shown)]:
            lines += ["", "Several answers below share this:", "", "```python", "\n\n".join(shared), "```"]
        for mistake in sorted(wrong, key=lambda mistake: EXPECT.index(answers[mistake[:2]].expect)):
            lines += ["", *entry(mistake, answers[mistake[:2]])]
    return "\n".join(lines) + "\n"


def entry(mistake: Mistake, answer: Said) -> Iterator[str]:
    """One mistake: what they write, what they see, what to say."""
    first = mistake.answers[0]
    name = first.__name__.replace("_", " ")
    yield f"### {name[0].upper()}{name[1:]} · {answer.expect}"
    yield ""
    yield from ["```python", "\n\n".join(source(one) for one in mistake.answers[:SHOWN]), "```", ""]
    if (more := len(mistake.answers) - SHOWN) > 0:
        yield f"and {more} more in the same spirit. "
    yield "They see:"
    yield ""
    yield "```text"
    for line in message(first):
        yield from textwrap.wrap(line, LINE, subsequent_indent="    ", break_on_hyphens=False,
                                 break_long_words=False) or [""]
    yield from ["```", "", f"**Say:** {answer.say}"]


def flat(text: str) -> str:
    """A text without its line breaks, to look for words in."""
    return " ".join(text.split())


def missing(notebook: str) -> list[Mistake]:
    """Mistakes that nothing is said to."""
    return [mistake for mistake in mistakes(notebook) if mistake[:2] not in said(notebook)]


def left_over(notebook: str) -> list[tuple[str, str]]:
    """What is said to mistakes that no mutant makes."""
    return sorted(said(notebook).keys() - {mistake[:2] for mistake in mistakes(notebook)})




def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true", help="list what nothing is said to yet; write nothing")
    parser.add_argument("notebooks", nargs="*", help="two digits each; default: all")
    options = parser.parse_args(argv)
    status = 0
    for notebook in options.notebooks or notebooks():
        absent, extra = missing(notebook), left_over(notebook)
        for mistake in absent:
            print(f"{mistake.exercise_id}  {mistake.answers[0].__name__}  |  {mistake.words}")
        print(*(f"{key[0]}  no mutant has the words: {key[1]}" for key in extra), sep="\n", end="\n" if extra else "")
        status |= bool(absent or extra)
        if not options.missing and not absent:
            PAGES.mkdir(exist_ok=True)
            (PAGES / f"{notebook}.md").write_text(page(notebook), encoding="utf-8")
            print(PAGES / f"{notebook}.md")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
