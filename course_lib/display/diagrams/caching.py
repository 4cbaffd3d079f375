"""The KV cache: the work that it saves, the ledger that it is, the mask after it, and the ring that bounds it."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.config import ModelConfig, require
from course_lib.costs import kv_bytes_per_token
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width

CELL = 34  # of a triangle of work
PANELS = (96, 432)  # where the left and the right half begin
PAGE = Area(150, 112, 560, 420)  # the first page of a ledger
DEPTH, BACK = 3, 22  # pages that are drawn, and how far each one sticks out beyond the one in front
LINE = 40  # of a ledger
SLOT = 54  # of a ring


def triangles_of_work(runs: int = 8) -> Drawing:
    """What each run computes, a square for each token: all of the text without a cache, one token with it.

    Args:
        runs: tokens written, two to eight.
    """
    require(2 <= runs <= 8, "runs", runs, "2 to 8")
    total = runs * (runs + 1) // 2
    drawing = Drawing("The work of each run, without a cache and with one",
                      f"{runs} runs from top to bottom, twice. Without a cache run 1 computes 1 token, run 2 computes "
                      f"2 and run {runs} all {runs}: a full triangle, {total} squares. With a cache each run computes "
                      f"1 token, the last of its row: {runs} squares on the diagonal. The others are pale, read from "
                      f"the cache.", height=CELL * runs + 156)
    for left, name in zip(PANELS, ("without a cache", "with a cache")):
        drawing.text(left, 36, name, bold=True, anchor="start")
    for run in range(runs):
        y = 58 + CELL * run
        drawing.text(PANELS[0] - 14, y + 23, f"run {run + 1}", size=SMALL, anchor="end")
        for token in range(run + 1):
            square(drawing, PANELS[0] + CELL * token, y, computed=True)
            square(drawing, PANELS[1] + CELL * token, y, computed=token == run)
    y = 58 + CELL * runs + 26
    drawing.text(PANELS[0], y, f"{total} tokens computed", size=SMALL, anchor="start")
    drawing.text(PANELS[1], y, f"{runs} tokens computed", size=SMALL, anchor="start")
    square(drawing, PANELS[0], y + 24, computed=True)
    drawing.text(PANELS[0] + CELL + 8, y + 47, "computed in this run", size=SMALL, role="faint", anchor="start")
    square(drawing, PANELS[1], y + 24, computed=False)
    drawing.text(PANELS[1] + CELL + 8, y + 47, "read from the cache", size=SMALL, role="faint", anchor="start")
    return drawing


def square(drawing: Drawing, left: float, top: float, *, computed: bool) -> None:
    """A token in a run."""
    drawing.rect(Area(left + 1.5, top + 1.5, left + CELL - 1.5, top + CELL - 1.5), fill="cost" if computed else "cache",
                 tint=1 if computed else 0.28, radius=4)


def ledger(held: Sequence[str], new: str, config: ModelConfig, *, bytes_per_element: float = 2) -> Drawing:
    """The cache as a ledger: a page for each layer, a line for each token, and the line that a run adds.

    Args:
        held: texts of the tokens that are in it, two to six.
        new: text of the token that the run reads.
        config: of the model.
        bytes_per_element: of a number in the cache.
    """
    require(2 <= len(held) <= 6, "held", held, "2 to 6 tokens")
    L, each = config.num_hidden_layers, config.num_key_value_heads * config.head_dim
    size = kv_bytes_per_token(config, bytes_per_element)
    page = PAGE._replace(bottom=PAGE.top + LINE * (len(held) + 2) + 12)
    tokens = ", ".join(map(str.strip, held))
    drawing = Drawing("The KV cache as a ledger",
                      f"A ledger of {L} pages, one for each layer. Each line belongs to a token, {tokens}, and holds "
                      f"its key and its value, {each} numbers each. A run reads one new token, {new.strip()}, writes a "
                      f"line at the bottom of every page, {size:,.0f} bytes in all, and changes no other line. Arrows "
                      f"lead from its query to every key of a page.", height=page.bottom + 138)
    for i in reversed(range(1, DEPTH)):
        drawing.rect(Area(page.left + BACK * i, page.top - BACK * i, page.right + BACK * i, page.bottom - BACK * i),
                     fill="paper", stroke="cache")
    drawing.rect(page, fill="paper", stroke="cache")
    drawing.text(page.left, 44, f"{L} layers, a page for each", size=SMALL, role="faint", anchor="start")
    for role, column in (("key", 0), ("value", 1)):
        drawing.text(column_middle(page, column), page.top + 28, f"{role}s", size=SMALL, role="ink", bold=True)
    for i, token in enumerate([*held, new]):
        one_line(drawing, page, i, token, fresh=i == len(held))
    asks(drawing, page, len(held))
    drawing.text(page.left, page.bottom + 92, f"one run, one line on every page: {size:,.0f} bytes", size=SMALL,
                 anchor="start", bold=True)
    drawing.text(page.left, page.bottom + 116, f"= 2 × {L} layers × {config.num_key_value_heads} heads × "
                 f"{config.head_dim} numbers × {bytes_per_element:g} bytes", size=SMALL, role="faint", anchor="start")
    return drawing


def column_middle(page: Area, column: int) -> float:
    """Where keys or values have their middle."""
    return page.left + (page.right - page.left) * (1 + 2 * column) / 4


def one_line(drawing: Drawing, page: Area, i: int, token: str, *, fresh: bool) -> None:
    """A token's key and value on the first page."""
    y = page.top + LINE * (i + 1)
    for column, role in enumerate(("key", "value")):
        x = column_middle(page, column)
        drawing.rect(Area(x - 62, y, x + 62, y + LINE - 8), fill=role, tint=0.8 if fresh else 0.2, stroke=role)
    text = token.replace(" ", "␣")
    drawing.text(page.left - 16, y + 23, f"new: {text}" if fresh else text, size=SMALL, anchor="end", bold=fresh)


