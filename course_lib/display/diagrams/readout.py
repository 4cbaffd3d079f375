"""Two drawings of what comes after the layers: softmax of a few logits, and the logit lens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, TINT, WIDTH, Area, Drawing
from course_lib.display.diagrams.tokens import written

LEFT, RIGHT = 28, WIDTH - 28
COLUMNS = (68, 212, 362, 522)  # the middle of each: logits, shifted, powers, probabilities
WIDE, HIGH, PITCH = 78, 42, 56  # how wide and high a number's box is, and from one to the next
FIRST = 108  # the top of the first
BAR = RIGHT - COLUMNS[-1] - WIDE / 2 - 12  # how long a certain token's bar is

DEPTH, TAP = 34, (150, 214)  # from one depth to the next; the stream, and where norm and LM head begin
READER = (214, 366)  # norm and LM head
WORD, CERTAIN = 420, (536, RIGHT - 62)  # where a word begins; where its bar begins and would end at 100 %

# What `pocket` would say next after 0, 1, ... 10 layers; a test computes it again from the weights.
CAPITAL = ("The capital of India is", [
    (" is", 1.00), (" called", 0.96), (" called", 0.99), (" called", 0.78), (" called", 0.44), (" in", 0.34),
    (" New", 0.18), (" New", 0.38), (" New", 0.78), (" New", 0.96), (" New", 0.97)])


def softmax_by_hand(logits: Sequence[float]) -> Drawing:
    """Logits become probabilities in three steps: subtract the largest, take exp, divide by the sum.

    Args:
        logits: two to five.
    """
    require(2 <= len(logits) <= 5, "logits", list(logits), "2 to 5 of them")
    top = max(logits)
    powers = [math.exp(x - top) for x in logits]
    total = sum(powers)
    columns = [[signed(x) for x in logits], [signed(x - top) for x in logits], [f"{e:.3f}" for e in powers],
               [f"{e / total:.3f}" for e in powers]]
    drawing = Drawing(
        f"Softmax of {len(logits)} logits, by hand",
        f"Three steps, from left to right. Logits: {', '.join(columns[0])}. Minus the largest, {signed(top)}: "
        f"{', '.join(columns[1])}. Their exponentials: {', '.join(columns[2])}, with the sum {total:.3f}. Divided by "
        f"the sum, the probabilities: {', '.join(columns[3])}. After the first step nothing is above 0, so no "
        f"exponential is above 1.", height=FIRST + PITCH * len(logits) + 44)
    names = ["logits", "at most 0", "at most 1", "probabilities"]
    steps = [f"− {signed(top)}", "exp", f"÷ {total:.3f}"]
    for x, name, column in zip(COLUMNS, names, columns):
        end = name in (names[0], names[-1])
        drawing.text(x, 38, name, bold=end, size=NORMAL if end else SMALL, role="ink" if end else "faint")
        for i, text in enumerate(column):
            y = FIRST + PITCH * i
            drawing.box(Area(x - WIDE / 2, y, x + WIDE / 2, y + HIGH), text)
    for i, (start, end) in enumerate(zip(COLUMNS, COLUMNS[1:])):
        drawing.text((start + end) / 2, 84, steps[i], size=SMALL, bold=True)
        for j in range(len(logits)):
            y = FIRST + PITCH * j + HIGH / 2
            drawing.arrow((start + WIDE / 2 + 4, y), (end - WIDE / 2 - 4, y))
    for i, e in enumerate(powers):
        x, y = COLUMNS[-1] + WIDE / 2 + 12, FIRST + PITCH * i + 9
        drawing.rect(Area(x, y, x + max(2, BAR * e / total), y + HIGH - 18), fill="ink", radius=1)
    bottom = FIRST + PITCH * len(logits) + 20
    drawing.text(COLUMNS[2], bottom, f"sum {total:.3f}", size=SMALL, role="faint")
    drawing.text(COLUMNS[3], bottom, "sum 1", size=SMALL, role="faint")
    return drawing


def signed(x: float) -> str:
    """A number with a real minus sign.

    >>> signed(-3), signed(4), signed(0.5)
    ('−3', '4', '0.5')
    """
    return f"{x:g}".replace("-", "−")


def logit_lens(prompt: str, readings: Sequence[tuple[str, float]]) -> Drawing:
    """The residual stream, read off at every depth through the final norm and the LM head.

    Args:
        prompt: the text whose next token is asked for.
        readings: the likeliest token and its probability, after 0 layers, 1 layer and so on. Those from the first
            depth on at which the last one stays on top are marked.
    """
    require(2 <= len(readings) <= 16, "readings", len(readings), "2 to 16")
    last, settled = len(readings) - 1, settling(readings)
    shown = ", ".join(f"{word.strip()} {p:.2f}" for word, p in readings)
    drawing = Drawing(
        "The logit lens", f"The residual stream runs down through {last} layers. After each, its last vector goes "
        f"through the same final norm and LM head. The likeliest token after “{prompt}”, from 0 layers to {last}: "
        f"{shown}. From {settled} layers on it is the final answer, and stays.",
        height=66 + DEPTH * len(readings) + 6)
    rail, top = TAP[0], 66
    drawing.text(rail, 34, "stream", bold=True)
    drawing.text((READER[0] + READER[1]) / 2, 34, "norm, LM head", bold=True)
    drawing.text(WORD, 34, "likeliest next token", bold=True, anchor="start")
    end = top + DEPTH * last
    drawing.path([(rail, top - 10), (rail, end + 14)], thick=7)
    drawing.rect(Area(READER[0], top - 16, READER[1], end + 16), fill="weights", tint=TINT, stroke="weights")
    for i, words in enumerate(("the same", "for every", "depth")):
        drawing.text((READER[0] + READER[1]) / 2, (top + end) / 2 + 24 * (i - 1) + 6, words, size=SMALL, role="faint")
    for depth, (word, p) in enumerate(readings):
        reading(drawing, top + DEPTH * depth, depth, word, p, marked=depth >= settled)
    return drawing


def settling(readings: Sequence[tuple[str, float]]) -> int:
    """The first depth from which on the likeliest token is the last one.

    >>> settling([(" is", 1.0), (" New", 0.4), (" a", 0.5), (" New", 0.6), (" New", 0.9)])
    3
    """
    return 1 + max((i for i, (word, _) in enumerate(readings) if word != readings[-1][0]), default=-1)


def reading(drawing: Drawing, y: float, depth: int, word: str, p: float, *, marked: bool) -> None:
    """One depth: its name, the tap, and what comes out."""
    name = f"{depth} layer{'s' * (depth != 1)}"
    drawing.text(LEFT, y + 6, name, size=SMALL, anchor="start", role="ink" if marked else "faint")
    if marked:
        drawing.rect(Area(WORD - 8, y - 15, RIGHT, y + 15), fill="mark", radius=2)
    drawing.arrow((TAP[0] + 5, y), (READER[0] - 2, y), thick=1.8)
    drawing.arrow((READER[1] + 2, y), (WORD - 12, y), thick=1.8)
    drawing.text(WORD, y + 6, written(word.encode()), mono=True, anchor="start", size=SMALL, bold=marked)
    start, certain = CERTAIN
    drawing.rect(Area(start, y - 8, start + max(2, (certain - start) * p), y + 8), fill="ink" if marked else "weights",
                 radius=1)
    drawing.text(RIGHT - 4, y + 6, f"{p:.2f}", size=SMALL, anchor="end")
