"""Levers of an engine: where each one acts, and which needles it moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, Point, text_width

NEEDLES = {"cost": "cost", "first token": "latency", "gap": "latency", "memory": "memory", "quality": "quality"}
BETTER = {name: "up" if name == "quality" else "down" for name in NEEDLES}
LINE, LEFT, FIRST, PITCH, CELL, ROW = 50, 78, 360, 78, 60, 56  # the line of stations, its words, columns and rows


class Lever(NamedTuple):
    """Something that can be set.

    Attributes:
        name, notebook: of the lever, and where it is built.
        station: what the engine does there.
        again: whether it does that for every token, and not once for a question.
        moves: needle to "up", "down" or "either"; the others stay.
    """

    name: str
    notebook: str
    station: str
    again: bool
    moves: Mapping[str, str]


LEVERS = (
    Lever("batch", "14", "wait for a place", False,
          {"cost": "down", "first token": "up", "gap": "up", "memory": "up"}),
    Lever("prefix reuse", "14", "read the question", False, {"cost": "down", "first token": "down", "gap": "either"}),
    Lever("draft", "12", "guess a few tokens", True, {"cost": "either", "gap": "down", "memory": "up"}),
    Lever("8, 4 bits", "11", "read the weights", True,
          {"cost": "down", "gap": "down", "memory": "down", "quality": "down"}),
    Lever("8-bit cache", "11", "read the cache", True,
          {"cost": "either", "gap": "either", "memory": "down", "quality": "down"}),
    Lever("compile", "09", "start the operations", True, {"cost": "down", "gap": "down"}),
    Lever("temperature", "07", "choose a token", True, {"quality": "either"}))


def levers(line: Sequence[Lever] = LEVERS) -> Drawing:
    """The way from a question to an answer, each lever at the station where it acts, and the needles that it moves.

    Args:
        line: in the order of the stations; those that act once for a question come first.
    """
    once = [lever for lever in line if not lever.again]
    require(0 < len(once) < len(line) and not any(lever.again for lever in line[: len(once)]), "line", line,
            "once for a question, then again for every token")
    for lever in line:
        require(set(lever.moves) <= set(NEEDLES) and set(lever.moves.values()) <= {"up", "down", "either"}, "moves",
                lever.moves, f"of {', '.join(NEEDLES)}: up, down or either")
    top = 122
    loop = top + ROW * len(once) + 36
    end = loop + ROW * (len(line) - len(once))
    drawing = Drawing("Every lever, where it acts and what it moves", told(line), height=end + 118)
    header(drawing)
    drawing.rect(Area(10, loop - 36, 710, end + 4), fill="plain", radius=10)
    drawing.text(LEFT, top - 10, "once for a question", size=SMALL, role="faint", anchor="start")
    drawing.text(LEFT, loop - 12, "again for every token", size=SMALL, role="faint", anchor="start")
    drawing.path([(LINE, 76), (LINE, end + 30)], stroke="weights", thick=6)
    drawing.path([(LINE, end - ROW / 2), (22, end - ROW / 2), (22, loop + ROW / 2), (LINE - 11, loop + ROW / 2)],
                 arrow=True)
    for i, lever in enumerate(line):
        station(drawing, top + ROW * i + 36 * lever.again, lever)
    drawing.text(18, 62, "question", anchor="start", bold=True)
    drawing.text(18, end + 52, "answer", anchor="start", bold=True)
    legend(drawing, end + 92)
    return drawing


def told(line: Sequence[Lever]) -> str:
    """The drawing in words."""
    def moved(lever: Lever) -> str:
        names = {way: [name for name in NEEDLES if lever.moves.get(name) == way] for way in ("down", "up", "either")}
        names["either way"] = names.pop("either")
        return f"{lever.name}: " + "; ".join(f"{', '.join(found)} {way}" for way, found in names.items() if found)

    once, again = (". ".join(moved(lever) for lever in line if lever.again == again) for again in (False, True))
    return f"From question to answer, a lever at each station. Once for a question: {once}. For every token: {again}."


def header(drawing: Drawing) -> None:
    """The needles above their columns."""
    for i, name in enumerate(NEEDLES):
        words = name.split()
        for j, word in enumerate(words):
            drawing.text(FIRST + PITCH * i, 62 - 22 * (len(words) - 1 - j), word, size=SMALL, bold=True)


def station(drawing: Drawing, top: float, lever: Lever) -> None:
    """A lever at its station, and what it does to each needle."""
    middle = top + ROW / 2
    drawing.circle(LINE, middle, 9, fill="paper", stroke="ink", thick=3)
    drawing.text(LEFT, middle - 4, lever.name, bold=True, anchor="start")
    x = LEFT + text_width(lever.name, 19, bold=True) + 10
    drawing.text(x, middle - 4, lever.notebook, size=SMALL, role="faint", anchor="start")
    drawing.text(LEFT, middle + 19, lever.station, size=SMALL, anchor="start")
    for i, (name, role) in enumerate(NEEDLES.items()):
        needle(drawing, FIRST + PITCH * i, middle, lever.moves.get(name), role, BETTER[name])


def needle(drawing: Drawing, x: float, y: float, way: str | None, role: str, better: str) -> None:
    """What happens to a number: an arrow, filled with the column's colour where that is better, hatched where worse."""
    if way is None:
        drawing.circle(x, y, 3.5, fill="faint")
        return
    area = Area(x - CELL / 2, y - 22, x + CELL / 2, y + 22)
    if way == "either":
        drawing.rect(area, fill="paper", stroke="ink", thick=1.4, dashed=True)
    elif way == better:
        drawing.rect(area, fill=role, stroke="ink", thick=1.4)
    else:
        drawing.rect(area, fill="paper", stroke="ink", thick=1.4, hatched=True)
    drawing.path(arrow(x, y, way), fill="ink", stroke="paper" if way != better else "ink", closed=True,
                 thick=3 if way not in (better, "either") else 1)


def arrow(x: float, y: float, way: str) -> list[Point]:
    """The outline of a fat arrow around (x, y), up, down or both."""
    both = [(-12, -6), (0, -17), (12, -6), (4, -6), (4, 6), (12, 6), (0, 17), (-12, 6), (-4, 6), (-4, -6)]
    down = [(-4.5, -15), (4.5, -15), (4.5, 0), (13, 0), (0, 16), (-13, 0), (-4.5, 0)]
    sign = -1 if way == "up" else 1
    return [(x + right, y + sign * below) for right, below in (both if way == "either" else down)]


def legend(drawing: Drawing, y: float) -> None:
    """What the arrows and their grounds are."""
    x = 154.0
    for way, role, words in (("down", "cost", "better"), ("up", "cost", "worse"), ("either", "cost", "it depends"),
                             (None, "cost", "untouched")):
        needle(drawing, x, y - 6, way, role, "down")
        wide = CELL / 2 if way else 6
        drawing.text(x + wide + 8, y, words, size=SMALL, anchor="start")
        x += wide + text_width(words, SMALL) + 22 + CELL / 2
