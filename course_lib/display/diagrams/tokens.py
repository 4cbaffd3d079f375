"""Drawings of a text on its way into the model: bytes that merge into tokens, ids that pick rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, Point, text_width

MARGIN = 26
HEADING = 38  # the base line of the names above columns
BYTES = 256  # the first id that a merge can make
PITCH = 60  # of the column of a byte, at most
BETWEEN = 13  # a token and its id
TALL, HIGH, GAP = 54, 36, 28  # the row of the bytes, each further row, and between them


class Token(NamedTuple):
    """A token in its place over the bytes of a text.

    Attributes:
        id: below 256 it is a byte.
        data: the bytes.
        first, last: columns of its first byte and of the byte after it.
        row: 0 for a byte, else the number of the merge that made it.
        parts: the tokens that it was made of.
    """

    id: int
    data: bytes
    first: int
    last: int
    row: int = 0
    parts: tuple[Token, ...] = ()


def merge_tree(text: str, merges: Sequence[tuple[int, int]]) -> Drawing:
    """Byte-pair encoding as a tree: each merge joins neighbours wherever they occur in the text.

    Args:
        text: a few words, at most about 14 bytes.
        merges: pairs of ids in the order in which they were learned; the first makes token 256, the next 257.

    Raises:
        ValueError: the text does not fit on the paper, or a pair does not occur in it.
    """
    require(bool(text), "text", text, "a few words")
    levels = grow(text.encode(), merges)
    labels = merge_labels(levels)
    left = MARGIN + 20 + max(text_width(line, SMALL, mono=True) for label in labels for line in label)
    pitch = min(PITCH, (WIDTH - MARGIN - left) / len(levels[0]))
    require(pitch >= max((room(token) + 6) / (token.last - token.first) for level in levels for token in level),
            "text", text, "short enough for the paper")
    end = row_top(len(levels))
    drawing = Drawing(f"Byte-pair encoding of “{text}”", tree_in_words(text, levels), height=end + HIGH + 24)
    for row, label in enumerate(labels):
        write_label(drawing, row, label)
    for token in levels[-1]:
        draw_result(drawing, token, span(token, left, pitch), end)
    for row, level in enumerate(levels):
        for token in level:
            if token.row == row:
                draw_token(drawing, token, left, pitch)
    return drawing


def grow(data: bytes, merges: Sequence[tuple[int, int]]) -> list[list[Token]]:
    """The tokens of the text before the first merge and after each."""
    levels = [[Token(byte, data[i:i + 1], i, i + 1) for i, byte in enumerate(data)]]
    for row, pair in enumerate(merges, 1):
        levels.append(joined(levels[-1], pair, row))
        require(len(levels[-1]) < len(levels[-2]), "merges", pair, "pairs of neighbours that occur")
    return levels


def joined(tokens: Sequence[Token], pair: tuple[int, int], row: int) -> list[Token]:
    """The tokens with each occurrence of the pair made one, from left to right and without overlap.

    >>> [token.id for token in joined(grow(b"aaa", [])[0], (97, 97), 1)]
    [256, 97]
    """
    result, i = [], 0
    while i < len(tokens):
        two = tuple(tokens[i:i + 2])
        found = tuple(token.id for token in two) == tuple(pair)
        result.append(Token(BYTES - 1 + row, two[0].data + two[1].data, two[0].first, two[1].last, row, two)
                      if found else tokens[i])
        i += 2 if found else 1
    return result


def written(data: bytes) -> str:
    """The text of a token, a space made visible; bytes that are no text by themselves in base sixteen.

    >>> written(b" to"), written(bytes([0xC3]))
    ('␣to', 'C3')
    """
    try:
        text = data.decode().replace(" ", "␣")
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and text else data.hex().upper()


def room(token: Token) -> float:
    """How much width the writing in a token takes."""
    text, id = text_width(written(token.data), NORMAL, mono=True), text_width(str(token.id), SMALL)
    return text + BETWEEN + id if token.row else max(text, id)


def merge_labels(levels: Sequence[Sequence[Token]]) -> list[tuple[str, str]]:
    """What to write beside each row: how many tokens there are, or what was joined and how often."""
    made = [next(token for token in level if token.row == row) for row, level in enumerate(levels[1:], 1)]
    sums = [" + ".join(written(part.data) for part in token.parts) for token in made]
    times = [len(before) - len(after) for before, after in pairwise(levels)]
    counts = ["once" if n == 1 else f"{n} times" for n in times]
    return [(f"{len(levels[0])} bytes", ""), *zip(sums, counts), (f"{len(levels[-1])} tokens", "")]


def tree_in_words(text: str, levels: Sequence[Sequence[Token]]) -> str:
    """The tree for a reader who cannot see it."""
    steps = " ".join(f"Token {BYTES + i} joins {parts.replace(' + ', ' and ')}, {times}."
                     for i, (parts, times) in enumerate(merge_labels(levels)[1:-1]))
    ids = ", ".join(str(token.id) for token in levels[-1])
    return (f"A tree that grows downwards from the {len(levels[0])} bytes of “{text}”. {steps} "
            f"Every new token is as wide as the bytes that it covers. {len(levels[-1])} tokens are left: {ids}.")


def row_top(row: int) -> float:
    """Where a row of the tree begins."""
    return 22 + (TALL + GAP + (HIGH + GAP) * (row - 1) if row else 0)


def span(token: Token, left: float, pitch: float) -> Area:
    """Where a token lies."""
    top = row_top(token.row)
    return Area(left + pitch * token.first + 1.5, top, left + pitch * token.last - 1.5,
                top + (HIGH if token.row else TALL))


def foot(area: Area) -> Point:
    """The middle of its lower edge."""
    return (area.left + area.right) / 2, area.bottom


def draw_token(drawing: Drawing, token: Token, left: float, pitch: float) -> None:
    """A byte with its number beneath; or a merged token with its number beside it, on the legs of its parts."""
    area = span(token, left, pitch)
    if not token.row:
        drawing.box(area, written(token.data), str(token.id))
        return
    for part in token.parts:
        x, y = foot(span(part, left, pitch))
        drawing.path([(x, y), (x, area.top)])
    drawing.rect(area, fill="mark", stroke="ink")
    margin = (area.right - area.left - room(token)) / 2
    drawing.text(area.left + margin, area.bottom - 12, written(token.data), mono=True, anchor="start")
    drawing.text(area.right - margin, area.bottom - 12, str(token.id), size=SMALL, role="faint", anchor="end")


def draw_result(drawing: Drawing, token: Token, area: Area, top: float) -> None:
    """The id of a token that is left, in the last row, and the way there."""
    x, y = foot(area)
    drawing.path([(x, y), (x, top)], stroke="line")
    drawing.box(Area(area.left, top, area.right, top + HIGH), str(token.id), size=SMALL, mono=False)


def write_label(drawing: Drawing, row: int, label: tuple[str, str]) -> None:
    """One or two lines at the left of a row."""
    top, high = row_top(row), HIGH if row else TALL
    first, second = label
    drawing.text(MARGIN, top + high / 2 + (-4 if second else 6), first, size=SMALL, bold=not second,
                 mono=bool(second), anchor="start")
    if second:
        drawing.text(MARGIN, top + high / 2 + 17, second, size=SMALL, role="faint", anchor="start")


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
    drawing = Drawing(f"{len(tokens)} ids pick {len(tokens)} rows of {rows:,}", lookup_in_words(tokens, rows, width),
                      height=top + high + 52)
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


def lookup_in_words(tokens: Sequence[Picked], rows: int, width: int) -> str:
    """The lookup for a reader who cannot see it."""
    ways = " ".join(f"“{token.text.strip()}” has id {token.id} and gets row {token.id}, which begins "
                    f"{', '.join(f'{x:.2f}' for x in token.numbers)}." for token in tokens)
    return (f"At the left {len(tokens)} token ids, in the middle the embedding table with {rows:,} rows of {width} "
            f"numbers, at the right {len(tokens)} vectors of {width} numbers. A line leads from each id to the row of "
            f"that number, and from the row to the vector. {ways} Nothing is computed: the rows are read.")


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
