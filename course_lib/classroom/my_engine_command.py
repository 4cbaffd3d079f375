"""`python -m course_lib my-engine`: the engine that the reader's own answers make."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from course_lib.checkpoint import load
from course_lib.classroom.engine_export import export_text, write_file
from course_lib.classroom.engine_slots import PartFailedError
from course_lib.classroom.kept_answers import answers_path, course_version, is_kept, read_answers
from course_lib.classroom.my_engine import YOURS, MyEngine, Row, my_engine
from course_lib.command_line import Parser, in_range, usage_errors
from course_lib.config import SamplingParams
from course_lib.server import serve
from course_lib.server.command import KEY_VARIABLE

NAME = "my-engine"


def table(rows: Sequence[Row]) -> str:
    """The parts, a line each, in columns."""
    lines = [("stage", "exercise", "whose", "what, and why")]
    lines += [(row.stage, row.exercise, row.whose, f"{row.title}{f' ({row.why})' if row.why else ''}") for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[3]]) for line in lines)


def show_list(options: argparse.Namespace) -> None:
    """Say which part is whose, and how the engine does beside the finished one."""
    engine = make(options)
    print(table(engine.parts(everything=options.all)))
    own = sum(row.whose == YOURS for row in engine.parts())
    print(f"\n{own} of {len(engine.parts())} parts are yours. Your answers: {answers_path()}"
          f"{'' if is_kept() else ' (new ones are not kept)'}")
    if own:
        speed = engine.speed()
        print(f"At temperature 0 it writes what course_lib's engine writes, at {speed.tokens_per_s:.0f} tokens per "
              f"second ({speed.ratio:.2f} times as fast).")


def export(options: argparse.Namespace) -> None:
    """Write the reader's functions to a file that answers a question."""
    engine, path = make(options), Path(options.to)
    answers, kept = engine.lm.own.answers(), read_answers()
    with usage_errors():
        text = export_text({key: kept[key] for key in answers}, path.name, course_version())
        write_file(path, text, force=options.force)
    print(f"{path} holds {len(answers)} functions of yours: python {path} \"What is gravity?\"")
    for row in engine.parts():
        if row.exercise in kept and row.exercise not in answers:
            print(f"  without {row.exercise}, {row.title}: {row.why}")


def ask(options: argparse.Namespace) -> None:
    """Stream the answer to one question."""
    engine = make(options)
    with usage_errors():  # as of a question that is longer than the context
        answer(engine, [{"role": "user", "content": options.question}], options.temperature)


def chat(options: argparse.Namespace) -> None:
    """Answer line after line, until the end of the input or an empty line."""
    engine, messages = make(options), []
    while (line := read_line("> ")).strip():
        messages.append({"role": "user", "content": line.strip()})
        try:
            messages.append({"role": "assistant", "content": answer(engine, messages, options.temperature)})
        except ValueError as error:  # the conversation has outgrown the context
            print(f"{error}; the conversation begins anew")
            messages = []
        except PartFailedError as failed:
            print(f"\n{failed}. Ask again")
            messages.pop()


def read_line(prompt: str) -> str:
    """A line of the input, "" at its end."""
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except EOFError:
        return ""


def answer(engine: MyEngine, messages: Sequence[dict[str, str]], temperature: float) -> str:
    """Print an answer as it comes, and return it."""
    running = engine.stream(messages, SamplingParams(temperature=temperature, max_tokens=200))
    for text in running:
        print(text, end="", flush=True)
    print()
    return running.output.text


def serve_it(options: argparse.Namespace) -> None:
    """Answer OpenAI's clients, as `course_lib serve` does."""
    with usage_errors():
        engine = make(options)
        serve(engine.lm, host=options.host, port=options.port, api_key=options.api_key, model=NAME,
              engine=engine.engine)


def make(options: argparse.Namespace) -> MyEngine:
    """The engine that the options ask for; what is wrong with an answer goes to stderr where nothing else says it."""
    with usage_errors():
        engine = my_engine(load(options.model), bits=options.bits, group_size=options.group_size)
    if options.run is not show_list:
        for key, why in engine.problems.items():
            print(f"{key}: {why}", file=sys.stderr)
    return engine


def parser() -> Parser:
    """The options."""
    made = Parser(prog=f"python -m course_lib {NAME}", description=__doc__)
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=run.__doc__.splitlines()[0], description=run.__doc__)
        one.add_argument("--model", help="pocket, a folder or a hub id (default: COURSE_MODEL or pocket)")
        one.add_argument("--bits", type=in_range(2, 8), help="round the weights with your functions of notebook 11")
        one.add_argument("--group-size", type=in_range(1), help="of weights that share a scale (default: a whole row)")
        one.set_defaults(run=run)
        return one

    command("list", show_list).add_argument("--all", action="store_true", help="also exercises without a place in it")
    one = command("export", export)
    one.add_argument("--to", default="my_llm.py", help="the file (default: %(default)s)")
    one.add_argument("--force", action="store_true", help="replace a file that is there")
    for name, run in (("ask", ask), ("chat", chat)):
        one = command(name, run)
        one.add_argument("--temperature", type=in_range(0, kind=float), default=0.0, help="(default: 0)")
        if run is ask:
            one.add_argument("question")
    one = command("serve", serve_it)
    one.add_argument("--host", default="127.0.0.1", help="beyond this machine with a key (default: %(default)s)")
    one.add_argument("--port", type=in_range(0, 65535), default=8000, help="0: a free one (default: %(default)s)")
    one.add_argument("--api-key", default=os.environ.get(KEY_VARIABLE) or None,
                     help=f"better in the environment's {KEY_VARIABLE}: other users see a command's arguments")
    return made


def main(argv: Sequence[str]) -> int:
    """The command."""
    bare = not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help"))
    options = parser().parse_args(["list", *argv] if bare else argv)
    options.run(options)
    return 0
