"""What an agent reads, turn by turn: mostly what it has read before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.agents import AUTHORS, key
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing

LEFT, RIGHT, TOP, HEIGHT = 86.0, 704.0, 84.0, 330.0  # of the columns; the longest one is HEIGHT
WIDE = 0.72  # a column, of the space that it has
KINDS = {"user": "first prompt", "model": "the model wrote it", "tool": "a tool's result"}  # by their authors
TURNS = (3, 9)  # how many turns can be drawn


class Piece(NamedTuple):
    """A part of a conversation.

    Attributes:
        author: "user", "model" or "tool".
        tokens: how many.
        new: whether no turn before has met it.
    """

    author: str
    tokens: int
    new: bool


def read_in(turn: int, prompt: int, written: int, result: int) -> list[Piece]:
    """What a turn reads, from the front.

    >>> [(piece.tokens, piece.new) for piece in read_in(1, 30, 5, 20)]
    [(30, True)]
    >>> [(piece.tokens, piece.new) for piece in read_in(3, 30, 5, 20)]
    [(30, False), (5, False), (20, False), (5, True), (20, True)]
    """
    pieces = [Piece("user", prompt, turn == 1)]
    for before in range(1, turn):
        last = before == turn - 1
        pieces += [Piece("model", written, last), Piece("tool", result, last)]
    return pieces


def reading_again(turns: int, *, prompt: int, written: int, result: int) -> Drawing:
    """A column for each turn: the tokens that it reads, those read before are pale.

    Args:
        turns: of the model, 3 to 9.
        prompt, written, result: tokens of the first prompt, and of what the model writes and a tool returns in a turn.
    """
    require(TURNS[0] <= turns <= TURNS[1], "turns", turns, f"from {TURNS[0]} to {TURNS[1]}")
    require(min(prompt, written, result) > 0, "tokens", (prompt, written, result), "> 0 each")
    columns = [read_in(turn, prompt, written, result) for turn in range(1, turns + 1)]
    drawing = Drawing("What an agent reads in each turn", told(columns), height=TOP + HEIGHT + 118)
    longest = total(columns[-1])
    drawing.text(16, 34, "tokens read", size=SMALL, role="faint", anchor="start")
    for i, column in enumerate(columns):
        middle = LEFT + (RIGHT - LEFT) * (i + 0.5) / turns
        draw_column(drawing, middle, column, (RIGHT - LEFT) / turns * WIDE, HEIGHT / longest)
        drawing.text(middle, TOP + HEIGHT + 24, str(i + 1), bold=True)
    drawing.text(16, TOP + HEIGHT + 24, "turn", size=SMALL, role="faint", anchor="start")
    legend(drawing, columns)
    return drawing


def draw_column(drawing: Drawing, middle: float, column: Sequence[Piece], wide: float, scale: float) -> None:
    """Pieces from the bottom up, the oldest first, and how many tokens they are."""
    drawing.text(middle, TOP + HEIGHT - scale * total(column) - 10, f"{total(column):,}", size=SMALL, bold=True)
    y = TOP + HEIGHT
    for piece in column:
        high = scale * piece.tokens
        drawing.rect(Area(middle - wide / 2, y - high, middle + wide / 2, y),
                     fill=AUTHORS[piece.author] if piece.new else "plain", stroke="ink" if piece.new else "faint",
                     thick=1.4, radius=0)
        y -= high


def legend(drawing: Drawing, columns: Sequence[Sequence[Piece]]) -> None:
    """What the colours are, and how many tokens are new and read again."""
    new, again = counted(columns)
    x, y = 16.0, TOP + HEIGHT + 63
    for author, words in KINDS.items():
        x = key(drawing, x, y, AUTHORS[author], words)
    key(drawing, 16, y + 34, "plain", f"read again: {again:,} of {new + again:,} tokens in all {len(columns)} turns")


def total(column: Sequence[Piece]) -> int:
    """Its tokens."""
    return sum(piece.tokens for piece in column)


def counted(columns: Sequence[Sequence[Piece]]) -> tuple[int, int]:
    """Tokens that are read for the first time, and those read again."""
    new = sum(piece.tokens for column in columns for piece in column if piece.new)
    return new, sum(map(total, columns)) - new


def told(columns: Sequence[Sequence[Piece]]) -> str:
    """The drawing in words."""
    new, again = counted(columns)
    first, last = total(columns[0]), total(columns[-1])
    return (f"A column for each of {len(columns)} turns: the tokens that the model reads. The first turn reads "
            f"{first:,}, all new. Each later column has all the pieces of the one before it, pale, for they are "
            f"read again, and on top two new ones: what the model wrote, and a tool's result. The last turn reads "
            f"{last:,}. All columns together have {new + again:,} tokens; only {new:,} of them are new.")
