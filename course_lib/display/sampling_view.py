"""The next token's distribution before and after the filters, as data, as HTML or SVG text and as a still picture.

Pure functions, as in `course_lib.display.views`: the same arguments give the same text, and every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.config import SamplingParams, require
from course_lib.display import plots
from course_lib.display.views import THEME, count, percent, visible
from course_lib.generate import CompletionOutput
from course_lib.sampling import filter_logits, has_penalties

Filter = Callable[..., Tensor]
DISTRIBUTION = """\
.course-distribution svg{display:block;width:100%;max-width:840px;height:auto}
.course-distribution text{font-size:13px;fill:var(--ink)}.course-distribution .faint{fill:var(--faint)}
.course-distribution .token{font-family:var(--mono);white-space:pre}.course-distribution .end{text-anchor:end}
.course-distribution .middle{text-anchor:middle}.course-distribution .head{font-weight:600}
.course-distribution .before{fill:none;stroke:var(--faint);stroke-width:1}
.course-distribution .cut{fill:url(#course-hatch) none;stroke:var(--faint);stroke-dasharray:3 2}
.course-distribution .after{fill:var(--kept)}.course-distribution path{fill:none;stroke:var(--faint);\
stroke-width:1.5}
.course-distribution path.drawn{stroke:var(--kept);stroke-width:3;stroke-linecap:round}
.course-distribution line{stroke:var(--line)}
.course-distribution line.border{stroke:var(--ink);stroke-dasharray:5 3}"""
HATCH = ('<defs><pattern id="course-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
         'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6"/></pattern></defs>')


@dataclass(frozen=True)
class DistributionView:
    """The next token's distribution before and after the filters; all tensors (V,), likeliest first.

    Attributes:
        ids: of the tokens, by the model's probability; among equals the lowest id first.
        before: the model's probabilities, the softmax of its logits.
        shaped: after penalties and temperature, before anything is cut.
        after: what is drawn from.
        kept: True where `after` may be drawn.
    """

    ids: Tensor
    before: Tensor
    shaped: Tensor
    after: Tensor
    kept: Tensor

    @property
    def n_kept(self) -> int:
        """Tokens that can still be drawn."""
        return int(self.kept.sum())

    @property
    def kept_mass(self) -> float:
        """The model's probability of the kept tokens together."""
        return float(self.before[self.kept].sum())

    @property
    def cut_mass(self) -> float:
        """The model's probability of all others together."""
        return float(self.before[~self.kept].sum())

    @property
    def shaped_kept_mass(self) -> float:
        """The same after penalties and temperature, which is where the cuts are made."""
        return float(self.shaped[self.kept].sum())

    def tail(self, n: int) -> tuple[float, float]:
        """Probability of all but the n likeliest tokens together, before and after."""
        return float(self.before[n:].sum()), float(self.after[n:].sum())


def distribution_view(logits: Tensor, params: SamplingParams, *, filter: Filter = filter_logits,
                      prompt_ids: Sequence[int] = (), output_ids: Sequence[int] = ()) -> DistributionView:
    """The distribution after one position's logits (V,) or (1, V), computed in float64.

    Args:
        filter: called as `filter_logits` is, with (1, V); with ids only if `params` sets a penalty.
        prompt_ids, output_ids: what a penalty counts.

    Raises:
        ValueError: the logits or what the filter returns is no distribution.
    """
    require(logits.dim() == 1 or (logits.dim() == 2 and len(logits) == 1), "logits.shape",
            tuple(logits.shape), "(V,) or (1, V)")
    row = logits.detach().reshape(1, -1)
    uncut = replace(params, top_k=0, top_p=1.0, min_p=0.0)
    before, shaped, after = (
        probabilities(name, x) for name, x in (
            ("logits", row),
            ("filter without cuts", apply_filter(filter, row, uncut, prompt_ids, output_ids)),
            ("filter", apply_filter(filter, row, params, prompt_ids, output_ids))))
    ids = before.sort(descending=True, stable=True).indices
    return DistributionView(ids, before[ids], shaped[ids], after[ids], after[ids] > 0)


def apply_filter(filter: Filter, logits: Tensor, params: SamplingParams, prompt_ids: Sequence[int],
                 output_ids: Sequence[int]) -> Tensor:
    """Filtered logits (1, V), of a copy, so that a filter that works in place does no harm.

    Raises:
        ValueError: the filter returns another shape.
    """
    ids = ([list(prompt_ids)], [list(output_ids)]) if has_penalties(params) else ()
    filtered = filter(logits.clone(), params, *ids)
    require(filtered.shape == logits.shape, "shape of the filter's result", tuple(filtered.shape),
            f"{tuple(logits.shape)}, as the logits have")
    return filtered


def probabilities(name: str, logits: Tensor) -> Tensor:
    """Softmax of the one row of logits (1, V): (V,) in float64 on the CPU."""
    row = logits[0].cpu().double()
    require(math.isfinite(row.max()), f"largest of the {name}", row.max().item(), "finite: one token must survive")
    return row.softmax(-1)


def distribution_summary(view: DistributionView, params: SamplingParams) -> str:
    """What the filters did, in words, with the mass of kept and removed tokens."""
    V, n_cut = len(view.ids), len(view.ids) - view.n_kept
    if n_cut == 0:
        return f"All {V:,} tokens can be drawn."
    at = f" ({percent(view.shaped_kept_mass)} at temperature {params.temperature:g})" * (params.temperature != 1)
    return (f"{view.n_kept:,} of {V:,} tokens can be drawn, with {percent(view.kept_mass)} of the model's "
            f"probability{at}. The other {count(n_cut, 'token')}, {percent(view.cut_mass)} together, "
            f"{'is' if n_cut == 1 else 'are'} cut.")


BARS_TOP, ROW, LABEL_END, BAR_START, BAR_WIDTH = 46, 21, 128, 136, 190
BEFORE_END, AFTER_END, PLOT_LEFT, PLOT_RIGHT = 392, 456, 532, 800


def distribution_svg(view: DistributionView, tokenizer: Any, *, top: int = 15) -> str:
    """Bars for the `top` likeliest tokens and for all others together, beside the whole vocabulary by rank.

    Outlines are the model's probabilities, filled bars what is drawn from; tokens that are cut are hatched
    and say so. Attributes `data-kept`, `data-kept-mass` and `data-top` hold what the picture shows.
    """
    top = min(top, len(view.ids))
    rows = top + (top < len(view.ids))
    height = BARS_TOP + rows * ROW + 44
    labels = [visible(tokenizer.decode_single_token_bytes(id)) for id in view.ids[:top].tolist()]
    description = (f"Next-token distribution. Likeliest: {labels[0]}, {percent(float(view.before[0]))} for the "
                   f"model, {percent(float(view.after[0]))} after the filters. {view.n_kept:,} of "
                   f"{len(view.ids):,} tokens can be drawn.")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 {height}" role="img" '
            f'aria-label="{escape(description)}" data-kept="{view.n_kept}" '
            f'data-kept-mass="{view.kept_mass:.6f}" data-top="{view.after[0]:.6f}">{HATCH}'
            f'{bars_svg(view, labels, top)}{ranks_svg(view, BARS_TOP, BARS_TOP + rows * ROW)}</svg>')


def bars_svg(view: DistributionView, labels: Sequence[str], top: int) -> str:
    """The left half: token, bar, probability before and after."""
    rows = list(zip(labels, view.before.tolist(), view.after.tolist(), view.kept.tolist()))
    if top < len(view.ids):
        rest = len(view.ids) - top
        rows.append((f"other {rest:,}", *view.tail(top), bool(view.kept[top:].any())))
    scale = BAR_WIDTH / max(max(before, after) for _, before, after, _ in rows)
    head = "".join(f'<text class="head end" x="{x}" y="{BARS_TOP - 14}">{name}</text>' for x, name in
                   ((LABEL_END, "token"), (BEFORE_END, "model"), (AFTER_END, "after")))
    key = "".join(f'<text class="faint" x="{BAR_START}" y="{BARS_TOP + len(rows) * ROW + y}">{words}</text>'
                  for y, words in ((17, "outline: the model"), (34, "filled: with your settings")))
    return head + key + "".join(bar_svg(BARS_TOP + i * ROW, *row, scale, "" if i < top else " faint")
                                for i, row in enumerate(rows))


def bar_svg(y: int, label: str, before: float, after: float, kept: bool, scale: float, kind: str) -> str:
    """One row of the left half."""
    label = label if len(label) <= 14 else label[:13] + "…"
    shares = escape(percent(before)), escape(percent(after)) if kept else "cut"
    return (f'<text class="token end{kind}" x="{LABEL_END}" y="{y + 13}">{escape(label)}</text>'
            f'<rect class="before{"" if kept else " cut"}" x="{BAR_START}" y="{y + 1.5}" '
            f'width="{max(before * scale, 0.5):.1f}" height="15"/>'
            f'<rect class="after" x="{BAR_START}" y="{y + 5}" width="{after * scale:.1f}" height="8"/>'
            f'<text class="end" x="{BEFORE_END}" y="{y + 13}">{shares[0]}</text>'
            f'<text class="end{"" if kept else " faint"}" x="{AFTER_END}" y="{y + 13}">{shares[1]}</text>')


def ranks_svg(view: DistributionView, top: int, bottom: int) -> str:
    """The right half: probability against rank for the whole vocabulary, both axes logarithmic."""
    V = len(view.ids)
    floor = max(float(view.before[view.before > 0].min()), 1e-12)
    decades = max(math.ceil(-math.log10(floor)), 1)

    def x(rank: float) -> float:
        return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * math.log(rank) / math.log(max(V, 2))

    def y(p: float) -> float:
        return top + (bottom - top) * min(-math.log10(max(p, 1e-300)) / decades, 1)

    def curve(probs: Tensor) -> str:
        ranks = sorted({round(V ** (i / 119)) for i in range(120)})
        places = [(rank, float(probs[rank - 1])) for rank in ranks]
        points = [f"{x(rank):.1f} {y(p):.1f}" for rank, p in places if p > 0]
        return "M" + "L".join(points * 2 if len(points) == 1 else points)  # a lone point is drawn as a dot

    step = -(-decades // 5)
    parts = [f'<text class="head" x="{PLOT_LEFT}" y="{top - 14}">all {V:,} tokens, by rank</text>']
    for d in range(0, decades + 1, step):
        at = top + (bottom - top) * d / decades
        parts.append(f'<line x1="{PLOT_LEFT}" x2="{PLOT_RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/><text '
                     f'class="end faint" x="{PLOT_LEFT - 6}" y="{at + 4:.1f}">{decade(-d)}</text>')
    for d in range(int(math.log10(V)) + 1):
        parts.append(f'<text class="middle faint" x="{x(10 ** d):.1f}" y="{bottom + 17}">{10 ** d:,}</text>')
    parts.append(f'<text class="middle faint" x="{(PLOT_LEFT + PLOT_RIGHT) / 2}" y="{bottom + 34}">rank of the '
                 'token (log)</text>')
    parts.append(f'<path d="{curve(view.before)}"/><path class="drawn" d="{curve(view.after)}"/>')
    return "".join(parts) + border_svg(view, x, top, bottom)


def decade(exponent: int) -> str:
    """A power of ten as a percentage where that is short, or as 10 with an exponent."""
    return {0: "100 %", -1: "10 %", -2: "1 %"}.get(
        exponent, "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")))


