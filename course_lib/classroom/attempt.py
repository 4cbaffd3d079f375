"""The reader's function as a check sees it: guarded, stopped where it does not end, named in its own namespace."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from itertools import islice, zip_longest
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.classroom.checks.compare import CheckFailed, cut, show
from course_lib.tokenizer import Tokenizer

LINE_LIMIT = 200_000  # lines in one call; a right answer on a check's small input runs some hundreds
STEP_LIMIT = 10 * LINE_LIMIT  # instructions of Python: `while True: pass` on one line is a single line
ITEMS_LISTED = 1000  # of an iterator that is returned
LIBRARIES = tuple({os.path.join(path, "") for path in (
    str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))})

COPY_A_TENSOR = ("the caller still needs this one, so make a new tensor: x = x * 2 does, x *= 2 and methods whose "
                 "name ends in _ write into the caller's; a view shares its numbers, and x.float() of a float32 too")
COPY_OTHERS = "the caller still needs this one, so build a new one, or begin with a copy"


class EndlessLoop(BaseException):
    """The reader's function was stopped because it did not come to an end; no `except Exception` holds that up."""


class Attempt:
    """The reader's function: it remembers its last call, cannot run for ever and may not change its arguments.

    Args:
        function: the reader's.
        finished: the finished version, whose parameter names are printed for arguments too long to print, and
            whose name for a callable without one.
    """

    def __init__(self, function: Callable, finished: Callable) -> None:
        self.function, self.finished = function, finished
        self.name = getattr(function, "__name__", finished.__name__)
        self.parameters = list(inspect.signature(finished).parameters)
        self.last_call = ""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """Call it.

        Raises:
            CheckFailed: it changed an argument or a setting of PyTorch, or it returned an iterator.
            EndlessLoop: it did not come to an end.
        """
        given = {self.name_of_argument(i): arg for i, arg in enumerate(args)} | settings
        self.last_call = self.describe(args, settings)
        before, torch_before = {name: fingerprint(value) for name, value in given.items()}, torch_settings()
        shown = {name: show(value) for name, value in given.items()}
        with step_limit():
            result = self.function(*args, **settings)
            listed = list(islice(result, ITEMS_LISTED)) if isinstance(result, Iterator) else None
        for name, value in given.items():
            if fingerprint(value) != before[name]:
                likely = COPY_A_TENSOR if isinstance(value, Tensor) else COPY_OTHERS
                raise CheckFailed(f"{name} as it was: {shown[name]}", f"{name} is now {show(value)}",
                                  f"your function changes its argument {name}", likely)
        if torch_settings() != torch_before:
            raise CheckFailed(show(torch_before), show(torch_settings()), "your function changes a setting of PyTorch",
                              "what it sets holds for every cell below, too: use `with torch.no_grad():` or dtype=...")
        if listed is not None:
            raise CheckFailed("a value", f"an iterator over {show(listed)}", f"result is a {type(result).__name__}, "
                              "which can be read only once", "put list(...) or another container around it")
        return result

    def name_of_argument(self, i: int) -> str:
        """The finished version's name for it."""
        return self.parameters[i] if i < len(self.parameters) else f"argument {i + 1}"

    def describe(self, args: tuple, settings: Mapping[str, Any]) -> str:
        """The call in one line."""
        values = [show(arg) for arg in args]
        short = [value if len(value) <= 80 and not value.startswith("<") else name
                 for value, name in zip_longest(values, self.parameters[: len(args)], fillvalue="...")]
        short += [f"{name}={show(value)}" for name, value in settings.items()]
        return cut(f"{self.name}({', '.join(short)})", 300)

    @property
    def file(self) -> str | None:
        """The file, or the name of the cell, that the function was written in."""
        return getattr(getattr(inspect.unwrap(self.function), "__code__", None), "co_filename", None)

    @contextmanager
    def bound(self, *names: str) -> Iterator[None]:
        """Bind the names to the function where it was written, so that a function which calls itself calls itself.

        Afterwards each name is bound as it was before, or to the finished version: a check that the reader
        interrupts leaves a notebook that goes on.
        """
        namespace = getattr(inspect.unwrap(self.function), "__globals__", {})
        old = {name: namespace[name] for name in names if name in namespace}
        namespace |= dict.fromkeys(names, self.function)
        try:
            yield
        finally:
            namespace |= dict.fromkeys(names, self.finished) | old


def fingerprint(value: Any) -> Any:
    """What a value holds, to be compared with what it holds later; generators, caches and functions may change."""
    if isinstance(value, Tensor):
        flat = value.detach().cpu().flatten().contiguous()
        return value.dtype, value.shape, value.requires_grad, flat.view(torch.uint8).numpy().tobytes()
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, nn.Module):
        return fingerprint(dict(value.named_parameters()) | dict(value.named_buffers()))
    if isinstance(value, Tokenizer):
        return fingerprint([value.mergeable_ranks, value.special_tokens])
    if isinstance(value, Mapping):
        return [(key, fingerprint(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [fingerprint(item) for item in value]
    if is_dataclass(value) and hasattr(value, "__dict__"):
        return fingerprint(vars(value))
    return value if isinstance(value, str | bytes | int | float | set) else None


def torch_settings() -> dict[str, Any]:
    """What a function can set for all that comes after it."""
    return {"default dtype": torch.get_default_dtype(), "gradients": torch.is_grad_enabled()}


@contextmanager
def usual_settings() -> Iterator[None]:
    """PyTorch as it is when it is imported, whatever the reader has set; afterwards as the reader has set it."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def step_limit() -> Iterator[None]:
    """Raise `EndlessLoop` when the reader's code, of whichever cell, runs too long; gives way to a debugger.

    Lines and instructions are counted and not seconds, so the result does not depend on the machine. What runs
    none, a call that waits or an endless loop inside a library, is for the reader to interrupt.
    """
    lines, steps = LINE_LIMIT, STEP_LIMIT
    readers = {}  # by file name

    def enter(frame: FrameType, event: str, _: Any) -> Callable | None:
        name = frame.f_code.co_filename
        if name not in readers:
            readers[name] = is_readers(name)
        if not readers[name]:
            return None
        frame.f_trace_opcodes = True
        return count

    def count(frame: FrameType, event: str, _: Any) -> Callable:
        nonlocal lines, steps
        if event == "opcode":
            steps -= 1
        elif event == "line":
            lines -= 1
        if lines < 0 or steps < 0:
            raise EndlessLoop(no_end(lines))
        return count

    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)
    if lines < 0 or steps < 0:  # a bare `except:` caught it
        raise EndlessLoop(no_end(lines))


def no_end(lines_left: int) -> str:
    """What is said of code that was stopped."""
    ran = f"{LINE_LIMIT:,} lines" if lines_left < 0 else f"{STEP_LIMIT:,} steps"
    return f"no end after {ran}: does the loop advance every time?"


def is_readers(filename: str) -> bool:
    """True for a notebook's cell and for a file that is not part of Python, a package or `course_lib`."""
    return not filename.startswith((*LIBRARIES, "<frozen", "<__array_function__"))
