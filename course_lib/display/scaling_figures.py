"""Figures of notebook 15: losses of the family of models against their training text, and laws through them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib import colormaps, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from course_lib.analysis.scaling_fit import interval
from course_lib.analysis.scaling_law import ScalingLaw
from course_lib.config import require
from course_lib.display import plots
from course_lib.display.labels import label_ends
from course_lib.training.scaling_runs import SIZES, ScalingResult

DASHES = ("-", "--", ":")
MARKERS = "osD^vP"
GREY = "#8C8C8C"
TOKENS, LOSS = "training tokens, millions", "loss, nats per token"


def look(size: int) -> tuple[tuple[float, float, float, float], str]:
    """Colour and marker of a size, the same in every figure: dark for small, light for large, readable on white."""
    place = sum(size > other for other in SIZES)
    return colormaps["viridis"](0.05 + 0.7 * place / (len(SIZES) - 1)), MARKERS[place % len(MARKERS)]


def log_log(height: float = 4.2) -> tuple[Figure, Axes]:
    """Logarithmic axes for losses against millions of tokens."""
    figure, axes = plots.blank(TOKENS, LOSS, height=height)
    axes.set_xscale("log")
    axes.set_yscale("log")
    return figure, axes


def finish(axes: Axes) -> None:
    """Plain numbers at the axes and a faint grid."""
    plots.plain_ticks(axes.yaxis)
    axes.xaxis.set_major_locator(FixedLocator((0.5, 1, 2, 4, 8, 16)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)


def losses(results: Sequence[ScalingResult], laws: Mapping[str, ScalingLaw] | None = None, *,
           fewest_tokens: float = 0, again: Sequence[tuple[float, float]] = ()) -> Figure:
    """A point for each run on logarithmic axes, a colour and a shape for each size, and the curves of up to three laws.

    Args:
        results: of runs, at least one.
        laws: by name; the first is drawn solid. Without laws the points of a size are joined.
        fewest_tokens: runs that read fewer are hollow, and laws begin here; the curves of a size end at its last run.
        again: tokens and loss of runs that were made a second time; a ring for each.
    """
    require(len(results) >= 1, "len(results)", len(results), ">= 1")
    require(len(laws or ()) <= len(DASHES), "len(laws)", len(laws or ()), f"at most {len(DASHES)}")
    figure, axes = log_log()
    words, sizes = [], sorted({result.size for result in results})
    with style.context(plots.LOOK):
        for size in sizes:
            runs = sorted((r for r in results if r.size == size), key=lambda r: r.tokens)
            x, y, (color, marker) = [r.tokens / 1e6 for r in runs], [r.loss for r in runs], look(size)
            for dashes, law in zip(DASHES, (laws or {}).values()):
                dense = np.geomspace(max(fewest_tokens / 1e6, min(x)), x[-1], 60)
                axes.plot(dense, law.loss(float(runs[0].parameters), dense * 1e6), dashes, color=color, linewidth=1.5)
            if not laws:
                axes.plot(x, y, "-", color=color, linewidth=1.2)
            used = [r.tokens >= fewest_tokens for r in runs]
            for point_x, point_y, full in zip(x, y, used):
                axes.plot(point_x, point_y, marker, color=color, markersize=6,
                          markerfacecolor=color if full else "white")
            axes.annotate(f"size {size}", (x[-1], y[-1]), (7, 0), textcoords="offset points", va="center", color=color,
                          fontsize=plots.SMALL)
            words.append(f"Size {size}: {y[0]:.2f} at {x[0]:.2g} to {y[-1]:.2f} at {x[-1]:.2g}.")
        for tokens, loss in again:
            axes.plot(tokens / 1e6, loss, "o", color=plots.INK, markersize=14, markerfacecolor="none")
            words.append(f"Trained again: {loss:.2f} at {tokens / 1e6:.2g}.")
        finish(axes)
        axes.margins(x=0.12)
    drawn = "".join(f" The law {name!r} as {how} curves." for how, name
                    in zip(("solid", "dashed", "dotted"), laws or {}))
    figure.set_label(f"{LOSS} against {TOKENS}, logarithmic. {' '.join(words)}{drawn}")
    return figure


def valley(law: ScalingLaw, flops: float, results: Sequence[ScalingResult], best: float) -> Figure:
    """What a law says about all sizes that spend one training budget, and runs that spent about as much.

    Args:
        law: for the curve.
        flops: the budget; a model of N parameters reads flops / (6 N) tokens.
        results: of runs, at least two.
        best: the size to mark.
    """
    require(len(results) >= 2, "len(results)", len(results), ">= 2")
    sizes = [run.parameters for run in results]
    dense = np.geomspace(min(sizes) / 2, 1.1 * max(sizes), 60).tolist()
    return plots.lines({"the law": ([N / 1e3 for N in dense], [law.loss(N, flops / 6 / N) for N in dense]),
                        "measured": ([N / 1e3 for N in sizes], [run.loss for run in results])},
                       xlabel="parameters, thousands", ylabel=LOSS, logx=True, marks={"best": round(best / 1e3)})


def extrapolation(parameters: float, laws: Mapping[str, ScalingLaw], fans: Mapping[str, Sequence[ScalingLaw]],
                  tokens: tuple[float, float], *, measured: Mapping[float, float] | None = None) -> Figure:
    """What fitted laws say about a model that was not fitted, and the range of 95 % of their resamples.

    Args:
        parameters: of the model.
        laws: at most three, by name.
        fans: the resamples of each, by the same names.
        tokens: the range to draw.
        measured: losses of that model by tokens, if there are any.
    """
    require(1 <= len(laws) <= len(DASHES), "len(laws)", len(laws), f"in [1, {len(DASHES)}]")
    require(set(laws) == set(fans), "fans", sorted(fans), f"resamples of {sorted(laws)}")
    figure, axes = log_log()
    x, ends, words = np.geomspace(*tokens, 60), {}, []
    with style.context(plots.LOOK):
        for color, dashes, (name, law) in zip(plots.CYCLE, DASHES, laws.items()):
            each = np.stack([other.loss(float(parameters), x) for other in fans[name]])  # (resamples, places)
            low, high = np.array([interval(column) for column in each.T]).T
            middle = law.loss(float(parameters), x)
            axes.fill_between(x / 1e6, low, high, color=color, alpha=0.2, linewidth=0)
            axes.plot(x / 1e6, middle, dashes, color=color, linewidth=2)
            ends[name] = x[-1] / 1e6, middle[-1], color
            words.append(f"{name}: {middle[0]:.2f} to {middle[-1]:.2f}, at the end in [{low[-1]:.2f}, {high[-1]:.2f}].")
        for place, loss in (measured or {}).items():
            axes.plot(place / 1e6, loss, "o", color=plots.INK, markersize=7)
            axes.annotate(f"measured {loss:.3f}", (place / 1e6, loss), (-8, 0), textcoords="offset points",
                          ha="right", va="center", fontsize=plots.SMALL)
            words.append(f"Measured at {place / 1e6:.3g}: {loss:.3f}.")
        finish(axes)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 6)))
        label_ends(axes, ends)
    figure.set_label(f"{LOSS} against {TOKENS}, logarithmic, of a model of {parameters:,.0f} parameters that was not "
                     f"fitted. {' '.join(words)}")
    return figure


def kinds(losses: Mapping[float, Mapping[str, float]], bold: Collection[str] = ()) -> Figure:
    """The loss of one size on each kind of text, on logarithmic axes, where a power law is a straight line.

    Args:
        losses: by training tokens, at least two, and then by kind.
        bold: the kinds to show in colour; the others are grey.
    """
    require(len(losses) >= 2, "len(losses)", len(losses), ">= 2")
    names = list(next(iter(losses.values())))
    require(set(bold) <= set(names), "bold", sorted(bold), f"some of {names}")
    figure, axes = log_log(3.8)
    colors, ends, words = iter(plots.CYCLE), {}, []
    with style.context(plots.LOOK):
        for name in names:
            x, y = [D / 1e6 for D in sorted(losses)], [losses[D][name] for D in sorted(losses)]
            color, width = (next(colors), 2.5) if name in bold else (GREY, 1.5)
            axes.plot(x, y, "o-", color=color, linewidth=width, markersize=6)
            ends[name] = x[-1], y[-1], color
            words.append(f"{name}: " + ", ".join(f"{b:.2f} at {a:.2g}" for a, b in zip(x, y)) + ".")
        finish(axes)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 6)))
        label_ends(axes, ends)
    figure.set_label(f"{LOSS} against {TOKENS}, logarithmic. {' '.join(words)}")
    return figure