def border_svg(view: DistributionView, x: Callable[[float], float], top: int, bottom: int) -> str:
    """A line after the last rank that is kept, with the counts on its two sides."""
    n = int(view.kept.nonzero().max()) + 1
    if n == len(view.ids):
        return ""
    at = x(n + 0.5)
    left = at > (PLOT_LEFT + PLOT_RIGHT) / 2
    return (f'<rect class="cut" style="stroke:none" x="{at:.1f}" y="{top}" width="{PLOT_RIGHT - at:.1f}" '
            f'height="{bottom - top}"/><line class="border" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}"/>'
            f'<text class="{"end" if left else ""}" x="{at + (-6 if left else 6):.1f}" y="{top + 16}">'
            f'{view.n_kept:,} kept, {len(view.ids) - view.n_kept:,} cut</text>')


def distribution_html(view: DistributionView, params: SamplingParams, tokenizer: Any) -> str:
    """The picture, and beneath it the summary in words and the line to copy."""
    return (f'<div class="course course-distribution"><style>{THEME}{DISTRIBUTION}</style>'
            f'{distribution_svg(view, tokenizer)}<p class="summary" role="status">'
            f'{escape(distribution_summary(view, params))}</p>'
            f'<p><code class="params">{escape(repr(params))}</code></p></div>')


