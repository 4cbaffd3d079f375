"""Loss against arithmetic for models of many shapes: a line for each width, a point for each depth."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from course_lib.config import require
from course_lib.display.describe import course
from course_lib.display.plots import CYCLE, INK, LOOK, MARKERS, SMALL, blank

MILLIONS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)  # of the axes, which are logarithmic: those within reach
LOSSES = (0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3)

Shape = tuple[int, int]  # width, depth
Point = tuple[float, float]  # FLOPs for a token, loss


def loss_by_shape(runs: Mapping[Shape, Point]) -> Figure:
    """One line for each width, its name at the first point, and at the others how many layers they have.

    Args:
        runs: FLOPs for a token and loss of each (width, depth), the depths of a width in rising order.
    """
    widths = sorted({width for width, _ in runs})
    require(1 <= len(widths) <= len(CYCLE), "widths", len(widths), f"in [1, {len(CYCLE)}]")
    require(all(0 < value < math.inf for point in runs.values() for value in point), "runs", "a value",
            "finite and > 0 on a log axis")
    figure, axes = blank("million FLOPs for one token", "loss", height=4.4)
    said = []
    with style.context(LOOK):
        for width, color, marker in zip(widths, CYCLE, MARKERS):
            depths = [depth for w, depth in runs if w == width]
            xs, ys = zip(*((flops / 1e6, loss) for flops, loss in (runs[width, depth] for depth in depths)))
            axes.plot(xs, ys, color=color, linewidth=2, marker=marker, markersize=5)
            layers = f"{depths[0]} layer{'s' * (depths[0] > 1)}"
            up = label_above(runs, width, runs[width, depths[0]])
            axes.annotate(f"width {width}, {layers}", (xs[0], ys[0]), (14, 12) if up else (-7, -5),
                          textcoords="offset points", ha="center" if up else "right", va="bottom" if up else "top",
                          color=color, fontweight="bold", fontsize=SMALL)
            for depth, x, y in zip(depths[1:], xs[1:], ys[1:]):
                up = label_above(runs, width, runs[width, depth])
                axes.annotate(str(depth), (x, y), (4 if up else -3, 6 if up else -7), textcoords="offset points",
                              ha="center", va="bottom" if up else "top", color=INK, fontsize=SMALL)
            said.append(f"{course(f'width {width}', (xs, ys))[:-1]}, layers {', '.join(map(str, depths))}.")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.margins(0.06, 0.12)
        axes.set_xlim(left=min(flops for flops, _ in runs.values()) / 2e6)  # room for the names
        for axis, ticks, reach in ((axes.xaxis, MILLIONS, axes.get_xlim()), (axes.yaxis, LOSSES, axes.get_ylim())):
            axis.set_major_locator(FixedLocator([tick for tick in ticks if reach[0] <= tick <= reach[1]]))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
        axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
        axes.set_axisbelow(True)
    figure.set_label("loss against million FLOPs for one token. " + " ".join(said))
    return figure


def label_above(runs: Mapping[Shape, Point], width: int, point: Point) -> bool:
    """Whether the nearest point of another width lies below this one, so that its words go above it."""
    def far(other: Point) -> float:
        return math.hypot(math.log(other[0] / point[0]) / 4, math.log(other[1] / point[1]))

    others = [place for (w, _), place in runs.items() if w != width]
    return not others or min(others, key=far)[1] <= point[1]
