"""Engines that are not well: what their dashboard shows of it, and what their text shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing, text_width

LEFT, RIGHT = (16.0, 338.0), (352.0, 704.0)  # of the panels
TOP, ROW, PANEL = 66, 176, 118  # the first fault, how far they are apart, and how high a panel is
BAR, LONGEST = 22, 160  # of a number: how high, and at most how long
EDGE = 12  # inside of a panel


class Sick(NamedTuple):
    """An engine with a fault.

    Attributes:
        fault: what it does.
        sign: a number of its dashboard.
        well, now: what it is where nothing is wrong, and what it is here; > 0, and different.
        better: "less" or "more".
        right, wrong: an answer, in the part that could be right and the part that cannot; either may be empty.
    """

    fault: str
    sign: str
    well: float
    now: float
    better: str
    right: str
    wrong: str

    @property
    def on_dashboard(self) -> bool:
        """Whether the number got worse."""
        return (self.now > self.well) == (self.better == "less")

    @property
    def in_text(self) -> bool:
        """Whether the answer has a wrong part."""
        return bool(self.wrong)


def two_views(engines: Sequence[tuple], subject: str) -> Drawing:
    """A number and an answer of each engine, and which of the two gives the fault away.

    Args:
        engines: fields of `Sick`; each of the two has to show some fault and to hide some.
        subject: what they were asked about.
    """
    found = [Sick(*engine) for engine in engines]
    for one in found:
        require(min(one.well, one.now) > 0 and one.well != one.now and one.better in ("less", "more"), "engines", one,
                "with two different numbers > 0 of which less or more is better")
    require({(one.on_dashboard, one.in_text) for one in found} >= {(True, False), (False, True)}, "engines", engines,
            "with one that only the dashboard shows, and one that only the text shows")
    drawing = Drawing("What the dashboard shows, and what the text shows", told(found), height=TOP + ROW * len(found))
    drawing.text(LEFT[0], 32, "the dashboard", role="faint", anchor="start")
    drawing.text(RIGHT[0], 32, f"the text: what is {subject}?", role="faint", anchor="start")
    for i, one in enumerate(found):
        y = TOP + ROW * i
        drawing.text(LEFT[0], y + 16, one.fault, anchor="start", bold=True)
        number(drawing, panel(drawing, LEFT, y + 34, "shows it" if one.on_dashboard else "looks better"), one)
        quote(drawing, panel(drawing, RIGHT, y + 34, "shows it" if one.in_text else "looks fine"), one)
    return drawing


def panel(drawing: Drawing, sides: tuple[float, float], top: float, words: str) -> Area:
    """A panel with its verdict."""
    area, shown = Area(sides[0], top, sides[1], top + PANEL), words == "shows it"
    drawing.rect(area, fill="plain", stroke="ink" if shown else "faint", thick=3 if shown else 1.4, dashed=not shown)
    drawing.tag(sides[1] - EDGE - text_width(words, SMALL) - 16, top + PANEL - 4, words,
                role="mark" if shown else "paper", stroke="ink" if shown else "faint")
    return area


def number(drawing: Drawing, area: Area, one: Sick) -> None:
    """The number of the dashboard as two bars."""
    left, top = area.left + EDGE, area.top
    drawing.text(left, top + 26, one.sign, size=SMALL, anchor="start")
    scale = LONGEST / max(one.well, one.now)
    for i, (words, value, fill) in enumerate((("healthy", one.well, "weights"), ("now", one.now, "cost"))):
        y = top + 38 + (BAR + 6) * i
        drawing.text(left, y + 17, words, size=SMALL, anchor="start", bold=bool(i))
        drawing.rect(Area(left + 82, y, left + 82 + scale * value, y + BAR), fill=fill, stroke="ink", thick=1.4,
                     radius=0)
        drawing.text(left + 90 + scale * value, y + 17, f"{value:g}", size=SMALL, anchor="start", bold=bool(i))


def quote(drawing: Drawing, area: Area, one: Sick) -> None:
    """The answer in lines, its wrong part marked."""
    x, y = area.left + EDGE, area.top + 28
    for words, wrong in ((word, part is one.wrong) for part in (one.right, one.wrong) for word in part.split()):
        wide = text_width(words, NORMAL, bold=wrong)
        if x + wide > area.right - EDGE:
            x, y = area.left + EDGE, y + 28
        if wrong:
            drawing.rect(Area(x - 4, y - 18, x + wide + 4, y + 7), fill="mark", radius=0)
        drawing.text(x, y, words, anchor="start", bold=wrong)
        x += wide + 7


def told(engines: Sequence[Sick]) -> str:
    """The drawing in words."""
    seen = {(True, False): "Only the dashboard shows it", (False, True): "Only the text shows it",
            (True, True): "Both show it", (False, False): "Nothing shows it"}
    return " ".join(f"{one.fault} Dashboard: {one.sign}: {one.now:g}, was {one.well:g}; text "
                    f"{f'wrong: {plain(one.wrong)}' if one.wrong else 'right'}. "
                    f"{seen[one.on_dashboard, one.in_text]}." for one in engines)


def plain(text: str) -> str:
    """A text without the marks that an alt text may not have.

    >>> plain("<|im_end|>↵<|endoftext|>")
    'im_end, endoftext'
    """
    return ", ".join(re.findall(r"<\|(\w+)\|>", text)) or text.rstrip(".")
