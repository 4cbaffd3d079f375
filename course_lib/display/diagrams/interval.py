"""The unit interval: how one random number picks a token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from course_lib.config import require
from course_lib.display.diagrams.drawing import LARGE, NORMAL, SMALL, WIDTH, Area, Drawing, text_width

LEFT, RIGHT = 28, WIDTH - 28
NEARLY = 1e-6  # what probabilities may miss the sum of 1 by


def unit_interval(tokens: Sequence[tuple[str, float]], u: float) -> Drawing:
    """Probabilities end to end from 0 to 1, and the token on which a uniform number falls.

    Args:
        tokens: each with its probability, in order of their ids; together 1. At most eight.
        u: the uniform number, in [0, 1).
    """
    probabilities = [q for _, q in tokens]
    require(2 <= len(tokens) <= 8 and min(probabilities) > 0, "tokens", tokens, "2 to 8, each with a positive share")
    require(abs(sum(probabilities) - 1) < NEARLY, "probabilities", sum(probabilities), "1 together")
    require(0 <= u < 1, "u", u, "in [0, 1)")
    sums = [round(total, 9) for total in accumulate(probabilities, initial=0.0)]
    hit = next(i for i, total in enumerate(sums[1:]) if total > u)
    pieces = ", ".join(f"{token} from {low:.3g} to {high:.3g}" for (token, _), low, high in zip(tokens, sums, sums[1:]))
    drawing = Drawing(
        "One random number picks one token",
        f"A bar from 0 to 1, cut into one piece for each token, as long as the token is probable: {pieces}. An arrow "
        f"at u = {u:.3g} points into the piece of {tokens[hit][0]}, which is chosen: {sums[hit + 1]:.3g} is the first "
        f"running sum above u.", height=196)
    for i, (token, q) in enumerate(tokens):
        piece(drawing, Area(at(sums[i]), 70, at(sums[i + 1]), 130), token, f"{q:.3g}", chosen=i == hit)
    drawing.rect(Area(at(sums[hit]), 70, at(sums[hit + 1]), 130), stroke="ink", thick=4, radius=0)
    pointer(drawing, u)
    ticks(drawing, sums, hit)
    return drawing


def at(share: float) -> float:
    """Where a number between 0 and 1 is on the paper."""
    return LEFT + (RIGHT - LEFT) * share


def piece(drawing: Drawing, area: Area, token: str, share: str, *, chosen: bool) -> None:
    """A token's part of the interval, with what can be written into it."""
    drawing.rect(area, fill="mark" if chosen else "plain", stroke="ink", thick=1.6, radius=0)
    x, room = (area.left + area.right) / 2, area.right - area.left - 8
    if text_width(token, NORMAL, bold=chosen) <= room:
        drawing.text(x, area.top + 26, token, bold=chosen)
    if text_width(share, SMALL) <= room:
        drawing.text(x, area.top + 49, share, size=SMALL, role="faint")


def pointer(drawing: Drawing, u: float) -> None:
    """The uniform number, and where it falls."""
    words = f"u = {u:.3g}"
    half = text_width(words, LARGE, bold=True) / 2
    drawing.text(min(max(at(u), LEFT + half), RIGHT - half), 34, words, size=LARGE, bold=True)
    drawing.arrow((at(u), 43), (at(u), 84), stroke="ink", thick=3.4)


def ticks(drawing: Drawing, sums: Sequence[float], hit: int) -> None:
    """The running sums under the borders, where there is room; the first one above u is said to be that."""
    written: list[float] = []
    for i in sorted(range(len(sums)), key=lambda i: (i != hit + 1, i not in (0, len(sums) - 1), i)):
        x, words = at(sums[i]), f"{sums[i]:.3g}"
        drawing.path([(x, 130), (x, 138)], thick=1.8)
        if all(abs(x - other) > 52 for other in written):
            drawing.text(x, 158, words, size=SMALL, bold=i == hit + 1, role="ink" if i == hit + 1 else "faint")
            written.append(x)
    words = "the first sum above u"
    half = text_width(words, SMALL) / 2
    drawing.text(min(max(at(sums[hit + 1]), LEFT + half), RIGHT - half), 181, words, size=SMALL)
