"""The LM head: the last vector meets every row of the table, and each meeting is a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing
from course_lib.display.diagrams.tables import some

HEADING, TOP = 38, 62  # base line of the names, and where the table begins
VECTOR, VECTOR_HIGH, VECTOR_GAP = (100, 300), 42, 12
TABLE, ROW, BETWEEN = (374, 516), 40, 24  # rows are drawn, with what is between them left out
NUMBER, ZERO, LONGEST = 602, 646, 42  # where a score ends, and its bar begins; how long the longest bar is


class Score(NamedTuple):
    """What the last vector and a row of the table make.

    Attributes:
        text: of the row's token.
        id: the number of the row.
        logit: the dot product.
    """

    text: str
    id: int
    logit: float


# The capital of India in `pocket`: the prompt's tokens with the first numbers of their vectors after the final norm,
# and five scores, with the three highest; a test computes them again from the weights.
INDIA = [("The", [0.23, -0.2, 0.42]), (" capital", [0.37, 0.08, 0.26]), (" of", [0.7, 0.03, -0.29]),
         (" Ind", [0.52, 0.05, 0.27]), ("ia", [-0.46, -0.14, 0.02]), (" is", [-1.38, 1.18, -0.2])]
SCORES = [Score(" New", 2613, 16.38), Score(" Can", 2315, 12.71), Score(" U", 1037, 8.62), Score(" cat", 1216, -0.8),
          Score(" capital", 405, -5.57)]


def lm_head(tokens: Sequence[str], vectors: Sequence[Sequence[float]], scores: Sequence[Score], *, rows: int,
            width: int) -> Drawing:
    """The vectors that leave the layers, of which the last is needed, and some of the scores that it gets.

    Args:
        tokens: the texts of the prompt's tokens, two to six.
        vectors: the first numbers of each token's vector, after the final norm.
        scores: three to six rows of the table.
        rows, width: of the table, V and D.
    """
    require(2 <= len(tokens) <= 6 and len(vectors) == len(tokens), "tokens", tokens, "2 to 6, with a vector each")
    require(3 <= len(scores) <= 6, "scores", len(scores), "3 to 6")
    scores = sorted(scores, key=lambda score: score.id)
    high = ROW * len(scores) + BETWEEN * (len(scores) + 1)
    drawing = Drawing("The last vector against every row of the table", in_words(tokens, scores, rows, width),
                      height=TOP + high + 58)
    table = Area(TABLE[0], TOP, TABLE[1], TOP + high)
    drawing.rect(table, fill="weights", tint=0.3, stroke="weights")
    start = draw_vectors(drawing, tokens, vectors[-1], table)
    best = max(scores, key=lambda score: score.logit)
    for i, score in enumerate(scores):
        y = TOP + BETWEEN + (ROW + BETWEEN) * i + ROW / 2
        meet(drawing, score, start, y, longest=max(abs(s.logit) for s in scores), best=score is best)
    for i in range(len(scores) + 1):
        drawing.text(sum(TABLE) / 2, TOP + (ROW + BETWEEN) * i + 15, "…", role="faint")
    names(drawing, len(tokens), rows, width, table.bottom + 36)
    return drawing


def in_words(tokens: Sequence[str], scores: Sequence[Score], rows: int, width: int) -> str:
    """The head for a reader who cannot see it."""
    made = ", ".join(f"{score.text.strip()} {score.logit:.1f}".replace("-", "−") for score in scores)
    return (f"{len(tokens)} vectors of {width} numbers leave the layers. All but the last are hatched: the tokens "
            f"after them are known, they are in the prompt. The last vector goes to every row of a table of "
            f"{rows:,} × {width}; its dot product with a row is the score of that row's token: {made}. {rows:,} "
            f"scores in all.")


def draw_vectors(drawing: Drawing, tokens: Sequence[str], last: Sequence[float], table: Area) -> tuple[float, float]:
    """A vector beside each token, hatched where its successor is known; where the last one ends."""
    pitch = VECTOR_HIGH + VECTOR_GAP
    top = (table.top + table.bottom - pitch * len(tokens) + VECTOR_GAP) / 2
    for i, token in enumerate(tokens):
        area = Area(VECTOR[0], top + pitch * i, VECTOR[1], top + pitch * i + VECTOR_HIGH)
        needed, base = i == len(tokens) - 1, top + pitch * i + VECTOR_HIGH / 2 + 6
        drawing.text(VECTOR[0] - 10, base, token.replace(" ", "␣"), mono=True, anchor="end", size=18, bold=needed)
        drawing.rect(area, fill="mark" if needed else None, stroke="ink" if needed else "faint", hatched=not needed)
        if needed:
            drawing.text(sum(VECTOR) / 2, base, some(last[:3]), size=SMALL, mono=True)
        else:
            known(drawing, sum(VECTOR) / 2, base, tokens[i + 1].replace(" ", "␣"))
    return VECTOR[1], area.top + VECTOR_HIGH / 2


def known(drawing: Drawing, x: float, base: float, token: str) -> None:
    """Why a vector is not needed, on a clear spot."""
    drawing.rect(Area(x - 88, base - 17, x + 88, base + 7), fill="paper", radius=3)
    drawing.text(x, base, f"known: “{token}”", size=SMALL, role="faint")


def meet(drawing: Drawing, score: Score, start: tuple[float, float], y: float, *, longest: float, best: bool) -> None:
    """The vector goes to a row, and a score comes out."""
    drawing.arrow((start[0] + 3, start[1]), (TABLE[0] - 3, y), thick=1.8)
    drawing.rect(Area(TABLE[0], y - ROW / 2, TABLE[1], y + ROW / 2), fill="weights", tint=0.5, stroke="weights",
                 radius=0, thick=1.4)
    drawing.text(TABLE[0] + 10, y + 6, str(score.id), size=SMALL, anchor="start")
    drawing.text(TABLE[1] - 10, y + 6, score.text.replace(" ", "␣"), size=SMALL, anchor="end", mono=True, bold=best)
    drawing.arrow((TABLE[1] + 3, y), (NUMBER - 54, y), thick=1.8)
    drawing.text(NUMBER, y + 7, f"{score.logit:.1f}".replace("-", "−"), size=NORMAL, anchor="end", bold=best)
    end = ZERO + LONGEST * score.logit / longest
    drawing.rect(Area(min(ZERO, end), y - 11, max(ZERO, end), y + 11), fill="ink" if best else "weights", radius=2)
    drawing.path([(ZERO, y - 16), (ZERO, y + 16)], stroke="faint", thick=1.4)


def names(drawing: Drawing, tokens: int, rows: int, width: int, y: float) -> None:
    """What the columns are, above, and their shapes, beneath."""
    for x, name, shape in ((sum(VECTOR) / 2, "vectors", f"{tokens} × {width}, the last is needed"),
                           (sum(TABLE) / 2, "table", f"{rows:,} × {width}"),
                           (NUMBER + 20, "logits", f"{rows:,}")):
        drawing.text(x, HEADING, name, bold=True)
        drawing.text(x, y, shape, size=SMALL, role="faint")
    for x, sign in (((VECTOR[1] + TABLE[0]) / 2, "·"), ((TABLE[1] + NUMBER - 50) / 2, "=")):
        drawing.text(x, HEADING, sign, size=26, bold=True)
