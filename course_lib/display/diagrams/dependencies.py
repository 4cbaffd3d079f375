"""Which notebook builds on which: a line from each to those that need it, and none that another path makes anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, Point, text_width

# A row and a column for each notebook, found by hand so that no line crosses a box.
PLACES = {"01": (0, 0.55), "00": (0, 2.45), "02": (1, 1.5), "03": (2, 1.5), "04": (3, 0.75), "08": (3, 2.25),
          "05": (4, 0), "09": (4, 1.5), "10": (4, 3), "06": (5, 0), "15": (5, 1), "13": (5, 2), "14": (5, 3),
          "07": (6, 0), "11": (6, 2.5), "16": (7, 0), "12": (7, 1.5), "17": (8, 2.25)}
DOWN_FIRST = {("09", "11"): 5, ("09", "12"): 6, ("14", "17"): 7}  # to beneath this row, then across
LEFT, COLUMN, WIDE = 93.0, 178.0, 160.0
TOP, ROW, HIGH = 20.0, 118.0, 80.0


def reduced(needs: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Pairs (needed, needing), without those that follow from others.

    >>> reduced({"00": [], "01": ["00"], "02": ["00", "01"]})
    [('00', '01'), ('01', '02')]
    """
    below = {number: set() for number in needs}
    for number in needs:  # what a notebook needs stands before it
        for other in needs[number]:
            below[number] |= {other} | below[other]
    return [(other, number) for number in needs for other in needs[number]
            if not any(other in below[third] for third in needs[number])]


def dependencies(titles: Mapping[str, str], needs: Mapping[str, Sequence[str]]) -> Drawing:
    """The notebooks from the first to the last, those that can be read at the same time in one row.

    Args:
        titles: by number.
        needs: for each number those that it builds on, which come before it.
    """
    require(set(titles) == set(needs) == set(PLACES), "notebooks", sorted(titles), ", ".join(sorted(PLACES)))
    rows = 1 + max(row for row, _ in PLACES.values())
    pairs = reduced(needs)
    drawing = Drawing("Which notebook needs which", told(titles, pairs), height=TOP + (rows - 1) * ROW + HIGH + 20)
    for pair in pairs:
        drawing.path(line(*pair), stroke="faint", arrow=True)
    for number, title in titles.items():
        station(drawing, number, title)
    return drawing


def line(needed: str, needing: str) -> list[Point]:
    """From the bottom of one box to the top of another."""
    (row, column), (last_row, last_column) = PLACES[needed], PLACES[needing]
    points = [(LEFT + column * COLUMN, TOP + row * ROW + HIGH), (LEFT + last_column * COLUMN, TOP + last_row * ROW)]
    if (needed, needing) in DOWN_FIRST:
        points.insert(1, (points[0][0], TOP + DOWN_FIRST[needed, needing] * ROW + HIGH))
    return points


def station(drawing: Drawing, number: str, title: str) -> None:
    """A box with a number and a title of one or two lines."""
    row, column = PLACES[number]
    x, y = LEFT + column * COLUMN, TOP + row * ROW
    drawing.rect(Area(x - WIDE / 2, y, x + WIDE / 2, y + HIGH), fill="mark" if row == 8 else "plain", stroke="ink")
    lines = [number, *folded(title)]
    for i, text in enumerate(lines):
        drawing.text(x, y + HIGH / 2 + 6 + 22 * (i - (len(lines) - 1) / 2), text, size=SMALL, bold=i == 0)


def folded(text: str) -> list[str]:
    """A title on as many lines as it takes in a box."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, SMALL) > WIDE - 10:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def told(titles: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> str:
    """The drawing in words: the longest path, and what each of the others leads to."""
    to = {number: [last for first, last in pairs if first == number] for number in titles}
    words = "; ".join(f"{number} to {', '.join(last)}" for number, last in sorted(to.items()) if last)
    return f"The {len(titles)} notebooks as boxes, with arrows from each to those that need it: {words}."
