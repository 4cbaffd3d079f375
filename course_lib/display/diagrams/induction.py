"""The circuit that copies: a previous-token head and an induction head (Olsson et al. 2022)."""

from __future__ import annotations

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, Point, text_width

FIRST, NEXT, LAST = 266, 402, 604  # the middle of the three tokens that matter
LABEL = 38  # where the names of heads begin


def induction_circuit(token: str, follower: str, *, early: str = "in an early layer",
                      late: str = "in a later layer") -> Drawing:
    """How a head that looks one token back lets a later head find what followed a token last time.

    Args:
        token: what the text says again.
        follower: what came after it the first time.
        early, late: where the two heads are.
    """
    for name, text in (("token", token), ("follower", follower)):
        require(0 < len(text) <= 6, name, text, "one to six letters")
    drawing = Drawing("Two heads copy a name", induction_described(token, follower, early, late), height=448)
    bands = Area(24, 92, 696, 182), Area(24, 202, 696, 352)
    for band in bands:
        drawing.rect(band, fill="plain", radius=10)
    lanes(drawing, token, follower, 378)
    head_label(drawing, 132, "previous-token head", early)
    head_label(drawing, 272, "induction head", late)
    look_back(drawing, 137, token)
    look_for(drawing, 240, 314, token, follower)
    labelled(drawing, (LAST, 403), follower, "mark")
    drawing.text(LAST - 74, 409, "comes next", anchor="end")
    return drawing


def induction_described(token: str, follower: str, early: str, late: str) -> str:
    """The circuit in sentences."""
    return (f"A text says {token} {follower}, later {token} again. A previous-token head ({early}) lets {follower} "
            f"look at the token before it and writes “after {token}” into its vector. An induction head ({late}) makes "
            f"a key of that. At the second {token} its query asks for “after {token}” and finds this key; the value "
            f"found there, {follower}, is copied. So the model says {follower} next.")


def lanes(drawing: Drawing, token: str, follower: str, bottom: float) -> None:
    """The text, and beneath each token that matters the line along which its vector goes through the layers."""
    for x, text in ((FIRST, token), (NEXT, follower), (LAST, token)):
        drawing.path([(x, 66), (x, bottom if x == LAST else bottom - 14)], stroke="line", thick=3, arrow=x == LAST)
        labelled(drawing, (x, 45), text, "ink")
    for x in (FIRST - 84, (NEXT + LAST) / 2):
        drawing.text(x, 50, "…", size=24)


def head_label(drawing: Drawing, y: float, name: str, where: str) -> None:
    """What a head is called and where it is."""
    drawing.text(LABEL, y, name, size=SMALL, bold=True, anchor="start")
    drawing.text(LABEL, y + 24, where, size=SMALL, role="faint", anchor="start")


def look_back(drawing: Drawing, y: float, token: str) -> None:
    """The early head: a token takes along what stood before it."""
    left = labelled(drawing, (NEXT, y), f"after {token}", "ink")
    drawing.circle(FIRST, y, 5, fill="value")
    drawing.arrow((FIRST, y), (left - 3, y), stroke="value")


def look_for(drawing: Drawing, match: float, copy: float, token: str, follower: str) -> None:
    """The later head: a query that finds its key, which moves nothing, and the value that is copied."""
    query = labelled(drawing, (LAST, match), f"after {token}?", "query")
    key = 2 * NEXT - labelled(drawing, (NEXT, match), f"after {token}", "key")
    labelled(drawing, (NEXT, copy), follower, "value")
    drawing.path([(query - 4, match), (key + 4, match)], stroke="query", dashed=True)
    drawing.text((query + key) / 2, match - 10, "finds", size=SMALL)
    half = box_width(follower) / 2
    drawing.arrow((NEXT + half + 4, copy), (LAST - 3, copy), stroke="value")
    drawing.text((NEXT + half + LAST) / 2, copy - 10, "copies", size=SMALL)


def labelled(drawing: Drawing, middle: Point, text: str, role: str) -> float:
    """A box around a text, on clear paper; where its left edge is."""
    x, y = middle
    area = Area(x - box_width(text) / 2, y - 20, x + box_width(text) / 2, y + 20)
    drawing.rect(area, fill="paper")
    if role == "mark":
        drawing.rect(area, fill="mark", stroke="ink")
        drawing.text(x, y + 6, text, mono=True, size=18, bold=True)
    else:
        drawing.box(area, text, role=role, size=18)
    return area.left


def box_width(text: str) -> float:
    """How wide the box around a text is."""
    return max(84, text_width(text, 18, mono=True) + 16)
