"""A text with the surprisal of its tokens as HTML and as a figure, and the reliability diagram.

Pure functions. A token's surprisal is a number and the length of a bar; the shade repeats what they say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure
from matplotlib.style import context

from course_lib.analysis.calibration import Bin
from course_lib.analysis.surprisal import TokenScore, bits_per_byte, mean_bits
from course_lib.config import require
from course_lib.display import plots
from course_lib.display.views import THEME, count, percent, visible

FULL_BITS = 16.0  # bits at which the bar of a token is full
STYLE = """\
.course-surprisal ol{display:flex;flex-wrap:wrap;gap:8px 3px;list-style:none;margin:8px 0;padding:2px;\
max-height:420px;overflow-y:auto}
.course-surprisal li{font-family:var(--mono);text-align:center;min-width:30px;padding:1px 3px 2px;\
border:1px solid transparent;background:color-mix(in srgb,#d55e00 calc(var(--part)*45%),transparent)}
.course-surprisal li.chosen{border:2px solid var(--ink)}
.course-surprisal bdi{display:block;font-size:15px;white-space:pre-wrap;overflow-wrap:anywhere;max-width:24ch}
.course-surprisal .bits{display:block;font-size:11px;color:var(--ink)}
.course-surprisal .bar{display:block;height:5px;width:calc(var(--part)*100%);background:#d55e00;min-width:1px}
.course-surprisal table{border-collapse:collapse;margin:4px 0}
.course-surprisal td,.course-surprisal th{padding:2px 10px 2px 0;text-align:left;font-weight:400}
.course-surprisal th[scope=col]{color:var(--faint)}.course-surprisal td.piece{font-family:var(--mono)}
.course-surprisal td .bar{display:inline-block;background:var(--kept);height:9px}
.course-surprisal tr.itself td,.course-surprisal tr.itself th{font-weight:600}"""


def bits_text(bits: float | None) -> str:
    """Surprisal as it is written under a token.

    >>> bits_text(0.041), bits_text(12.34), bits_text(float("inf")), bits_text(None)
    ('0.0', '12.3', '∞', '–')
    """
    return "–" if bits is None else "∞" if math.isinf(bits) else f"{bits:.1f}"


def summary(scores: Sequence[TokenScore]) -> str:
    """Mean surprisal, perplexity and bits per byte, in words."""
    mean = mean_bits(scores)
    if math.isnan(mean):
        return "One token, which nothing precedes: there is nothing to predict."
    predicted = sum(score.bits is not None for score in scores)
    perplexity = f"{2 ** mean:,.1f}" if mean < 1000 else "infinite"
    return (f"{count(predicted, 'token')} predicted, {bits_text(mean)} bits each on average: "
            f"perplexity {perplexity}, {bits_per_byte(scores):.2f} bits per byte.")


def token_words(score: TokenScore) -> str:
    """One token in a sentence, for a pointer or a screen reader."""
    if score.bits is None:
        return f"{visible(score.piece)}: the first token, not predicted"
    top, p = score.candidates[0]
    return (f"{visible(score.piece)}: {bits_text(score.bits)} bits, probability {percent(2 ** -score.bits)}, "
            f"rank {score.rank:,}; likeliest was {visible(top)}, {percent(p)}")


def surprisal_html(scores: Sequence[TokenScore], chosen: int, *, notice: str = "") -> str:
    """The text, each token over its bits and a bar; beneath it what the model expected at one place.

    Args:
        chosen: the place of the token whose competitors are listed.
        notice: a further remark for the reader.
    """
    require(0 <= chosen < len(scores), "chosen", chosen, f"in [0, {len(scores) - 1}]")
    items = "".join(token_item(score, i == chosen) for i, score in enumerate(scores))
    return (f'<div class="course course-surprisal" data-tokens="{len(scores)}" data-chosen="{chosen}" '
            f'data-mean-bits="{mean_bits(scores):.4f}"><style>{THEME}{STYLE}</style>'
            f'<p class="summary" role="status"><b>{escape(summary(scores))}</b></p>'
            + f'<p class="notice">{escape(notice)}</p>' * bool(notice)
            + f'<ol tabindex="0" aria-label="tokens, each with its surprisal in bits">{items}</ol>'
            + candidates_html(scores[chosen]) + "</div>")


def token_item(score: TokenScore, chosen: bool) -> str:
    """One token: piece, bar, bits; pointing at it tells the rest."""
    part = 0.0 if score.bits is None else min(score.bits / FULL_BITS, 1.0)
    words = escape(token_words(score))
    return (f'<li style="--part:{part:.3f}" title="{words}" aria-label="{words}"'
            + ' class="chosen" aria-current="true"' * chosen
            + f'><bdi>{escape(visible(score.piece))}</bdi><span class="bar"></span>'
            f'<span class="bits">{bits_text(score.bits)}</span></li>')


def candidates_html(score: TokenScore) -> str:
    """What the model expected where a token came, as a table; the token itself in bold, wherever it ranks."""
    if score.bits is None:
        return f'<p class="faint">{escape(token_words(score))}</p>'
    rows = [(i, piece, p) for i, (piece, p) in enumerate(score.candidates, 1) if i != score.rank]
    rows.append((score.rank, score.piece, 2 ** -score.bits))
    body = "".join(
        f'<tr{" class=itself" * (rank == score.rank)}><th scope="row">{rank:,}</th>'
        f'<td class="piece">{escape(visible(piece))}</td><td>{escape(percent(p))}</td>'
        f'<td>{bits_text(-math.log2(p) if p > 0 else math.inf)}</td>'
        f'<td><span class="bar" style="width:{120 * p:.0f}px"></span></td></tr>'
        for rank, piece, p in sorted(rows, key=lambda row: row[0]))
    return (f'<table data-rank="{score.rank}"><caption>Where <b>{escape(visible(score.piece))}</b> came, the '
            f'model expected {bits_text(score.entropy)} bits of surprisal</caption><tr><th scope="col">rank</th>'
            '<th scope="col">token</th><th scope="col">probability</th><th scope="col">bits</th><th></th></tr>'
            f'{body}</table>')


def scores_figure(scores: Sequence[TokenScore]) -> Figure:
    """The predicted tokens side by side, coloured by their surprisal."""
    shown = [score for score in scores if score.bits is not None]
    return bits_figure([score.piece for score in shown], [score.bits for score in shown])


def bits_figure(pieces: Sequence[str | bytes], bits: Sequence[float]) -> Figure:
    """A text in boxes, each with its surprisal in bits beneath; the more bits, the stronger the colour."""
    require(len(pieces) > 0, "pieces", len(pieces), "at least one predicted token")
    return plots.boxes([visible(piece) for piece in pieces], [bits_text(b) for b in bits],
                       shades=[min(b / FULL_BITS, 1.0) for b in bits])


def reliability_figure(bins: Sequence[Bin], *, errors: float = 2.0) -> Figure:
    """Accuracy against confidence, a point for each bin with its count, and the diagonal of a calibrated model.

    Args:
        errors: half the length of the bars, in standard errors.
    """
    figure, axes = plots.blank("mean confidence of the bin", "share of right predictions", height=4.6)
    with context(plots.LOOK):
        axes.plot([0, 1], [0, 1], color=plots.FAINT, linewidth=1, linestyle="--")
        axes.annotate("dashed line: calibrated", (1.0, 0.04), color=plots.FAINT, ha="right", fontsize=plots.SMALL)
        reach = [min(errors * b.error, 1.0) for b in bins]
        axes.errorbar([b.confidence for b in bins], [b.accuracy for b in bins], yerr=reach, fmt="o", capsize=3,
                      color=plots.OKABE_ITO["blue"], ecolor=plots.INK, elinewidth=1.2)
        for b in bins:
            axes.annotate(f"{b.count:,}", (b.confidence, b.accuracy), (7, -13), textcoords="offset points",
                          fontsize=plots.SMALL)
        axes.set_xlim(0, 1.06)
        axes.set_ylim(-0.02, 1.05)
    figure.set_label("Accuracy against confidence, a point for each bin, beside the diagonal: " + ", ".join(
        f"{b.accuracy:.2f} at {b.confidence:.2f}" for b in bins) + ".")
    return figure
