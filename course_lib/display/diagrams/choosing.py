"""Where three filters cut a distribution: after a number of tokens, at a sum, at a level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, text_width

LEFT, RIGHT = 28, WIDTH - 28
PANEL = 318  # how wide a chart is
PANELS = (LEFT, RIGHT - PANEL)  # where the two in a row begin
FIRST, AROUND = 92, 104  # where the first row begins, and what a row needs besides its charts
HIGH, STRIP, SCALE = 96, 48, 18  # how high a chart of bars is, pieces laid end to end, and the numbers over them
NEARLY = 1e-6  # so that a float sum counts as the exact hit that it was meant to be


class Place(NamedTuple):
    """A position of a text, and what the model expects there.

    Attributes:
        name: in what way it is an example.
        text: how the text ends there.
        candidates: the likeliest tokens, each with its probability, from the likeliest down.
    """

    name: str
    text: str
    candidates: Sequence[tuple[str, float]]


class Chart(NamedTuple):
    """Sorted probabilities in a panel, as bars or laid end to end.

    Attributes:
        left, bottom: its lower left corner on the paper.
        probabilities: from the largest down.
        kept: how many a filter keeps.
    """

    left: float
    bottom: float
    probabilities: Sequence[float]
    kept: int

    @property
    def pitch(self) -> float:
        """From one bar to the next."""
        return PANEL / len(self.probabilities)

    @property
    def border(self) -> float:
        """Where the kept bars end."""
        return self.left + self.pitch * self.kept


class Cut(NamedTuple):
    """What a filter does.

    Attributes:
        name: of the filter, with its setting.
        rule: what it keeps, in a few words.
        kept: how many tokens, for each place.
        draw: a chart with this cut; it returns where the kept ones end.
        height: of its charts.
    """

    name: str
    rule: str
    kept: Sequence[int]
    draw: Callable[[Drawing, Chart], float]
    height: float = HIGH


def three_cuts(places: tuple[Place, Place], *, k: int, p: float, min_p: float, of: int) -> Drawing:
    """Top-k, top-p and min-p at a place where the model is sure, and at one where it is not.

    Args:
        places: two of them, with more candidates than any filter keeps.
        k: tokens that top-k keeps.
        p: the probability that top-p reaches, in (0, 1).
        min_p: how likely a token must be, as a share of the likeliest, in (0, 1).
        of: the tokens of the vocabulary, of which the candidates are the likeliest.
    """
    check(places, k, p, min_p)
    cuts = [Cut(f"top-k {k}", f"the first {k} (only {len(places[0].candidates)} of {of:,} bars are drawn)", [k, k],
                by_count),
            Cut(f"top-p {p:g}", f"end to end, until {p:g} is reached", [top_p(place, p) for place in places],
                partial(by_sum, p=p), SCALE + STRIP),
            Cut(f"min-p {min_p:g}", f"at least {min_p:g} × the first (heights: shares of the first)",
                [above(place, min_p) for place in places], partial(by_level, share=min_p))]
    drawing = Drawing("Three cuts of one distribution", told(places, cuts), height=FIRST - 14)
    for cut in cuts:
        y, drawing.height = drawing.height + 14, drawing.height + AROUND + cut.height
        drawing.text(LEFT, y + 14, cut.name, bold=True, anchor="start")
        x = LEFT + text_width(cut.name, NORMAL, bold=True) + 12
        drawing.text(x, y + 14, cut.rule, size=SMALL, role="faint", anchor="start")
        for left, place, kept in zip(PANELS, places, cut.kept):
            chart = Chart(left, y + 44 + cut.height, [q for _, q in place.candidates], kept)
            count(drawing, chart, cut.draw(drawing, chart))
    for left, place in zip(PANELS, places):
        heading(drawing, left, place)
    return drawing


def check(places: Sequence[Place], k: int, p: float, min_p: float) -> None:
    """Settings in their ranges, and candidates enough that every cut can be seen."""
    require(len(places) == 2, "places", len(places), "2")
    require(k > 0, "k", k, "at least 1")
    require(0 < p < 1, "p", p, "between 0 and 1")
    require(0 < min_p < 1, "min_p", min_p, "between 0 and 1")
    for place in places:
        found = [q for _, q in place.candidates]
        require(found == sorted(found, reverse=True) and min(found) > 0, "candidates", found, "positive and sorted")
        require(sum(found) > p, "candidates", sum(found), f"together likelier than p = {p:g}")
        most = max(k, top_p(place, p), above(place, min_p))
        require(most < len(found) <= 16, "candidates", len(found), f"more than the {most} that are kept, 16 at most")


def top_p(place: Place, p: float) -> int:
    """How many tokens are needed to reach p, the one that crosses it included."""
    sums = accumulate((q for _, q in place.candidates), initial=0.0)
    return sum(before < p - NEARLY for before in list(sums)[:-1])


def above(place: Place, min_p: float) -> int:
    """How many tokens are at least min_p times as likely as the likeliest."""
    return sum(q >= min_p * place.candidates[0][1] * (1 - NEARLY) for _, q in place.candidates)


def told(places: Sequence[Place], cuts: Sequence[Cut]) -> str:
    """The drawing in words."""
    heads = ". ".join(f"{place.name}, after “{place.text}”: {', '.join(likeliest(place))}" for place in places)
    counts = ". ".join(f"{cut.name} keeps {cut.kept[0]} and {cut.kept[1]}" for cut in cuts)
    return (f"Two distributions, each cut three times; what is removed is hatched. {heads}. {counts}. "
            "Top-k cuts at a vertical line, the same in both; top-p at a sum, with the probabilities end to end; min-p "
            "at a horizontal line, a share of the highest bar.")


def likeliest(place: Place) -> list[str]:
    """The likeliest candidates with their percentages, as many as a panel has room for, at most three.

    None but the first is named if it has less than 2 %.
    """
    said: list[str] = []
    for token, q in place.candidates[:3]:
        longer = [*said, f"{token.strip()} {percent(q)}"]
        if (said and q < 0.02) or text_width(f"next: {', '.join(longer)}", SMALL) > PANEL:
            break
        said = longer
    return said


def percent(q: float) -> str:
    """A probability as it is written beside a bar.

    >>> percent(0.959), percent(0.0223)
    ('96 %', '2.2 %')
    """
    return f"{100 * q:.{int(q < 0.1)}f} %"


def heading(drawing: Drawing, left: float, place: Place) -> None:
    """Where the text is, and which tokens are likeliest, as many as there is room for."""
    drawing.text(left, 36, place.name, bold=True, anchor="start")
    x = left + text_width(place.name, NORMAL, bold=True) + 12
    require(x + text_width(place.text, SMALL, mono=True) <= left + PANEL, "text", place.text, "shorter")
    drawing.text(x, 36, place.text, size=SMALL, mono=True, anchor="start")
    drawing.text(left, 62, f"next: {', '.join(likeliest(place))}", size=SMALL, role="faint", anchor="start")


def bars(drawing: Drawing, chart: Chart, full: float) -> None:
    """A bar for each candidate, kept solid, removed hatched, and the percentage of the first over it.

    Args:
        full: the probability that is as high as the chart.
    """
    for i, probability in enumerate(chart.probabilities):
        left, kept = chart.left + chart.pitch * i + 2, i < chart.kept
        height = max(2.5, HIGH * probability / full)  # none is too low to be seen
        drawing.rect(Area(left, chart.bottom - height, left + chart.pitch - 4, chart.bottom),
                     fill="weights" if kept else None, stroke="weights", thick=1.2, radius=1, hatched=not kept)
    first = chart.probabilities[0]
    drawing.text(chart.left + 2, chart.bottom - HIGH * first / full - 6, percent(first), size=SMALL, anchor="start")
    drawing.path([(chart.left, chart.bottom), (chart.left + PANEL, chart.bottom)], stroke="line", thick=1.4)


def by_count(drawing: Drawing, chart: Chart) -> float:
    """Top-k: a vertical line after that many bars; both panels are on one scale, up to 100 %."""
    bars(drawing, chart, 1.0)
    drawing.path([(chart.border, chart.bottom - HIGH - 4), (chart.border, chart.bottom)], thick=3)
    return chart.border


def by_sum(drawing: Drawing, chart: Chart, *, p: float) -> float:
    """Top-p: the probabilities end to end from 0 to 1, and a line where p is reached."""
    ends = [chart.left + PANEL * total for total in accumulate(chart.probabilities, initial=0.0)]
    top, bottom = chart.bottom - STRIP, chart.bottom
    for left, right in zip(ends[:chart.kept], ends[1:]):
        drawing.rect(Area(left, top, right, bottom), fill="weights", stroke="paper", thick=1.2, radius=1)
    drawing.rect(Area(ends[chart.kept], top, chart.left + PANEL, bottom), stroke="weights", thick=1.2, radius=1,
                 hatched=True)
    x = chart.left + PANEL * p
    drawing.path([(x, top - 8), (x, bottom)], thick=3)
    for at, words, anchor in ((chart.left, "0", "start"), (chart.left + PANEL, "1", "end")):
        drawing.text(at, top - 14, words, size=SMALL, anchor=anchor)
    drawing.text(x + 2, top - 14, f"{p:g}", size=SMALL, anchor="end" if p > 0.5 else "start", bold=True)
    return ends[chart.kept]


def by_level(drawing: Drawing, chart: Chart, *, share: float) -> float:
    """Min-p: a horizontal line at a share of the first bar, which is as high as the chart."""
    first = chart.probabilities[0]
    bars(drawing, chart, first)
    y = chart.bottom - HIGH * share
    drawing.path([(chart.left, y), (chart.left + PANEL, y)], thick=3)
    drawing.text(chart.left + PANEL, y - 8, percent(share * first), size=SMALL, bold=True, anchor="end")
    return chart.border


def count(drawing: Drawing, chart: Chart, end: float) -> None:
    """A bracket under the kept ones, and how many they are."""
    y, right = chart.bottom + 8, end - 2
    drawing.path([(chart.left + 2, y - 2), (chart.left + 2, y + 4), (right, y + 4), (right, y - 2)], thick=1.8)
    drawing.text(chart.left, y + 25, f"keeps {chart.kept}", size=SMALL, anchor="start", bold=True)
