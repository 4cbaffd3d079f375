"""When a model's passes end, seen from outside: beside it a client can tell whether its text comes while it is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from torch import nn

from course_lib.config import require


@contextmanager
def passes(model: nn.Module, pauses: Mapping[int, float] | None = None) -> Iterator[list[float]]:
    """Note when each pass of a model ends, in whatever thread it runs.

    Args:
        pauses: seconds to sleep before a pass, by its number from 1.

    Yields:
        A list that grows by one time of `time.perf_counter` for each pass.

    Raises:
        ValueError: a pass has no such number, or a pause is negative.
    """
    pauses = dict(pauses or {})
    require(all(number >= 1 for number in pauses), "pauses", pauses, "numbered from 1")
    require(all(seconds >= 0 for seconds in pauses.values()), "pauses", pauses, ">= 0 seconds long")
    ends: list[float] = []
    begun = [0]

    def before(module: nn.Module, args: Any) -> None:
        begun[0] += 1
        time.sleep(pauses.get(begun[0], 0))

    def after(module: nn.Module, args: Any, output: Any) -> None:
        ends.append(time.perf_counter())

    hooks = model.register_forward_pre_hook(before), model.register_forward_hook(after)
    try:
        yield ends
    finally:
        for hook in hooks:
            hook.remove()


def until(holds: Callable[[], bool], *, seconds: float = 30.0, every: float = 0.005) -> float:
    """Wait until something holds; how many seconds that took.

    Raises:
        TimeoutError: it did not come to hold.
    """
    started = time.perf_counter()
    while not holds():
        if time.perf_counter() - started > seconds:
            raise TimeoutError(f"not within {seconds:g} seconds")
        time.sleep(every)
    return time.perf_counter() - started


def gaps(times: Sequence[float]) -> list[float]:
    """From each to the next.

    >>> gaps([1.0, 1.5, 3.5])
    [0.5, 2.0]
    """
    return [later - earlier for earlier, later in pairwise(times)]
