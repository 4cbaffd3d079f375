"""Two drawings of sampling: where three filters cut a distribution, and how one random number picks a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import LARGE, NORMAL, SMALL, WIDTH, Area, Drawing, text_width

LEFT, RIGHT = 28, WIDTH - 28
PANEL = 318  # how wide a chart is
PANELS = (LEFT, RIGHT - PANEL)  # where the two in a row begin
FIRST, ROW, HIGH = 92, 162, 78  # where the first row begins, how high each is, and a chart in it
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
    """Sorted probabilities as bars that touch nothing but their base line.

    Attributes:
        left, bottom: its lower left corner on the paper.
        probabilities: from the largest down; the first is as high as the chart.
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

    def height(self, probability: float) -> float:
        """How high a bar is, never too low to be seen."""
        return max(2.5, HIGH * probability / self.probabilities[0])


class Cut(NamedTuple):
    """What a filter does.

    Attributes:
        name: of the filter, with its setting.
        rule: what it keeps, in a few words.
        kept: how many tokens, for each place.
        draw: a chart with this cut.
    """

    name: str
    rule: str
    kept: Sequence[int]
    draw: Callable[[Drawing, Chart], None]


def three_cuts(places: tuple[Place, Place], *, k: int, p: float, min_p: float) -> Drawing:
    """Top-k, top-p and min-p at a place where the model is sure, and at one where it is not.

    Args:
        places: two of them, with more candidates than any filter keeps.
        k: tokens that top-k keeps.
        p: the probability that top-p reaches, in (0, 1).
        min_p: how likely a token must be, as a share of the likeliest, in (0, 1).
    """
    check(places, k, p, min_p)
    cuts = [Cut(f"top-k {k}", f"the first {k}", [k, k], by_count),
            Cut(f"top-p {p:g}", f"until the sum reaches {p:g}", [top_p(place, p) for place in places], by_sum),
            Cut(f"min-p {min_p:g}", f"at least {min_p:g} × the first", [above(place, min_p) for place in places],
                partial(by_level, share=min_p))]
    drawing = Drawing("Three cuts of one distribution", told(places, cuts), height=FIRST + 3 * ROW - 3)
    for i, cut in enumerate(cuts):
        y = FIRST + ROW * i
        drawing.text(LEFT, y + 14, cut.name, bold=True, anchor="start")
        x = LEFT + text_width(cut.name, NORMAL, bold=True) + 12
        drawing.text(x, y + 14, cut.rule, size=SMALL, role="faint", anchor="start")
        for left, place, kept in zip(PANELS, places, cut.kept):
            chart = Chart(left, y + 32 + HIGH, [q for _, q in place.candidates], kept)
            cut.draw(drawing, chart)
            count(drawing, chart)
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
    heads = ". ".join(f"{place.name}, after “{place.text}”: {likeliest(place)[-1]}" for place in places)
    counts = ". ".join(f"{cut.name} keeps {cut.kept[0]} and {cut.kept[1]}" for cut in cuts)
    return (f"Two distributions as sorted bars, side by side, each cut three times; what is removed is hatched. "
            f"{heads}. {counts}. Top-k, a vertical line, cuts at the same place in both; top-p, a shaded area, and "
            f"min-p, a horizontal line, follow the model.")


def likeliest(place: Place) -> list[str]:
    """The first, the first two and the first three candidates with their percentages; none under 2 % but the first."""
    said = [f"{token.strip()} {100 * q:.0f} %" for i, (token, q) in enumerate(place.candidates[:3])
            if i == 0 or q >= 0.02]
    return [", ".join(said[:n + 1]) for n in range(len(said))]


def heading(drawing: Drawing, left: float, place: Place) -> None:
    """Where the text is, and which tokens are likeliest, as many as there is room for."""
    drawing.text(left, 36, place.name, bold=True, anchor="start")
    x = left + text_width(place.name, NORMAL, bold=True) + 12
    require(x + text_width(place.text, SMALL, mono=True) <= left + PANEL, "text", place.text, "shorter")
    drawing.text(x, 36, place.text, size=SMALL, mono=True, anchor="start")
    fitting = [said for said in likeliest(place) if text_width(f"next: {said}", SMALL) <= PANEL]
    if fitting:
        drawing.text(left, 62, f"next: {fitting[-1]}", size=SMALL, role="faint", anchor="start")


def bars(drawing: Drawing, chart: Chart) -> None:
    """A bar for each candidate: kept solid, removed hatched."""
    for i, probability in enumerate(chart.probabilities):
        left, kept = chart.left + chart.pitch * i + 2, i < chart.kept
        drawing.rect(Area(left, chart.bottom - chart.height(probability), left + chart.pitch - 4, chart.bottom),
                     fill="weights" if kept else None, stroke="weights", thick=1.2, radius=1, hatched=not kept)
    drawing.path([(chart.left, chart.bottom), (chart.left + PANEL, chart.bottom)], stroke="line", thick=1.4)


def by_count(drawing: Drawing, chart: Chart) -> None:
    """Top-k: a vertical line after so many bars."""
    bars(drawing, chart)
    drawing.path([(chart.border, chart.bottom - HIGH - 4), (chart.border, chart.bottom)], thick=3)


def by_sum(drawing: Drawing, chart: Chart) -> None:
    """Top-p: a shade over the bars that reach the sum."""
    drawing.rect(Area(chart.left - 2, chart.bottom - HIGH - 6, chart.border, chart.bottom), fill="mark", radius=2)
    bars(drawing, chart)


def by_level(drawing: Drawing, chart: Chart, *, share: float) -> None:
    """Min-p: a horizontal line at a share of the first bar."""
    bars(drawing, chart)
    y = chart.bottom - HIGH * share
    drawing.path([(chart.left, y), (chart.left + PANEL, y)], thick=3)


def count(drawing: Drawing, chart: Chart) -> None:
    """A bracket under the kept bars, and how many they are."""
    y, right = chart.bottom + 8, chart.border - 2
    drawing.path([(chart.left + 2, y - 2), (chart.left + 2, y + 4), (right, y + 4), (right, y - 2)], thick=1.8)
    drawing.text(chart.left, y + 25, f"keeps {chart.kept}", size=SMALL, anchor="start", bold=True)


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
