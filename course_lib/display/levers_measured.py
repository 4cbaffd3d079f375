"""Settings of all levers as a table of what each did, in multiples of the plain one, and how many answers were right:
better is solid, worse is hatched, as in the drawing of what levers should do."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.analysis.lever_runs import QUESTIONS
from course_lib.analysis.lever_stored import Stored
from course_lib.analysis.levers import BETTER, PLAIN, Row
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.levers_chart import amount

COLUMNS = {"dollars_per_million": ("cost", "cost"), "ttft_s": ("first token", "latency"), "gap_s": ("gap", "latency"),
           "nbytes": ("memory", "memory"), "perplexity": ("perplexity", "quality")}  # to a name and a role
SHORT = {"perplexity": "perpl."}  # of names that are wider than their column
NOISE = {"nbytes": 1.005, "perplexity": 1.005}  # factor from plain's number beyond which one counts as moved
OF_TIMES = 1.3  # the same for what a clock has measured: runs beside other work differ by about as much
OF_ANSWERS = 2  # right answers more or fewer that are still chance
MIDDLES = dict(zip(COLUMNS, (332, 390, 451, 517, 589)))  # of the columns
ANSWERS = 663  # of the column of right answers
LEFT, ROW, GROUP = 14, 34, 32  # where names begin; how high a row and the heading of a group are
CELL = (54, 28)  # of a number that has moved, at least
FRAME = (5, 4)  # of hatching around a number that got worse: how wide, and how high


def measured_drawing(rows: Sequence[Row], stored: Sequence[Stored] = ()) -> Drawing:
    """What every setting did to cost, waits, memory, perplexity and right answers.

    Args:
        rows: of one run of `measure` with its `QUESTIONS`, with the plain setting and at least one other.
        stored: settings of other runs, shown last and marked as such where `rows` has them not.
    """
    plain = next((row for row in rows if row.name == PLAIN.name), None)
    require(plain is not None and len(rows) >= 2, "rows", [row.name for row in rows], f"{PLAIN.name!r} and others")
    others = [row for row in rows if row is not plain]
    groups = {"one lever": [row for row in others if " + " not in row.name],
              "several": [row for row in others if " + " in row.name]}
    lines = {title: [(row, plain) for row in found] for title, found in groups.items() if found}
    elsewhere = [one for one in stored if one.row.name not in {row.name for row in rows}]
    for one in elsewhere:
        lines.setdefault(origin(one), []).append((one.row, one.plain))
    height = 112 + ROW * sum(map(len, lines.values())) + GROUP * len(lines)
    drawing = Drawing("Every setting, measured", told(plain, others, elsewhere), height=height + 88)
    header(drawing, plain)
    y = 112.0
    for title, found in lines.items():
        drawing.text(LEFT, y + 22, title, size=SMALL, role="faint", anchor="start")
        y += GROUP
        for row, its_plain in found:
            line(drawing, y + ROW / 2, row, its_plain)
            y += ROW
    legend(drawing, height + 30, plain)
    return drawing


def origin(stored: Stored) -> str:
    """Where a stored setting was measured."""
    return f"not of this run, stored: {stored.machine}"


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


def right(row: Row) -> tuple[int, int]:
    """How many capitals and tool calls were right, of `QUESTIONS` each."""
    return round(row.capitals * QUESTIONS), round(row.tool_calls * QUESTIONS)


def right_moved(row: Row, plain: Row) -> str | None:
    """Which way the right answers have moved: "worse" where one kind is, "better", or None where it may be chance."""
    more = [mine - before for mine, before in zip(right(row), right(plain))]
    return "worse" if min(more) < -OF_ANSWERS else "better" if max(more) > OF_ANSWERS else None


def start(column: str, plain: Row) -> str:
    """The plain setting's number with its unit, in two digits; perplexity in four."""
    value = getattr(plain, column)
    return amount(column, value if column == "perplexity" else float(f"{value:.2g}"))


def header(drawing: Drawing, plain: Row) -> None:
    """The columns' names, and the plain setting with its numbers."""
    for column, (title, _) in COLUMNS.items():
        heading(drawing, MIDDLES[column], SHORT.get(column, title))
        drawing.text(MIDDLES[column], 92, start(column, plain), size=SMALL)
    heading(drawing, ANSWERS, "right")
    drawing.text(ANSWERS, 92, pair(plain), size=SMALL)
    drawing.text(LEFT, 92, plain.name, size=SMALL, anchor="start", bold=True)
    drawing.path([(LEFT, 106), (drawing.width - LEFT, 106)], stroke="line", thick=1.4)


