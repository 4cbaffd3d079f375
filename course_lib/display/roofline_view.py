"""How fast a machine could run a model: two steps under the roofline, with rates and prices, as data and in words.

Pure functions, which `roofline_picture` draws. Every time comes from the function of FLOPs, bytes and machine that is
given, which may be the reader's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from course_lib.analysis.roofline import Machine, dollars_per_million, regime
from course_lib.config import ModelConfig, require
from course_lib.costs import decode_bytes, flops_per_token, kv_bytes_per_token, prefill_flops, weight_bytes
from course_lib.display.diagrams.log_axes import Dot
from course_lib.display.fit_view import size
from course_lib.display.views import count, percent

StepSeconds = Callable[[float, float, Machine], float]  # (flops, nbytes, machine) to seconds
CriticalBatch = Callable[[Machine, float], float]  # (machine, bytes_per_weight) to rows
BITS = {"16 bits": 16, "8 bits": 8, "4 bits": 4}
BATCHES = tuple(2**n for n in range(10))
BOUNDS = ("Bounds, not promises: no program on this machine is faster, and most are slower. Prices assume that the "
          "machine is never idle. The cache has 16 bits a number, and products run at the machine's 16-bit speed.")


@dataclass(frozen=True)
class Phase:
    """A step of prefill or decode.

    Attributes:
        dot: its place under the roof.
        limit: "compute", "memory" or "overhead".
        tokens: read or written in it.
        dollars: for a million of them; None where the machine has no price.
    """

    dot: Dot
    limit: str
    tokens: int
    dollars: float | None

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.dot.seconds


@dataclass(frozen=True)
class RooflineView:
    """What a machine can do at best with a model.

    Attributes:
        model: its name.
        machine: what the numbers are for: the one that was chosen, or as many of it as the model needs.
        machines: how many that is.
        bits, batch, context: of the weights; rows; positions of each, and tokens of the prompt.
        prefill, decode: the two steps.
        critical: rows at which multiplying takes as long as reading the weights.
        weights, caches: bytes that have to fit.
        shared: the part of the bytes of a decode step that is weights, read once for all rows.
        ends: prefill, and decode of the smallest and of the largest batch: what a picture has to have room for, so
            that the dots move in it when the batch grows, and not its axes.
    """

    model: str
    machine: Machine
    machines: int
    bits: int
    batch: int
    context: int
    prefill: Phase
    decode: Phase
    critical: float
    weights: float
    caches: float
    shared: float
    ends: tuple[Dot, ...]


@dataclass(frozen=True)
class Setting:
    """What is asked.

    Attributes:
        name, config: of the model.
        bits: of its weights.
        batch: rows, at least 1.
        context: positions of each row, in [1, max_position_embeddings].
    """

    name: str
    config: ModelConfig
    bits: str = "16 bits"
    batch: int = 1
    context: int = 1000

    def __post_init__(self) -> None:
        most = self.config.max_position_embeddings
        require(self.bits in BITS, "bits", self.bits, f"one of {', '.join(BITS)}")
        require(self.batch >= 1, "batch", self.batch, ">= 1")
        require(1 <= self.context <= most, "context", self.context, f"in [1, {most}], the positions of {self.name}")

    @property
    def bytes_per_weight(self) -> float:
        """Of each weight."""
        return BITS[self.bits] / 8

    def decode(self, batch: int) -> tuple[float, float]:
        """FLOPs and bytes of a decode step."""
        return (batch * flops_per_token(self.config, self.context).total,
                decode_bytes(self.config, self.context, batch_size=batch, bytes_per_weight=self.bytes_per_weight))

    def prefill(self) -> tuple[float, float]:
        """FLOPs and bytes of a pass over the prompt."""
        return (prefill_flops(self.config, self.context),
                decode_bytes(self.config, self.context, bytes_per_weight=self.bytes_per_weight))


def roofline_view(setting: Setting, machine: Machine, step_seconds: StepSeconds,
                  critical_batch: CriticalBatch) -> RooflineView:
    """Find out what limits prefill and decode, how fast they can be, and what they cost.

    Args:
        machine: if the model and its caches do not fit into its memory, the numbers are for as many as are needed.
        step_seconds, critical_batch: the formulas.

    Raises:
        ValueError: a formula does not give a positive number.
    """
    weights = weight_bytes(setting.config, setting.bytes_per_weight)
    caches = setting.batch * setting.context * kv_bytes_per_token(setting.config)
    n = math.ceil((weights + caches) / machine.memory_bytes) if machine.memory_bytes else 1
    used = machine.times(n) if n > 1 else machine

    def step(name: str, flops: float, nbytes: float) -> Dot:
        return Dot(name, flops, nbytes, positive("step_seconds(…)", step_seconds(flops, nbytes, used)))

    prefill, decode = step("prefill", *setting.prefill()), step("decode", *setting.decode(setting.batch))
    ends = [step("", *setting.decode(batch)) for batch in (1, max(BATCHES[-1], setting.batch))]
    return RooflineView(
        setting.name, used, n, BITS[setting.bits], setting.batch, setting.context,
        phase(prefill, setting.context, used), phase(decode, setting.batch, used),
        positive("critical_batch(…)", critical_batch(used, setting.bytes_per_weight)), weights, caches,
        1 - setting.batch * (setting.decode(2)[1] - setting.decode(1)[1]) / decode.nbytes,
        (prefill, *ends))


def positive(name: str, value: float) -> float:
    """The value, if it is a number that a time or a batch can be."""
    fine = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    require(fine, name, value, "a positive number")
    return float(value)


def phase(dot: Dot, tokens: int, machine: Machine) -> Phase:
    """A step with what limits it and what its tokens cost."""
    price = None if machine.dollars_per_hour is None else dollars_per_million(dot.seconds, tokens, machine)
    return Phase(dot, regime(dot.flops, dot.nbytes, machine), tokens, price)


# Words


def duration(seconds: float) -> str:
    """A time in three digits.

    >>> [duration(s) for s in (4.52e-3, 0.0144, 140.3, 4.5e-6)]
    ['4.52 ms', '14.4 ms', '140 s', '4.5 µs']
    """
    factor, unit = next(((f, u) for f, u in ((1, "s"), (1e3, "ms")) if seconds * f >= 0.9995), (1e6, "µs"))
    return f"{digits(seconds * factor)} {unit}"


def digits(value: float) -> str:
    """A number in three digits, never with an exponent.

    >>> [digits(x) for x in (221.4, 69_513, 9.2, 1e9)]
    ['221', '69,500', '9.2', '1,000,000,000']
    """
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def dollars(amount: float) -> str:
    """A price with two digits that mean something.

    >>> [dollars(x) for x in (0.00999, 3.1389, 1234.5, 0.0000021)]
    ['$0.010', '$3.14', '$1,234.50', '$0.0000021']
    """
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.{1 - math.floor(math.log10(amount * 1.005))}f}"


def named(machine: Machine, machines: int) -> str:
    """The machine, and how many."""
    return f"one {machine.name}" if machines == 1 else machine.name


def roofline_summary(view: RooflineView) -> str:
    """The two phases in words."""
    one = f", {digits(view.decode.rate / view.batch)} for each user" if view.batch > 1 else ""
    return (f"{view.model} with {view.bits}-bit weights on {named(view.machine, view.machines)}. Prefill of "
            f"{count(view.context, 'token')}: first token after {duration(view.prefill.dot.seconds)}, limited by "
            f"{view.prefill.limit}. Decode of {count(view.batch, 'row')}: {digits(view.decode.rate)} tokens/s{one}, "
            f"limited by {view.decode.limit}. Critical batch: {digits(view.critical)} rows.")


def reason(view: RooflineView) -> str:
    """What decode waits for, and why."""
    if any(step.dot.share_of(view.machine) > 1.001 for step in (view.prefill, view.decode)):
        return "A dot above the roof: this time is shorter than the machine allows."
    bytes_are = (f"{percent(view.shared)} of the bytes of a step are weights, which all rows share" if view.shared > 0.5
                 else f"{percent(1 - view.shared)} of the bytes of a step are caches, which rows do not share")
    return {"memory": f"Decode is limited by memory: {bytes_are}.",
            "compute": "Decode is limited by compute: every row more makes the step longer.",
            "overhead": "Decode is limited by overhead: a step takes as long whatever it reads and computes."}[
                view.decode.limit]


def memory_words(view: RooflineView) -> str:
    """Whether it fits, or how many machines it takes."""
    need = f"{size(view.weights)} of weights and {size(view.caches)} of cache"
    if view.machine.memory_bytes is None:
        return f"{need}; how much memory there is, is not known."
    if view.machines == 1:
        return f"Fits: {need}, of {size(view.machine.memory_bytes)}."
    each = view.machine.memory_bytes / view.machines
    return (f"Does not fit into one: {need} are more than {size(each)}. The numbers are for {view.machine.name}, as if "
            "the exchange between them were free.")
