"""Scaling laws as lines: curves that agree on what was measured and fan out beyond it, and costs that cross."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from course_lib.analysis.scaling_fit import interval, law, minimize, parameters
from course_lib.analysis.scaling_law import ScalingLaw, break_even_tokens, total_flops
from course_lib.config import require
from course_lib.costs import training_flops
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, Point
from course_lib.display.diagrams.log_axes import share
from course_lib.display.diagrams.scaling import amount

COSTS = Area(30, 74, 700, 372)
LOSSES = Area(64, 40, 690, 408)
NOTHING = 1e-12  # of the term of the text, where only the size is fitted


def serve(small: float, large: tuple[float, float], law: ScalingLaw, name: str) -> Drawing:
    """What two models of the same loss cost in all, over the tokens that they serve.

    Args:
        small: parameters of the one that is trained for longer.
        large: parameters and training tokens of the other.
        law, name: by which the two have the same loss.
    """
    D = law.tokens_for(law.loss(*large), small)
    require(math.isfinite(D), "small", small, f"large enough for a loss of {law.loss(*large):.2f}")
    models = (small, D), large
    even, more = break_even_tokens(*models), training_flops(*models[0]) / training_flops(*models[1])
    require(even > 0, "large", large, "cheaper to train than the small one")
    names = [f"{amount(n)} parameters, {amount(d, 3)} tokens" for n, d in models]
    drawing = Drawing("Two models of the same loss and what they cost",
                      f"Total cost over served tokens, two lines. The small model, {names[0]}, and the large one, "
                      f"{names[1]}, have the same loss. The small one's line begins {more:.1f} times as high, "
                      f"because it was trained for longer, and rises slower, because each token costs less. They "
                      f"cross at {amount(even)} served tokens. From there on the small model is cheaper.", height=446)
    top = max(total_flops(*model, 2 * even) for model in models)

    def place(model: tuple[float, float], served: float) -> Point:
        left, high, right, low = COSTS
        return left + served / (2 * even) * (right - left), low - total_flops(*model, served) / top * (low - high)

    ends = [place(model, served) for model in models for served in (0, 2 * even)]
    lines(drawing, ends, place(large, even))
    label(drawing, names, even, ends)
    drawing.text(360, 428, f"the same loss, {law.loss(*large):.2f}, by the law of {name}", size=SMALL, role="faint")
    return drawing


def lines(drawing: Drawing, ends: Sequence[Point], cross: Point) -> None:
    """Both lines, with what lies between them before and after they cross."""
    a, b, c, d = ends
    for points, fill in (([a, cross, c], "cost"), ([cross, b, d], "quality")):
        drawing.path(points, fill=fill, tint=0.55, closed=True, stroke="paper", thick=0)
    drawing.path([(COSTS.left, COSTS.top - 34), (COSTS.left, COSTS.bottom), (COSTS.right, COSTS.bottom)],
                 stroke="faint")
    drawing.path([cross, (cross[0], COSTS.bottom)], stroke="faint", dashed=True)
    drawing.path([a, b], thick=4)
    drawing.path([c, d], thick=4, stroke="weights")
    drawing.circle(*cross, 8, fill="paper", stroke="ink", thick=3)


def label(drawing: Drawing, names: Sequence[str], even: float, ends: Sequence[Point]) -> None:
    """What the lines, their ends and their crossing are."""
    a, b, c, _ = ends
    drawing.text(COSTS.left + 12, COSTS.top - 24, "total cost", size=SMALL, role="faint", anchor="start")
    drawing.text(a[0] + 14, a[1] - 68, "small, trained for longer", anchor="start", bold=True)
    drawing.text(a[0] + 14, a[1] - 44, names[0], anchor="start", size=SMALL)
    drawing.text(a[0] + 14, a[1] + 16, "small costs more", anchor="start", size=SMALL)
    drawing.text(COSTS.right - 8, b[1] - 7, "small costs less", anchor="end", size=SMALL)
    drawing.text(a[0] + 14, c[1] + 32, "large", anchor="start", bold=True)
    drawing.text(a[0] + 14, c[1] + 56, names[1], anchor="start", size=SMALL)
    drawing.text(COSTS.left, COSTS.bottom + 24, "training alone", size=SMALL, role="faint", anchor="start")
    drawing.text((COSTS.left + COSTS.right) / 2, COSTS.bottom + 24, f"break-even: {amount(even)} tokens", size=SMALL,
                 bold=True)
    drawing.text(COSTS.right, COSTS.bottom + 24, "tokens served →", size=SMALL, role="faint", anchor="end")


# Beyond what was measured


class Paper(NamedTuple):
    """A chart of losses over sizes, these on a logarithmic axis: the range of each."""

    sizes: tuple[float, float]
    losses: tuple[float, float]

    def place(self, N: float, loss: float) -> Point:
        """Where a model is."""
        left, top, right, bottom = LOSSES
        up = (loss - self.losses[0]) / (self.losses[1] - self.losses[0])
        return left + share(N, *self.sizes) * (right - left), bottom - up * (bottom - top - 20)


@lru_cache(maxsize=4)
def fan(sizes: tuple[float, ...], losses: tuple[float, ...], samples: int, seed: int = 0) -> list[ScalingLaw]:
    """Laws of the size alone, E + A / N^alpha, each fitted to a resample of the runs with five sizes at least."""
    rng, counts = np.random.default_rng(seed), []
    while len(counts) < samples:
        drawn = rng.integers(len(sizes), size=len(sizes))
        if len(set(drawn)) > 4:  # three numbers are fitted
            counts.append(np.bincount(drawn, minlength=len(sizes)))
    logs = torch.tensor([(math.log(size), 0.0) for size in sizes], dtype=torch.float64)
    start = ScalingLaw(min(losses) / 2, (losses[0] - min(losses) / 2) * sizes[0] ** 0.3, NOTHING, 0.3, 1.0)
    ends = minimize(parameters(start).repeat(samples, 1), logs, torch.tensor(losses, dtype=torch.float64).log(),
                    weights=torch.tensor(np.stack(counts), dtype=torch.float64), fixed=(1, 4, 5))
    return [law(theta) for theta in ends]


def extrapolate(sizes: Sequence[float], losses: Sequence[float], held_out: tuple[float, float], *,
                samples: int = 60) -> Drawing:
    """Curves fitted to resamples of small models, and a large model that none of them has seen.

    Args:
        sizes, losses: parameters and loss of the small models, five to nine, small ones first.
        held_out: the same of a larger one.
        samples: curves.
    """
    require(5 <= len(sizes) <= 9 and list(sizes) == sorted(sizes), "sizes", list(sizes), "5 to 9, small ones first")
    require(held_out[0] > sizes[-1], "held_out", held_out, f"larger than {sizes[-1]:g}")
    laws = fan(tuple(sizes), tuple(losses), samples)
    within, (low, high) = (interval([one.loss(N, 1) for one in laws]) for N in (sizes[-1], held_out[0]))
    times = f"{held_out[0] / sizes[-1]:.3g}"
    drawing = Drawing("Inside the measured range and beyond it",
                      f"Loss over size, made-up numbers. {len(sizes)} small models are black dots in a dashed box. "
                      f"{samples} thin curves are fits to resamples of the dots. At the largest dot 95 % of them lie "
                      f"between {within[0]:.2f} and {within[1]:.2f}. Beyond the box they fan out: for a model {times} "
                      f"times as large, a bracket holds 95 % of them, {low:.2f} to {high:.2f}. The hollow dot, "
                      f"measured later, is at {held_out[1]:.2f}.", height=484)
    paper = Paper((sizes[0] / 1.4, held_out[0] * 1.25), (low - 0.12 * (losses[0] - low), losses[0]))
    axes(drawing, paper, (sizes[0], sizes[len(sizes) // 2], sizes[-1], held_out[0]))
    for one in laws:
        points = [(N, one.loss(N, 1)) for N in np.geomspace(sizes[0] / 1.2, paper.sizes[1], 41)]
        drawing.path([paper.place(*point) for point in points if point[1] < 1.01 * losses[0]], stroke="weights",
                     thick=1)
    edge = measured(drawing, [paper.place(*pair) for pair in zip(sizes, losses)], within)
    x, y = paper.place(*held_out)
    drawing.circle(x, y, 9, fill="paper", stroke="ink", thick=3)
    top, bottom = (paper.place(held_out[0], value)[1] for value in (high, low))
    drawing.path([(x + 26, top), (x + 34, top), (x + 34, bottom), (x + 26, bottom)], thick=2.4)
    drawing.text(edge, 70, f"a model {times} × as large", bold=True, anchor="start")
    drawing.text(edge, 98, f"95 % of {samples} fits: {low:.2f} to {high:.2f}", size=SMALL, anchor="start")
    drawing.circle(edge + 9, 121, 8, fill="paper", stroke="ink", thick=3)
    drawing.text(edge + 26, 127, f"measured later: {held_out[1]:.2f}", size=SMALL, anchor="start")
    return drawing


def axes(drawing: Drawing, paper: Paper, marks: Sequence[float]) -> None:
    """The loss upwards and the size to the right."""
    left, top, right, bottom = LOSSES
    drawing.path([(left, top), (left, bottom), (right, bottom)], stroke="faint")
    drawing.text(left - 12, top + 4, "loss", size=SMALL, role="faint", anchor="end")
    for tenths in range(math.ceil(10 * paper.losses[0] / 5) * 5, int(10 * paper.losses[1]) + 1, 5):
        y = paper.place(marks[0], tenths / 10)[1]
        drawing.path([(left - 6, y), (left, y)], stroke="faint")
        drawing.text(left - 12, y + 6, f"{tenths / 10:.1f}", size=SMALL, anchor="end")
    for N in marks:
        drawing.text(paper.place(N, 1)[0], bottom + 26, amount(N, 3), size=SMALL)
    drawing.text(left, bottom + 56, "made-up numbers", size=SMALL, role="faint", anchor="start")
    drawing.text(right, bottom + 56, "parameters →", size=SMALL, role="faint", anchor="end")


def measured(drawing: Drawing, spots: Sequence[Point], within: tuple[float, float]) -> float:
    """The dots that are fitted, in their box, and the range of the fits at the last. Returns where there is room."""
    box = Area(spots[0][0] - 18, spots[0][1] - 18, spots[-1][0] + 18, spots[-1][1] + 18)
    drawing.rect(box, stroke="ink", dashed=True)
    for spot in spots:
        drawing.circle(*spot, 7, fill="ink")
    drawing.text(box.right - 12, 70, f"{len(spots)} small models", bold=True, anchor="end")
    low, high = within
    drawing.text(spots[-1][0] - 24, box.bottom - 12, f"95 % at the last: {low:.2f} to {high:.2f}", size=SMALL,
                 anchor="end")
    return box.right + 28
