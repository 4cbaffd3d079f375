"""Where the curves, the dots and their names are in the chart of losses over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from course_lib.display.diagrams.drawing import Area, Point
from course_lib.display.diagrams.log_axes import powers, share
from course_lib.display.diagrams.scaling import amount
from course_lib.display.scaling_view import Model, ScalingView

DEEP = 0.6  # how far under a valley, as a share of its height, a published model may be to be drawn
# Where the name of a dot may be: to the right or left of it, and how many lines lower; the better places first.
SPOTS = ((0, 1.5), (0, -0.9), (1, 0.3), (-1, 0.3), (1, 1.2), (-1, 1.2), (1, -0.6), (-1, -0.6), (0, 2.5))


@dataclass(frozen=True)
class Chart:
    """Sizes to the right, logarithmic, and losses upwards, over an area."""

    area: Area
    sizes: tuple[float, float]
    losses: tuple[float, float]

    @classmethod
    def of(cls, view: ScalingView, area: Area) -> Chart:
        """With room for the curve of training alone, and for the published models that are not too far below it."""
        sizes = view.curves[0][0].N, view.curves[0][-1].N
        low = min(model.loss for model in (view.lowest, view.paid or view.lowest))
        high = max(min(view.curves[0][0].loss, view.curves[0][-1].loss), low + 1.3 * (max(
            model.loss for model in (view.lowest, view.paid or view.lowest)) - low))
        near = [model.loss for _, model in view.known
                if sizes[0] < model.N < sizes[1] and low - DEEP * (high - low) < model.loss]
        return cls(area, sizes, (min([low, *near]) - 0.12 * (high - low), high))

    def holds(self, model: Model) -> bool:
        """Whether a model is within the chart."""
        return self.sizes[0] <= model.N <= self.sizes[1] and self.losses[0] <= model.loss <= self.losses[1]

    def place(self, model: Model) -> Point:
        """Where a model is."""
        left, top, right, bottom = self.area
        up = (model.loss - self.losses[0]) / (self.losses[1] - self.losses[0])
        return left + share(model.N, *self.sizes) * (right - left), bottom - up * (bottom - top)

    def ticks(self, half: float) -> list[tuple[float, str]]:
        """Sizes to mark, `half` away from the ends at least: where, and what is written."""
        left, _, right, _ = self.area
        return [(min(max(self.place(Model(N, 1, 0))[0], left + half), right - half), amount(N))
                for N in powers(*self.sizes)]

    def levels(self) -> list[float]:
        """Three to seven losses to mark, with one or two digits that matter."""
        low, high = self.losses
        step = next(step for n in range(-4, 12) for step in (10.0**n, 2 * 10.0**n, 5 * 10.0**n)
                    if (high - low) / step <= 6)
        first = int(low // step) + 1
        return [round(i * step, 6) for i in range(first, int(high // step) + 1)]


class Mark(NamedTuple):
    """A dot and its name: "alone", "paid" or "known", where it is, and the middle of its name's base line."""

    kind: str
    name: str
    place: Point
    at: Point


def pieces(view: ScalingView, chart: Chart, models: Sequence[Model]) -> list[tuple[bool, list[Point]]]:
    """A curve in stretches: whether each is within what was measured, and its points."""
    steps = [(view.measured.holds(a) and view.measured.holds(b), a, b) for a, b in pairwise(models)
             if chart.holds(a) and chart.holds(b)]
    grouped = ((inside, list(group)) for inside, group in groupby(steps, key=lambda step: step[0]))
    return [(inside, [chart.place(group[0][1]), *(chart.place(b) for _, _, b in group)]) for inside, group in grouped]


def marks(view: ScalingView, chart: Chart, line: float) -> list[Mark]:
    """The dots that are within the chart, each name where it covers no other and as little of the curves as can be.

    Args:
        line: height of a line of text, in units.
    """
    kinds = [("alone", amount(view.alone.N), view.alone)]
    kinds += [("paid", amount(view.paid.N), view.paid)] if view.paid else []
    kinds += [("known", name, model) for name, model in view.known]
    shown = [(kind, name, chart.place(model)) for kind, name, model in kinds if chart.holds(model)]
    curves = [chart.place(model) for models in view.curves for model in models if chart.holds(model)]
    taken = [Area(x - 10, y - 10, x + 10, y + 10) for _, _, (x, y) in shown]
    found = []
    for kind, name, (x, y) in shown:
        wide = 0.6 * line * len(name)
        places = [Area(at - wide / 2, base - 0.8 * line, at + wide / 2, base + 0.2 * line)
                  for at, base in ((x + side * (wide / 2 + 14), y + down * line) for side, down in SPOTS)]
        best = min(places, key=lambda place: clutter(place, chart.area, taken, curves))
        taken.append(best)
        found.append(Mark(kind, name, (x, y), ((best.left + best.right) / 2, best.bottom - 0.2 * line)))
    return found


def clutter(place: Area, area: Area, taken: Sequence[Area], curves: Sequence[Point]) -> int:
    """How bad a place is for a name: outside of the chart, over a dot or another name, over points of a curve."""
    outside = (place.left < area.left or place.right > area.right + 4 or place.bottom > area.bottom
               or place.top < area.top - 16)
    covered = sum(place.left < x < place.right and place.top < y < place.bottom for x, y in curves)
    return 10_000 * outside + 1000 * sum(map(place.overlaps, taken)) + covered
