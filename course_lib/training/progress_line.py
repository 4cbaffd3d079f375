"""The progress of a training in one line of text: how far it is, its losses, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TextIO

BAR = 20


def duration(seconds: float) -> str:
    """A time span, rounded, in at most two units.

    >>> [duration(s) for s in (0.4, 59.4, 61, 3600, 90_000)]
    ['0 s', '59 s', '1 min 1 s', '1 h 0 min', '25 h 0 min']
    """
    minutes, s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {s} s" if minutes else f"{s} s"
    return f"{minutes // 60} h {minutes % 60} min"


def progress_line(entry: Mapping[str, float], steps: int, left: float) -> str:
    """The line for a log entry.

    Args:
        steps: of the whole run.
        left: seconds.

    >>> progress_line({"step": 30, "loss": 4.318, "val_loss": 4.5}, 40, 12.2)
    'step 30/40 [###############.....] loss 4.32, held back 4.50, 12 s left'
    """
    bar = "#" * (BAR * int(entry["step"]) // steps)
    return (f"step {entry['step']:,}/{steps:,} [{bar:.<{BAR}}] loss {entry['loss']:.2f}, "
            f"held back {entry['val_loss']:.2f}, {duration(left)} left")


class ProgressLine:
    """Writes the line over the one before on a terminal; elsewhere, a new line for each tenth of the run.

    Args:
        steps: of the whole run.
        first: the step at which this session goes on; the time left follows from the steps since.
    """

    def __init__(self, steps: int, first: int = 0, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.steps, self.first = steps, first
        self.started, self.width, self.tenth = time.perf_counter(), 0, 10 * first // steps

    def show(self, entry: Mapping[str, float]) -> None:
        """Draw the line for a log entry."""
        step = entry["step"]
        pace = (time.perf_counter() - self.started) / (step - self.first)
        line = progress_line(entry, self.steps, pace * (self.steps - step))
        if self.out.isatty():
            self.out.write(f"\r{line:<{self.width}}")
            self.width = len(line)
        elif 10 * step // self.steps > self.tenth:
            self.out.write(f"{line}\n")
        self.tenth = 10 * step // self.steps
        self.out.flush()

    def say(self, text: str) -> None:
        """Print a line of its own, above the progress."""
        if self.width:
            self.out.write(f"\r{'':<{self.width}}\r")
            self.width = 0
        self.out.write(f"{text}\n")
        self.out.flush()
