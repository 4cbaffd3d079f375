"""Online softmax drawn: keys arrive one by one, and when the maximum rises, all that came before shrinks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.diagrams.tiles import Numbers, partial

LEFT, PITCH, PANEL = 24, 136, 128  # of the panels, one for each key
BASE, HIGH = 206, 116  # of the bars: where they stand, and how high exp(0) = 1 is
BAR, STEP = 17, 22


def online_steps(scores: Sequence[float], values: Sequence[float]) -> list[tuple[float, Numbers]]:
    """After each key: what the earlier terms were multiplied by, and (m, l, o).

    >>> [round(keep, 4) for keep, _ in online_steps([2, 1, 5], [10, 20, 30])]
    [0.0, 1.0, 0.0498]
    """
    maxima = [-math.inf, *(max(scores[:i + 1]) for i in range(len(scores)))]
    return [(math.exp(maxima[i] - maxima[i + 1]), partial(scores[:i + 1], values[:i + 1])) for i in range(len(scores))]


def online_softmax(scores: Sequence[float], values: Sequence[float]) -> Drawing:
    """A panel for each key: the bars exp(score - m) so far, dashed where they were higher, and m, l, o.

    Args:
        scores, values: of three to five keys, in the order in which they arrive.
    """
    n = len(scores)
    require(3 <= n <= 5 and len(values) == n, "len(scores)", n, "3 to 5, as many as values")
    steps = online_steps(scores, values)
    rises = [i for i in range(1, n) if steps[i][0] < 1]
    shrinking = " ".join(f"At the score {scores[i]:g} m rises from {steps[i - 1][1][0]:g} to {steps[i][1][0]:g}, and "
                         f"all earlier bars shrink to {steps[i][0]:.3f} of their height." for i in rises)
    after = "; ".join(f"{m:g}, {total:.3f}, {mixed:.2f}" for _, (m, total, mixed) in steps)
    drawing = Drawing("Online softmax", f"{n} keys arrive one by one, with scores {', '.join(map(str, scores))}. Each "
                      f"adds a bar of height exp(score − m). {shrinking} m, l and o after each key: {after}.",
                      height=376)
    for i, (keep, part) in enumerate(steps):
        left = LEFT + PITCH * i
        middle = left + PANEL / 2
        if i in rises:
            drawing.rect(Area(left - 2, 10, left + PANEL + 2, 366), fill="mark", radius=8)
        drawing.text(middle, 36, f"score {scores[i]:g}", bold=True)
        drawing.text(middle, 60, f"value {values[i]:g}", size=SMALL, role="faint")
        bars(drawing, middle - (STEP * n - STEP + BAR) / 2, scores[:i + 1], steps[i - 1][1][0] if i in rises else None)
        drawing.path([(left + 4, BASE), (left + PANEL - 4, BASE)], stroke="faint", thick=1.4)
        words = "" if i == 0 else f"old × {keep:.3f}" if i in rises else "old × 1"
        drawing.text(middle, 234, words, size=SMALL, bold=i in rises, role="ink" if i in rises else "faint")
        found = Area(left + 2, 250, left + PANEL - 2, 356)
        drawing.rect(found, fill="paper")
        drawing.rect(found, fill="cache", tint=0.2, stroke="cache")
        for row, line in enumerate((f"m = {part[0]:g}", f"l = {part[1]:.3f}", f"o = {part[2]:.2f}")):
            drawing.text(middle, 278 + 31 * row, line, size=SMALL)
    return drawing


def bars(drawing: Drawing, left: float, scores: Sequence[float], before: float | None) -> None:
    """exp(score - m) of the keys so far, the newest solid; dashed, what the others were with the maximum `before`."""
    m = max(scores)
    for i, score in enumerate(scores):
        x, newest = left + STEP * i, i == len(scores) - 1
        if before is not None and not newest:
            drawing.rect(Area(x, BASE - HIGH * math.exp(score - before), x + BAR, BASE), stroke="ink", dashed=True,
                         thick=1.4, radius=0)
        drawing.rect(Area(x, BASE - HIGH * math.exp(score - m), x + BAR, BASE), fill="key", tint=1 if newest else 0.45,
                     radius=0)
