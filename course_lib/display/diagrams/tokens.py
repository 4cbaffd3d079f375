"""Byte-pair encoding as a tree: bytes that merge into tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, Point, text_width

MARGIN = 26
BYTES = 256  # the first id that a merge can make
PITCH = 60  # of the column of a byte, at most
BETWEEN = 13  # a token and its id
TALL, HIGH, GAP = 54, 36, 28  # the row of the bytes, each further row, and between them


class Token(NamedTuple):
    """A token, and where it lies over the bytes of a text.

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
