"""Where the names in a figure go, so that none lies on another, and which of their characters can be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font
from matplotlib.transforms import Bbox


def label_ends(axes: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write each name to the right of the axes, as near to the height of its (x, y) as the others allow,
    with a thin line to that point in its colour."""
    to_fraction = axes.transScale + axes.transLimits
    axes.autoscale_view()
    wanted = {name: to_fraction.transform((x, y))[1] for name, (x, y, _) in ends.items()}
    order = sorted(wanted, key=wanted.get)
    heights = spread([wanted[name] for name in order], gap=0.085)
    for name, height in zip(order, heights):
        x, y, color = ends[name]
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 1, "shrinkA": 1, "shrinkB": 3}
        axes.annotate(drawable(name), (x, y), (1.03, height), textcoords="axes fraction", va="center",
                      fontsize=12, arrowprops=arrow, annotation_clip=False, parse_math=False)


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Ascending positions at least `gap` apart, the nearest to the wanted ones in the sum of squares.

    Neighbours that are too close form a block around the mean of their wishes; blocks that meet join.

    >>> [round(x, 2) for x in spread([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    """
    blocks: list[tuple[float, int]] = []  # (where the first label of the block wants to be, labels in it)
    for position in wanted:
        start, count = position, 1
        while blocks and blocks[-1][0] + gap * blocks[-1][1] > start:
            previous, n = blocks.pop()
            start, count = (previous * n + (start - gap * n) * count) / (n + count), n + count
        blocks.append((start, count))
    return [start + gap * i for start, count in blocks for i in range(count)]


def write_where_free(axes: Axes, names: Sequence[tuple[str, tuple[float, float]]], taken: list[Bbox]) -> None:
    """Write each name to the right of its place, unless it would lie over a box that is taken or leave the axes."""
    taken = list(taken)
    for name, place in names:
        text = axes.annotate(drawable(name), place, (5, -3), textcoords="offset points", fontsize=10,
                             parse_math=False, annotation_clip=False)
        box = text.get_window_extent()
        if any(box.overlaps(other) for other in taken) or box.x1 > axes.bbox.x1:
            text.remove()
        else:
            taken.append(box)


@cache
def known_characters() -> frozenset[int]:
    """Code points that the fonts of the figures can draw."""
    fonts = (get_font(findfont(family)) for family in ("DejaVu Sans", "DejaVu Sans Mono"))
    return frozenset.intersection(*(frozenset(font.get_charmap()) for font in fonts))


def drawable(text: str) -> str:
    """The text with characters that the font lacks written as U+ and their number, in brackets.

    matplotlib would draw an empty box and warn, and a warning is noise in a notebook.

    >>> drawable("é 中")
    'é ⟨U+4E2D⟩'
    """
    known = known_characters()
    return "".join(c if ord(c) in known and c.isprintable() else f"⟨U+{ord(c):04X}⟩" for c in text)
