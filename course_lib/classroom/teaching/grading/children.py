"""Functions run in processes of their own, whose results are plain JSON; they end with the process that began them."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from course_lib.classroom.teaching.grading import kernel

MOST_RESULT = 8 << 20  # bytes


class ChildFailed(Exception):
    """A process ended, or took too long, without a result; the message says which."""


def until_death(number: int) -> None:
    """Let the kernel send this process a signal when the one that began it ends."""
    if sys.platform == "linux":
        kernel.prctl(kernel.PARENT_DEATH, number)


def in_child(function: Callable[[], Any], seconds: float) -> Any:
    """What a function returns, run in a fork of this process.

    Args:
        function: its result can be written as JSON.
        seconds: after which the process is killed.

    Raises:
        ChildFailed: there is no result.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        run_child(function, writing)
    os.close(writing)
    try:
        data = read_until(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    try:
        return json.loads(data)
    except ValueError as error:
        code = os.waitstatus_to_exitcode(status)
        raise ChildFailed(f"it ended with status {code}") from error


def run_child(function: Callable[[], Any], writing: int) -> None:
    """In the child: run, write the result, leave without what Python does at its end."""
    status = 1
    try:
        until_death(signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        data = json.dumps(function()).encode("ascii")
        while data:
            data = data[os.write(writing, data) :]
        status = 0
    except (RecursionError, MemoryError):
        status = 2
    finally:
        os._exit(status)


def read_until(handle: int, deadline: float) -> bytes:
    """All that comes from a pipe until it is closed.

    Raises:
        ChildFailed: the deadline is over, or more comes than a result can be.
    """
    data = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([handle], [], [], left)[0]:
            raise ChildFailed("it took too long")
        if not (more := os.read(handle, 1 << 16)):
            return bytes(data)
        data += more
        if len(data) > MOST_RESULT:
            raise ChildFailed("its result is too long")
