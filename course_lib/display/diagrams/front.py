"""Settings that no other one beats, and what customers with different limits take of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, Point, text_width
from course_lib.display.diagrams.log_axes import share

PLOT, GAPS, DEAREST = Area(66, 176, 694, 492), (4.0, 320.0), 10.5  # where; milliseconds across and dollars upwards


class Choice(NamedTuple):
    """A setting with its gap in ms and its dollars for a million tokens."""

    name: str
    gap: float
    cost: float


class Want(NamedTuple):
    """Somebody who takes the cheapest setting of which the gap is at most `limit` ms."""

    name: str
    limit: float


def beater(one: Choice, choices: Sequence[Choice]) -> Choice | None:
    """The cheapest of those that are nowhere worse and somewhere better."""
    better = [other for other in choices if other.gap <= one.gap and other.cost <= one.cost and other[1:] != one[1:]]
    return min(better, key=lambda other: other.cost, default=None)


def pareto_front(choices: Sequence[Choice], wants: Sequence[Want]) -> Drawing:
    """Settings by gap and cost: the front, those that are beaten, and what everybody takes.

    Args:
        wants: from the strictest to the most patient; the last one has no limit, which is infinite.
    """
    front = sorted((one for one in choices if beater(one, choices) is None), key=lambda one: one.gap)
    taken = [min((one for one in choices if one.gap <= want.limit), key=lambda one: one.cost, default=None)
             for want in wants]
    require(None not in taken and len(set(taken)) == len(wants) and wants[-1].limit == math.inf, "wants", wants,
            "each served, by different settings, and the last one without a limit")
    beaten = [one for one in choices if one not in front]
    drawing = Drawing("Settings that nobody beats", told_front(front, beaten, choices, wants, taken), height=572)
    stairs(drawing, front)
    axes(drawing)
    for i, want in enumerate(reversed(wants)):
        allowed(drawing, 40 + 38 * i, want)
    for one in beaten:
        x, y = place(one)
        drawing.circle(x, y, 11, fill="paper", stroke="faint", thick=3)
        drawing.text(x + 20, y - 2, one.name, bold=True, anchor="start", role="faint")
        drawing.text(x + 20, y + 20, f"{beater(one, choices).name} beats it", size=SMALL, anchor="start", role="faint")
    for one in front:
        x, y = place(one)
        drawing.circle(x, y, 11, fill="ink")
        drawing.text(x + 16, y - 16, one.name, bold=True, anchor="start")
    for want, one in zip(wants, taken):
        x, y = place(one)
        drawing.circle(x, y, 18, stroke="ink", thick=2.4)
        drawing.tag(x - text_width(want.name, SMALL) / 2 - 8, y + 46, want.name, role="mark", stroke="ink")
    return drawing


def place(one: Choice) -> Point:
    """Where a setting is."""
    return (PLOT.left + share(one.gap, *GAPS) * (PLOT.right - PLOT.left),
            PLOT.bottom - one.cost / DEAREST * (PLOT.bottom - PLOT.top))


def stairs(drawing: Drawing, front: Sequence[Choice]) -> None:
    """The front as stairs, and on the far side of them the ground of all that is beaten."""
    points = [(place(front[0])[0], PLOT.top)]
    for one in front:
        x, y = place(one)
        points += [(x, points[-1][1]), (x, y)] if one is not front[0] else [(x, y)]
    end = (PLOT.right, points[-1][1])
    drawing.path([*points, end, (PLOT.right, PLOT.top)], fill="plain", stroke="plain", closed=True, thick=1)
    drawing.path(points[1:], thick=3)


def axes(drawing: Drawing) -> None:
    """Gaps to the right, dollars upwards."""
    drawing.path([(PLOT.left, PLOT.top), (PLOT.left, PLOT.bottom), (PLOT.right, PLOT.bottom)], stroke="faint")
    for gap in (5, 10, 20, 50, 100, 200):
        drawing.text(place(Choice("", gap, 0))[0], PLOT.bottom + 28, str(gap), size=SMALL)
    for cost in (2, 4, 6, 8, 10):
        drawing.text(PLOT.left - 12, place(Choice("", 5, cost))[1] + 6, f"${cost}", size=SMALL, anchor="end")
    drawing.text(PLOT.right, PLOT.bottom + 58, "→ gap between two tokens, ms", size=SMALL, role="faint", anchor="end")
    drawing.text(20, PLOT.bottom + 58, "↑ dollars for a million tokens", size=SMALL, role="faint", anchor="start")
    drawing.text(PLOT.left + 8, PLOT.bottom - 14, "↙ better", size=SMALL, anchor="start")
    drawing.text(PLOT.right - 8, PLOT.top + 26, "beaten: another one is", size=SMALL, role="faint", anchor="end")
    drawing.text(PLOT.right - 8, PLOT.top + 50, "cheaper and faster", size=SMALL, role="faint", anchor="end")


def allowed(drawing: Drawing, y: float, want: Want) -> None:
    """How long a gap somebody waits: a bar, and a dashed line through the settings where it ends."""
    endless = want.limit == math.inf
    end = PLOT.right if endless else place(Choice("", want.limit, 0))[0]
    drawing.rect(Area(PLOT.left, y - 15, end, y + 15), fill="mark", stroke="ink", thick=1.4, radius=0)
    if not endless:
        drawing.path([(end, y + 15), (end, PLOT.bottom)], dashed=True)
    words = f"{want.name}: any gap" if endless else f"{want.name}: at most {want.limit:g} ms"
    wide = text_width(words, SMALL)
    inside = wide + 20 < end - PLOT.left
    drawing.text(PLOT.left + 10 if inside else end + 10, y + 6, words, size=SMALL, anchor="start")


def told_front(front: Sequence[Choice], beaten: Sequence[Choice], choices: Sequence[Choice], wants: Sequence[Want],
               taken: Sequence[Choice]) -> str:
    """The front in words."""
    dots = ", ".join(f"{one.name} {one.gap:g} ms ${one.cost:g}" for one in front)
    others = ", ".join(f"{one.name} {one.gap:g} ms ${one.cost:g} (by {beater(one, choices).name})" for one in beaten)
    said = "; ".join(f"{want.name}, {'any gap' if want.limit == math.inf else f'at most {want.limit:g} ms'}: {one.name}"
                     for want, one in zip(wants, taken))
    return (f"Settings as dots, gap to the right, cost upwards. Joined as stairs, the front: {dots}. Beaten, beyond "
            f"the stairs: {others}. Each customer takes the cheapest within a limit of the gap: {said}.")
