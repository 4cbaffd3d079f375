"""In a student's process: run the cells that an answer needs, then answer the judge's calls until it says no more."""

from __future__ import annotations

import builtins
import contextlib
import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch

from course_lib.analysis.peak_memory import peak_bytes
from course_lib.classroom.answer_source import compile_text
from course_lib.classroom.attempt import Attempt, fingerprint, usual_settings
from course_lib.classroom.cache_ladder import Buffers
from course_lib.classroom.checks import find
from course_lib.classroom.checks.compare import CheckFailed
from course_lib.classroom.exercises import is_stub, reader_frames, transposed_too_far, words_of
from course_lib.classroom.teaching.grading.channel import Channel, Gone, write_message
from course_lib.classroom.teaching.grading.program import Program, Step
from course_lib.classroom.teaching.grading.values import Writer, learning

PROBLEMS_TOLD = 5


def work(channel: Channel, program: Program) -> None:
    """Make the student's function and call it as often as the judge asks; returns when the judge is gone."""
    exercise = find(program.exercise_id)
    names, problems = run_steps(program)
    function = names.get(program.name)
    if not callable(function):
        write_message(channel, {"kind": "nothing", "problems": problems})
        return
    if is_stub(function):
        write_message(channel, {"kind": "stub"})
        return
    write_message(channel, {"kind": "ready", "problems": problems})
    attempt = Attempt(function, exercise.finished)
    own = [program.name, exercise.finished.__name__]
    with attempt.bound(*own), usual_settings(), contextlib.suppress(Gone):
        last, known = Writer(), []
        while True:
            last = answer(channel, attempt, last, known)


def run_steps(program: Program) -> tuple[dict[str, Any], list[str]]:
    """Run the statements that the answer needs, each for itself; the names that they made, and what went wrong."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    names["__builtins__"] = builtins
    problems = []
    for step in program.steps:
        try:
            run_step(step, names)
        except BaseException as error:  # of the student's code: an exit, too, ends this statement only
            problems.append("; ".join([f"cell {step.cell}", *words_of(error, program.name)[:2]]))
    return names, problems[:PROBLEMS_TOLD]


def run_step(step: Step, names: dict[str, Any]) -> None:
    """Run one statement, or bind the name of another exercise to the finished version."""
    if step.finished:
        names[step.name] = find(step.finished).finished
        return
    filename = f"<cell {step.cell}>"
    linecache.cache[filename] = len(step.text), None, step.text.splitlines(True), filename
    exec(compile_text(step.node, filename), names)


def answer(channel: Channel, attempt: Attempt, last: Writer, known: list[Any]) -> Writer:
    """Take one question of the judge's, and answer it; the writer of the last call, which knows its results.

    Args:
        known: objects that came with earlier calls, by number; those that come with this one are added.

    Raises:
        Gone: the judge has ended.
    """
    inbox = Inbox(channel, known)
    kind, call, *content = inbox.read()
    if kind == "gradient":
        answer_gradient(channel, last, *content)
        return last
    inbox.call = call
    args, settings, fresh, measures = content
    known += fresh
    return answer_call(inbox, attempt, (args, settings), measures)


def answer_gradient(channel: Channel, last: Writer, number: int, gradient: torch.Tensor) -> None:
    """Send the gradients of the last call's arguments, or an empty list if they cannot be had."""
    try:
        found = torch.autograd.grad(last.graphs[number], learning(last.kept), gradient, allow_unused=True)
    except (RuntimeError, LookupError):
        found = ()
    writer = Writer()
    write_message(channel, {"gradients": writer.write(list(found))}, writer.blobs)


def answer_call(inbox: Inbox, attempt: Attempt, given: tuple[tuple, dict], measures: bool) -> Writer:
    """Make a call, and send what came of it.

    Args:
        measures: whether to tell the most bytes of tensors that it holds at once.
    """
    inbox.writer = writer = Writer(given)
    before = {i: state_of(one) for i, one in enumerate(writer.kept) if state_of(one) is not None}
    addresses = {i: places(writer.kept[i]) for i in before}
    try:
        results: list[Any] = []
        call = partial(call_once, attempt, given, results)
        peak = peak_bytes(call) if measures else call()
        writer.blobs.clear()
        after = {i: state_now(writer.kept[i], addresses[i]) for i in before if state_of(writer.kept[i]) != before[i]}
        states = {"dict": [[i, writer.write(state)] for i, state in after.items()]}
        message = {"kind": "returned", "value": writer.write(results[0]), "after": states, "peak": peak}
    except Gone:
        raise
    except CheckFailed as failed:
        words = [failed.expected, failed.got, failed.where, failed.likely]
        again = getattr(failed, "raised_by_the_judge", None)
        message = {"kind": "refused", "words": words} if again is None else {"kind": "raised", "again": again}
    except BaseException as error:  # the student's function's, or the student's class's while it is written
        message = described(error, attempt, writer)
    write_message(inbox.channel, {**message, "call": inbox.call}, writer.blobs)
    return writer


