"""Where settings are over two columns of their table, and where their names go so that none lies on anything else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from course_lib.analysis.customers import WORDS
from course_lib.analysis.levers import BETTER, PLAIN, Row
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Point, text_width
from course_lib.display.diagrams.log_axes import share
from course_lib.display.roofline_view import digits, dollars, duration
from course_lib.display.views import percent

PLOT = Area(84, 62, 700, 560)
DOT = 8  # radius of a point
UNITS = {"tokens_per_s": ("", 1), "ttft_s": ("ms", 1e3), "gap_s": ("ms", 1e3), "nbytes": ("MB", 1e-6),
         "perplexity": ("", 1), "capitals": ("% right", 100), "tool_calls": ("% right", 100),
         "dollars_per_million": ("$", 1)}
LINEAR = {"perplexity", "capitals", "tool_calls"}  # the others are drawn in logarithms
REACH = (14, 22, 34, 48, 64, 84, 108, 136, 170, 210, 260, 320)  # how far from its point a name may be
STAIRS, BORDERS = 250, 60  # how much farther a name may be so that it lies on no such line
NEARER, CROSSED = 60, 60  # the same for each point that is nearer to it than its own, and each such line in its way
APART = 9  # between names side by side, so that two are not read as one
TURNS = [math.pi / 12 * n for n in range(24)]


def amount(column: str, value: float) -> str:
    """A value with its unit.

    >>> amount("gap_s", 0.0033), amount("nbytes", 35.6e6), amount("capitals", 0.9583), amount("perplexity", 2.7758)
    ('3.3 ms', '35.6 MB', '95.8 %', '2.776')
    """
    if column.endswith("_s") and column != "tokens_per_s":
        return duration(value)
    if column in ("capitals", "tool_calls"):
        return percent(value)
    if column == "dollars_per_million":
        return dollars(value)
    if column == "nbytes":
        return f"{digits(value / 1e6)} MB"
    return f"{value:.3f}" if column == "perplexity" else digits(value)


@dataclass(frozen=True)
class Axis:
    """A column of the table, from one end of the plot to the other."""

    column: str
    low: float
    high: float
    start: float
    end: float

    @classmethod
    def of(cls, column: str, rows: Sequence[Row], start: float, end: float) -> Axis:
        """With room on both sides of all values."""
        require(column in BETTER, "axis", column, f"one of {', '.join(BETTER)}")
        values = [getattr(row, column) for row in rows]
        low, high = min(values), max(values)
        if column in LINEAR:
            room = 0.2 * (high - low) or 0.01 * high or 1
            return cls(column, low - room, high + room, start, end)
        room = (high / low) ** 0.14 if high > low else 1.2
        return cls(column, low / room, high * room, start, end)

    def place(self, value: float) -> float:
        """Where on the paper a value is."""
        part = ((value - self.low) / (self.high - self.low) if self.column in LINEAR
                else share(value, self.low, self.high))
        return self.start + part * (self.end - self.start)

    @property
    def title(self) -> str:
        """The column in words, with its unit."""
        unit = UNITS[self.column][0]
        return f"{WORDS[self.column]}{f', {unit}' if unit else ''}"

    def ticks(self, apart: float) -> list[tuple[float, str]]:
        """Round numbers in the unit, at least `apart` from each other: where, and what is written."""
        scale = UNITS[self.column][1]
        low, high = self.low * scale, self.high * scale
        step = 10.0 ** math.floor(math.log10((high - low) / 3))
        steps = [step * k for k in (1, 2, 5, 10, 20)]
        ladders = [[k * 10.0**n for n in range(-6, 10) for k in ks] for ks in ((1, 2, 5), (1, 3), (1,))]
        if self.column in LINEAR or high / low < 4:
            ladders = [[one * i for i in range(math.ceil(low / one), math.floor(high / one) + 1)] for one in steps]
        for values in ladders:
            found = [(self.place(value / scale), f"{value:.6g}") for value in values if low <= value <= high]
            if all(abs(a - b) >= apart for (a, _), (b, _) in pairwise(found)):
                return found
        return found


class Name(NamedTuple):
    """What is written of a point: its lines, the room that they take, and the side on which its point is."""

    lines: tuple[str, ...]
    area: Area
    anchor: str
    bold: bool


@dataclass
class Chart:
    """Where points and their names are.

    Attributes:
        borders: lines across the plot that names should not cross.
        stairs: the front from its best x on: each setting holds until the next one begins.
        spots: of each place on the paper, the rows that are there.
        names: of each place; None where there is no room.
    """

    x: Axis
    y: Axis
    borders: list[tuple[Point, Point]] = field(default_factory=list)
    stairs: list[Point] = field(default_factory=list)
    spots: dict[Point, list[Row]] = field(default_factory=dict)
    names: dict[Point, Name | None] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row], front: Sequence[Row], x: str, y: str, *, chosen: str | None = None,
           bounds: Mapping[str, float] | None = None) -> Chart:
        """With every point named that there is room for: the chosen one, the front, plain, then the longest names.

        Args:
            chosen: the name of one that is written in bold.
            bounds: values of the columns where a line is drawn across, if they are in the plot.
        """
        require(x != y, "y", y, "another column than x")
        chart = cls(Axis.of(x, rows, PLOT.left, PLOT.right), Axis.of(y, rows, PLOT.bottom, PLOT.top))
        chart.borders = [line for column, bound in (bounds or {}).items() for line in chart.across(column, bound)]
        for row in rows:
            chart.spots.setdefault(chart.place(row), []).append(row)
        for row in sorted(front, key=lambda row: getattr(row, x), reverse=BETTER[x] == "more"):
            spot = chart.place(row)
            chart.stairs += [(spot[0], chart.stairs[-1][1]), spot] if chart.stairs else [spot]
        joined = {row.name for row in front}

        def urgency(spot: Point) -> tuple[bool, bool, bool, int]:
            names = {row.name for row in chart.spots[spot]}
            return chosen not in names, not names & joined, PLAIN.name not in names, -max(map(len, names)) * len(names)

        for spot in sorted(chart.spots, key=urgency):
            names = sorted((row.name for row in chart.spots[spot]), key=lambda name: name != chosen)
            chart.names[spot] = chart.room_for(spot, several(names), chosen in names)
        return chart

    def place(self, row: Row) -> Point:
        """Where a setting is; settings that are nearly the same share a spot."""
        x, y = self.x.place(getattr(row, self.x.column)), self.y.place(getattr(row, self.y.column))
        return next((spot for spot in self.spots if math.dist(spot, (x, y)) < DOT), (x, y))

    def across(self, column: str, bound: float) -> list[tuple[Point, Point]]:
        """The line of a value across the plot, if it is in it."""
        axis = {self.x.column: self.x, self.y.column: self.y}.get(column)
        if axis is None or not axis.low < bound < axis.high:
            return []
        at = axis.place(bound)
        return [((at, PLOT.top - 14), (at, PLOT.bottom)) if axis is self.x else ((PLOT.left, at), (PLOT.right, at))]

    def room_for(self, spot: Point, lines: tuple[str, ...], bold: bool) -> Name | None:
        """The best place for a name where it covers no point and no other name: near, and away from lines."""
        names = [name.area for name in self.names.values() if name]
        areas = [Area(area.left - APART, area.top, area.right + APART, area.bottom) for area in names]
        areas += [Area(x - 11, y - 11, x + 11, y + 11) for x, y in self.spots]
        leaders = [between(other, meets(other, name.area)) for other, name in self.names.items() if name]
        least, best = math.inf, None
        for reach, name in around(spot, lines, bold):
            if reach >= least:  # all others are farther
                break
            way = between(spot, meets(spot, name.area))
            if any(map(name.area.overlaps, areas)) or any(within(area, point) for area in names for point in way):
                continue
            if any(within(name.area, point) for line in leaders for point in line):
                continue
            if any(math.dist(point, other) < DOT + 2 for point in way for other in self.spots
                   if math.dist(point, spot) > 2 * DOT and other != spot):
                continue  # its line would run through another point
            cost = reach + self.disorder(spot, name.area, leaders)
            if cost < least:
                least, best = cost, name
        return best

    def disorder(self, spot: Point, area: Area, leaders: Sequence[Sequence[Point]]) -> float:
        """What a name in an area costs for the points and lines that are near it or on the way to it.

        Args:
            leaders: points of the lines from other settings to their names.
        """
        end = meets(spot, area)
        way = [point for point in between(spot, end) if math.dist(point, spot) > 2 * DOT]
        nearer = sum(math.dist(other, meets(other, area)) < math.dist(spot, end) for other in self.spots)
        crossed = sum(any(math.dist(point, other) < 6 for point in way for other in line) for line in leaders)
        under = sum(cost for cost, lines in ((STAIRS, pairwise(self.stairs)), (BORDERS, self.borders))
                    if any(within(area, point) for line in lines for point in between(*line)))
        return NEARER * nearer + CROSSED * crossed + under


def around(spot: Point, lines: tuple[str, ...], bold: bool) -> Iterator[tuple[float, Name]]:
    """Places for a name that are in the plot, from near to far, each with how far it is."""
    wide, (x, y) = max(text_width(line, SMALL, bold=bold) for line in lines), spot
    half = 0.6 * SMALL * len(lines)
    for reach in REACH:
        for turn in TURNS:
            right = math.cos(turn)
            side, anchor = (0.0, "start") if right > 0.5 else (1.0, "end") if right < -0.5 else (0.5, "middle")
            left, middle = x + right * reach - side * wide, y + math.sin(turn) * (reach - 4 + half)
            area = Area(left, middle - half, left + wide, middle + half)
            if (area.left >= PLOT.left + 4 and area.right <= PLOT.right + 12 and area.top >= PLOT.top - 14
                    and area.bottom <= PLOT.bottom - 2):
                yield reach, Name(lines, area, anchor, bold)


def several(names: Sequence[str]) -> tuple[str, ...]:
    """The lines that are written at a spot.

    >>> several(["plain"]), several(["plain", "int8"]), several(["plain", "int8", "int4"])
    (('plain',), ('plain', 'int8'), ('plain', 'and 2 more'))
    """
    return tuple(names) if len(names) <= 2 else (names[0], f"and {len(names) - 1} more")


def within(area: Area, point: Point) -> bool:
    """Whether a point is in an area, or nearly."""
    return area.left - 2 < point[0] < area.right + 2 and area.top - 2 < point[1] < area.bottom + 2


def meets(spot: Point, area: Area) -> Point:
    """Where the line from a point meets its name."""
    return min(max(spot[0], area.left), area.right), min(max(spot[1], area.top), area.bottom)


def between(start: Point, end: Point) -> list[Point]:
    """Points on a line, every six units, without its end."""
    steps = max(1, math.ceil(math.dist(start, end) / 6))
    return [(start[0] + (end[0] - start[0]) * i / steps, start[1] + (end[1] - start[1]) * i / steps)
            for i in range(steps)]
