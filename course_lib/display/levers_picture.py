"""Settings of all levers as points over two columns of their table: every point named, and those that nobody beats
joined."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from course_lib.analysis.customers import WORDS
from course_lib.analysis.levers import BETTER, Row
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Drawing, Point
from course_lib.display.levers_chart import DOT, PLOT, Chart, amount, meets

HIGH, LINE, RING = 640, 26, 16  # the picture, a line of text under it, and the ring around the chosen one
CROSSED = "× breaks a limit, perhaps in a column not drawn"
NEAR, FAR = 16, 20  # a name has a line to its point where that is far, or near and another point is nearer


def levers_drawing(rows: Sequence[Row], front: Sequence[Row], *, x: str = "gap_s", y: str = "dollars_per_million",
                   forbidden: Collection[str] = (), chosen: str | None = None,
                   limits: Mapping[str, float] | None = None, description: str = "") -> Drawing:
    """Every setting as a point, the front joined.

    Args:
        rows: at least two.
        front: those that are joined, as `pareto` returns them.
        x, y: columns of `levers.BETTER`.
        forbidden: names of settings that are crossed out.
        chosen: the name of one with a ring around it.
        limits: of columns, the worst value that is allowed; a dashed line where the column is shown.
        description: instead of the drawing's own.
    """
    require(len(rows) >= 2, "len(rows)", len(rows), ">= 2")
    chart = Chart.of(rows, front, x, y, chosen=chosen, bounds=limits)
    unnamed = [row.name for spot, found in chart.spots.items() if not chart.names[spot] for row in found]
    drawing = Drawing(f"Settings by {WORDS[x]} and {WORDS[y]}", description or told(rows, front, x, y),
                      height=HIGH + LINE * len(unnamed))
    frame(drawing, chart)
    for line in chart.borders:
        drawing.path(line, dashed=True)
    if len(front) > 1:
        drawing.path(chart.stairs, thick=3, stroke="query")
    for name in filter(None, chart.names.values()):
        drawing.rect(name.area, fill="paper", radius=0)  # no line runs through a name
    joined = {row.name for row in front}
    for spot, found in chart.spots.items():
        names = {row.name for row in found}
        point(drawing, spot, full=bool(names & joined), crossed=names <= set(forbidden), ringed=chosen in names)
        name_it(drawing, chart, spot, "ink" if names & joined or chosen in names else "faint")
    if forbidden:
        drawing.text(14, PLOT.bottom + 56, CROSSED, size=SMALL, anchor="start")
    for i, name in enumerate(unnamed, 1):  # where a point has no room for its name
        where = ", ".join(amount(column, getattr(row, column)) for row in rows if row.name == name for column in (x, y))
        drawing.text(14, PLOT.bottom + 56 + LINE * i, f"not named above: {name} ({where})", size=SMALL, anchor="start")
    return drawing


def name_it(drawing: Drawing, chart: Chart, spot: Point, role: str) -> None:
    """The name of a point, with a line to it if it is far."""
    name = chart.names[spot]
    if not name:
        return
    left, _, right, bottom = name.area
    end = meets(spot, name.area)
    away = math.dist(spot, end)
    others = [math.dist(other, meets(other, name.area)) for other in chart.spots if other != spot]
    if away > FAR or (away > NEAR and min(others, default=math.inf) < 1.5 * away):
        start = (RING if name.bold else DOT) / away
        drawing.path([(spot[0] + (end[0] - spot[0]) * start, spot[1] + (end[1] - spot[1]) * start), end],
                     stroke="faint", thick=1.2)
    x = {"start": left, "middle": (left + right) / 2, "end": right}[name.anchor]
    for i, text in enumerate(reversed(name.lines)):
        drawing.text(x, bottom - (0.25 + 1.2 * i) * SMALL, text, size=SMALL, anchor=name.anchor, bold=name.bold,
                     role=role)


def point(drawing: Drawing, spot: Point, *, full: bool, crossed: bool, ringed: bool) -> None:
    """A setting: full on the front, hollow where it is beaten, a cross where it is forbidden, a ring where chosen."""
    x, y = spot
    if ringed:
        drawing.circle(x, y, RING, stroke="ink", thick=3)
    if crossed:
        stroke = "ink" if full else "faint"
        for a, b in ((-1, -1), (-1, 1)):
            drawing.path([(x - 7 * a, y - 7 * b), (x + 7 * a, y + 7 * b)], stroke=stroke, thick=3.6 if full else 2.6)
        return
    drawing.circle(x, y, DOT + 2, fill="paper")  # two that overlap are seen as two
    drawing.circle(x, y, DOT, fill="query" if full else "paper", stroke="query" if full else "faint", thick=2.4)


def frame(drawing: Drawing, chart: Chart) -> None:
    """Both axes."""
    drawing.path([(PLOT.left, PLOT.top - 14), (PLOT.left, PLOT.bottom), (PLOT.right, PLOT.bottom)], stroke="faint")
    for at, words in chart.x.ticks(64):
        drawing.text(at, PLOT.bottom + 26, words, size=SMALL)
    for at, words in chart.y.ticks(54):
        drawing.text(PLOT.left - 10, at + 6, words, size=SMALL, anchor="end")
    sides = ("→" if BETTER[chart.x.column] == "more" else "←", "↑" if BETTER[chart.y.column] == "more" else "↓")
    drawing.text(PLOT.right, PLOT.bottom + 56, f"{chart.x.title} ({sides[0]} better)", size=SMALL, role="faint",
                 anchor="end")
    drawing.text(14, 30, f"{chart.y.title} ({sides[1]} better)", size=SMALL, role="faint", anchor="start")


def told(rows: Sequence[Row], front: Sequence[Row], x: str, y: str) -> str:
    """The picture in words."""
    def reach(column: str) -> str:
        values = [getattr(row, column) for row in rows]
        return f"{WORDS[column]} from {amount(column, min(values))} to {amount(column, max(values))}"

    each = "; ".join(f"{row.name} {', '.join(amount(column, getattr(row, column)) for column in (x, y))}"
                     for row in front)
    return f"{len(rows)} settings: {reach(x)} to the right, {reach(y)} upwards. Joined, the front: {each or 'none'}."
