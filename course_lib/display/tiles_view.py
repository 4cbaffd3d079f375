"""One row of attention, a tile of keys at a time: what is known after each tile, as data, as HTML and as a still.

Pure functions; the tiles are joined by the merge that is given, which may be the reader's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from course_lib.config import is_size, require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.views import THEME, count, percent
from course_lib.flash import flash_traffic, partial_attention, tile_bytes

# two partial results, each m (..., 1), l (..., 1), o (..., Dh), to one
Merge = Callable[[Any, Any], Any]

WIDE, HIGH = 640, 130  # of the bars, in units
STYLE = f"""\
.course-tiles svg{{width:100%;max-width:{WIDE}px;height:auto;display:block}}
.course-tiles text{{font:15px var(--jp-ui-font-family,system-ui,sans-serif);fill:var(--ink)}}
.course-tiles .past{{fill:var(--key);fill-opacity:.4}}.course-tiles .now{{fill:var(--key)}}
.course-tiles .before{{fill:none;stroke:var(--ink);stroke-width:1.4;stroke-dasharray:3 3}}
.course-tiles .later{{fill:none;stroke:var(--line);stroke-width:1.4}}
.course-tiles .tile{{fill:none;stroke:var(--ink);stroke-width:2}}
.course-tiles td,.course-tiles th{{text-align:left;padding:1px 14px 1px 0;font-weight:400}}"""


@dataclass(frozen=True)
class TilesView:
    """A row after some of its tiles.

    Attributes:
        scores: of all keys, in order.
        block: keys in a tile.
        step: tiles so far, at least 1.
        before, m: the maximum before this tile, -inf if it is the first, and after it.
        total: l, the sum of exp(score - m) so far.
        gap: the largest difference between o / l and the output of the whole row.
        head_dim: numbers in a key.
    """

    scores: tuple[float, ...]
    block: int
    step: int
    before: float
    m: float
    total: float
    gap: float
    head_dim: int

    @property
    def steps(self) -> int:
        """Tiles in all."""
        return -(-len(self.scores) // self.block)

    @property
    def start(self) -> int:
        """The first key of this tile."""
        return (self.step - 1) * self.block

    @property
    def seen(self) -> int:
        """Keys so far."""
        return min(self.step * self.block, len(self.scores))

    @property
    def keep(self) -> float:
        """What is left of the earlier sums, relative to the new maximum."""
        return math.exp(self.before - self.m)

    @property
    def weights(self) -> tuple[float, ...]:
        """exp(score - m) of the keys so far, in [0, 1]."""
        return tuple(math.exp(score - self.m) for score in self.scores[:self.seen])

    @property
    def fast_bytes(self) -> float:
        """What this row needs in fast memory, in float32."""
        return tile_bytes(1, min(self.block, len(self.scores)), self.head_dim)

    @property
    def loaded(self) -> float:
        """Bytes of q, and of the keys and values so far, in float32."""
        return flash_traffic(1, self.seen, self.head_dim, causal=False, block_q=1, bytes_per_element=4).loaded


def tiles_view(q: Tensor, k: Tensor, v: Tensor, *, block: int, step: int, merge: Merge) -> TilesView:
    """A row of attention after `step` tiles, joined by `merge`.

    Args:
        q: (Dh,).
        k, v: (S, Dh), all that the query may see.
        block: keys in a tile, >= 1.
        step: tiles so far, in [1, number of tiles].
        merge: joins two partial results.

    Raises:
        ValueError: block or step is out of its range.
    """
    require(is_size(block), "block", block, "a positive integer")
    steps = -(-len(k) // block)
    require(is_size(step) and step <= steps, "step", step, f"in [1, {steps}]")
    rows = q.float().view(1, 1, 1, -1)
    parts = [partial_attention(rows, *(x.float()[None, None] for x in tile))
             for tile in zip(k.split(block), v.split(block))]
    states = list(accumulate(parts, merge))
    m, total, mix = states[step - 1]
    exact = torch.nn.functional.scaled_dot_product_attention(rows, k.float()[None, None], v.float()[None, None])
    before = states[step - 2][0].item() if step > 1 else -math.inf
    scores = (k.float() @ q.float() / math.sqrt(len(q))).tolist()
    return TilesView(tuple(scores), block, step, before, m.item(), total.item(),
                     (mix / total - exact).abs().max().item(), len(q))


def tiles_summary(view: TilesView) -> str:
    """What this tile did, in words."""
    keys = f"key {view.start}" if view.seen == view.start + 1 else f"keys {view.start} to {view.seen - 1}"
    words = f"Tile {view.step} of {view.steps}, {keys}. "
    if view.step == 1:
        words += f"The first maximum is {view.m:.2f}. "
    elif view.m > view.before:
        words += (f"The maximum rises from {view.before:.2f} to {view.m:.2f}, so what came before shrinks to "
                  f"{percent(view.keep)}. ")
    else:
        words += f"The maximum stays {view.m:.2f}. "
    words += f"The sum l is {view.total:.2f}. "
    if view.step == view.steps:
        return words + ("o / l is the output of the whole row." if view.gap < 1e-3 else
                        f"But o / l is {view.gap:.2f} away from the output of the row.")
    return words + f"o / l is still {view.gap:.2f} away from the output."


def bar_places(view: TilesView, left: float, width: float) -> list[tuple[float, float]]:
    """Left and right end of the bar of each key."""
    each = width / len(view.scores)
    return [(left + each * (i + 0.1), left + each * (i + 0.9)) for i in range(len(view.scores))]


def tiles_html(view: TilesView) -> str:
    """The bars as SVG, what they mean, and what is in fast memory."""
    places, marks, base = bar_places(view, 2, WIDE - 4), [], HIGH + 26
    for i, (left, right) in enumerate(places):
        where = f'x="{left:.1f}" width="{right - left:.1f}"'
        if i >= view.seen:
            marks.append(f'<rect class="later" {where} y="{base - 8}" height="8"/>')
            continue
        if i < view.start and view.m > view.before:
            old = HIGH * math.exp(view.scores[i] - view.before)
            marks.append(f'<rect class="before" {where} y="{base - old:.1f}" height="{old:.1f}"/>')
        high = HIGH * view.weights[i]
        marks.append(f'<rect class="{"past" if i < view.start else "now"}" {where} y="{base - high:.1f}" '
                     f'height="{high:.1f}"/>')
    left, right = places[view.start][0] - 2, places[view.seen - 1][1] + 2
    marks.append(f'<rect class="tile" x="{left:.1f}" y="22" width="{right - left:.1f}" height="{HIGH + 8}"/>')
    words = escape(tiles_summary(view))
    rows = "".join(f"<tr><th scope=row>{name}</th><td>{value:,.0f} bytes</td></tr>" for name, value in (
        ("in fast memory", view.fast_bytes), ("all scores of the row would be", 4 * len(view.scores)),
        ("loaded so far", view.loaded)))
    return (f'<div class="course course-tiles" data-step="{view.step}" data-steps="{view.steps}" '
            f'data-m="{view.m:.4f}" data-total="{view.total:.4f}" data-gap="{view.gap:.6f}">'
            f'<style>{THEME}{STYLE}</style>'
            f'<svg viewBox="0 0 {WIDE} {base + 22}" role="img" aria-label="{words}">'
            f'<text x="2" y="14">exp(score − m), one bar for each key; frame: this tile</text>{"".join(marks)}'
            f'<text x="2" y="{base + 18}">pale: earlier tiles, dashed: before m rose, low: still to come</text></svg>'
            f'<p role="status">{words}</p><table>{rows}</table></div>')


def tiles_drawing(view: TilesView) -> Drawing:
    """The still picture: the same bars."""
    drawing = Drawing("A row, tile by tile", tiles_summary(view), height=276)
    left, high, base = 30, 140, 206
    places = bar_places(view, left, 660)
    drawing.text(left, 36, "exp(score − m), one bar for each key", anchor="start", bold=True)
    for i, (start, end) in enumerate(places):
        if i >= view.seen:
            drawing.rect(Area(start, base - 8, end, base), stroke="line", radius=0)
            continue
        if i < view.start and view.m > view.before:
            drawing.rect(Area(start, base - high * math.exp(view.scores[i] - view.before), end, base), stroke="ink",
                         dashed=True, thick=1.4, radius=0)
        drawing.rect(Area(start, base - high * view.weights[i], end, base), fill="key",
                     tint=0.4 if i < view.start else 1, radius=0)
    drawing.rect(Area(places[view.start][0] - 3, base - high - 6, places[view.seen - 1][1] + 3, base + 5),
                 stroke="ink", radius=2)
    drawing.text(left, 236, f"tile {view.step} of {view.steps} in the frame, {count(view.seen, 'key')} so far; "
                 f"m = {view.m:.2f}, l = {view.total:.2f}", size=SMALL, anchor="start")
    drawing.text(left, 260, f"in fast memory: {view.fast_bytes:,.0f} bytes; dashed: before m rose", size=SMALL,
                 role="faint", anchor="start")
    return drawing
