"""The judge's side of a call: arguments go out, and a result, an error or a request to call a function comes in."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course_lib.classroom.attempt import Attempt
from course_lib.classroom.cache_ladder import Buffers
from course_lib.classroom.checks.compare import CheckFailed, cut
from course_lib.classroom.teaching.grading.channel import Channel, Gone, OutOfTime, read_message
from course_lib.classroom.teaching.grading.reading import Reader
from course_lib.classroom.teaching.grading.sending import Known, Outbox, looks_of
from course_lib.classroom.teaching.grading.values import Malformed, parts, whole

LINES_TAKEN, WIDTH_TAKEN, MOST_CALLBACKS = 16, 500, 200_000


class StudentError(Exception):
    """An error in the student's function of a type that Python itself does not have."""


class RemoteAttempt(Attempt):
    """An attempt whose function runs in another process, where an `Attempt` of its own guards it."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        self.last_call = self.describe(args, settings)
        return self.function(*args, **settings)


class RemoteFunction:
    """The student's function as the judge calls it.

    Args:
        channel: to the process in which it is.
        name: that the student gave it.

    Attributes:
        error: the last one that came from it.
        lines: what is said of that error, from the student's process: text to print and nothing more.
        broken: why there is no verdict; the first reason. A check may catch the exception itself.
        reported: whether a call changed an argument, or its memory was measured: only the student's process sees that.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel, self.__name__ = channel, name
        self.error: BaseException | None = None
        self.lines: list[str] = []
        self.broken: Exception | None = None
        self.reported = False
        self.calls = self.callbacks = 0
        self.known: list[Known] = []
        self.measures, self.peak = False, 0

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """Call it there.

        Raises:
            CheckFailed: the guard there refused what it did.
            OutOfTime, Gone, Malformed: there is no result; nor will there be one of a later call.
            Exception: what the function raised, or the nearest type that Python has.
        """
        if self.broken:
            raise self.broken
        try:
            return self.call(args, settings)
        except (OutOfTime, Gone, Malformed) as error:
            self.broken = error
            raise

    def call(self, args: tuple, settings: Mapping[str, Any]) -> Any:
        """Have the worker call the function, and answer what it asks in the meantime.

        Raises:
            Exception: what the function raised there, or what is wrong with its reply.
        """
        self.calls += 1
        given, outbox = (args, dict(settings)), Outbox(self.known)
        self.channel.send(outbox.pickled(("call", self.calls, *given, outbox.fresh, self.measures)))
        while True:
            message, blobs = read_message(self.channel)
            if message.get("call") != self.calls:
                raise Malformed("an answer to a call that was not made")
            reader = Reader(blobs, given, partial(self.gradients, self.calls))
            if message.get("kind") != "callback":
                return self.finish(message, reader, given, outbox)
            self.run_callback(message, reader, outbox)

    def peak_bytes(self, call: Callable[[], object]) -> int:
        """`course_lib.analysis.peak_memory.peak_bytes` of a call that comes here, measured where it runs."""
        self.measures, self.peak, self.reported = True, 0, True
        try:
            call()
        finally:
            self.measures = False
        return self.peak

    def gradients(self, call: int, number: int, gradient: Tensor) -> list[Tensor | None]:
        """The gradients of the arguments of the last call, from that of its result."""
        if call != self.calls:
            raise ValueError("the gradient of a call before the last one")
        self.channel.send(Outbox().pickled(("gradient", call, number, gradient)))
        message, blobs = read_message(self.channel)
        found = Reader(blobs).read(message.get("gradients"))
        if not isinstance(found, list) or not all(one is None or isinstance(one, Tensor) for one in found):
            raise Malformed("no gradients")
        return found

    def run_callback(self, message: dict, reader: Reader, outbox: Outbox) -> None:
        """Call a function of the check for the student's, and send what came of it."""
        self.callbacks += 1
        number = message.get("function")
        if type(number) is not int or not 0 <= number < len(outbox.functions) or self.callbacks > MOST_CALLBACKS:
            raise Malformed("a call of a function that there is not")
        args, settings = reader.read(message.get("args")), reader.read(message.get("settings"))
        if not isinstance(args, list) or not isinstance(settings, dict) or not all(map(text, settings)):
            raise Malformed("a call without arguments")
        try:
            reply = "returned", outbox.functions[number](*args, **settings)
        except Exception as error:  # of the check's function: for the student's to catch, as in a notebook
            outbox.raised.append(error)
            reply = "raised", len(outbox.raised) - 1, type(error), error.args, dict(vars(error))
        self.channel.send(outbox.pickled(reply))

    def finish(self, message: dict, reader: Reader, given: tuple, outbox: Outbox) -> Any:
        """The result of a call, or what it raised."""
        kind = message.get("kind")
        if kind == "returned":
            self.apply(reader.read(message.get("after")), list(parts(given)))
            self.peak = max(self.peak, whole(message.get("peak")))
            self.known = [Known(one.value, looks_of(one.value)) for one in self.known]
            return reader.read(message.get("value"))
        if kind == "refused":
            raise CheckFailed(*(cut(str(one), WIDTH_TAKEN) for one in four(message.get("words"))))
        if kind != "raised":
            raise Malformed("a message of no known kind")
        again = message.get("again")
        if type(again) is int and 0 <= again < len(outbox.raised):
            self.error = outbox.raised[again]
        else:
            self.error = revive(str(message.get("type")), reader.read(message.get("args")), str(message.get("text")))
        lines = message.get("lines")
        self.lines = [cut(str(line), WIDTH_TAKEN) for line in lines[:LINES_TAKEN]] if isinstance(lines, list) else []
        raise self.error

    def apply(self, after: Any, arguments: list[Any]) -> None:
        """Do to the judge's arguments what the student's function did to those that may change."""
        if not isinstance(after, dict):
            raise Malformed("arguments without a state")
        for number, state in after.items():
            if type(number) is not int or not 0 <= number < len(arguments):
                raise Malformed("the state of an argument that there is not")
            self.reported = True
            try:
                change(arguments[number], state)
            except (TypeError, ValueError, RuntimeError, LookupError) as error:
                raise Malformed("a state that does not fit its argument") from error


def text(value: Any) -> bool:
    """Whether it is a str."""
    return isinstance(value, str)


def four(words: Any) -> list:
    """The four texts of a `CheckFailed`."""
    if not isinstance(words, list) or len(words) != 4:
        raise Malformed("a refusal without words")
    return words


def change(argument: Any, state: Any) -> None:
    """Give a generator or the buffers of a cache the state that they have in the student's process."""
    if isinstance(argument, torch.Generator):
        argument.set_state(state)
    elif isinstance(argument, Buffers):
        argument.length = state["length"]
        for name in ("keys", "values"):
            if state["same " + name] is True:
                getattr(argument, name).copy_(state[name])
            else:
                setattr(argument, name, state[name])
    else:
        raise Malformed("a state of what has none")


def revive(name: str, args: Any, words: str) -> BaseException:
    """An error of a type that Python has, as it was raised in the student's process; else a `StudentError`."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return StudentError(cut(words, WIDTH_TAKEN))
    try:
        return kind(*args) if isinstance(args, list) else kind(cut(words, WIDTH_TAKEN))
    except (TypeError, ValueError):
        return StudentError(cut(words, WIDTH_TAKEN))
