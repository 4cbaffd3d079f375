"""`python -m course_lib my-engine`: the engine that the reader's own answers make."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from course_lib.checkpoint import load
from course_lib.classroom.engine_export import export_text, write_file
from course_lib.classroom.engine_slots import NEVER, PartFailedError
from course_lib.classroom.kept_answers import answers_path, course_version, is_kept, read_answers
from course_lib.classroom.my_engine import YOURS, MyEngine, Row, Speed, my_engine
from course_lib.classroom.own_speculation import DRAFTS
from course_lib.command_line import Parser, UsageError, in_range, usage_errors
from course_lib.config import SamplingParams
from course_lib.generate import Draft, Stream
from course_lib.server import serve
from course_lib.server.command import KEY_VARIABLE

NAME = "my-engine"
PARAMS = SamplingParams(temperature=0, max_tokens=200)
SAMPLING = {"temperature": float, "top_k": int, "top_p": float, "min_p": float, "repetition_penalty": float,
            "seed": int}  # options of `ask` and `chat`
LOGGERS = ("course_lib.server.engine_thread", "uvicorn.error")  # where a server says what has failed


def table(rows: Sequence[Row]) -> str:
    """The parts, a line each, in columns."""
    lines = [("stage", "exercise", "whose", "runs", "what, and why")]
    lines += [(row.stage, row.exercise, row.whose, row.runs, f"{row.title}{f' ({row.why})' if row.why else ''}")
              for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[4]]) for line in lines)


def at_work(rows: Sequence[Row]) -> str:
    """When those functions run that are the reader's, in words: how many in generation, how many with a draft."""
    runs = Counter(row.runs for row in rows if row.whose == YOURS)
    return ", ".join(f"{runs[when]} {when}" for when in sorted(runs, key=lambda when: when == NEVER))


def until_it_ends(run: Callable[..., Any], *args: Any) -> Any:
    """Run something with the engine, and again whenever a function of the reader's fails: course_lib's replaces it.

    Raises:
        UsageError: it fails elsewhere, at something that such a function has returned.
    """
    while True:
        try:
            return run(*args)
        except PartFailedError as failed:
            print(failed, file=sys.stderr)


def show_list(options: argparse.Namespace) -> None:
    """Say which part is whose, when it runs, and how the engine does beside the finished one."""
    engine = make(options)
    try:  # first, since a function that fails is not the reader's any more
        speed = until_it_ends(measured, engine) if own_parts(engine) else None
    finally:
        print(table(engine.parts(everything=options.all)))
    rows, own = engine.parts(), own_parts(engine)
    print(f"\n{own} of {len(rows)} parts {'is' if own == 1 else 'are'} yours{': ' if own else ''}{at_work(rows)}. Your "
          f"answers: {answers_path()}{'' if is_kept() else ' (new ones are not kept)'}")
    if own:
        print(f"At temperature 0 it writes what course_lib's engine writes, at {speed.tokens_per_s:.0f} tokens per "
              f"second ({speed.ratio:.2f} times as fast).")


def own_parts(engine: MyEngine) -> int:
    """How many parts are the reader's."""
    return sum(row.whose == YOURS for row in engine.parts())


def measured(engine: MyEngine) -> Speed:
    """Its speed.

    Raises:
        PartFailedError: a function of the reader's fails.
        UsageError: what one has returned makes something else fail.
    """
    with failures(engine):
        return engine.speed()


@contextmanager
def failures(engine: MyEngine) -> Iterator[None]:
    """Within it, where the library fails, it does so at something that a function of the reader's has returned.

    Raises:
        UsageError: it does, and the engine has such functions.
    """
    try:
        yield
    except (PartFailedError, OSError):
        raise
    except Exception as error:
        if not own_parts(engine):
            raise
        text = " ".join(str(error).split())
        raise UsageError(f"the engine fails at what one of your functions returns: {type(error).__name__}: {text}"
                         ) from error


def export(options: argparse.Namespace) -> None:
    """Write the reader's functions to a file that answers a question."""
    engine, path = make(options), Path(options.to)
    answers, kept = engine.lm.own.answers(), read_answers()
    with usage_errors():
        if options.draft:
            engine.draft(options.draft)
        text = export_text({key: kept[key] for key in answers}, path.name, course_version(), model=model_name(options),
                           draft=options.draft, bits=options.bits, group_size=options.group_size)
        write_file(path, text, force=options.force)
    print(f"{path} holds {len(answers)} function{'' if len(answers) == 1 else 's'} of yours: "
          f"python {path} \"What is gravity?\"")
    for row in engine.parts():
        if row.exercise in kept and row.exercise not in answers:
            print(f"  without {row.exercise}, {row.title}: {row.why}")


