"""Models of one size and different shapes: wide and shallow beside narrow and deep, areas as large as their weights."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, TINT, Area, Drawing

TOP, TALLEST, GAP = 112, 352, 4  # the upper edge of the towers, the highest that they may be, between two layers


def equal_size(shapes: Sequence[tuple[int, int]], weights: int) -> Drawing:
    """For each (width, depth) a tower of squares, one for each layer; their areas are as the weights are.

    Args:
        weights: of all layers of any of the shapes, which must be the same: width² × depth is.
    """
    sizes = {width * width * depth for width, depth in shapes}
    require(len(sizes) == 1, "width² × depth", sorted(sizes), "the same for all shapes")
    deepest = max(depth for _, depth in shapes)
    unit = (TALLEST - GAP * (deepest - 1)) / max(width * depth for width, depth in shapes)
    said = "; ".join(f"{depth} layer{'s' * (depth > 1)}, {width} wide" for width, depth in shapes)
    drawing = Drawing(
        "Models of one size",
        f"{len(shapes)} towers of squares, a square for each layer, its side as long as the layer is wide: {said}. "
        f"All towers have the same area, {weights:,} weights. A token goes through the squares of a tower one after "
        f"the other.", height=TOP + TALLEST + 96)
    step = drawing.width / len(shapes)
    for i, (width, depth) in enumerate(shapes):
        tower(drawing, (i + 0.5) * step, width, depth, unit)
    drawing.text(drawing.width / 2, TOP + TALLEST + 72,
                 f"the same area: {weights:,} weights in the matrices of each", size=SMALL)
    return drawing


def tower(drawing: Drawing, x: float, width: int, depth: int, unit: float) -> None:
    """The layers of one model, and the way of a token through them."""
    side = unit * width
    drawing.text(x, 38, f"{depth} layer{'s' * (depth > 1)}", bold=True)
    drawing.text(x, 63, f"{width} wide", size=SMALL, role="faint")
    drawing.arrow((x, TOP - 30), (x, TOP - 3))
    for layer in range(depth):
        top = TOP + layer * (side + GAP)
        drawing.rect(Area(x - side / 2, top, x + side / 2, top + side), fill="weights", tint=2 * TINT,
                     stroke="weights", radius=2)
    bottom = TOP + depth * (side + GAP) - GAP
    drawing.arrow((x, bottom + 2), (x, bottom + 28))