def call_once(attempt: Attempt, given: tuple[tuple, dict], results: list[Any]) -> int:
    """Make a call and append its result; no bytes were counted."""
    results.append(attempt(*given[0], **given[1]))
    return 0


def described(error: BaseException, attempt: Attempt, writer: Writer) -> dict[str, Any]:
    """The message that says what was raised, with the lines that a notebook would print."""
    writer.blobs.clear()
    lines = [*reader_frames(error, attempt.file), *words_of(error, attempt.name),
             *transposed_too_far(error, attempt.file)]
    kinds = [kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
    try:
        args, text = writer.write(list(error.args)), str(error)
    except Exception:  # the student's own class
        args, text = None, ""
    return {"kind": "raised", "again": getattr(error, "raised_by_the_judge", None), "type": kinds[0], "args": args,
            "text": text, "lines": lines}


def state_of(argument: Any) -> Any:
    """What an argument that may change holds; None for all others."""
    if isinstance(argument, torch.Generator):
        return fingerprint(argument.get_state())
    if isinstance(argument, Buffers):
        return [fingerprint(vars(argument)), places(argument)]
    return None


def places(argument: Any) -> Any:
    """Where the numbers of a cache's buffers lie."""
    return (argument.keys.data_ptr(), argument.values.data_ptr()) if isinstance(argument, Buffers) else None


def state_now(argument: Any, before: Any) -> Any:
    """The state that the judge gives its own argument; `calls.change` reads it."""
    if isinstance(argument, torch.Generator):
        return argument.get_state()
    now = places(argument)
    return {"length": argument.length, "keys": argument.keys.clone(), "values": argument.values.clone(),
            "same keys": now[0] == before[0], "same values": now[1] == before[1]}


class Inbox:
    """Reads what the judge sends while one call lasts.

    Args:
        known: objects that came before, by number.

    Attributes:
        call: its number.
        writer: for the arguments of functions that are in the judge.
    """

    def __init__(self, channel: Channel, known: list[Any]) -> None:
        self.channel, self.known, self.call, self.writer = channel, known, 0, Writer()
        self.proxies: dict[int, Callable] = {}

    def read(self) -> Any:
        """What the judge pickled.

        Raises:
            Gone: the judge has ended.
        """
        return Incoming(io.BytesIO(self.channel.receive()[0]), self).load()

    def proxy(self, number: int, name: str) -> Callable:
        """A function that calls the judge's; the same one for the same number."""
        if number not in self.proxies:
            def function(*args: Any, **settings: Any) -> Any:
                return self.call_judge(number, args, settings)
            function.__name__ = function.__qualname__ = name
            self.proxies[number] = function
        return self.proxies[number]

    def call_judge(self, number: int, args: tuple, settings: dict[str, Any]) -> Any:
        """Let the judge call one of its functions; what it raises is raised here."""
        self.writer.blobs.clear()
        written = {"args": self.writer.write(list(args)), "settings": self.writer.write(settings)}
        write_message(self.channel, {"kind": "callback", "call": self.call, "function": number, **written},
                      self.writer.blobs)
        kind, *content = self.read()
        if kind == "returned":
            return content[0]
        again, cls, error_args, state = content
        error = cls.__new__(cls, *error_args)
        vars(error).update(state | {"raised_by_the_judge": again})
        raise error


class Incoming(pickle.Unpickler):
    """Reads a pickle of the judge's; its functions become proxies."""

    def __init__(self, file: io.BytesIO, inbox: Inbox) -> None:
        super().__init__(file)
        self.inbox = inbox

    def persistent_load(self, pid: tuple[int, str | None]) -> Any:
        """The proxy of a function that stayed in the judge, or an object that came with an earlier call."""
        number, name = pid
        return self.inbox.known[number] if name is None else self.inbox.proxy(number, name)


def silence() -> None:
    """Turn the standard streams of this process to nowhere, at the level of the operating system."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):
        os.dup2(nowhere, handle)
    sys.stdin = open(0)
    sys.stdout, sys.stderr = (open(handle, "w", encoding="utf-8", errors="backslashreplace") for handle in (1, 2))
