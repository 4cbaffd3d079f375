"""The map of the course: from a question to the first word and round again, and the strip that says where one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, text_width

LEFT, RIGHT = 28, 436  # the column of data; right of it the loop goes back
TURN = 692  # where the loop goes up
CHIP, PITCH, CHIP_HEIGHT = 98, 104, 62  # of a token
CELLS, STRIP = 9, 26  # how many numbers of a vector are drawn, and how high
BAR = 26


class Run(NamedTuple):
    """What one run of a model computed, as far as it is drawn.

    Attributes:
        question: the text.
        tokens: the text and the id of each token.
        width: numbers in a vector, D.
        entering, leaving: some numbers of each token's vector before and after the layers, in [-1, 1].
        layers: how many.
        candidates: the likeliest tokens, each with its probability in [0, 1].
        vocabulary: how many tokens were scored, V.
        chosen: the text and the id of the token that was taken.
        more: how many tokens followed it.
    """

    question: str
    tokens: Sequence[tuple[str, int]]
    width: int
    entering: Sequence[Sequence[float]]
    leaving: Sequence[Sequence[float]]
    layers: int
    candidates: Sequence[tuple[str, float]]
    vocabulary: int
    chosen: tuple[str, int]
    more: int


def pipeline(run: Run) -> Drawing:
    """Every stage of one step with what it made of this question, its notebooks and its levers."""
    words = ", ".join(f"{text.strip()} {id}" for text, id in run.tokens)
    drawing = Drawing(
        "From a question to the first word, and round again",
        f"The text {run.question} becomes {len(run.tokens)} token ids: {words}. Each picks a vector of {run.width} "
        f"numbers from a table. {run.layers} layers of attention and MLP let every vector learn from those before it; "
        f"their keys and values stay in the cache. The last vector gives {run.vocabulary:,} scores, softmax makes them "
        f"probabilities, and one token is chosen: {run.chosen[0].strip()}. Its text goes to the screen. Its id goes "
        f"back to the other ids, and all that happens {run.more} more times.", height=872)
    last = LEFT + PITCH * (len(run.tokens) - 1) + CHIP / 2
    y = 20.0
    drawing.box(Area(LEFT, y, RIGHT, y + 46), f"“{run.question}”")
    y = operation(drawing, y + 46, "tokenize", "01", "cost")
    chips(drawing, y, run.tokens)
    ids_at = y + CHIP_HEIGHT / 2
    y = operation(drawing, y + CHIP_HEIGHT, "look up one row of a table per id", "02", "memory")
    vectors(drawing, y, run.entering, f"{len(run.tokens)} × {run.width}")
    kept = y + STRIP
    y = operation(drawing, y + STRIP, f"{run.layers} × (attention + MLP)", "03 04 10", "memory, quality", gap=74)
    cache(drawing, (kept + y) / 2 + 10, len(run.tokens))
    vectors(drawing, y, run.leaving, f"{len(run.tokens)} × {run.width}")
    y = operation(drawing, y + STRIP, "score every token, softmax", "06 11", "cost, quality", x=last)
    bars(drawing, y, run.candidates, f"{run.vocabulary:,} probabilities")
    y = operation(drawing, y + BAR * (len(run.candidates) + 1), "choose one", "07 12", "quality, latency")
    chips(drawing, y, [run.chosen])
    chosen_at = y + CHIP_HEIGHT / 2
    drawing.path([(LEFT + CHIP + 4, chosen_at), (TURN, chosen_at), (TURN, ids_at),
                  (LEFT + PITCH * len(run.tokens) + 2, ids_at)], arrow=True)
    for i, line in enumerate(("append the id", "and go again,", f"{run.more} more times")):
        drawing.text(TURN - 14, chosen_at - 118 + 25 * i, line, anchor="end", bold=i == 2)
    drawing.text(TURN - 14, chosen_at - 40, "08 · 09 · 14", size=SMALL, role="faint", anchor="end")
    y = operation(drawing, y + CHIP_HEIGHT, "detokenize, stream", "13", "latency")
    drawing.box(Area(LEFT, y, RIGHT, y + 46), f"“{run.chosen[0]}”")
    drawing.height = y + 66
    return drawing


def operation(drawing: Drawing, y: float, name: str, notebooks: str, levers: str, *, gap: float = 60,
              x: float = LEFT + CHIP / 2) -> float:
    """An arrow down from y, beside it what it does, in which notebooks, and what it can be turned for; its end."""
    drawing.arrow((x, y + 3), (x, y + gap - 5))
    right = x + 20 + text_width(name, NORMAL, bold=True) > TURN - 30
    notebooks = notebooks.replace(" ", " · ")
    sizes = [text_width(lever, 15) + 26 for lever in levers.split(", ")]
    start = x - 20 - max(text_width(name, NORMAL, bold=True), text_width(notebooks, SMALL) + 14 + sum(sizes)) if right \
        else x + 20
    drawing.text(start, y + gap / 2 - 4, name, bold=True, anchor="start")
    drawing.text(start, y + gap / 2 + 20, notebooks, size=SMALL, role="faint", anchor="start")
    at = start + 14 + text_width(notebooks, SMALL)
    for lever in levers.split(", "):
        at = drawing.tag(at, y + gap / 2 + 20, lever, size=15)
    return y + gap


def chips(drawing: Drawing, y: float, tokens: Sequence[tuple[str, int]]) -> None:
    """Tokens side by side, text above id."""
    for i, (text, id) in enumerate(tokens):
        left = LEFT + PITCH * i
        drawing.box(Area(left, y, left + CHIP, y + CHIP_HEIGHT), text.replace(" ", "␣"), str(id), size=18)


def vectors(drawing: Drawing, y: float, rows: Sequence[Sequence[float]], shape: str) -> None:
    """A strip of cells for each vector, darker where a number is larger in size."""
    for i, row in enumerate(rows):
        left = LEFT + PITCH * i
        for j, x in enumerate(row[:CELLS]):
            cell = CHIP / CELLS
            drawing.rect(Area(left + cell * j, y, left + cell * (j + 1), y + STRIP), fill="ink", tint=round(abs(x), 1),
                         radius=0)
        drawing.rect(Area(left, y, left + CHIP, y + STRIP), stroke="ink", radius=3)
    drawing.text(LEFT + PITCH * len(rows) + 6, y + STRIP - 6, shape, size=SMALL, role="faint", anchor="start")


def cache(drawing: Drawing, middle: float, tokens: int) -> None:
    """What the layers keep: a slice of keys and values for each token."""
    left, wide = 462, 26
    drawing.path([(left - 32, middle - 8), (left - 6, middle - 8)], arrow=True, stroke="cache")
    drawing.path([(left - 6, middle + 8), (left - 32, middle + 8)], arrow=True, stroke="cache")
    for i in range(tokens + 3):
        drawing.rect(Area(left + wide * i, middle - 22, left + wide * (i + 1), middle + 22), stroke="cache", radius=0,
                     fill="cache" if i < tokens else None, tint=0.35, dashed=i >= tokens)
    drawing.text(left, middle - 32, "KV cache", size=SMALL, anchor="start", bold=True)
    at = left + text_width("KV cache", SMALL, bold=True) + 10
    drawing.text(at, middle - 32, "08", size=SMALL, role="faint", anchor="start")


def bars(drawing: Drawing, y: float, candidates: Sequence[tuple[str, float]], rest: str) -> None:
    """The likeliest tokens, a bar as long as its probability."""
    zero, longest = LEFT + 128, 240
    for i, (text, p) in enumerate(candidates):
        top, end = y + BAR * i, zero + max(2, longest * p)
        drawing.text(zero - 10, top + 19, text.replace(" ", "␣"), size=SMALL, mono=True, anchor="end")
        drawing.rect(Area(zero, top + 4, end, top + BAR - 3), fill="weights", radius=2)
        drawing.text(end + 8, top + 19, f"{p:.0%}".replace("%", " %"), size=SMALL, anchor="start")
    drawing.text(zero, y + BAR * len(candidates) + 18, f"… {rest} in all", size=SMALL, role="faint", anchor="start")


def strip(stations: Sequence[tuple[str, str]], here: str) -> Drawing:
    """Where one is: the stages as stations of a line, one of them marked and named.

    Args:
        stations: number and title of each notebook.
        here: the number of the one that is read.
    """
    numbers = [number for number, _ in stations]
    require(here in numbers, "here", here, ", ".join(numbers))
    place = numbers.index(here)
    title = stations[place][1]
    drawing = Drawing(f"Notebook {here}: {title}",
                      f"A line of {len(stations)} stations, one for each notebook. You are at number {place + 1}: {title}.",
                      height=84)
    step = (WIDTH - 72) / (len(stations) - 1)
    xs = [36 + step * i for i in range(len(stations))]
    drawing.path([(xs[0], 54), (xs[-1], 54)], stroke="line", thick=4)
    if place:
        drawing.path([(xs[0], 54), (xs[place], 54)], stroke="query", thick=4)
    for i, (x, number) in enumerate(zip(xs, numbers)):
        drawing.circle(x, 54, 15 if i == place else 12, fill="query" if i == place else "paper",
                       stroke="query" if i <= place else "line")
        drawing.text(x, 59, number, size=14, role="paper" if i == place else "faint", bold=i == place)
    half = text_width(title, NORMAL, bold=True) / 2
    drawing.text(min(max(xs[place], 18 + half), WIDTH - 18 - half), 28, title, bold=True)
    return drawing
