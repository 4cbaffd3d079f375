"""The figures of the course: labelled axes, direct labels instead of legends, one palette.

Everything here makes a matplotlib `Figure` and touches no global state of pyplot, so a notebook decides
when it is shown, and two runs give the same bytes. A figure's label is its description in words, axes with
first and last values, which `show` gives to readers who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import Bbox

from course_lib.config import require
from course_lib.display.colors import ROLES
from course_lib.display.describe import course, extremes, some
from course_lib.display.labels import drawable, label_ends, write_where_free

# Okabe and Ito 2008: eight colours that people with any common colour blindness tell apart.
OKABE_ITO = {"blue": "#0072B2", "vermilion": "#D55E00", "green": "#009E73", "orange": "#E69F00",
             "purple": "#CC79A7", "sky": "#56B4E9", "black": "#000000", "yellow": "#F0E442"}
CYCLE = tuple(OKABE_ITO.values())
MARKERS = "osD^vPXp"
SMALL = 11  # points
INK, FAINT = "#222222", "#767676"  # text, and what may step back; both readable on white
WIDTH, HEIGHT, DPI = 7.0, 3.7, 110  # inches, and 770 pixels of the page across
# matplotlib's own defaults come first, so that what a reader has set changes no figure.
LOOK = ["default", {
    "font.family": "DejaVu Sans", "font.size": 12, "axes.labelsize": 12, "xtick.labelsize": 11, "ytick.labelsize": 11,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False}]


def blank(xlabel: str, ylabel: str, *, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure of notebook width, `height` inches high, with one pair of labelled axes to draw on."""
    with style.context(LOOK):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)  # inches
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_xlabel(drawable(xlabel), parse_math=False)
        axes.set_ylabel(drawable(ylabel), parse_math=False)
    return figure, axes


def bars(labels: Sequence[str], values: Sequence[float], *, xlabel: str, ylabel: str,
         highlight: Collection[str] = (), reference: Sequence[float] | None = None,
         limits: Sequence[tuple[float, float]] | None = None, value_format: str = "{:.3g}",
         notes: Sequence[str] | None = None, role: str | None = None) -> Figure:
    """Horizontal bars, the first at the top, with the values written at their ends.

    Args:
        labels: as many as values; they may repeat.
        highlight: labels whose bars are vermilion and whose label is bold.
        reference: a second value for each bar, drawn as an outline around it: "before" to its "after". Each
            value stands at its own end, unless `value_format` writes both.
        limits: for each bar, the lowest and the highest value that would be believed, drawn as a thin line.
        value_format: applied to each value and its reference: "{1:.0%} → {0:.0%}" writes both.
        notes: written at the ends of the bars instead of the values.
        role: what the bars are in the colour code of the course, such as "cache"; left out, they are blue.
    """
    xs = numbers("values", values, len(labels))
    outlines = xs if reference is None else numbers("reference", reference, len(labels))
    require(set(highlight) <= set(labels), "highlight", sorted(highlight), "among the labels")
    words = [value_format.format(*pair) for pair in zip(xs, outlines)] if notes is None else list(notes)
    ranges = [(x, x) for x in xs] if limits is None else list(limits)
    require(len(words) == len(ranges) == len(xs), "len(notes), len(limits)", (len(words), len(ranges)), f"{len(xs)}")
    figure, axes = blank(xlabel, ylabel, height=max(1.6, 0.8 + 0.28 * len(xs)))
    with style.context(LOOK):
        plain = OKABE_ITO["blue"] if role is None else ROLES[role].light
        colors = [OKABE_ITO["vermilion"] if label in highlight else plain for label in labels]
        axes.barh(range(len(xs)), xs, height=0.42 if reference is not None else 0.7, color=colors)
        if reference is not None:
            axes.barh(range(len(xs)), outlines, height=0.75, fill=False, edgecolor=FAINT, linewidth=1)
        axes.set_yticks(range(len(xs)), map(drawable, labels), parse_math=False)
        for tick, label in zip(axes.get_yticklabels(), labels):
            tick.set_fontweight("bold" if label in highlight else "normal")
        if limits is not None:
            axes.hlines(range(len(xs)), *zip(*ranges), colors=INK, linewidth=1.2)
        apart = reference is not None and notes is None and "{1" not in value_format
        for y, (x, outline, (_, high), note) in enumerate(zip(xs, outlines, ranges, words)):
            end = x if apart else min(x, outline, 0) if x < 0 else max(x, outline, high)
            end_label(axes, note, end, y, x < 0)
            if apart and abs(outline - x) > 0.15 * max(map(abs, [*xs, *outlines])):
                end_label(axes, value_format.format(outline, outline), outline, y, x < 0, color=FAINT)
        axes.invert_yaxis()
        axes.margins(x=0.12, y=0.02)
        axes.set_xlim(left=None if min(*xs, *outlines) < 0 else 0)
        axes.tick_params(axis="y", length=0)
        if min(xs) < 0:
            axes.axvline(0, color=FAINT, linewidth=0.8)
    figure.set_label(f"{len(xs)} bars of {xlabel} for each {ylabel}: {some(list(zip(labels, words)))}.")
    return figure


