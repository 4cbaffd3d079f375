"""Drawings of the embedding table: ids pick its rows, or one-hot vectors do, in a matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, text_width
from course_lib.display.diagrams.tokens import written

MARGIN = 26
HEADING = 38  # the base line of the names above columns


class Picked(NamedTuple):
    """A token and the row that it picks.

    Attributes:
        text: of the token.
        id: the number of its row.
        numbers: the first few numbers of the row.
    """

    text: str
    id: int
    numbers: Sequence[float]


CHIP, CHIP_HIGH, CHIP_GAP = 104, 58, 14  # of the ids at the left
TABLE = (230, 400)  # where the table begins and ends
OUT, OUT_HIGH = 498, 42  # where the vectors begin


def table_lookup(tokens: Sequence[Picked], *, rows: int, width: int, here: int = 0) -> Drawing:
    """Ids pick rows of the embedding table; the rows are the vectors that go into the model.

    Args:
        tokens: of a short text, at most five, in its order.
        rows: of the table, V; one for each token of the vocabulary.
        width: numbers in a row, D.
        here: the place in `tokens` of the one to look at.
    """
    require_picks(tokens, rows, here)
    top, high = HEADING + 18, max(4, len(tokens)) * (CHIP_HIGH + CHIP_GAP) - CHIP_GAP
    drawing = Drawing(f"{len(tokens)} ids pick {len(tokens)} rows of {rows:,}",
                      lookup_in_words(tokens, rows, width, here), height=top + high + 52)
    table = Area(TABLE[0], top, TABLE[1], top + high)
    drawing.rect(table, fill="weights", stroke="weights", tint=0.3)
    for place in sorted(range(len(tokens)), key=lambda place: place == here):
        middle = top + high / 2 + (place - (len(tokens) - 1) / 2) * (CHIP_HIGH + CHIP_GAP)
        draw_pick(drawing, tokens[place], middle, table, rows, here=place == here)
    head_and_shape(drawing, MARGIN + CHIP / 2, "ids", f"{len(tokens)}")
    head_and_shape(drawing, (table.left + table.right) / 2, "embedding table", f"{rows:,} × {width}")
    head_and_shape(drawing, (OUT + WIDTH - MARGIN) / 2, "vectors", f"{len(tokens)} × {width}")
    return drawing


def require_picks(tokens: Sequence[Picked], rows: int, here: int) -> None:
    """Raise a ValueError unless the lookup can be drawn."""
    require(0 < len(tokens) <= 5, "tokens", len(tokens), "1 to 5 of them")
    require(0 <= here < len(tokens), "here", here, f"0 to {len(tokens) - 1}")
    for token in tokens:
        require(0 <= token.id < rows, "id", token.id, f"0 to {rows - 1}")
        require(text_width(written(token.text.encode()), NORMAL, mono=True) < CHIP - 8, "text", token.text, "short")
        require(text_width(some(token.numbers), SMALL, mono=True) < WIDTH - MARGIN - OUT - 8, "numbers",
                token.numbers, "three or so")


def some(numbers: Sequence[float]) -> str:
    """The first numbers of a vector.

    >>> some([0.5, -0.125])
    '0.50 −0.12 …'
    """
    return " ".join([*(f"{x:.2f}".replace("-", "−") for x in numbers), "…"])


def draw_pick(drawing: Drawing, token: Picked, middle: float, table: Area, rows: int, *, here: bool) -> None:
    """The way of one token: its id, its row in the table, its vector."""
    chip = Area(MARGIN, middle - CHIP_HIGH / 2, MARGIN + CHIP, middle + CHIP_HIGH / 2)
    vector = Area(OUT, middle - OUT_HIGH / 2, WIDTH - MARGIN, middle + OUT_HIGH / 2)
    row = table.top + 3 + (table.bottom - table.top - 6) * (token.id + 0.5) / rows
    line, thick = ("ink", 2.4) if here else ("line", 1.8)
    drawing.path([(chip.right + 3, middle), (table.left - 3, row)], stroke=line, thick=thick, arrow=here)
    drawing.path([(table.right + 3, row), (vector.left - 4, middle)], stroke=line, thick=thick, arrow=here)
    half = 5 if here else 2
    drawing.rect(Area(table.left, row - half, table.right, row + half), fill="mark" if here else "weights",
                 stroke="ink" if here else None, thick=1.6, radius=0)
    if here:
        beneath = row + 30 < table.bottom - 4
        drawing.text((table.left + table.right) / 2, row + (26 if beneath else -14), f"row {token.id}", size=SMALL)
    drawing.box(chip, written(token.text.encode()), str(token.id))
    drawing.rect(vector, fill="mark" if here else "plain", stroke="ink" if here else "line")
    drawing.text((vector.left + vector.right) / 2, middle + 6, some(token.numbers), size=SMALL, mono=True)


def lookup_in_words(tokens: Sequence[Picked], rows: int, width: int, here: int) -> str:
    """The lookup for a reader who cannot see it."""
    ids = ", ".join(f"“{token.text.strip()}” {token.id}" for token in tokens)
    row = some(tokens[here].numbers).removesuffix(" …").replace(" ", ", ")
    return (f"At the left {len(tokens)} tokens with their ids: {ids}. In the middle the embedding table, {rows:,} "
            f"rows of {width} numbers, and a line from each id to the row of that number. At the right {len(tokens)} "
            f"vectors, a line to each from its row: {tokens[here].id} gets row {tokens[here].id}, which begins "
            f"{row}. Nothing is computed, the rows are read.")


CELL = 38  # of a number in a matrix, both ways
ID_WIDE, ID_GAP, SIGN, INDEX = 46, 38, 48, 22  # an id, the arrow after it, a sign between matrices, a row's number


def one_hot_product(table: Sequence[Sequence[int]], ids: Sequence[int], *, here: int = 0) -> Drawing:
    """One-hot vectors times a table: each 1 lets one row through, so the product is a lookup.

    Args:
        table: (V, D), whole numbers of at most two digits.
        ids: (T,), each a row of the table.
        here: the place in `ids` of the one to look at.

    Raises:
        ValueError: the matrices do not fit side by side, or an id has no row.
    """
    require_matrices(table, ids, here)
    V, T, D = len(table), len(ids), len(table[0])
    top = HEADING + 18 + max(0, 26 - max(0, V - T) * CELL / 2)
    middle = top + max(V, T) * CELL / 2
    drawing = Drawing(f"One-hot vectors times a table of {V} rows", product_in_words(table, ids, here),
                      height=2 * middle - top + 50)
    ids_at = (WIDTH - (ID_WIDE + ID_GAP + V * CELL + SIGN + INDEX + D * CELL + SIGN + D * CELL)) / 2
    ones_at = ids_at + ID_WIDE + ID_GAP
    table_at = ones_at + V * CELL + SIGN + INDEX
    vectors_at = table_at + D * CELL + SIGN
    draw_ids(drawing, ids_at, middle, ids, here=here)
    one_hot = [[int(column == id) for column in range(V)] for id in ids]  # (T, V)
    draw_matrix(drawing, ones_at, middle, one_hot, "one-hot", marks={(here, ids[here])}, faint=True)
    draw_matrix(drawing, table_at, middle, table, "table", marks={(ids[here], i) for i in range(D)}, role="weights")
    draw_matrix(drawing, vectors_at, middle, [table[id] for id in ids], "vectors", marks={(here, i) for i in range(D)})
    for x, sign in ((table_at - INDEX - SIGN / 2, "×"), (vectors_at - SIGN / 2, "=")):
        drawing.text(x, middle + 9, sign, size=26)
    number_lines(drawing, ones_at, table_at, middle, V, T)
    return drawing


def require_matrices(table: Sequence[Sequence[int]], ids: Sequence[int], here: int) -> None:
    """Raise a ValueError unless the product can be drawn."""
    V, T, D = len(table), len(ids), len(table[0]) if table else 0
    require(D > 0 and all(len(row) == D for row in table), "table", table, "rows of one length")
    require(V + 2 * D <= 12, "table", (V, D), "V + 2 D at most 12, to fit on the paper")
    require(all(abs(x) < 100 for row in table for x in row), "table", table, "numbers of at most two digits")
    require(0 < T <= 8 and all(0 <= id < V for id in ids), "ids", ids, f"1 to 8 numbers from 0 to {V - 1}")
    require(0 <= here < T, "here", here, f"0 to {T - 1}")


def draw_ids(drawing: Drawing, left: float, middle: float, ids: Sequence[int], *, here: int) -> None:
    """A column of ids, an arrow from each."""
    top = middle - len(ids) * CELL / 2
    for i, id in enumerate(ids):
        y = top + CELL * (i + 0.5)
        drawing.rect(Area(left, y - 16, left + ID_WIDE, y + 16), fill="mark" if i == here else "plain", stroke="ink")
        drawing.text(left + ID_WIDE / 2, y + 7, str(id), mono=True)
        drawing.arrow((left + ID_WIDE + 3, y), (left + ID_WIDE + ID_GAP - 4, y))
    head_and_shape(drawing, left + ID_WIDE / 2, "ids", str(len(ids)))


def draw_matrix(drawing: Drawing, left: float, middle: float, rows: Sequence[Sequence[int]], title: str, *,
                marks: set[tuple[int, int]], role: str = "plain", faint: bool = False) -> None:
    """Numbers in a grid around a height.

    Args:
        marks: (row, column) of each number to look at.
        faint: whether zeros step back.
    """
    top, width = middle - len(rows) * CELL / 2, len(rows[0]) * CELL
    outline = Area(left, top, left + width, top + len(rows) * CELL)
    drawing.rect(outline, fill=role, tint=0.3 if role == "weights" else 1, radius=4)
    for i, row in enumerate(rows):
        for j, x in enumerate(row):
            cell = Area(left + CELL * j, top + CELL * i, left + CELL * (j + 1), top + CELL * (i + 1))
            drawing.rect(cell, fill="mark" if (i, j) in marks else None, stroke="line", thick=1, radius=0)
            drawing.text(cell.left + CELL / 2, cell.bottom - 13, str(x).replace("-", "−"), size=SMALL, mono=True,
                         bold=(i, j) in marks, role="faint" if faint and not x else "ink")
    drawing.rect(outline, stroke="weights" if role == "weights" else "ink", radius=4)
    head_and_shape(drawing, left + width / 2, title, f"{len(rows)} × {len(rows[0])}")


def head_and_shape(drawing: Drawing, x: float, title: str, shape: str) -> None:
    """What a column of the drawing is, above, and its shape, beneath."""
    drawing.text(x, HEADING, title, bold=True)
    drawing.text(x, drawing.height - 20, shape, size=SMALL, role="faint")


def number_lines(drawing: Drawing, ones_at: float, table_at: float, middle: float, V: int, T: int) -> None:
    """The numbers of the columns of the one-hot vectors and of the rows of the table."""
    for i in range(V):
        drawing.text(ones_at + CELL * (i + 0.5), middle - T * CELL / 2 - 9, str(i), size=SMALL, role="faint")
        drawing.text(table_at - 10, middle + CELL * (i + 0.5 - V / 2) + 6, str(i), size=SMALL, role="faint",
                     anchor="end")


def product_in_words(table: Sequence[Sequence[int]], ids: Sequence[int], here: int) -> str:
    """The product for a reader who cannot see it."""
    V, T, D, id = len(table), len(ids), len(table[0]), ids[here]
    return (f"The ids {', '.join(map(str, ids))} become {T} rows of {V} numbers, all 0 except for a 1 at the place of "
            f"the id. Multiplied by a table of {V} rows with {D} numbers each, they give {T} rows with {D} numbers. "
            f"For id {id} the 1 at place {id} meets row {id} of the table, {', '.join(map(str, table[id]))}, and the "
            f"zeros wipe out the other rows: the product is that row.")
