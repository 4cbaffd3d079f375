"""The two kinds of MLP, side by side: two matrices around a bend, or three with a gate."""

from __future__ import annotations

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, TINT, Area, Drawing

LEFT, RIGHT = 150, 500  # the middles of the panels
APART = 88  # from the middle of the right panel to each of its branches
TOP, UP, BEND, PRODUCT, DOWN, BOTTOM = 96, 172, 262, 348, 400, 492  # upper edges, and the middle of the product
MATRIX, BOX = 58, 40  # how high
WIDEST, GATED = 120, 80  # half of the widest that a plain MLP and a branch of a gated one may be drawn


def plain_and_gated(width: int, plain: int, gated: int) -> Drawing:
    """The MLP of GPT-2, up, bend, down, and that of Llama, whose bent half multiplies the other.

    Args:
        width: numbers in a vector, D.
        plain, gated: how wide the two are inside, F.
    """
    for name, value in (("width", width), ("plain", plain), ("gated", gated)):
        require(value > 0, name, value, "positive")
    drawing = Drawing(
        "A plain MLP and a gated one",
        f"Two MLPs, each from T × {width} numbers to T × {width}. Plain: matrix up to {plain}, GELU, matrix down; "
        f"{2 * width * plain:,} weights. Gated: matrices gate and up, both to {gated}; SiLU bends what gate makes, and "
        f"the two are multiplied; matrix down; {3 * width * gated:,} weights.", height=BOTTOM + 112)
    for x, name, what in ((LEFT, "plain", "GPT-2"), (RIGHT, "gated", "Llama: SwiGLU")):
        drawing.text(x, 38, name, bold=True)
        drawing.text(x, 63, what, size=SMALL, role="faint")
        ends(drawing, x, f"T × {width}")
    unit = min(WIDEST / max(width, plain), GATED / max(width, gated))  # both panels have the same scale
    plain_panel(drawing, LEFT, plain, (unit * width, unit * plain))
    gated_panel(drawing, RIGHT, gated, (unit * width, unit * gated))
    for x, count, inner in ((LEFT, 2, plain), (RIGHT, 3, gated)):
        drawing.text(x, BOTTOM + 72, f"{count} × {width} × {inner}", size=SMALL)
        drawing.text(x, BOTTOM + 96, f"= {count * width * inner:,} weights", size=SMALL)
    return drawing


def ends(drawing: Drawing, x: float, shape: str) -> None:
    """The vectors above and below."""
    for top in (TOP, BOTTOM):
        drawing.box(Area(x - 60, top, x + 60, top + BOX), shape, size=SMALL, mono=False)


def plain_panel(drawing: Drawing, x: float, inner: int, halves: tuple[float, float]) -> None:
    """Up, bend, down; `halves` are half of what a vector outside and one inside take across."""
    drawing.arrow((x, TOP + BOX), (x, UP))
    matrix(drawing, x, UP, "up", *halves)
    drawing.arrow((x, UP + MATRIX), (x, BEND))
    bend(drawing, x, "GELU")
    drawing.arrow((x, BEND + BOX), (x, DOWN))
    drawing.text(x + 12, PRODUCT + 6, f"T × {inner}", size=SMALL, role="faint", anchor="start")
    finish(drawing, x, halves)


def gated_panel(drawing: Drawing, x: float, inner: int, halves: tuple[float, float]) -> None:
    """Gate and up side by side, the one bent, their product, down."""
    gate, up = x - APART, x + APART
    middle = TOP + BOX + 14
    drawing.path([(x, TOP + BOX), (x, middle), (gate, middle), (gate, UP)], arrow=True)
    drawing.path([(x, middle), (up, middle), (up, UP)], arrow=True)
    matrix(drawing, gate, UP, "gate", *halves)
    matrix(drawing, up, UP, "up", *halves)
    drawing.arrow((gate, UP + MATRIX), (gate, BEND))
    bend(drawing, gate, "SiLU")
    drawing.path([(gate, BEND + BOX), (gate, PRODUCT), (x - 15, PRODUCT)], arrow=True)
    drawing.path([(up, UP + MATRIX), (up, PRODUCT), (x + 15, PRODUCT)], arrow=True)
    drawing.text(up + 12, BEND + 26, f"T × {inner}", size=SMALL, role="faint", anchor="start")
    drawing.text(gate - 12, BEND + BOX + 28, f"T × {inner}", size=SMALL, role="faint", anchor="end")
    drawing.circle(x, PRODUCT, 14, fill="paper", stroke="ink", thick=2.4)
    for dx in (-5, 5):
        drawing.path([(x - dx, PRODUCT - 5), (x + dx, PRODUCT + 5)], thick=2.6)
    drawing.arrow((x, PRODUCT + 14), (x, DOWN))
    finish(drawing, x, halves)


def matrix(drawing: Drawing, x: float, top: float, name: str, above: float, below: float) -> None:
    """A matrix that widens or narrows what goes through it."""
    drawing.path([(x - above, top), (x + above, top), (x + below, top + MATRIX), (x - below, top + MATRIX)],
                 fill="weights", tint=TINT, stroke="weights", thick=2, closed=True)
    drawing.text(x, top + MATRIX / 2 + 6, name)


def bend(drawing: Drawing, x: float, name: str) -> None:
    """The function that bends, in the colour that the eye should follow."""
    drawing.rect(Area(x - 46, BEND, x + 46, BEND + BOX), fill="mark", stroke="ink", radius=20)
    drawing.text(x, BEND + 26, name)


def finish(drawing: Drawing, x: float, halves: tuple[float, float]) -> None:
    """The matrix down, and the arrow out of it."""
    matrix(drawing, x, DOWN, "down", *reversed(halves))
    drawing.arrow((x, DOWN + MATRIX), (x, BOTTOM))
