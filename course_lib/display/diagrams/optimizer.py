"""A drawing of AdamW: two running means of a weight's slopes, their quotient, and the steps that follow from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, WIDTH, Area, Drawing

LEFT, RIGHT = 28, WIDTH - 28
NAMES, GAP = 196, 14  # how wide the names of rows are, and what is between two columns
TOP, HIGH, BETWEEN = 52, 40, 26  # where the first row begins, how high a row is, and what is between two


class Update(NamedTuple):
    """One step of AdamW on one weight.

    Attributes:
        slope: of the loss.
        mean: running mean of the slopes so far, corrected for its start at 0.
        root: the root of the running mean of their squares, corrected too.
        weight: after the step.
    """

    slope: float
    mean: float
    root: float
    weight: float

    @property
    def quotient(self) -> float:
        """The step, in learning rates; its sign is that of the mean."""
        return self.mean / (self.root + 1e-8)


def updates(slopes: Sequence[float], rate: float) -> list[Update]:
    """AdamW (Loshchilov & Hutter 2019) on a weight that begins at 0, with PyTorch's usual constants.

    >>> [(round(step.quotient, 2), round(step.weight, 2)) for step in updates([-2, -2, 2], 0.1)]
    [(-1.0, 0.1), (-1.0, 0.2), (-0.26, 0.23)]
    """
    weight, mean, square, steps = 0.0, 0.0, 0.0, []
    for step, slope in enumerate(slopes, 1):
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        update = Update(slope, mean / (1 - 0.9**step), math.sqrt(square / (1 - 0.999**step)), weight)
        weight -= rate * (0.01 * weight + update.quotient)
        steps.append(update._replace(weight=weight))
    return steps


def adamw_steps(slopes: Sequence[float], rate: float) -> Drawing:
    """One column for each step: the slope, the two means, their quotient; under them the way of the weight.

    Args:
        slopes: two or three, not 0, from -99 to 99; the first is negative and the weight only grows.
        rate: the learning rate.
    """
    require(2 <= len(slopes) <= 3 and 0 < max(map(abs, slopes)) < 100, "slopes", slopes, "two or three below 100")
    require(0.01 <= rate < 10, "rate", rate, "from 0.01 to below 10")
    steps = updates(slopes, rate)
    places = [0.0, *(step.weight for step in steps)]
    require(all(b - a > 0.08 * places[-1] for a, b in zip(places, places[1:])), "slopes", slopes, "steps to the right")
    rows = {"slopes": [step.slope for step in steps], "mean": [step.mean for step in steps],
            "root": [step.root for step in steps], "quotient": [step.quotient for step in steps]}
    drawing = Drawing("AdamW divides a running mean by a root", in_words(rows, places, rate), height=428)
    named(drawing, 0, "slope", "", [signed(slope, 0) for slope in slopes])
    named(drawing, 1, "mean", "of the slopes", [signed(mean) for mean in rows["mean"]])
    named(drawing, 2, "size", "root of mean square", [signed(root) for root in rows["root"]], sign="÷")
    named(drawing, 3, "mean ÷ size", "", [signed(ratio) for ratio in rows["quotient"]], sign="=", fill="mark")
    for i, slope in enumerate(slopes):
        middle = center(i, len(slopes))
        drawing.text(middle, 34, f"step {i + 1}", size=SMALL, role="faint")
        incline(drawing, middle - 48, TOP + HIGH / 2, slope)
    way(drawing, places, rate)
    return drawing


def in_words(rows: dict[str, list[float]], places: Sequence[float], rate: float) -> str:
    """What the drawing says."""
    said = {name: ", ".join(f"{number:.2f}" for number in numbers) for name, numbers in rows.items()}
    return (f"One weight and {len(places) - 1} steps of AdamW. Slopes: {', '.join(f'{x:g}' for x in rows['slopes'])}. "
            f"Running mean of the slopes: {said['mean']}. Root of the running mean of their squares: {said['root']}. "
            f"Mean divided by root: {said['quotient']}. Each step goes against this quotient, times the rate of "
            f"{rate:g}, so the weight goes from 0 to {', '.join(f'{place:.2f}' for place in places[1:])}.")


def signed(number: float, decimals: int = 2) -> str:
    """A number with a real minus sign; whole ones without decimals if `decimals` is 0.

    >>> signed(-0.524), signed(2, 0), signed(0.5, 0)
    ('−0.52', '2', '0.5')
    """
    return (f"{number:.{decimals}f}" if decimals else f"{number:g}").replace("-", "−")


def center(i: int, columns: int) -> float:
    """Where the middle of a column is."""
    pitch = (RIGHT - LEFT - NAMES + GAP) / columns
    return LEFT + NAMES + pitch * i + (pitch - GAP) / 2


def named(drawing: Drawing, place: int, name: str, about: str, values: Sequence[str], *, sign: str = "",
          fill: str = "plain") -> None:
    """A row of boxes with its name in front, and above each box what is done to get there."""
    top = TOP + place * (HIGH + BETWEEN)
    drawing.text(LEFT, top + (17 if about else 26), name, anchor="start", bold=True, size=SMALL)
    if about:
        drawing.text(LEFT, top + 39, about, anchor="start", size=SMALL, role="faint")
    half = (center(1, len(values)) - center(0, len(values)) - GAP) / 2
    for i, value in enumerate(values):
        middle = center(i, len(values))
        drawing.rect(Area(middle - half, top, middle + half, top + HIGH), fill=fill, stroke="ink")
        drawing.text(middle + (18 if place == 0 else 0), top + 27, value, mono=True)
        if sign:
            drawing.text(middle, top - 7, sign, bold=True)


def incline(drawing: Drawing, x: float, y: float, slope: float) -> None:
    """A short line that rises or falls as the loss does."""
    up = math.copysign(10, slope)
    drawing.path([(x, y + up), (x + 34, y - up)], stroke="weights", thick=3)


def way(drawing: Drawing, places: Sequence[float], rate: float) -> None:
    """The weight on its line, and a hop for each step, as long as the step is."""
    y, left, right = 376, center(0, 3) - 40, RIGHT - 30
    at = [left + place / places[-1] * (right - left) for place in places]
    drawing.text(LEFT, y - 28, "weight", anchor="start", bold=True, size=SMALL)
    drawing.text(LEFT, y - 6, f"rate {rate:g}", anchor="start", size=SMALL, role="faint")
    drawing.path([(left - 16, y), (RIGHT, y)], stroke="line", thick=1.6)
    for start, end in zip(at, at[1:]):
        lift = min(44, 0.6 * (end - start))
        drawing.path([(start + 3, y - 7), (start + 8, y - lift), (end - 8, y - lift), (end - 3, y - 7)], curved=True,
                     arrow=True)
    for x, place in zip(at, places):
        drawing.circle(x, y, 5, fill="ink")
        drawing.text(x, y + 30, f"{place:.2f}", size=SMALL)
