"""Settings of all levers as a table of what each did, in multiples of the plain one: better is solid, worse is hatched,
as in the drawing of what levers should do."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.analysis.levers import BETTER, PLAIN, Row
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.levers_chart import amount

COLUMNS = {"dollars_per_million": ("cost", "cost"), "ttft_s": ("first token", "latency"), "gap_s": ("gap", "latency"),
           "nbytes": ("memory", "memory"), "perplexity": ("perplexity", "quality")}  # to a heading and a role
NOISE = {"nbytes": 1.005, "perplexity": 1.005}  # factor from plain's number beyond which one counts as moved
OF_TIMES = 1.3  # the same for what a clock has measured: runs beside other work differ by about as much
MIDDLES = dict(zip(COLUMNS, (338, 412, 486, 560, 662)))  # of the columns
LEFT, ROW, GROUP = 14, 34, 32  # where names begin; how high a row and the heading of a group are
CELL = (64, 28)  # of a number that has moved
FRAME = (9, 4)  # of hatching around a number that got worse: how wide, and how high


def measured_drawing(rows: Sequence[Row]) -> Drawing:
    """What every setting did to cost, waits, memory and perplexity.

    Args:
        rows: of one run of `measure`, with the plain setting and at least one other.
    """
    plain = next((row for row in rows if row.name == PLAIN.name), None)
    require(plain is not None and len(rows) >= 2, "rows", [row.name for row in rows], f"{PLAIN.name!r} and others")
    others = [row for row in rows if row is not plain]
    groups = {"one lever": [row for row in others if " + " not in row.name],
              "several": [row for row in others if " + " in row.name]}
    groups = {title: found for title, found in groups.items() if found}
    height = 112 + ROW * len(others) + GROUP * len(groups)
    drawing = Drawing("Every setting, measured", told(plain, others), height=height + 58)
    header(drawing, plain)
    y = 112.0
    for title, found in groups.items():
        drawing.text(LEFT, y + 22, title, size=SMALL, role="faint", anchor="start")
        y += GROUP
        for row in found:
            line(drawing, y + ROW / 2, row, plain)
            y += ROW
    legend(drawing, height + 30)
    return drawing


def moved(column: str, times: float) -> str | None:
    """Which way a number has moved that is `times` plain's: "better", "worse", or None within the noise.

    >>> moved("gap_s", 0.5), moved("gap_s", 1.1), moved("nbytes", 1.1)
    ('better', None, 'worse')
    """
    if max(times, 1 / times) <= NOISE.get(column, OF_TIMES):
        return None
    return "better" if (times < 1) == (BETTER[column] == "less") else "worse"


def multiple(times: float) -> str:
    """A multiple of plain's number in two or three digits.

    >>> [multiple(times) for times in (0.176, 1.03, 1.62, 19.7)]
    ['0.18', '1.03', '1.6', '20']
    """
    return f"{times:.{2 if times < 1.1 else 1 if times < 9.95 else 0}f}"


def start(column: str, plain: Row) -> str:
    """The plain setting's number with its unit, in two digits; perplexity in four."""
    value = getattr(plain, column)
    return amount(column, value if column == "perplexity" else float(f"{value:.2g}"))


def header(drawing: Drawing, plain: Row) -> None:
    """The columns' names, and the plain setting with its numbers."""
    for column, (title, _) in COLUMNS.items():
        words = title.split()
        for i, word in enumerate(words):
            drawing.text(MIDDLES[column], 54 - 20 * (len(words) - 1 - i), word, size=SMALL, bold=True)
        drawing.text(MIDDLES[column], 92, start(column, plain), size=SMALL)
    drawing.text(LEFT, 92, plain.name, size=SMALL, anchor="start", bold=True)
    drawing.path([(LEFT, 106), (drawing.width - LEFT, 106)], stroke="line", thick=1.4)


def line(drawing: Drawing, y: float, row: Row, plain: Row) -> None:
    """A setting, and each of its numbers around height y."""
    drawing.text(LEFT, y + 6, row.name, size=SMALL, anchor="start")
    for column, (_, role) in COLUMNS.items():
        times = getattr(row, column) / getattr(plain, column)
        if moved(column, times) is None and multiple(times) == "1.00":
            drawing.circle(MIDDLES[column], y, 3.5, fill="faint")
        else:
            number(drawing, MIDDLES[column], y, multiple(times), moved(column, times), role)


def number(drawing: Drawing, x: float, y: float, text: str, way: str | None, role: str) -> None:
    """A multiple: on its column's colour where it is better, in a hatched frame where it is worse."""
    (wide, high), (across, down) = CELL, FRAME
    area = Area(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
    if way == "better":
        drawing.rect(area, fill=role, stroke="ink", thick=1.4)
    elif way == "worse":
        drawing.rect(area, fill="paper", stroke="ink", thick=1.4, hatched=True)
        drawing.rect(Area(area.left + across, area.top + down, area.right - across, area.bottom - down),
                     fill="paper", radius=2)
    drawing.text(x, y + 6, text, size=SMALL, role="ink" if way else "faint", bold=bool(way))


def legend(drawing: Drawing, y: float) -> None:
    """What the numbers and their grounds are."""
    x = float(LEFT)
    for text, way, words in (("0.50", "better", "half of plain's"), ("2.0", "worse", "twice"),
                             ("1.1", None, "within the noise")):
        wide = CELL[0] if way else text_width(text, SMALL)
        number(drawing, x + wide / 2, y - 6, text, way, "cost")
        drawing.text(x + wide + 8, y, words, size=SMALL, anchor="start")
        x += wide + 8 + text_width(words, SMALL) + 24
    drawing.circle(x + 4, y - 6, 3.5, fill="faint")
    drawing.text(x + 16, y, "the same", size=SMALL, anchor="start")


def told(plain: Row, others: Sequence[Row]) -> str:
    """The table in words, without what is within the noise."""
    def of(row: Row) -> str:
        times = {column: getattr(row, column) / getattr(plain, column) for column in COLUMNS}
        found = [f"{COLUMNS[column][0]} {multiple(n)}" for column, n in times.items() if moved(column, n)]
        return f"{row.name}: {', '.join(found) or 'nothing'}"

    plains = ", ".join(f"{title} {start(column, plain)}" for column, (title, _) in COLUMNS.items())
    return (f"A table of {len(others) + 1} settings. {plain.name}: {plains}. The others as multiples of that, where "
            f"they differ by more than noise. {'. '.join(map(of, others))}.")
