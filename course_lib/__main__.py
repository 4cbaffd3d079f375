"""`python -m course_lib COMMAND`: each command is the `main` of one module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from course_lib.command_line import Parser, UsageError

COMMANDS = {
    "doctor": ("classroom.doctor", "check this installation and say what to do about what is wrong"),
    "evaluate": ("training.evaluate", "measure the shipped model on questions it was not trained on"),
    "train": ("training.command", "rebuild the shipped weights, or train a small model on your own text"),
    "corpus": ("training.corpus", "print or count what the corpus generator writes"),
    "scaling": ("training.scaling", "train the family of models that the scaling laws are fitted to"),
    "serve": ("server.command", "answer OpenAI's clients over HTTP"),
    "load-test": ("analysis.load_test", "many clients at once against an OpenAI-compatible server"),
    "class": ("classroom.teaching.command", "teach: editions, sheets, slides, an installation offline, grades"),
    "progress": ("classroom.progress_command", "what is done, what is next, the minutes left; export and import"),
    "my-engine": ("classroom.my_engine_command", "run the engine that your own answers make"),
    "bench": ("analysis.bench", "measure this machine: time to first token, tokens per second"),
}

CLOSED_PIPE, INTERRUPTED = 141, 130  # what a shell reports of a program that SIGPIPE or SIGINT ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with the arguments that follow it; the result is the exit status.

    What is wrong with the request or with the machine (`UsageError`, OSError) is told in one line, with status 2.
    Every other exception is a fault of the program and keeps its traceback.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = Parser(prog="python -m course_lib", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)  # the module has the help of its options
    command = parser.parse_args(argv[:1]).command
    try:
        status = import_module(f"course_lib.{COMMANDS[command][0]}").main(argv[1:])
        sys.stdout.flush()  # a closed pipe shows here at the latest
        return status
    except BrokenPipeError:  # as with `| head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except (UsageError, OSError) as error:
        print(f"python -m course_lib {command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\npython -m course_lib {command}: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