def end_label(axes: Axes, text: str, x: float, y: float, leftwards: bool, *, color: str = INK) -> None:
    """A word at the end of a bar that goes to the right, or to the left."""
    axes.annotate(drawable(text), (x, y), (-4 if leftwards else 4, 0), textcoords="offset points", color=color,
                  ha="right" if leftwards else "left", va="center", fontsize=SMALL, parse_math=False)


def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, xlabel: str, ylabel: str,
          logx: bool = False, logy: bool = False, marks: Mapping[str, float] | None = None,
          levels: Mapping[str, float] | None = None) -> Figure:
    """One line for each named (x, y), with its name at its end.

    Colours repeat after eight, so there may be at most eight lines.

    Args:
        marks: places on the x axis that get a dashed line, by the words that stand at its top.
        levels: heights that get a dashed line across, by the words that stand above its left end.

    Raises:
        ValueError: x and y differ in length or hold what is not finite, or a log axis gets a value <= 0.
    """
    require(1 <= len(series) <= len(CYCLE), "len(series)", len(series), f"in [1, {len(CYCLE)}]")
    figure, axes = blank(xlabel, ylabel)
    ends, drawn = {}, ([], [])
    with style.context(LOOK):
        for i, (name, (x, y)) in enumerate(series.items()):
            ys = numbers(f"y of {name!r}", y, len(y), positive=logy)
            xs = numbers(f"x of {name!r}", x, len(ys), positive=logx)
            axes.plot(xs, ys, color=CYCLE[i], linewidth=2, marker=MARKERS[i] if len(xs) <= 30 else None,
                      markersize=5)
            ends[name] = xs[-1], ys[-1], CYCLE[i]
            drawn[0].extend(xs)
            drawn[1].extend(ys)
        axes.set_xscale("log" if logx else "linear")
        axes.set_yscale("log" if logy else "linear")
        for axis, log, values in ((axes.xaxis, logx, drawn[0]), (axes.yaxis, logy, drawn[1])):
            if log and max(values) < 30 * min(values):
                plain_ticks(axis)
        axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
        axes.set_axisbelow(True)
        dashes(axes, marks or {}, levels or {})
        label_ends(axes, ends)
    figure.set_label(f"{ylabel} against {xlabel}. " + " ".join(course(*item) for item in series.items())
                     + "".join(f" Dashed line {word!r} at {place:g}." for word, place
                               in [*(marks or {}).items(), *(levels or {}).items()]))
    return figure