def asks(drawing: Drawing, page: Area, held: int) -> None:
    """The query of the new token, which looks at every key: up between the columns, and to the left."""
    x, top = (page.left + page.right) / 2, page.bottom + 20
    ys = [page.top + LINE * (i + 1) + (LINE - 8) / 2 for i in range(held + 1)]
    drawing.path([(x, top - 2), (x, ys[0])], stroke="query")
    for y in ys:
        drawing.arrow((x, y), (column_middle(page, 0) + 66, y), stroke="query")
    drawing.box(Area(x - 62, top, x + 62, top + 38), "its query", role="query", mono=False, size=SMALL)
    drawing.text(x + 76, top + 25, "looks at every key", size=SMALL, role="faint", anchor="start")


def corners(past: int = 4, new: int = 3) -> Drawing:
    """The mask of new tokens after cached ones twice: its triangle at the right end, and in the wrong corner.

    Args:
        past: positions in the cache, two to five.
        new: tokens of the call, two to four.
    """
    require(2 <= past <= 5, "past", past, "2 to 5")
    require(2 <= new <= 4, "new", new, "2 to 4")
    total = past + new
    drawing = Drawing("The mask's triangle, right and in the wrong corner",
                      f"Two masks of {new} new tokens after {past} cached ones, a row for each, a square for each key. "
                      f"Right: row 1 sees {past + 1} keys, the last row all {total}, so the triangle sits at the right "
                      f"end. Wrong corner: row 1 sees 1 key and the last row {new}; no row sees its own key.",
                      height=CELL * new + 140)
    for left, name, shown in ((PANELS[0], "right", past), (PANELS[1], "wrong corner", 0)):
        drawing.text(left, 36, name, bold=True, anchor="start")
        for row in range(new):
            y = 58 + CELL * row
            for key in range(total):
                area = Area(left + CELL * key + 1.5, y + 1.5, left + CELL * (key + 1) - 1.5, y + CELL - 1.5)
                seen = key <= row + shown
                drawing.rect(area, fill="key" if seen else "paper", tint=0.55 if seen else 1,
                             stroke="key" if seen else "faint", radius=4)
                if key == past + row:  # the token itself
                    drawing.circle((area.left + area.right) / 2, (area.top + area.bottom) / 2, 5, fill="ink")
        bottom = 58 + CELL * new + 10
        drawing.path([(left + 2, bottom), (left + CELL * past - 2, bottom)], stroke="cache", thick=4)
        drawing.text(left + CELL * past / 2, bottom + 24, f"{past} cached", size=SMALL, role="faint")
        drawing.text(left + CELL * (past + new / 2), bottom + 24, f"{new} new", size=SMALL, role="faint")
    for row in range(new):
        drawing.text(PANELS[0] - 14, 58 + CELL * row + 23, f"row {row + 1}", size=SMALL, anchor="end")
    drawing.circle(PANELS[0] + 5, CELL * new + 120, 5, fill="ink")
    drawing.text(PANELS[0] + 18, CELL * new + 126, "the token's own key; filled squares are seen", size=SMALL,
                 role="faint", anchor="start")
    return drawing


