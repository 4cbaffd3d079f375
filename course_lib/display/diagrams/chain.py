"""A sampler as a line of stations: what each leaves of one row of probabilities, and the draw at its end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.choosing import percent
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, text_width

LINE, LABELS, LEFT, RIGHT = 40, 64, 262, WIDTH - 28  # where the line, the names and the columns are
TOP, PITCH, HIGH = 112, 66, 34  # where the first station is, from one to the next, and the highest bar
REMOVED = 10  # how high the mark of what a station removes is
NEARLY = 0.001  # what stored probabilities may miss the sum of 1 by


class Station(NamedTuple):
    """A step of a sampler.

    Attributes:
        name: of the step, with its setting.
        does: what it does to this row, in a few words.
        shares: the probability of each column after it, 0 for what is removed.
    """

    name: str
    does: str
    shares: Sequence[float]


def sampler_chain(text: str, columns: Sequence[str], ids: Sequence[int], stations: Sequence[Station],
                  u: float) -> Drawing:
    """One row of probabilities from station to station, and the token that a uniform number picks of what is left.

    Args:
        text: what the row comes after.
        columns: the likeliest tokens, and a name for all others together.
        ids: of the tokens, without the others.
        stations: the first is the model.
        u: the uniform number, in [0, 1).
    """
    check(columns, ids, stations, u)
    last = stations[-1].shares
    left = sorted((i for i in range(len(ids)) if last[i] > 0), key=lambda i: ids[i])  # in the order of the draw
    sums = list(accumulate((last[i] for i in left), initial=0.0))
    hit = next((i for i, total in enumerate(sums[1:]) if total > u), len(left) - 1)
    drawing = Drawing("A sampler is a line of stations", told(text, columns, stations, columns[left[hit]], u),
                      height=TOP + PITCH * len(stations) + 84)
    drawing.text(28, 34, text, size=SMALL, mono=True, anchor="start")
    for i, name in enumerate(columns):
        drawing.text(middle(i, columns), 68, name, size=SMALL, bold=i < len(ids), role="ink" if i < len(ids) else
                     "faint")
    bottom = TOP + PITCH * len(stations) + 26
    drawing.path([(LINE, TOP), (LINE, bottom)], thick=4)
    for row, station in enumerate(stations):
        before = stations[row - 1].shares if row else station.shares
        stop(drawing, TOP + PITCH * row, station.name, station.does)
        bars(drawing, TOP + PITCH * row + 14, station.shares, before, max(max(s.shares) for s in stations))
    stop(drawing, bottom, "softmax, draw", f"u = {u:.3g}")
    for i, (begin, end) in enumerate(zip(sums, sums[1:])):
        piece(drawing, Area(at(begin / sums[-1]), bottom - 12, at(end / sums[-1]), bottom + 26), columns[left[i]],
              chosen=i == hit)
    drawing.arrow((at(u), bottom - 34), (at(u), bottom - 4), thick=3.4)
    return drawing


def check(columns: Sequence[str], ids: Sequence[int], stations: Sequence[Station], u: float) -> None:
    """A probability for each column, 1 together, and what was removed does not come back."""
    require(len(columns) == len(ids) + 1, "columns", len(columns), f"{len(ids)} tokens and the others")
    require(0 <= u < 1, "u", u, "in [0, 1)")
    for before, after in zip(stations, stations[1:]):
        back = [name for name, x, y in zip(columns, before.shares, after.shares) if y > 0 == x]
        require(not back, after.name, back, "without what was removed before it")
    for station in stations:
        require(len(station.shares) == len(columns), station.name, len(station.shares), f"{len(columns)} shares")
        require(abs(sum(station.shares) - 1) < NEARLY, station.name, sum(station.shares), "1 together")
    require(stations[-1].shares[-1] == 0, "the others", stations[-1].shares[-1], "removed before the draw")


def told(text: str, columns: Sequence[str], stations: Sequence[Station], chosen: str, u: float) -> str:
    """The drawing in words."""
    first = ", ".join(columns[:3])
    rows = "; ".join(f"{station.name}: {', '.join(f'{100 * q:.0f}' for q in station.shares[:3])}"
                     for station in stations)
    n = sum(q > 0 for q in stations[-1].shares)
    return (f"One row on its way through a sampler, after “{text}”. Percent of {first}. {rows[0].upper()}{rows[1:]}. "
            f"At the end {n} tokens are left. Laid end to end, in the order of their ids, u = {u:.3g} picks {chosen}.")


def at(share: float) -> float:
    """Where a number between 0 and 1 is on the paper."""
    return LEFT + (RIGHT - LEFT) * share


def middle(i: int, columns: Sequence[str]) -> float:
    """The middle of a column."""
    return at((i + 0.5) / len(columns))


def stop(drawing: Drawing, y: float, name: str, does: str) -> None:
    """A station of the line, with what it does."""
    drawing.circle(LINE, y, 9, fill="paper", stroke="ink", thick=3.4)
    drawing.text(LABELS, y + 4, name, size=NORMAL, bold=True, anchor="start")
    drawing.text(LABELS, y + 26, does, size=SMALL, role="faint", anchor="start")


def bars(drawing: Drawing, bottom: float, shares: Sequence[float], before: Sequence[float], full: float) -> None:
    """A bar for each column with its percentage above; hatched is what this station removes.

    Args:
        full: the probability that is as high as a row.
    """
    for i, (q, was) in enumerate(zip(shares, before)):
        x = middle(i, shares)
        if q > 0:
            height = max(2.5, HIGH * q / full)  # none is too low to be seen
            drawing.rect(Area(x - 20, bottom - height, x + 20, bottom), fill="weights", radius=1)
            drawing.text(x, bottom + 18, percent(q), size=SMALL)
        elif was > 0:
            drawing.rect(Area(x - 20, bottom - REMOVED, x + 20, bottom), stroke="weights", thick=1.2, radius=1,
                         hatched=True)


def piece(drawing: Drawing, area: Area, token: str, *, chosen: bool) -> None:
    """A token's part of the unit interval, with its name where there is room."""
    drawing.rect(area, fill="mark" if chosen else "plain", stroke="ink", thick=3.4 if chosen else 1.6, radius=0)
    if text_width(token, SMALL, bold=chosen) <= area.right - area.left - 8:
        drawing.text((area.left + area.right) / 2, area.top + 26, token, size=SMALL, bold=chosen)
