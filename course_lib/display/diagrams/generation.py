"""One generation as a timeline: the prompt is read in one run, then every run adds a token, and the cache grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, WIDTH, Area, Drawing, text_width

LEFT, RIGHT = 28, WIDTH - 28
ROW, ROW_HEIGHT = 92, 44  # the runs of the model
CACHE, DEEPEST = 146, 116  # what each leaves in the cache hangs from here, at most so deep
NARROWEST = 13  # a box that is thinner is drawn together with its neighbours
THINNEST = 4  # a slice of the cache that is thinner is not drawn by itself


class Column(NamedTuple):
    """One box of the timeline and what hangs under it.

    Attributes:
        left, right: on the paper.
        runs: how many runs of the model it covers.
        added: tokens that these runs put into the cache.
        held: tokens in the cache after them.
    """

    left: float
    right: float
    runs: int
    added: int
    held: int


def generation(prompt_tokens: int, seconds: Sequence[float]) -> Drawing:
    """The runs of the model side by side, as wide as they took long, and the cache after each.

    Args:
        prompt_tokens: how many tokens the first run reads.
        seconds: of each run, prefill first; at least one decode step follows.
    """
    require(prompt_tokens > 0, "prompt_tokens", prompt_tokens, "at least 1")
    require(len(seconds) > 1, "seconds", len(seconds), "at least 2 runs: prefill and a decode step")
    require(min(seconds) > 0, "seconds", min(seconds), "positive")
    steps, total = len(seconds) - 1, sum(seconds)
    share, held = 1 - seconds[0] / total, prompt_tokens + steps
    drawing = Drawing(
        "The runs of one generation, and the cache after each",
        f"A timeline of {duration(total)}. A first box, prefill, reads {many(prompt_tokens, 'token')} at once and "
        f"takes {duration(seconds[0])}. {many(steps, 'decode step')} follow, one token each, in "
        f"{duration(total - seconds[0])}: {percent(share)} of the time. Under each box hangs the KV cache after "
        f"that run: {many(prompt_tokens, 'slice')} after prefill, one more after each step, {held} at the end.",
        height=CACHE + DEEPEST + 46)
    row = columns(prompt_tokens, seconds)
    phases(drawing, row[0].right, [
        ("prefill", f"1 run, {many(prompt_tokens, 'token')}, {duration(seconds[0])}"),
        (f"decode: {percent(share)} of the time",
         f"{many(steps, 'run')}, 1 token each, {duration(total - seconds[0])}")])
    for column in row:
        run(drawing, column, prompt=column is row[0])
        cache(drawing, column, DEEPEST / held)
    foot(drawing, row)
    return drawing


def columns(prompt_tokens: int, seconds: Sequence[float]) -> list[Column]:
    """Where each box lies: prefill, then the decode steps, as many in a box as make it wide enough to be seen."""
    unit = (RIGHT - LEFT) / sum(seconds)
    edge, held = LEFT + unit * seconds[0], prompt_tokens
    placed = [Column(LEFT, edge, 1, prompt_tokens, held)]
    steps = seconds[1:]
    boxes = min(len(steps), max(1, int((RIGHT - edge) / NARROWEST)))
    size = -(-len(steps) // boxes)
    for start in range(0, len(steps), size):
        part = steps[start:start + size]
        held += len(part)
        placed.append(Column(edge, edge + unit * sum(part), len(part), len(part), held))
        edge = placed[-1].right
    return placed


def phases(drawing: Drawing, border: float, names: Sequence[tuple[str, str]]) -> None:
    """Prefill and decode over the boxes that they span, each with what it did."""
    for (name, numbers), (left, right), anchor in zip(names, ((LEFT, border), (border, RIGHT)), ("start", "end")):
        x = left if anchor == "start" else right
        drawing.text(x, 34, name, bold=True, anchor=anchor)
        drawing.text(x, 59, numbers, size=SMALL, role="faint", anchor=anchor)
        inset = min(3.0, (right - left) / 4)
        drawing.path([(left + inset, 81), (left + inset, 73), (right - inset, 73), (right - inset, 81)], thick=1.8)


def run(drawing: Drawing, column: Column, *, prompt: bool) -> None:
    """A box as wide as its runs took long; how many tokens went in, if that can be written."""
    place = Area(column.left, ROW, column.right, ROW + ROW_HEIGHT)
    drawing.rect(place, fill="plain", stroke="ink", thick=1.6, radius=0)
    words = [many(column.added, "token"), f"{column.added}"] if prompt else ["1"] * (column.runs == 1)
    room = column.right - column.left - 4
    fitting = [word for word in words if text_width(word, SMALL) <= room]
    if fitting:
        drawing.text((column.left + column.right) / 2, ROW + 28, fitting[0], size=SMALL)


def cache(drawing: Drawing, column: Column, slice_: float) -> None:
    """The cache after a run, new slices in full colour; slices that are too thin become one piece."""
    bottom, old = CACHE + slice_ * column.held, column.held - column.added
    border = max(CACHE, min(CACHE + slice_ * old, bottom - 2)) if old else CACHE
    inset = min(1.5, (column.right - column.left) / 4)
    left, right = column.left + inset, column.right - inset
    for top, end, slices, tint in ((CACHE, border, old, 0.3), (border, bottom, column.added, 0.7)):
        pieces = slices if slice_ >= THINNEST else min(slices, 1)
        for i in range(pieces):
            piece = Area(left, top + (end - top) * i / pieces, right, top + (end - top) * (i + 1) / pieces)
            drawing.rect(piece, fill="cache", tint=tint, stroke="paper" if slice_ >= THINNEST else None, thick=0.8,
                         radius=0)


def foot(drawing: Drawing, row: Sequence[Column]) -> None:
    """How long the cache is at both ends, and how many steps share a box."""
    y, largest = CACHE + DEEPEST + 28, max(column.runs for column in row)
    first, last = f"KV cache: {many(row[0].held, 'token')}", many(row[-1].held, "token")
    drawing.text(LEFT, y, first, size=SMALL, anchor="start", bold=True)
    drawing.text(RIGHT, y, last, size=SMALL, anchor="end", bold=True)
    if largest > 1:
        middle = (LEFT + RIGHT + text_width(first, SMALL, bold=True) - text_width(last, SMALL, bold=True)) / 2
        drawing.text(middle, y, f"up to {largest} runs in a box", size=SMALL, role="faint")


def many(n: int, thing: str) -> str:
    """A number with its noun.

    >>> many(1, "token"), many(1200, "token")
    ('1 token', '1,200 tokens')
    """
    return f"{n:,} {thing}{'s' * (n != 1)}"


def percent(share: float) -> str:
    """A share as it is written in the drawings; what is not everything is not called 100 %.

    >>> percent(0.926), percent(0.9998), percent(0.0004)
    ('93 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if share > 0.995 else "under 1 %" if share < 0.005 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """A time with a sensible unit.

    >>> duration(0.0087), duration(0.144), duration(2.345)
    ('8.7 ms', '144 ms', '2.3 s')
    """
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.00995 else f"{1000 * seconds:.1f} ms"
