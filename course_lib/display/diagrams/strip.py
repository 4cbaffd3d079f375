"""The line of stations at the head of a notebook: where one is, what came before and what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, WIDTH, Drawing, text_width

TITLE, NUMBER = 30, 22  # size of the type
MARGIN, LINE = 40, 78  # from the edge to the first station, and the height of the line
HERE, STATION = 20, 7  # radius


def strip(stations: Sequence[tuple[str, str]], here: str) -> Drawing:
    """One station of the line in large, with its title; its neighbours by name, the others as dots.

    Args:
        stations: number and title of each notebook, at least two.
        here: the number of the one that is read.
    """
    numbers = [number for number, _ in stations]
    require(here in numbers, "here", here, ", ".join(numbers))
    place = numbers.index(here)
    title = stations[place][1]
    drawing = Drawing(f"Notebook {here}: {title}", strip_in_words(stations, place), height=136)
    xs = [MARGIN + (WIDTH - 2 * MARGIN) / (len(stations) - 1) * i for i in range(len(stations))]
    drawing.path([(xs[0], LINE), (xs[-1], LINE)], stroke="line", thick=4)
    drawing.path([(xs[0], LINE), (xs[place], LINE)], thick=4)
    for i, x in enumerate(xs):
        if i != place:
            read = i < place
            drawing.circle(x, LINE, STATION, fill="ink" if read else "paper", stroke="ink" if read else "faint")
    drawing.circle(xs[place], LINE, HERE, fill="mark", stroke="ink", thick=3)
    drawing.text(xs[place], LINE + 8, here, size=NUMBER, bold=True)
    half = text_width(title, TITLE, bold=True) / 2
    drawing.text(min(max(xs[place], 20 + half), WIDTH - 20 - half), 42, title, size=TITLE, bold=True)
    neighbours(drawing, stations, place)
    return drawing


def neighbours(drawing: Drawing, stations: Sequence[tuple[str, str]], place: int) -> None:
    """The titles before and after, at the two edges."""
    if place:
        drawing.text(20, LINE + 43, "← {} {}".format(*stations[place - 1]), size=SMALL, role="faint", anchor="start")
    if place + 1 < len(stations):
        drawing.text(WIDTH - 20, LINE + 43, "{} {} →".format(*stations[place + 1]), size=SMALL, role="faint",
                     anchor="end")


def strip_in_words(stations: Sequence[tuple[str, str]], place: int) -> str:
    """The line for a reader who cannot see it."""
    before = f" Before it: {' '.join(stations[place - 1])}." if place else ""
    after = f" After it: {' '.join(stations[place + 1])}." if place + 1 < len(stations) else ""
    return (f"You are here: notebook {', '.join(stations[place])}. It is number {place + 1} of the {len(stations)} "
            f"stations on the line of the course.{before}{after}")