def ring(window: int = 4, sink: int = 1, seen: int = 10) -> Drawing:
    """A ring buffer: which positions of a text are kept, in which slots they lie, and what the next one overwrites.

    Args:
        window: slots that take turns, three to six.
        sink: first positions that stay, at most two.
        seen: positions so far; the first of the window is gone by then.
    """
    require(3 <= window <= 6, "window", window, "3 to 6")
    require(0 <= sink <= 2, "sink", sink, "0 to 2")
    require(sink + window < seen <= 11, "seen", seen, f"{sink + window + 1} to 11")
    kept = [*range(sink), *range(seen - window, seen)]
    slots = {position: position if position < sink else sink + (position - sink) % window for position in kept}
    oldest = seen - window
    drawing = Drawing("A ring buffer of a window",
                      f"A text of {seen} positions above, {sink + window} slots beneath. Positions {sink} to "
                      f"{oldest - 1} are hatched: gone. "
                      + ("Position 0 keeps its slot, the sink. " if sink == 1 else
                         f"The first {sink} keep their slots, the sink. " if sink else "")
                      + f"The last {window} lie in the slots of the ring, in the order "
                      f"{', '.join(str(p) for p, _ in sorted(slots.items(), key=lambda item: item[1]) if p >= sink)}. "
                      f"Position {seen} comes next and overwrites {oldest}, which no later query sees.", height=322)
    left = (720 - SLOT * (seen + 1)) / 2
    drawing.text(left, 36, "positions of the text", size=SMALL, role="faint", anchor="start")
    for position in range(seen + 1):
        area = Area(left + SLOT * position + 3, 50, left + SLOT * (position + 1) - 3, 92)
        gone = position not in kept and position < seen
        drawing.rect(area, fill="paper" if position == seen else "cache", tint=0.12 if gone else 0.4,
                     stroke="faint" if gone or position == seen else "cache", hatched=gone, dashed=position == seen)
        if not gone:
            drawing.text((area.left + area.right) / 2, 77, str(position), size=SMALL, bold=position == seen)
    base = (720 - SLOT * (sink + window) - 24) / 2
    middles = {slot: base + SLOT * (slot + 0.5) + (24 if slot >= sink else 0) for slot in range(sink + window)}
    for position, slot in slots.items():
        drawing.path([(left + SLOT * (position + 0.5), 96), (middles[slot], 190)], stroke="cache", thick=2)
        area = Area(middles[slot] - SLOT / 2 + 3, 194, middles[slot] + SLOT / 2 - 3, 236)
        drawing.rect(area, fill="cache", tint=0.4, stroke="cache")
        drawing.text(middles[slot], 221, str(position), size=SMALL)
    drawing.path([(left + SLOT * (seen + 0.5), 96), (left + SLOT * (seen + 0.5), 262),
                  (middles[slots[oldest]], 262), (middles[slots[oldest]], 242)], stroke="ink", dashed=True, arrow=True)
    if sink:
        drawing.text(middles[0] - SLOT / 2 - 12, 221, "sink", size=SMALL, anchor="end")
    drawing.text(middles[sink + window - 1] + SLOT / 2 + 12, 221, "ring", size=SMALL, anchor="start")
    words = f"{seen} comes next and overwrites {oldest}"
    drawing.text((720 - text_width(words, SMALL, bold=True)) / 2, 298, words, size=SMALL, anchor="start", bold=True)
    return drawing
