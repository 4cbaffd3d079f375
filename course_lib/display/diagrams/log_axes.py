"""Where a step of a model is under the roofline of a machine: FLOPs per byte and FLOP/s on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.analysis.roofline import Machine
from course_lib.display.diagrams.drawing import Area

ROOM = 4  # factor that the axes go beyond what they show
ON = 0.9  # of the roof's speed: from there on a dot is on it


@dataclass(frozen=True)
class Dot:
    """A step of a model under the roof.

    Attributes:
        name: written beside it.
        flops, nbytes, seconds: of the step.
        side: "right", "left" or "below": where the name goes.
        more: a second line.
    """

    name: str
    flops: float
    nbytes: float
    seconds: float
    side: str = "right"
    more: str = ""

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is read."""
        return self.flops / self.nbytes

    @property
    def speed(self) -> float:
        """FLOPs a second."""
        return self.flops / self.seconds

    def share_of(self, machine: Machine) -> float:
        """Its speed, as a part of what the roof over it allows; above 1, no such machine can be so fast."""
        return self.speed / min(machine.flops_per_s, self.intensity * machine.bytes_per_s)


@dataclass(frozen=True)
class Axes:
    """FLOPs per byte to the right and FLOP/s upwards, both logarithmic, over an area.

    Attributes:
        x, y: the least and the greatest value.
    """

    area: Area
    x: tuple[float, float]
    y: tuple[float, float]

    @classmethod
    def around(cls, machine: Machine, dots: Sequence[Dot], area: Area) -> Axes:
        """Wide enough for the ridge of the roof and for every dot."""
        across = [machine.balance, *(dot.intensity for dot in dots)]
        up = [machine.flops_per_s, *(dot.speed for dot in dots)]
        return cls(area, *((with_two_powers(min(values) / ROOM, max(values) * ROOM)) for values in (across, up)))

    def right(self, intensity: float) -> float:
        """Where on the paper an intensity is."""
        return self.area.left + (self.area.right - self.area.left) * share(intensity, *self.x)

    def height(self, speed: float) -> float:
        """Where on the paper a speed is."""
        return self.area.bottom - (self.area.bottom - self.area.top) * share(speed, *self.y)

    def place(self, dot: Dot) -> tuple[float, float]:
        """Where on the paper a dot is."""
        return self.right(dot.intensity), self.height(dot.speed)

    def roof(self, machine: Machine) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
        """The left end of the memory's roof, the ridge, and the right end of the arithmetic's roof."""
        least = max(self.x[0], self.y[0] / machine.bytes_per_s)
        ridge = self.right(machine.balance), self.height(machine.flops_per_s)
        return (self.right(least), self.height(least * machine.bytes_per_s)), ridge, (self.area.right, ridge[1])


def share(value: float, least: float, greatest: float) -> float:
    """How far a value is from the least to the greatest, in logarithms.

    >>> share(10, 1, 100)
    0.5
    """
    return math.log(value / least) / math.log(greatest / least)


def in_flops(speed: float) -> str:
    """A speed with its unit.

    >>> in_flops(989e12), in_flops(1e15), in_flops(20e9)
    ('989 TFLOP/s', '1,000 TFLOP/s', '20 GFLOP/s')
    """
    power, unit = (12, "T") if speed >= 1e12 else (9, "G")
    value = speed / 10**power
    return f"{value:,.3g} {unit}FLOP/s" if value < 1000 else f"{value:,.0f} {unit}FLOP/s"


def powers(low: float, high: float) -> list[float]:
    """The powers of ten within a range.

    >>> powers(0.3, 2000)
    [1.0, 10.0, 100.0, 1000.0]
    """
    return [10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def with_two_powers(low: float, high: float) -> tuple[float, float]:
    """A range, made lower if fewer than two powers of ten are in it: one mark alone does not say how far a factor is.

    >>> with_two_powers(3, 40)
    (1.0, 40)
    """
    return min(low, 10.0 ** (math.floor(math.log10(high)) - 1)), high


def bandwidth(machine: Machine) -> str:
    """What a machine reads in a second.

    >>> bandwidth(Machine("m", 3.35e12, 1)), bandwidth(Machine("m", 26.1e9, 1))
    ('3.35 TB/s', '26.1 GB/s')
    """
    power, unit = (12, "TB") if machine.bytes_per_s >= 1e12 else (9, "GB")
    return f"{machine.bytes_per_s / 10**power:.3g} {unit}/s"