def dashes(axes: Axes, marks: Mapping[str, float], levels: Mapping[str, float]) -> None:
    """Dashed lines down and across, each with its words."""
    for word, x in marks.items():
        axes.axvline(x, color=FAINT, linewidth=1, linestyle="--")
        axes.annotate(drawable(word), (x, 1), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                      va="top", fontsize=SMALL, color=FAINT, parse_math=False)
    for word, y in levels.items():
        axes.axhline(y, color=FAINT, linewidth=1, linestyle="--")
        axes.annotate(drawable(word), (0, y), (3, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                      fontsize=SMALL, color=FAINT, parse_math=False)


def plain_ticks(axis: Axis) -> None:
    """Plain numbers between the powers of ten, for a log axis on which those alone would be too few."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 4, 6), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())


def scatter(points: Mapping[str, Mapping[str, tuple[float, float]]], *, xlabel: str, ylabel: str) -> Figure:
    """Named points of several kinds, one colour and one marker each; names where there is room for them.

    Args:
        points: for each kind, at most eight, its names with their (x, y).
    """
    require(1 <= len(points) <= len(CYCLE), "len(points)", len(points), f"in [1, {len(CYCLE)}]")
    figure, axes = blank(xlabel, ylabel, height=4.2)
    with style.context(LOOK):
        for i, named in enumerate(points.values()):
            xs, ys = zip(*named.values())
            axes.scatter(xs, ys, s=26, color=CYCLE[i], marker=MARKERS[i], alpha=0.85, linewidths=0)
        axes.margins(0.09)
        figure.draw_without_rendering()  # fixes the layout, so that texts know where they will be
        places = [place for named in points.values() for place in named.values()]
        marks = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axes.transData.transform(places)]  # pixels
        headings = []
        for i, (kind, named) in enumerate(points.items()):
            xs, ys = zip(*named.values())
            heading = axes.annotate(drawable(kind), (np.median(xs), max(ys)), (0, 7), textcoords="offset points",
                                    ha="center", fontsize=11, fontweight="bold", color=CYCLE[i], parse_math=False,
                                    annotation_clip=False)
            step = 3
            if any(heading.get_window_extent().overlaps(mark) for mark in marks):  # beneath its points, then
                heading.xy, heading.xyann, step = (np.median(xs), min(ys)), (0, -17), -3
            while any(heading.get_window_extent().overlaps(other) for other in headings):
                heading.xyann = 0, heading.xyann[1] + step
            headings.append(heading.get_window_extent())
        write_where_free(axes, [item for named in points.values() for item in named.items()], marks + headings)
    figure.set_label(f"Points, {xlabel} across and {ylabel} upwards. "
                     + " ".join(f"{kind}: {', '.join(list(named)[:6])}{' and more' * (len(named) > 6)}, around "
                                f"({np.mean([x for x, _ in named.values()]):.2g}, "
                                f"{np.mean([y for _, y in named.values()]):.2g})." for kind, named in points.items()))
    return figure


def heat(matrix: Any, *, row_labels: Sequence[str], column_labels: Sequence[str], xlabel: str, ylabel: str,
         value_label: str = "", causal: bool = False, outlined: Collection[tuple[int, int]] = (),
         written: bool = True, gap_before: int | None = None) -> Figure:
    """A matrix as shades of blue, with the values written in when there are at most 12 columns.

    Args:
        matrix: (rows, columns), of numbers or a tensor; NaN leaves a cell blank.
        value_label: what the shades mean, written at their scale.
        causal: leave everything above the diagonal blank; it has to be 0.
        outlined: cells (row, column) that get a frame.
        written: False leaves the values out, where the shades say enough.
        gap_before: a column that gets a white gap before it, where a second group begins.
    """
    values = torch.as_tensor(matrix).detach().cpu().double().numpy()
    require(values.shape == (len(row_labels), len(column_labels)), "matrix.shape", values.shape,
            f"{(len(row_labels), len(column_labels))}, as there are labels")
    if causal:
        require(not np.triu(values, 1).any(), "matrix", "a value above the diagonal", "0 there if causal=True")
        values = np.where(np.tri(*values.shape, dtype=bool), values, np.nan)
    figure, axes = blank(xlabel, ylabel, height=min(7.0, max(2.4, 1.2 + 0.36 * len(values))))
    with style.context(LOOK):
        image = axes.imshow(values, cmap="Blues", vmin=min(0.0, np.nanmin(values)), aspect="auto")
        turn = 90 if sum(len(label) + 2 for label in column_labels) > 80 else 0
        axes.set_xticks(range(len(column_labels)), map(drawable, column_labels), rotation=turn, parse_math=False)
        axes.set_yticks(range(len(row_labels)), map(drawable, row_labels), parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label=value_label, pad=0.02).outline.set_visible(False)
        if written and len(column_labels) <= 12 and len(row_labels) <= 16:
            annotate_cells(axes, values, image.norm)
        if gap_before is not None:
            axes.axvline(gap_before - 0.5, color="white", linewidth=9)
        for row, column in outlined:
            axes.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, linewidth=2.2,
                                     edgecolor=OKABE_ITO["vermilion"]))
    figure.set_label(f"A table of shades, {value_label or 'values'}: {len(values)} rows ({ylabel}), "
                     f"{len(column_labels)} columns ({xlabel}). {extremes(values, row_labels, column_labels)}")
    return figure


def annotate_cells(axes: Axes, values: np.ndarray, norm: Any) -> None:
    """Write the values into their cells, white on the dark ones."""
    for (row, column), value in np.ndenumerate(values):
        if math.isfinite(value):
            color = "white" if norm(value) > 0.55 else INK
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=SMALL, color=color)


def boxes(texts: Sequence[str], notes: Sequence[str], *, line_width: int = 64,
          shades: Sequence[float] | None = None) -> Figure:
    """Pieces of a text side by side in boxes, with a note beneath each; they wrap like words.

    Args:
        texts, notes: as many of one as of the other.
        shades: for each box how strongly it is coloured, in [0, 1]; left out, boxes alternate in colour.
        line_width: characters in a line, a box counting its longer text and a margin.
    """
    require(len(texts) == len(notes), "len(notes)", len(notes), f"{len(texts)}, as there are texts")
    widths = [max(len(drawable(text)), 0.8 * len(note)) + 1.6 for text, note in zip(texts, notes)]
    places, x, y = [], 0.0, 0
    for width in widths:
        if x and x + width > line_width:
            x, y = 0.0, y + 1
        places.append((x, y))
        x += width + 0.5
    with style.context(LOOK):
        figure = Figure(figsize=(WIDTH, 0.15 + 0.62 * (y + 1)), dpi=DPI)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.01, 0, 0.98, 1), xlim=(-0.4, line_width + 1), ylim=(y + 1, -0.12))
        axes.set_axis_off()
        for i, ((x, y), width) in enumerate(zip(places, widths)):
            edge, alpha = (CYCLE[i % 6], 0.18) if shades is None else (OKABE_ITO["vermilion"], 0.75 * shades[i])
            axes.add_patch(Rectangle((x, y), width, 0.5, facecolor=to_rgba(edge, alpha), edgecolor=edge,
                                     linewidth=1.2 if shades is None else 0.6))
            axes.text(x + width / 2, y + 0.25, drawable(texts[i]), ha="center", va="center", fontsize=12,
                      family="DejaVu Sans Mono", parse_math=False)
            axes.text(x + width / 2, y + 0.68, drawable(notes[i]), ha="center", va="center", fontsize=SMALL,
                      color=FAINT, parse_math=False)
    figure.set_label(f"{len(texts)} boxes with notes: {some(list(zip(texts, notes)), most=12)}.")
    return figure


def numbers(name: str, values: Any, length: int, *, positive: bool = False) -> list[float]:
    """`length` finite numbers, above 0 if `positive`, from a sequence, an array or a tensor."""
    xs = torch.as_tensor(values).detach().cpu().double().tolist()
    require(len(xs) == length >= 1, f"len({name})", len(xs), f"{max(length, 1)}")
    bad = [x for x in xs if not math.isfinite(x) or (positive and x <= 0)]
    require(not bad, name, bad[:1], "finite and > 0 on a log axis" if positive else "finite")
    return xs