def heading(drawing: Drawing, x: float, title: str) -> None:
    """A column's name, a line for each word."""
    words = title.split()
    for i, word in enumerate(words):
        drawing.text(x, 54 - 20 * (len(words) - 1 - i), word, size=SMALL, bold=True)


def pair(row: Row) -> str:
    """Right capitals and tool calls, as they are written."""
    return "{} · {}".format(*right(row))


def line(drawing: Drawing, y: float, row: Row, plain: Row) -> None:
    """A setting, and each of its numbers around height y."""
    drawing.text(LEFT, y + 6, row.name, size=SMALL, anchor="start")
    for column, (_, role) in COLUMNS.items():
        times = getattr(row, column) / getattr(plain, column)
        same = moved(column, times) is None and multiple(times) == "1.00"
        number(drawing, MIDDLES[column], y, "" if same else multiple(times), moved(column, times), role)
    number(drawing, ANSWERS, y, "" if right(row) == right(plain) else pair(row), right_moved(row, plain), "quality")


def number(drawing: Drawing, x: float, y: float, text: str, way: str | None, role: str) -> None:
    """A number: on its column's colour where it is better, in a hatched frame where it is worse; "": the same."""
    if not text:
        drawing.circle(x, y, 3.5, fill="faint")
        return
    (across, down), high = FRAME, CELL[1]
    wide = max(CELL[0], text_width(text, SMALL, bold=True) + 2 * across)
    area = Area(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
    if way == "better":
        drawing.rect(area, fill=role, stroke="ink", thick=1.4)
    elif way == "worse":
        drawing.rect(area, fill="paper", stroke="ink", thick=1.4, hatched=True)
        drawing.rect(Area(area.left + across, area.top + down, area.right - across, area.bottom - down),
                     fill="paper", radius=2)
    drawing.text(x, y + 6, text, size=SMALL, role="ink" if way else "faint", bold=bool(way))


def legend(drawing: Drawing, y: float, plain: Row) -> None:
    """What the numbers and their grounds are."""
    x = float(LEFT)
    for text, way, words in (("0.50", "better", "half of plain's"), ("2.0", "worse", "twice"),
                             ("1.1", None, "within the noise")):
        wide = CELL[0] if way else text_width(text, SMALL)
        number(drawing, x + wide / 2, y - 6, text, way, "cost")
        drawing.text(x + wide + 8, y, words, size=SMALL, anchor="start")
        x += wide + 8 + text_width(words, SMALL) + 24
    number(drawing, x + 4, y - 6, "", None, "cost")
    drawing.text(x + 16, y, "the same", size=SMALL, anchor="start")
    capitals, calls = right(plain)
    drawing.text(LEFT, y + 30, f"{pair(plain)}: right are {capitals} of {QUESTIONS} capitals, {calls} of {QUESTIONS} "
                               "tool calls", size=SMALL, anchor="start")


def told(plain: Row, others: Sequence[Row], stored: Sequence[Stored] = ()) -> str:
    """The table in words, without what is within the noise; of right answers, all that differ."""
    def of(row: Row, plain: Row = plain) -> str:
        times = {column: getattr(row, column) / getattr(plain, column) for column in COLUMNS}
        found = [f"{COLUMNS[column][0]} {multiple(n)}" for column, n in times.items() if moved(column, n)]
        return f"{row.name}: {', '.join(found) or 'nothing'}"

    def answers(row: Row) -> str:
        way = right_moved(row, plain)
        return "{}: {} and {}".format(row.name, *right(row)) + (f", {way}" if way else "")

    different = [row for row in others if right(row) != right(plain)]
    rest = "The others: the same" if len(different) < len(others) else "All differ"
    last = "".join(f" {origin(one).capitalize()}. {of(one.row, one.plain)}." for one in stored)
    plains = ", ".join(f"{title} {start(column, plain)}" for column, (title, _) in COLUMNS.items())
    return (f"A table of {len(others) + 1} settings. {plain.name}: {plains}. The others as multiples of that, where "
            f"they differ by more than noise. {'. '.join(map(of, others))}. Right answers, of {QUESTIONS} capitals and "
            f"{QUESTIONS} tool calls. {'. '.join(map(answers, [plain, *different]))}. {rest}, "
            f"and up to {OF_ANSWERS} more or fewer may be chance.{last}")
