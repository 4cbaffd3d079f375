"""The block of a transformer: a stream that runs through, two parts that add to it, and where the norms go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, TINT, Area, Drawing

PANELS = (28, 376)  # the left edge of each
RAIL, SIDE = 60, 224  # from that edge: the stream, and the middle of the parts beside it
TOP, BRANCHES, BOTTOM = 122, (142, 328), 542  # where the stream begins, where it is read, where it ends
STEP, RETURN = 20, 22  # how long a short arrow is, and how far under a part its result goes back
WIDE, NORM, ATTENTION, MLP = 184, 36, 56, 76  # how wide the widest part is; how high each is
STREAM = 7  # how thick
PLUS = 13  # its radius

Part = tuple[Callable[[Drawing, float, float, str], float], str]  # draws itself and returns its lower edge; its size


def block(width: int, inner: int, heads: int) -> Drawing:
    """One layer with its norms before the parts, on the branches; beside it the same with the norms on the stream.

    Args:
        width: numbers in a vector, D.
        inner: how wide the MLP is inside, F.
        heads: query heads of attention.
    """
    for name, value in (("width", width), ("inner", inner), ("heads", heads)):
        require(value > 0, name, value, "positive")
    drawing = Drawing(
        "The transformer block, pre-norm and post-norm",
        f"One layer, twice. A thick line, the residual stream of T × {width} numbers, goes down; attention ({heads} "
        f"heads) and then the MLP ({inner} wide) read it from the side, and a plus adds what they made. Pre-norm, "
        f"left: a norm on each branch, before attention and before the MLP; the stream runs through. Post-norm, "
        f"right: a norm on the stream after each plus cuts it twice.",
        height=BOTTOM + 62)
    shape = f"T × {width}"
    parts = [(attention, f"{heads} heads"), (mlp, f"{inner} wide")]
    pre_norm(drawing, PANELS[0], shape, parts)
    post_norm(drawing, PANELS[1], shape, parts)
    return drawing


def pre_norm(drawing: Drawing, left: float, shape: str, parts: Sequence[Part]) -> None:
    """The stream in one piece; norm, then part, on each branch."""
    ends(drawing, left, "pre-norm", "the stream runs through", shape)
    stream(drawing, left, TOP, BOTTOM)
    for y, (draw, words) in zip(BRANCHES, parts):
        top = branch(drawing, left, y)
        norm(drawing, left + SIDE, top)
        drawing.arrow((left + SIDE, top + NORM), (left + SIDE, top + NORM + STEP))
        add(drawing, left, draw(drawing, left + SIDE, top + NORM + STEP, words))


def post_norm(drawing: Drawing, left: float, shape: str, parts: Sequence[Part]) -> None:
    """The stream in pieces: part on the branch, then a norm on the stream itself."""
    ends(drawing, left, "post-norm", "two norms cut the stream", shape)
    start = TOP
    for y, (draw, words) in zip(BRANCHES, parts):
        bottom = draw(drawing, left + SIDE, branch(drawing, left, y), words)
        end = bottom + RETURN + PLUS + STEP
        stream(drawing, left, start, end)
        add(drawing, left, bottom)
        norm(drawing, left + RAIL, end)
        start = end + NORM
    stream(drawing, left, start, BOTTOM)


def ends(drawing: Drawing, left: float, name: str, point: str, shape: str) -> None:
    """The name of a panel, and the vectors above and below the stream."""
    drawing.text(left, 36, name, bold=True, anchor="start")
    drawing.text(left, 61, point, size=SMALL, role="faint", anchor="start")
    for top in (TOP - 40, BOTTOM):
        drawing.box(Area(left, top, left + 2 * RAIL, top + 40), shape, size=SMALL, mono=False)


def stream(drawing: Drawing, left: float, start: float, end: float) -> None:
    """A piece of the residual stream, with a head."""
    rail = left + RAIL
    drawing.path([(rail, start + 1), (rail, end - 12)], thick=STREAM)
    drawing.path([(rail - 11, end - 14), (rail + 11, end - 14), (rail, end - 1)], fill="ink", thick=0, closed=True)


def branch(drawing: Drawing, left: float, y: float) -> float:
    """A copy of the stream goes to the side. Returns where it arrives."""
    drawing.path([(left + RAIL, y), (left + SIDE, y), (left + SIDE, y + STEP)], arrow=True)
    return y + STEP


def add(drawing: Drawing, left: float, bottom: float) -> None:
    """What a part made goes back to the stream and is added there."""
    rail, y = left + RAIL, bottom + RETURN
    drawing.path([(left + SIDE, bottom), (left + SIDE, y), (rail + PLUS + 1, y)], arrow=True)
    drawing.circle(rail, y, PLUS, fill="paper", stroke="ink", thick=2.4)
    for dx, dy in ((6, 0), (0, 6)):
        drawing.path([(rail - dx, y - dy), (rail + dx, y + dy)], thick=2.6)


def norm(drawing: Drawing, x: float, top: float) -> None:
    """A norm, in the colour that the eye should follow."""
    area = Area(x - 52, top, x + 52, top + NORM)
    drawing.rect(area, fill="mark", stroke="ink")
    drawing.text(x, top + 25, "norm")


def attention(drawing: Drawing, x: float, top: float, words: str) -> float:
    """Attention, a box. Returns its lower edge."""
    drawing.rect(Area(x - WIDE / 2, top, x + WIDE / 2, top + ATTENTION), fill="weights", tint=TINT, stroke="weights")
    name(drawing, x, top + ATTENTION / 2, "attention", words)
    return top + ATTENTION


def mlp(drawing: Drawing, x: float, top: float, words: str) -> float:
    """The MLP, which widens and narrows. Returns its lower edge."""
    narrow, wide, middle, bottom = 38, WIDE / 2, top + MLP / 2, top + MLP
    drawing.path([(x - narrow, top), (x + narrow, top), (x + wide, middle), (x + narrow, bottom), (x - narrow, bottom),
                  (x - wide, middle)], fill="weights", tint=TINT, stroke="weights", thick=2, closed=True)
    name(drawing, x, middle, "MLP", words)
    return bottom


def name(drawing: Drawing, x: float, middle: float, what: str, size: str) -> None:
    """What a part is, and beneath how large."""
    drawing.text(x, middle - 3, what)
    drawing.text(x, middle + 19, size, size=SMALL, role="faint")
