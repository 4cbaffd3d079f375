"""The figures of notebook 09: what was reached beside what the machine allows, with ticks where the points are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from course_lib.analysis.machine_speed import Calibration, K, N
from course_lib.analysis.roofline import Machine
from course_lib.config import require
from course_lib.display import plots

ROUND = [n * 10**power for power in range(5) for n in (1, 2, 5)]  # 1, 2, 5, 10, 20, ... 50,000


def log_lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, xlabel: str, ylabel: str,
              marks: Mapping[str, float] | None = None) -> Figure:
    """Lines on two log axes with plain numbers at the ticks: at the points across, at round numbers upwards."""
    figure = plots.lines(series, logx=True, logy=True, xlabel=xlabel, ylabel=ylabel, marks=marks)
    xs = sorted({x for across, _ in series.values() for x in across})
    heights = [y for _, up in series.values() for y in up]
    inside = [y for y in ROUND if min(heights) <= y <= max(heights)]
    if len(inside) > 6:
        inside = [y for y in inside if str(y).startswith("1")]
    for axis, ticks in ((figure.axes[0].xaxis, xs), (figure.axes[0].yaxis, inside)):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_locator(NullLocator())
    return figure


def rates(found: Calibration,
          step_seconds: Callable[[float, float, Machine], float]) -> tuple[Figure, dict[int, float]]:
    """FLOPs per second of a product by its rows, beside the bound; and the share of the bound that each reached."""
    rows = list(found.flops_by_rows)
    bound = [2 * r * N * K / step_seconds(2 * r * N * K, 4 * N * K, found.machine) for r in rows]
    reached = list(found.flops_by_rows.values())
    figure = log_lines({"the bound": (rows, [x / 1e9 for x in bound]), "measured": (rows, [x / 1e9 for x in reached])},
                       xlabel="rows", ylabel="GFLOP/s")
    return figure, {r: x / most for r, x, most in zip(rows, reached, bound)}


def shares_of_bound(predicted: Mapping[str, tuple[float, float]],
                    measured: Mapping[str, tuple[float, float]]) -> tuple[Figure, dict[tuple[str, str], float]]:
    """Bars of the bound's speed that each model reached, in percent, and the same by model and phase.

    Args:
        predicted, measured: seconds of prefill and of decode, by model. The decode of the first is highlighted.
    """
    shares = {(name, phase): 100 * predicted[name][i] / measured[name][i]
              for i, phase in enumerate(("prefill", "decode")) for name in predicted}
    labels = [f"{name}, {phase}" for name, phase in shares]
    figure = plots.bars(labels, list(shares.values()), xlabel="percent of the bound's speed", ylabel="",
                        value_format="{:.0f}", highlight=[labels[len(predicted)]])
    return figure, shares


def fitted(operations: Sequence[int], ms: Sequence[float], line: tuple[float, float], bound_ms: float) -> Figure:
    """Times against operations, the line through them from zero on, and the bound.

    Args:
        line: its slope and its height at zero.
    """
    slope, at_zero = line
    ends = [0, max(operations)]
    figure = plots.lines({"straight line": (ends, [at_zero + slope * n for n in ends]),
                          "measured": (operations, ms)}, xlabel="operations in a step", ylabel="ms")
    axes = figure.axes[0]
    axes.set_ylim(bottom=0)
    with style.context(plots.LOOK):
        axes.axhline(bound_ms, color=plots.FAINT, linewidth=1, linestyle="--")
        axes.annotate("the bound", (1, bound_ms), (-4, -4), xycoords=("axes fraction", "data"),
                      textcoords="offset points", ha="right", va="top", fontsize=plots.SMALL, color=plots.FAINT)
    figure.set_label(f"{figure.get_label()} Dashed line, the bound, at {bound_ms:.3g}.")
    return figure


def trade(times: Mapping[int, float], *, steps: str = "rows") -> Figure:
    """Tokens per second of all users together against those of one, a point for each number of rows.

    Args:
        times: seconds of a step, by the rows that share it.
        steps: what the numbers at the points count.
    """
    require(len(times) >= 2, "len(times)", len(times), ">= 2")
    each, together = [1 / t for t in times.values()], [rows / t for rows, t in times.items()]
    figure, axes = plots.blank("tokens per second for each user", "tokens per second in all")
    with style.context(plots.LOOK):
        axes.plot(each, together, color=plots.CYCLE[0], linewidth=2, marker=plots.MARKERS[0], markersize=5)
        for rows, x, y in zip(times, each, together):
            words = f"{rows} {steps}" if rows == max(times) else f"{rows}"
            axes.annotate(words, (x, y), (8, 4), textcoords="offset points", fontsize=plots.SMALL)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    figure.set_label(f"Tokens per second in all against tokens per second for each user, a point for each number of "
                     f"{steps}: " + "; ".join(f"{rows}: {x:.3g} each, {y:.3g} in all"
                                              for rows, x, y in zip(times, each, together)) + ".")
    return figure
