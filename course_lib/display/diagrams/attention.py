"""Attention by hand: three words become queries, keys and values, their scores weights, and the values a mixture."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, text_width
from course_lib.layers import attention_weights, causal_mask

WORDS_END, LEFT, RIGHT = 80, 92, 676  # words are written at the left of a row, tables are between LEFT and RIGHT
TURN = 700  # where the values go down to be mixed
CELL, SQUARE, ROW = 40, 46, 31  # width of a number in a vector and in a T × T table, height of both
HEADER, NAMES = 26, 22  # above a table, and for the names of its columns
GAP, WIDE_GAP = 56, 78  # for the arrows between two stages
TOKENS, FEATURES, SIZES = (2, 3), (2, 7), (2, 4)  # the fewest and the most that there is room for: T, D, Dh

Table = Sequence[Sequence[float]]
Cell = tuple[int, int]


class Example(NamedTuple):
    """Words and their vectors; the last word is the one that is followed.

    Attributes:
        words: T of them, two or three.
        x: (T, D), what enters the layer.
        queries, keys, values: (T, Dh) each.
    """

    words: Sequence[str]
    x: Table
    queries: Table
    keys: Table
    values: Table


class Steps(NamedTuple):
    """What attention makes of an example: (T, T) three times, then the outputs, (T, Dh)."""

    scores: Table
    masked: Table
    weights: Table
    outputs: Table


def steps_of(example: Example) -> Steps:
    """Scores q · k, divided by √Dh with −∞ for the future, their softmax by rows, and the values that these mix.

    >>> steps_of(Example(["a", "b"], [[1], [2]], [[1], [2]], [[0], [0]], [[4], [8]])).outputs
    [[4.0], [6.0]]
    """
    q, k, v = (torch.tensor(table, dtype=torch.float64)[None, None] for table in example[2:])  # (1, 1, T, Dh)
    mask, scores = causal_mask(q.shape[2], k.shape[2]), q @ k.transpose(-1, -2)  # (T, T), (1, 1, T, T)
    masked = (scores / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    weights = attention_weights(q, k, mask)
    return Steps(*(table[0, 0].tolist() for table in (scores, masked, weights, weights @ v)))


def attention_by_hand(example: Example) -> Drawing:
    """Every number from the vectors of a few words to the mixture that each of them takes away."""
    check(example)
    steps, T = steps_of(example), len(example.words)
    stage = HEADER + ROW * T
    drawing = Drawing(f"Attention for {T} words, with every number", described(example, steps), height=WIDTH)
    y = 14.0
    middle, tops = vectors(drawing, example, y), y + stage + GAP
    projections(drawing, example, middle, tops)
    y = tops + stage + WIDE_GAP
    squares(drawing, example, steps, y)
    y += NAMES + stage + GAP
    mixture(drawing, example, steps, y, tops + stage)
    drawing.height = y + stage + 22
    return drawing


def check(example: Example) -> None:
    """Raise unless the tables fit together and on the paper."""
    T = len(example.words)
    require(TOKENS[0] <= T <= TOKENS[1], "words", example.words, f"{TOKENS[0]} to {TOKENS[1]} words")
    for word in example.words:
        require(0 < text_width(word, SMALL) < SQUARE, "word", word, "at most five letters or so")
    for name, table in zip(example._fields[1:], example[1:]):
        fewest, most = FEATURES if name == "x" else SIZES
        width = len(example.queries[0] if name in ("keys", "values") else table[0]) if len(table) == T else 0
        require(fewest <= width <= most and {len(row) for row in table} == {width}, name, table,
                f"{T} rows of the same length, from {fewest} to {most}; keys and values as long as queries")


def described(example: Example, steps: Steps) -> str:
    """The whole computation in sentences."""
    *_, last = example.words
    terms = " + ".join(f"{w:.2f} {word}" for w, word in zip(steps.weights[-1], example.words))
    return (f"{', '.join(example.words)}: the vector x of each becomes a query, a key and a value of "
            f"{len(example.keys[0])} numbers. The query of {last}, {listed(example.queries[-1])}, times each key "
            f"gives scores {listed(steps.scores[-1])}; divided by √{len(example.keys[0])}, "
            f"{listed(steps.masked[-1])}; softmax makes attention weights {listed(steps.weights[-1])}. Later words: "
            f"score −∞, weight 0. The output of {last} is {terms}: {listed(steps.outputs[-1])}.")


def listed(row: Sequence[float]) -> str:
    """Numbers with commas between them."""
    return ", ".join(entry(value, row) for value in row)


def entry(value: float, among: Sequence[float]) -> str:
    """A number as it is written among others: with two decimals, unless all of them are whole."""
    if math.isinf(value):
        return "−∞"
    decimals = 0 if all(math.isinf(x) or x == round(x) for x in among) else 2
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")  # + 0.0 takes the sign from a zero


def vectors(drawing: Drawing, example: Example, y: float) -> float:
    """The vectors that enter, above the middle of the three tables that are made of them; the x of that middle."""
    middle = (LEFT + RIGHT) / 2
    width = CELL * len(example.x[0])
    words(drawing, middle - width / 2 - 12, y + HEADER, example.words)
    table(drawing, middle - width / 2, y, example.x, "x", role="ink", cell=CELL)
    label, at = f"follow “{example.words[-1]}”", y + HEADER + ROW * (len(example.x) - 0.5) + 6
    drawing.rect(Area(RIGHT - text_width(label, NORMAL) - 24, at - 21, RIGHT, at + 10), fill="mark")
    drawing.text(RIGHT - 12, at, label, anchor="end")
    return middle


def projections(drawing: Drawing, example: Example, middle: float, y: float) -> None:
    """Arrows to queries, keys and values, in columns from left to right."""
    words(drawing, WORDS_END, y + HEADER, example.words)
    for name, role, rows in (("q", "query", example.queries), ("k", "key", example.keys),
                             ("v", "value", example.values)):
        left = column(name, len(rows[0]))
        table(drawing, left, y, rows, name, role=role, cell=CELL, followed=name == "q")
        to = left + CELL * len(rows[0]) / 2
        start = middle + (to - middle) * 0.25
        drawing.arrow((start, y - GAP + 3), (to, y - 2), stroke=role)
        beside = {"q": -14, "k": 10, "v": 14}[name]
        drawing.text((start + to) / 2 + beside, y - GAP / 2 - 8 * (name != "k") + 2, f"× W_{name}", size=SMALL,
                     anchor="end" if name == "q" else "start")


def column(name: str, size: int) -> float:
    """Where the table of the queries, the keys or the values begins."""
    return LEFT + "qkv".index(name) * (RIGHT - LEFT - CELL * size) / 2


def squares(drawing: Drawing, example: Example, steps: Steps, y: float) -> None:
    """Scores, scores with the mask, and attention weights, in columns; queries and keys come from above."""
    T, size = len(example.words), len(example.keys[0])
    pitch = (RIGHT - LEFT - SQUARE * T) / 2
    future = {(t, s) for t in range(T) for s in range(t + 1, T)}
    words(drawing, WORDS_END, y + HEADER + NAMES, example.words)
    drawing.text(header_left(LEFT + 2 * pitch, "weights", f"{T} × {T}"), y - 4, "attention", bold=True, anchor="start")
    for i, (name, rows) in enumerate((("scores", steps.scores), ("masked", steps.masked), ("weights", steps.weights))):
        table(drawing, LEFT + i * pitch, y, rows, name, role="ink", cell=SQUARE, removed=future if i else (),
              columns=example.words)
    for i, (above, below) in enumerate(((f"÷ √{size}", "mask"), ("softmax", "by row"))):
        start, end = LEFT + SQUARE * T + i * pitch, LEFT + (i + 1) * pitch
        at = y + HEADER + NAMES + ROW * T / 2
        drawing.arrow((start + 7, at), (end - 7, at))
        drawing.text((start + end) / 2, at - 10, above, size=SMALL)
        drawing.text((start + end) / 2, at + 24, below, size=SMALL)
    q, k = (column(name, size) + CELL * size / 2 for name in "qk")
    above, join = y - WIDE_GAP + 4, y - 38
    drawing.path([(k, above), (k, join), (q + 8, join)], stroke="key")
    drawing.arrow((q, above), (q, y - 2), stroke="query")
    drawing.text((q + k) / 2, join + 22, "q · k for every pair", size=SMALL)


def mixture(drawing: Drawing, example: Example, steps: Steps, y: float, values_end: float) -> None:
    """The outputs, and before each of them the values that it is mixed of, which come from above."""
    T, size = len(example.words), len(example.values[0])
    width = SQUARE * size
    words(drawing, WORDS_END, y + HEADER, example.words)
    table(drawing, RIGHT - width, y, steps.outputs, "output", role="value", cell=SQUARE)
    x, join = RIGHT - SQUARE * T / 2, y - GAP / 2
    v = column("v", size) + CELL * size / 2
    drawing.path([(v, values_end + 4), (v, values_end + 20), (TURN, values_end + 20), (TURN, join), (x + 8, join)],
                 stroke="value")
    drawing.arrow((x, y - GAP + 4), (x, y - 2))
    drawing.text(x - 14, join + 6, "mix the values", size=SMALL, anchor="end")
    for t, row in enumerate(steps.weights):
        terms = [f"{w:.2f} {word}" for w, word in zip(row, example.words[:t + 1])]
        drawing.text(RIGHT - width - 14, y + HEADER + ROW * (t + 0.5) + 6, " + ".join(terms) + "  =", size=SMALL,
                     role="ink" if t == T - 1 else "faint", anchor="end")


def words(drawing: Drawing, right: float, y: float, names: Sequence[str]) -> None:
    """The word that each row belongs to; the last is the one that is followed."""
    for t, word in enumerate(names):
        drawing.text(right, y + ROW * (t + 0.5) + 6, word, anchor="end", bold=t == len(names) - 1)


def table(drawing: Drawing, left: float, y: float, rows: Table, name: str, *, role: str, cell: float,
          removed: Collection[Cell] = (), columns: Sequence[str] = (), followed: bool = True) -> None:
    """A header with name and shape, and beneath it the numbers, the row of the followed word marked.

    Args:
        removed: cells that are hatched.
        columns: the names of the keys, if these are what the columns belong to.
        followed: False where the followed word needs all rows and not its own: keys and values.
    """
    header(drawing, left, y + 17, name, f"{len(rows)} × {len(rows[0])}", role=role)
    for s, word in enumerate(columns):
        drawing.text(left + cell * (s + 0.5), y + HEADER + NAMES - 8, word, size=SMALL, role="key")
    top = y + HEADER + NAMES * bool(columns)
    every = [value for row in rows for value in row]
    for t, row in enumerate(rows):
        if followed and t == len(rows) - 1:
            drawing.rect(Area(left, top + ROW * t, left + cell * len(row), top + ROW * (t + 1)), radius=0, fill="mark")
        for s, value in enumerate(row):
            place = Area(left + cell * s, top + ROW * t, left + cell * (s + 1), top + ROW * (t + 1))
            drawing.rect(place, stroke="line", thick=1, radius=0, hatched=(t, s) in removed)
            written(drawing, place, entry(value, every), removed=(t, s) in removed)
    drawing.rect(Area(left, top, left + cell * len(rows[0]), top + ROW * len(rows)), stroke=role, radius=3)


def header(drawing: Drawing, left: float, y: float, name: str, shape: str, *, role: str) -> None:
    """The name of a table and its shape."""
    left = header_left(left, name, shape)
    drawing.text(left, y, name, bold=True, anchor="start", role=role)
    drawing.text(left + text_width(name, NORMAL, bold=True) + 10, y, shape, size=SMALL, role="faint", anchor="start")


def header_left(left: float, name: str, shape: str) -> float:
    """Where a header begins: at the left edge of its table, or so far left that it ends where tables end."""
    return min(left + 2, RIGHT - text_width(name, NORMAL, bold=True) - 10 - text_width(shape, SMALL))


def written(drawing: Drawing, place: Area, text: str, *, removed: bool) -> None:
    """A number in its cell, on a clear spot where the cell is hatched."""
    x, y = (place.left + place.right) / 2, (place.top + place.bottom) / 2
    text = text.removesuffix(".00") if removed else text
    half = text_width(text, SMALL) / 2 + 4
    require(2 * half - 8 < place.right - place.left, "number", text, "short enough for its cell")
    if removed:
        drawing.rect(Area(x - half, y - 10, x + half, y + 10), fill="paper", radius=3)
    drawing.text(x, y + 6, text, size=SMALL, role="faint" if removed else "ink")
