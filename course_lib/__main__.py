"""`python -m course_lib COMMAND`: each command is the `main` of one module."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "doctor": ("classroom.doctor", "check this installation and say what to do about what is wrong"),
    "evaluate": ("training.evaluate", "measure the shipped model on questions it was not trained on"),
    "train": ("training.train", "rebuild the shipped weights from the corpus generator"),
    "corpus": ("training.corpus", "print or count what the corpus generator writes"),
    "bench": ("analysis.bench", "measure this machine: time to first token, tokens per second"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with the arguments that follow it; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m course_lib", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)  # the module has the help of its options
    options, arguments = parser.parse_known_args(argv)
    return import_module(f"course_lib.{COMMANDS[options.command][0]}").main(arguments)


if __name__ == "__main__":
    sys.exit(main())
