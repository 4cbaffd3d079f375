"""One row of one head's attention as HTML and as a still picture: the text with its weights, and one cell's score
taken apart.

Pure functions; nothing is fetched, and text from a reader is escaped before it becomes markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.config import require
from course_lib.display import plots
from course_lib.display.views import THEME, percent, visible
from course_lib.layers import attention_weights, causal_mask

Weigh = Callable[[Tensor, Tensor, Tensor], Tensor]

STYLE = """\
.course-row ol{display:flex;flex-wrap:wrap;gap:4px;list-style:none;margin:6px 0;padding:2px}
.course-row li{border:1px solid var(--line);border-radius:3px;padding:2px 6px 3px;min-width:40px;\
text-align:center;background:color-mix(in srgb,var(--kept) calc(var(--w)*65%),transparent)}
.course-row li.later{border-style:dashed;color:var(--faint)}
.course-row li.query{border:3px solid var(--query)}.course-row li.key{outline:3px dashed var(--key)}
.course-row bdi{display:block;font-family:var(--mono);font-size:15px;white-space:pre-wrap;overflow-wrap:anywhere}
.course-row .weight,.course-row .tag{display:block;font-size:12px}.course-row .tag{font-weight:600;min-height:1.3em}
.course-row svg{display:block;width:100%;max-width:840px;height:auto}
.course-row text{font-size:13px;fill:var(--ink)}.course-row .end{text-anchor:end}
.course-row .middle{text-anchor:middle}.course-row .head{font-weight:600}.course-row line{stroke:var(--line)}
.course-row rect{fill:var(--kept)}.course-row rect.minus{fill:none;stroke:var(--kept);stroke-width:1.5}"""


@dataclass(frozen=True)
class AttentionView:
    """What one position takes from every other in one head, and how one of these weights comes about.

    Attributes:
        pieces: the tokens of the text.
        weights: how much the query takes from each, (T,); 0 where it may not look.
        seen: True where it may, (T,).
        query, key: positions; together they name the cell.
        parts: what each dimension adds to the cell's score, q_i k_i / sqrt(Dh), (Dh,).
    """

    pieces: tuple[bytes, ...]
    weights: Tensor
    seen: Tensor
    query: int
    key: int
    parts: Tensor

    @property
    def score(self) -> float:
        """Of the cell, as it enters the softmax."""
        return float(self.parts.sum())


def attention_view(q: Tensor, k: Tensor, pieces: Sequence[bytes], query: int, key: int | None = None, *,
                   window: int | None = None, weigh: Weigh = attention_weights) -> AttentionView:
    """The row of `query` in one head.

    Args:
        q, k: queries and keys of the head, positions applied: (T, Dh).
        pieces: T tokens.
        key: which cell to take apart; None: where the weight is largest.
        window: how many positions a query may see, its own included; None: all up to its own.
        weigh: called as `attention_weights` is, with (1, 1, T, Dh) twice and a mask (T, T).

    Raises:
        ValueError: a position is not in the text, or the weights are no weights.
    """
    T, Dh = q.shape
    require(len(pieces) == T, "len(pieces)", len(pieces), f"{T}, as there are queries")
    require(0 <= query < T, "query", query, f"in [0, {T - 1}]")
    require(key is None or 0 <= key < T, "key", key, f"in [0, {T - 1}]")
    q, k = q.detach().float().cpu(), k.detach().float().cpu()
    mask = causal_mask(T, T, window=window)
    weights = weigh(q[None, None], k[None, None], mask)
    require(weights.shape == (1, 1, T, T), "shape of the weights", tuple(weights.shape), f"(1, 1, {T}, {T})")
    row = weights[0, 0, query].double()
    require(bool(row.isfinite().all()), "weights", "NaN or infinity", "finite")
    key = int(row.argmax()) if key is None else key
    return AttentionView(tuple(pieces), row, mask[query], query, key,
                         q[query].double() * k[key].double() / math.sqrt(Dh))


def token_label(pieces: Sequence[bytes], position: int) -> str:
    """A token and where it stands.

    >>> token_label([b"The", b" dog"], 1)
    '␣dog (1)'
    """
    return f"{visible(pieces[position])} ({position})"


def row_summary(view: AttentionView, layer: int, head: int) -> str:
    """Where the head looks from the query, in words."""
    best = int(view.weights.argmax())
    return (f"Layer {layer}, head {head}: {token_label(view.pieces, view.query)} takes "
            f"{percent(float(view.weights[best]))} from {token_label(view.pieces, best)}; the {int(view.seen.sum())} "
            f"weights that it can give sum to {percent(round(float(view.weights.sum()), 4))}.")


def cell_summary(view: AttentionView) -> str:
    """The score of the cell and the dimensions that it comes from, in words."""
    name = f"{token_label(view.pieces, view.query)} · {token_label(view.pieces, view.key)}"
    if not view.seen[view.key]:
        return f"{name}: would score {view.score:+.2f}, and is masked: its weight is exactly 0."
    top = int(view.parts.abs().argmax())
    return (f"{name}: score {view.score:+.2f}, the sum of {len(view.parts)} products, weight "
            f"{percent(float(view.weights[view.key]))}. The largest product is {view.parts[top]:+.2f}, "
            f"in dimension {top}.")


def attention_html(view: AttentionView, layer: int, head: int) -> str:
    """The text with the weights of the row, every token of it, and beneath it the cell, dimension by dimension.

    `data-query`, `data-key`, `data-sum` and, on each token, `data-weight` hold what is shown.
    """
    items = "".join(token_item(view, position) for position in range(len(view.pieces)))
    return (f'<div class="course course-row" data-query="{view.query}" data-key="{view.key}" data-layer="{layer}" '
            f'data-head="{head}" data-sum="{view.weights.sum():.6f}"><style>{THEME}{STYLE}</style>'
            f'<p class="summary" role="status"><b>{escape(row_summary(view, layer, head))}</b></p>'
            f'<ol tabindex="0" aria-label="tokens and what the query takes from them">{items}</ol>'
            f'<p class="cell">{escape(cell_summary(view))}</p>{parts_svg(view)}</div>')


def token_item(view: AttentionView, position: int) -> str:
    """One token: its text, its share, and in words what it is to the row."""
    weight = float(view.weights[position])
    kinds = [name for name, holds in (("query", position == view.query), ("key", position == view.key),
                                      ("later", position > view.query)) if holds]
    return (f'<li class="{" ".join(kinds)}" style="--w:{weight:.4f}" data-weight="{weight:.6f}">'
            f'<bdi>{escape(visible(view.pieces[position]))}</bdi>'
            f'<span class="weight">{escape(percent(weight))}</span><span class="tag">{", ".join(kinds)}</span></li>')


LEFT, RIGHT, MIDDLE, REACH, BOTTOM = 60, 830, 92, 56, 182


def parts_svg(view: AttentionView) -> str:
    """A bar for each dimension of the head: filled upwards where it adds to the score, hollow where it takes."""
    parts = view.parts.tolist()
    largest = max(map(abs, parts)) or 1.0
    step = (RIGHT - LEFT) / len(parts)
    bars = []
    for i, part in enumerate(parts):
        height = abs(part) / largest * REACH
        bars.append(f'<rect class="{"plus" if part >= 0 else "minus"}" x="{LEFT + (i + 0.15) * step:.1f}" '
                    f'y="{MIDDLE - height if part >= 0 else MIDDLE:.1f}" width="{0.7 * step:.1f}" '
                    f'height="{height:.1f}"/>')
    ticks = "".join(f'<text class="middle" x="{LEFT + (i + 0.5) * step:.1f}" y="{BOTTOM - 18}">{i}</text>'
                    for i in range(0, len(parts), max(1, len(parts) // 8)))
    marks = "".join(f'<text class="end" x="{LEFT - 6}" y="{y + 4}">{value:+.2f}</text>'
                    for y, value in ((MIDDLE - REACH, largest), (MIDDLE + REACH, -largest)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 {BOTTOM}" role="img" '
            f'data-score="{view.score:.6f}" aria-label="{escape(cell_summary(view))}">'
            f'<text class="head" x="{LEFT}" y="20">what each dimension adds to the score: q · k / √{len(parts)}</text>'
            f'{"".join(bars)}<line x1="{LEFT}" x2="{RIGHT}" y1="{MIDDLE}" y2="{MIDDLE}"/>{marks}{ticks}'
            f'<text class="middle" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM - 2}">dimension of the head</text></svg>')


def row_figure(view: AttentionView) -> Figure:
    """The still picture: every token in a box, shaded by its weight, the weight beneath."""
    notes = ["query, " * (i == view.query) + ("later" if i > view.query else percent(w))
             for i, w in enumerate(view.weights.tolist())]
    figure = plots.boxes([visible(piece) for piece in view.pieces], notes)
    for patch, weight in zip(figure.axes[0].patches, view.weights.tolist()):
        patch.set_facecolor(to_rgba(plots.OKABE_ITO["blue"], 0.65 * weight))
        patch.set_edgecolor(plots.FAINT)
    return figure
