"""`python -m course_lib class …`: what a teacher needs before, in and after a lesson.

    python -m course_lib class student DIR          the notebooks as students get them: pristine, without outputs
    python -m course_lib class solutions DIR        every exercise answered, and executed
    python -m course_lib class reset 03             a notebook as it was; yours is kept beside it
    python -m course_lib class handout 03           sheets to print, answers at the end
    python -m course_lib class slides 03            slides, one file that needs no network
    python -m course_lib class wheelhouse DIR       all that an installation without a network needs
    python -m course_lib class grade DIR            run what students sent in, each apart; a table and a page for each
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from course_lib.command_line import Parser

COMMANDS = {
    "student": ("editions", "write the notebooks as students get them: pristine, without outputs"),
    "solutions": ("editions", "write the notebooks with every exercise answered, and executed"),
    "reset": ("editions", "put a notebook back as it was; the present one is kept beside it"),
    "handout": ("handout", "write sheets to print: exercises, hints and answers at the end"),
    "slides": ("slides", "write slides, one file that needs no network"),
    "wheelhouse": ("wheelhouse", "collect all that an installation without a network needs, and try it"),
    "grade": ("grading.command", "run what students sent in, each apart from the others; a table and a page for each"),
}


def main(argv: Sequence[str]) -> int:
    """Run a command with the arguments that follow it; the result is the exit status."""
    parser = Parser(prog="python -m course_lib class", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)  # the function has the help of its options
    command = parser.parse_args(argv[:1]).command
    module = import_module(f"course_lib.classroom.teaching.{COMMANDS[command][0]}")
    return getattr(module, command)(argv[1:])
