"""What the commands share: options with ranges, and errors of one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


class UsageError(ValueError):
    """What was asked for cannot be done. The message says why, and a traceback would say no more."""


class Parser(argparse.ArgumentParser):
    """A parser of options that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and leave with status 2."""
        self.exit(2, f"{self.prog}: {message} (--help lists what there is)\n")


def in_range(low: float, high: float = math.inf, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """The `type` of an option that takes a number from `low` to `high`, both included.

    >>> in_range(1)("12")
    12
    """
    allowed = f">= {low:,}" if high == math.inf else f"from {low:,} to {high:,}"
    allowed = f"an integer {allowed}" if kind is int else allowed

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: must be {allowed}")
        return value

    return parse


@contextmanager
def usage_errors() -> Iterator[None]:
    """Within it a ValueError is about what was asked for and becomes a `UsageError`; elsewhere it is our own fault."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error