def completion_html(output: CompletionOutput) -> str:
    """The text, and how it ended."""
    ends = {"stop": "and stops", "length": "and is cut off"}
    return (f'<div class="course course-text" data-tokens="{len(output.token_ids)}">'
            f'<p class="faint">The model writes {count(len(output.token_ids), "token")} '
            f'{ends[output.finish_reason]}:</p><p class="completion" style="white-space:pre-wrap;'
            f'border-left:3px solid var(--kept);padding-left:10px">{escape(output.text)}</p></div>')


def distribution_figure(view: DistributionView, tokenizer: Any, top: int = 10) -> Figure:
    """The still picture of `sampling_widget`: the likeliest tokens and all others together."""
    ids = view.ids[:top].tolist()
    labels = [visible(tokenizer.decode_single_token_bytes(id)) for id in ids]
    before, after, kept = view.before[:top].tolist(), view.after[:top].tolist(), view.kept[:top].tolist()
    if (rest := len(view.ids) - len(ids)) > 0:
        tail_before, tail_after = view.tail(top)
        labels, before, after = labels + [f"other {rest:,}"], before + [tail_before], after + [tail_after]
        kept.append(bool(view.kept[top:].any()))
    notes = [f"{percent(p)} → {percent(q) if stays else 'removed'}"
             for p, q, stays in zip(before, after, kept)]
    return plots.bars(labels, after, reference=before, notes=notes, ylabel="next token",
                      xlabel="probability (outline: the model; filled: after the filters)")
