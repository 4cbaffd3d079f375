"""What rounding does to one matrix and to the whole model, as data, as HTML and as a still.

Pure functions; the weights are rounded by the function that is given, which may be the reader's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from math import log

import torch
from torch import Tensor

from course_lib.config import require
from course_lib.display.colors import ROLES
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.views import THEME, percent
from course_lib.rounding import check_bits, split_groups

# (weight, bits, per) to the weights on their grids
Rounding = Callable[[Tensor, int, str | int], Tensor]
WIDE, HIGH, BINS = 640, 120, 48  # of the histogram, in units
SHOWN = 80  # characters of an answer
STYLE = f"""\
.course-rounding svg{{width:100%;max-width:{WIDE}px;height:auto;display:block}}
.course-rounding text{{font:15px var(--jp-ui-font-family,system-ui,sans-serif);fill:var(--ink)}}
.course-rounding .weights{{fill:{ROLES["weights"].light}}}
.course-rounding .mark{{stroke:var(--ink);stroke-width:1.6}}
.course-rounding .answer{{font-weight:600}}"""


@dataclass(frozen=True)
class RoundingView:
    """A matrix before and after rounding, and what the rounded model says.

    Attributes:
        name, per: of the matrix, and who shares a scale.
        heights: of the bars of the histogram, in [0, 1], on a logarithmic scale, from -largest to largest.
        marks: values that the weights of the first group are rounded to.
        largest: absolute value among the weights and the marks.
        mean, worst: how far a weight moves.
        zeros: share of the weights that become 0.
        perplexity, answer: of the model with all matrices rounded like this.
    """

    name: str
    bits: int
    per: str | int
    heights: tuple[float, ...]
    marks: tuple[float, ...]
    largest: float
    mean: float
    worst: float
    zeros: float
    perplexity: float
    answer: str

    @property
    def sharing(self) -> str:
        """Who shares a scale, in words."""
        words = {"tensor": "one scale for the matrix", "channel": "a scale for each row"}
        return words.get(self.per, f"a scale for each {self.per} weights")


def rounding_view(name: str, weight: Tensor, bits: int, per: str | int, *, round_weights: Rounding, perplexity: float,
                  answer: str) -> RoundingView:
    """Round a matrix and look at it.

    Args:
        name: of the matrix; `weight` is (N, K).
        bits, per: as for `course_lib.rounding.round_weights`.
        round_weights: the function that rounds.
        perplexity, answer: what was measured on the whole model with this setting.

    Raises:
        ValueError: a setting is out of range, or the rounded weights have another shape or are not finite.
    """
    check_bits(bits)
    weight = weight.detach().float().cpu()
    rounded = round_weights(weight, bits, per)
    require(rounded.shape == weight.shape, "round_weights(…).shape", tuple(rounded.shape), f"{tuple(weight.shape)}")
    require(bool(rounded.isfinite().all()), "round_weights(…)", "NaN or infinity", "finite")
    moved, marks = (rounded - weight).abs(), split_groups(rounded, per)[0, 0].unique().tolist()
    largest = max(weight.abs().max().item(), *map(abs, marks), 1e-12)
    counts = torch.histc(weight, BINS, -largest, largest).tolist()
    top = log(1 + max(counts))
    return RoundingView(name, bits, per, tuple(log(1 + n) / top for n in counts), tuple(marks), largest,
                        moved.mean().item(), moved.max().item(), (rounded == 0).double().mean().item(), perplexity,
                        answer)


def settings(view: RoundingView) -> str:
    """The matrix and how it is rounded."""
    return f"{view.name} in {view.bits} bits, {view.sharing}"


def effect(view: RoundingView) -> str:
    """What became of the matrix."""
    return (f"{percent(view.zeros)} of its weights become 0; a weight moves by {view.mean:.2g} on average, and by "
            f"{view.worst:.2g} at most.")


def in_use(view: RoundingView) -> str:
    """What bars and lines of the picture are."""
    return f"bars: how many weights (log); lines: marks that group 1 uses, {len(view.marks)} of {2**view.bits}"


def said(view: RoundingView) -> str:
    """The answer, cut where it is long."""
    text = " ".join(view.answer.split())
    return text if len(text) <= SHOWN else text[:SHOWN].rsplit(" ", 1)[0] + " …"


def rounding_summary(view: RoundingView) -> str:
    """All of it in words."""
    return (f"{settings(view)}: {effect(view)} With all matrices like this the perplexity is {view.perplexity:,.3g}, "
            f"and the capital of India: “{said(view)}”")


def place(value: float, view: RoundingView, left: float, wide: float) -> float:
    """Where a value lies on the axis."""
    return left + wide * (value / view.largest + 1) / 2


def rounding_html(view: RoundingView) -> str:
    """Histogram and marks as SVG, with what follows in words."""
    wide, base = WIDE / BINS, 30 + HIGH
    bars = "".join(f'<rect class="weights" x="{wide * i:.1f}" y="{base - HIGH * h:.1f}" width="{wide - 1:.1f}" '
                   f'height="{HIGH * h:.1f}"/>' for i, h in enumerate(view.heights))
    marks = "".join(f'<path class="mark" d="M{place(mark, view, 1, WIDE - 2):.1f} {base + 4} v18"/>'
                    for mark in view.marks)
    return (f'<div class="course course-rounding" data-marks="{len(view.marks)}" data-zeros="{view.zeros:.3f}" '
            f'data-perplexity="{view.perplexity:.3f}"><style>{THEME}{STYLE}</style>'
            f'<svg viewBox="0 0 {WIDE} {base + 46}" role="img" aria-label="{escape(rounding_summary(view))}">'
            f'<text x="1" y="16">{in_use(view)}</text>{bars}{marks}'
            f'<text x="1" y="{base + 42}">−{view.largest:.2g}</text>'
            f'<text x="{WIDE // 2}" y="{base + 42}" text-anchor="middle">0</text>'
            f'<text x="{WIDE - 1}" y="{base + 42}" text-anchor="end">{view.largest:.2g}</text></svg>'
            f'<p>{escape(effect(view))}</p>'
            f'<p class="faint">All matrices like this: perplexity {view.perplexity:,.3g}. The capital of India?</p>'
            f'<p class="answer" role="status">“{escape(said(view))}”</p></div>')


def rounding_drawing(view: RoundingView) -> Drawing:
    """The still picture: the histogram over the marks, and the answer."""
    drawing = Drawing("Weights and the marks that they are rounded to", rounding_summary(view), height=356)
    left, wide, base = 30, 660, 226
    drawing.text(left, 38, settings(view), size=SMALL, anchor="start", bold=True)
    drawing.text(left, 66, in_use(view), size=SMALL, role="faint", anchor="start")
    for i, height in enumerate(view.heights):
        x = left + wide * i / BINS
        drawing.rect(Area(x, base - HIGH * height, x + wide / BINS - 1.5, base), fill="weights", tint=0.7, radius=0)
    for mark in view.marks:
        x = place(mark, view, left, wide)
        drawing.path([(x, base + 5), (x, base + 24)], thick=1.8)
    for x, anchor, text in ((left, "start", f"−{view.largest:.2g}"), (left + wide / 2, "middle", "0"),
                            (left + wide, "end", f"{view.largest:.2g}")):
        drawing.text(x, base + 46, text, size=SMALL, role="faint", anchor=anchor)
    drawing.text(left, base + 80, f"{percent(view.zeros)} become 0; perplexity {view.perplexity:,.3g}", size=SMALL,
                 anchor="start")
    words = said(view)
    while text_width(f"India: “{words}”", SMALL, bold=True) > wide:
        words = words.removesuffix(" …")[:-1] + " …"
    drawing.text(left, base + 108, f"India: “{words}”", size=SMALL, anchor="start", bold=True)
    return drawing