def model_name(options: argparse.Namespace) -> str:
    """What `load` is told in another folder to load the same model."""
    name = options.model or os.environ.get("COURSE_MODEL") or "pocket"
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def ask(options: argparse.Namespace) -> None:
    """Stream the answer to one question, and say on stderr how long it took."""
    engine = make(options)
    with usage_errors():  # as of a question that is longer than the context
        params, draft = settings(options), draft_of(engine, options)
        running = until_it_ends(answer, engine, [{"role": "user", "content": options.question}], params, draft)
    ttft_s, itl_s, tokens_per_s = until_it_ends(engine.latency, running)
    print(f"First token after {1000 * ttft_s:.0f} ms, then {1000 * itl_s:.1f} ms a token: {tokens_per_s:.0f} tokens "
          "per second.", file=sys.stderr)


def chat(options: argparse.Namespace) -> None:
    """Answer line after line, until the end of the input or an empty line."""
    engine, messages = make(options), []
    with usage_errors():
        params, draft = settings(options), draft_of(engine, options)
    while (line := read_line("> ")).strip():
        messages.append({"role": "user", "content": line.strip()})
        try:
            running = until_it_ends(answer, engine, messages, params, draft)
            messages.append({"role": "assistant", "content": running.output.text})
        except UsageError:
            raise
        except ValueError as error:  # the conversation has outgrown the context
            print(f"{error}; the conversation begins anew")
            messages = []


def read_line(prompt: str) -> str:
    """A line of the input, "" at its end."""
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except EOFError:
        return ""


def settings(options: argparse.Namespace) -> SamplingParams:
    """How tokens are chosen.

    Raises:
        ValueError: a number is out of range.
    """
    return SamplingParams(**{name: getattr(options, name) for name in SAMPLING}, max_tokens=PARAMS.max_tokens)


def draft_of(engine: MyEngine, options: argparse.Namespace) -> Draft | None:
    """The draft that the options ask for.

    Raises:
        ValueError: the model has another vocabulary.
    """
    return engine.draft(options.draft) if options.draft else None


def answer(engine: MyEngine, messages: Sequence[dict[str, str]], params: SamplingParams, draft: Draft | None) -> Stream:
    """Print an answer as it comes, and return what it came from.

    Raises:
        ValueError: the conversation does not fit into the context.
        PartFailedError, UsageError: as `measured`.
    """
    running = engine.stream(messages, params, draft=draft)
    try:
        with failures(engine):
            for text in running:
                print(text, end="", flush=True)
    finally:
        print(flush=True)
    return running


def serve_it(options: argparse.Namespace) -> None:
    """Answer OpenAI's clients, as `course_lib serve` does."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(in_one_line)
    with usage_errors():
        engine = make(options)
        serve(engine.lm, host=options.host, port=options.port, api_key=options.api_key, model=NAME,
              engine=engine.engine)


def in_one_line(record: logging.LogRecord) -> bool:
    """A filter of logs: where a function of the reader's has failed, say so, and leave the traceback out."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, PartFailedError):
        record.msg, record.args, record.exc_info = f"{error}. Requests that it was at work for have failed", (), None
    return True


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
        if run in (ask, chat, export):
            one.add_argument("--draft", choices=DRAFTS, help="it guesses, and your functions of notebook 12 decide "
                             "instead of those of 07; for pocket and models with its vocabulary")
        one.set_defaults(run=run)
        return one

    command("list", show_list).add_argument("--all", action="store_true", help="also exercises without a place in it")
    one = command("export", export)
    one.add_argument("--to", default="my_llm.py", help="the file (default: %(default)s); it keeps the options")
    one.add_argument("--force", action="store_true", help="replace a file that is there")
    for name, run in (("ask", ask), ("chat", chat)):
        one = command(name, run)
        for option, kind in SAMPLING.items():
            one.add_argument(f"--{option.replace('_', '-')}", type=kind, default=getattr(PARAMS, option),
                             help="(default: %(default)s)")
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
