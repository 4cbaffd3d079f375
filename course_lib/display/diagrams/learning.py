"""Two drawings of training: which label belongs to which position, and one valley walked at several learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, Point, text_width

LEFT, RIGHT = 28, WIDTH - 28
NAMES = 74  # how wide the names of rows are
HIGH, GAP = 40, 10  # how high a token is, and what is between two
BETWEEN = 24  # what is between two charts
NEAR = 0.01  # a walk that stays this near to the lowest point has arrived


def shifted_labels(tokens: Sequence[str]) -> Drawing:
    """A row of tokens, each with an arrow to the next; under it the labels, and hatched the wrong ones.

    Args:
        tokens: T + 1 texts or ids, in order; the first T are read, the last T are labels. Three to nine.
    """
    require(3 <= len(tokens) <= 9, "tokens", tokens, "3 to 9 of them")
    read, labels = tokens[:-1], tokens[1:]
    pairs = ", ".join(f"{label} under {token}" for token, label in zip(read, labels))
    drawing = Drawing(
        "Labels are shifted by one",
        f"A row of tokens, {', '.join(tokens)}, and over it an arrow from each to the one that follows, which the "
        f"model must predict there. The row of labels is the same row, moved one place to the left: {pairs}. "
        f"The last row is hatched: each token as its own label is wrong.", height=242)
    pitch = (RIGHT - LEFT - NAMES + GAP) / len(tokens)
    widest = max(tokens, key=lambda token: text_width(token, NORMAL, mono=True))
    require(text_width(widest, NORMAL, mono=True) <= pitch - GAP - 6, "tokens", widest, "short enough for its box")
    row(drawing, 62, "tokens", tokens, pitch)
    for i in range(len(read)):
        start, end = center(i, pitch) + 8, center(i + 1, pitch) - 8
        drawing.path([(start, 58), (start + 8, 26), (end - 8, 26), (end, 58)], curved=True, arrow=True)
    row(drawing, 62 + HIGH + GAP, "labels", labels, pitch, fill="mark")
    row(drawing, 62 + 2 * (HIGH + GAP) + 20, "wrong", read, pitch, hatched=True)
    return drawing


def center(i: int, pitch: float) -> float:
    """Where the middle of a column is."""
    return LEFT + NAMES + pitch * i + (pitch - GAP) / 2


def row(drawing: Drawing, top: float, name: str, tokens: Sequence[str], pitch: float, *, fill: str = "plain",
        hatched: bool = False) -> None:
    """Tokens side by side, one in each column, with the name of the row in front."""
    drawing.text(LEFT, top + 26, name, size=SMALL, anchor="start", role="faint" if hatched else "ink", bold=not hatched)
    for i, token in enumerate(tokens):
        left = LEFT + NAMES + pitch * i
        drawing.rect(Area(left, top, left + pitch - GAP, top + HIGH), fill=fill, hatched=hatched,
                     stroke="faint" if hatched else "ink")
        if hatched:
            half = text_width(token, NORMAL, mono=True) / 2 + 4
            drawing.rect(Area(center(i, pitch) - half, top + 8, center(i, pitch) + half, top + HIGH - 8), fill="paper")
        drawing.text(center(i, pitch), top + 27, token, mono=True, role="faint" if hatched else "ink")


class Walk(NamedTuple):
    """Gradient descent on one weight.

    Attributes:
        rate: the learning rate.
        weights: before each step and after the last.
        best: the weight with the lowest loss.
    """

    rate: float
    weights: Sequence[float]
    best: float

    @property
    def verdict(self) -> tuple[str, str]:
        """What is to be said of the rate, and what happened."""
        far = [abs(weight - self.best) for weight in self.weights]
        steps = len(far) - 1
        if far[-1] < NEAR:
            arrived = max((i + 1 for i, distance in enumerate(far) if distance >= NEAR), default=0)
            return "right", f"there after {arrived} steps"
        sides = [weight > self.best for weight in self.weights[-3:]]
        if sides[-1] != sides[-2]:
            return "too large", "jumps back and forth"
        return "too small", f"{steps} steps, {far[-1]:.1f} to go"


def descent(share: float, rate: float, *, start: float, steps: int) -> Walk:
    """The weight w of a model that says one of two things with probability 1 / (1 + exp(-w)), on its way downhill.

    Args:
        share: how often the text says it, in (0, 1).
        rate: the learning rate.
        start: the weight before the first step.
        steps: how many.

    >>> [round(weight, 2) for weight in descent(0.6, 10, start=-3.0, steps=3).weights]
    [-3.0, 2.53, -0.73, 2.02]
    """
    weights = [start]
    for _ in range(steps):
        weights.append(weights[-1] - rate * (1 / (1 + math.exp(-weights[-1])) - share))
    return Walk(rate, weights, math.log(share / (1 - share)))


class Valley(NamedTuple):
    """The loss of that model over its weight, as a chart.

    Attributes:
        share: how often the text says what the weight is for.
        span: the smallest and the largest weight in the chart.
        area: where the chart is on the paper.
    """

    share: float
    span: tuple[float, float]
    area: Area

    @property
    def best(self) -> float:
        """The weight with the lowest loss."""
        return math.log(self.share / (1 - self.share))

    def loss(self, weight: float) -> float:
        """Mean surprise, in nats."""
        return math.log1p(math.exp(-weight)) + (1 - self.share) * weight

    def place(self, weight: float) -> Point:
        """Where a weight and its loss are on the paper."""
        left, top, right, bottom = self.area
        low, high = self.span
        lowest, highest = self.loss(self.best), max(map(self.loss, self.span))
        up = (self.loss(weight) - lowest) / (highest - lowest)
        return left + (weight - low) / (high - low) * (right - left), bottom - up * (bottom - top)


def loss_valley(share: float, rates: Sequence[float], *, start: float, steps: int) -> Drawing:
    """The same valley once for each learning rate, with the steps that gradient descent takes in it.

    Args:
        share: how often the text says what the model has one weight for, in (0, 1).
        rates: two or three learning rates.
        start: the weight before the first step.
        steps: how many are taken.
    """
    require(0 < share < 1, "share", share, "between 0 and 1")
    require(2 <= len(rates) <= 3 and min(rates) > 0 and max(rates) <= 100, "rates", rates, "two or three, up to 100")
    require(abs(start) <= 10, "start", start, "between -10 and 10")
    require(1 < steps <= 1000, "steps", steps, "2 to 1,000")
    walks = [descent(share, rate, start=start, steps=steps) for rate in rates]
    found = "; ".join(f"{walk.rate:g} is {walk.verdict[0]} ({walk.verdict[1]})" for walk in walks)
    drawing = Drawing(
        f"One valley and {'three' if len(rates) == 3 else 'two'} learning rates",
        f"The loss over one weight is a valley with its lowest point at {walks[0].best:.2f}. Gradient descent starts "
        f"at {start:g} and takes {steps} steps. Learning rates: {found}.", height=330)
    every = [walks[0].best - 1, walks[0].best + 1, *(weight for walk in walks for weight in walk.weights)]
    wide = (RIGHT - LEFT - BETWEEN * (len(rates) - 1)) / len(rates)
    for i, walk in enumerate(walks):
        left = LEFT + (wide + BETWEEN) * i
        valley = Valley(share, (min(every) - 0.4, max(every) + 0.9), Area(left, 132, left + wide, 264))
        said(drawing, left, walk)
        descend(drawing, valley, walk)
        axis(drawing, valley, start)
    return drawing


def said(drawing: Drawing, left: float, walk: Walk) -> None:
    """A learning rate and what became of it."""
    verdict, happened = walk.verdict
    drawing.text(left, 36, f"rate {walk.rate:g}", size=SMALL, anchor="start")
    drawing.text(left, 61, verdict, bold=True, anchor="start")
    drawing.text(left, 86, happened, size=SMALL, role="faint", anchor="start")


def descend(drawing: Drawing, valley: Valley, walk: Walk) -> None:
    """The curve, and the steps on it from an open circle to the last dot."""
    low, high = valley.span
    drawing.path([valley.place(low + (high - low) * i / 60) for i in range(61)], stroke="weights", thick=3)
    steps = [valley.place(weight) for weight in walk.weights]
    drawing.path(steps, thick=1.6)
    for x, y in steps[1:]:
        drawing.circle(x, y, 4, fill="ink")
    drawing.circle(*steps[0], 6, fill="paper", stroke="ink")


def axis(drawing: Drawing, valley: Valley, start: float) -> None:
    """The loss upwards, and the weight, with the lowest point and the start marked."""
    left, top, right, bottom = valley.area
    drawing.path([(left, top - 8), (left, bottom + 16), (right, bottom + 16)], stroke="line", thick=1.6)
    drawing.text(left + 10, top - 2, "loss", size=SMALL, role="faint", anchor="start")
    marks = [(valley.place(valley.best)[0], f"{valley.best:.2f}")]
    if abs(valley.place(start)[0] - marks[0][0]) > 50:
        marks.append((valley.place(start)[0], f"{start:g}"))
    for x, words in marks:
        drawing.path([(x, bottom + 11), (x, bottom + 21)], thick=2)
        drawing.text(x, bottom + 42, words.replace("-", "−"), size=SMALL)
    if right - max(x for x, _ in marks) > 40:
        drawing.text(right, bottom + 42, "w", size=SMALL, role="faint", anchor="end")
