"""A setting that takes too long to measure again in every run, as it came out of one run, with that run's plain one."""

from __future__ import annotations

from typing import NamedTuple

from course_lib.analysis.levers import PLAIN, Row, Setting


class Stored(NamedTuple):
    """A setting of another run.

    Attributes:
        row, plain: as `measure` returned them; only their ratios mean anything beside the numbers of another run.
        machine: where that was, in a few words.
        before_s: seconds of computing until the setting could run, which no number of the row holds.
    """

    row: Row
    plain: Row
    machine: str
    before_s: float


# measure(load(), [PLAIN, Setting(compiled=True)], rounds=6), one thread, PyTorch 2.13. `before_s` are processor seconds
# of the first `Bench.time`, children included, with an empty cache of the compiler.
COMPILED = Stored(
    Row(Setting(compiled=True), 130.8, 0.0502, 0.00558, 30_430_208, 5_242_880, 2.7760, 23 / 24, 22 / 24, 0.212),
    Row(PLAIN, 117.7, 0.0438, 0.00638, 30_430_208, 5_242_880, 2.7760, 23 / 24, 22 / 24, 0.236),
    "two virtual cores of an Intel Xeon", 74)
