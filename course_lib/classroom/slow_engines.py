"""Four engines whose decode step is too slow for their users, and what the step takes when one thing is halved."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from course_lib.analysis.roofline import MACHINES, Machine, decode_seconds
from course_lib.config import ModelConfig, require
from course_lib.published import PUBLISHED

LIMITS = {
    "weights": "reading the weights",
    "cache": "reading the keys and values of all rows",
    "compute": "the arithmetic",
    "overhead": "starting the operations, whatever their size",
}
HALVED = ("rows", "context", "bits")
H200, M4_MAX = MACHINES["H200"], MACHINES["M4 Max"]


class Engine(NamedTuple):
    """A model that decodes for `rows` users at once, who have `context` positions each."""

    config: ModelConfig
    machine: Machine
    rows: int
    context: int
    bits: float = 16  # of a weight

    def seconds(self) -> float:
        """The time of a decode step."""
        return decode_seconds(self.config, self.context, self.machine, batch_size=self.rows,
                              bytes_per_weight=self.bits / 8)


SUSPECTS: dict[str, Engine] = {
    "A": Engine(PUBLISHED["Llama-3-8B"], M4_MAX, rows=128, context=500),
    "B": Engine(PUBLISHED["Llama-3-8B"], H200, rows=24, context=32_768),
    "C": Engine(PUBLISHED["Qwen3-0.6B"], replace(H200, overhead_s=3e-3), rows=8, context=500),
    "D": Engine(PUBLISHED["Llama-3-8B"], H200, rows=4, context=500),
}


def after_halving(engine: Engine, what: str) -> float:
    """The time of a step with half of `what`, as a share of the time before.

    >>> [round(after_halving(SUSPECTS["D"], what), 2) for what in HALVED]
    [0.99, 0.99, 0.51]
    """
    require(what in HALVED, "what", what, f"one of {', '.join(HALVED)}")
    half = engine._replace(**{what: getattr(engine, what) / 2 if what == "bits" else getattr(engine, what) // 2})
    return half.seconds() / engine.seconds()
