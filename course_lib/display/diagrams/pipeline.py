"""The map of the course: from a question to the first word and round again, with the numbers of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing, text_width

LEFT, PITCH, CHIP, CHIP_HEIGHT = 26, 88, 82, 62  # a column for each token
TOKENS = 5  # what there is room for, beside the next one
RIGHT, TURN = 688, 704  # where the layers end, and where the loop goes up
STRIP, CELLS = 28, 8  # how high a vector is, and how many of its numbers are drawn
BESIDE = 482  # where labels inside the layers begin
KEPT, FAN = 40, 72  # heights: of the cache, and of the lines above and below it
SCORES, BARS, BAR = 432, 548, 27  # where logits end and bars begin, and how high a row of them is
LONGEST = 84  # of the bars


class Run(NamedTuple):
    """What one run of a model computed, as far as it is drawn.

    Attributes:
        question: the text.
        tokens: the text and the id of each token.
        width: numbers in a vector, D.
        entering, leaving: the first numbers of each token's vector before and after the layers.
        layers: how many.
        candidates: the likeliest tokens from the first down, each with its id, logit and probability.
        vocabulary: how many tokens were scored, V.
        more: how many runs followed.
    """

    question: str
    tokens: Sequence[tuple[str, int]]
    width: int
    entering: Sequence[Sequence[float]]
    leaving: Sequence[Sequence[float]]
    layers: int
    candidates: Sequence[tuple[str, int, float, float]]
    vocabulary: int
    more: int


def pipeline(run: Run) -> Drawing:
    """Every stage of one step with what it made of this question, its notebooks and its lever."""
    require(len(run.tokens) == TOKENS, "tokens", len(run.tokens), str(TOKENS))
    drawing = Drawing("From a question to the first word, and round again", in_words(run), height=1000)
    last, (text, id, *_) = middle(TOKENS - 1), run.candidates[0]
    y = 18.0
    drawing.box(Area(LEFT, y, middle(TOKENS - 1) + CHIP / 2, y + 44), f"“{run.question}”")
    drawing.text(middle(TOKENS) - CHIP / 2 + 9, y + 28, f"{len(run.question.encode())} bytes", size=SMALL, role="faint",
                 anchor="start")
    y = operation(drawing, y + 44, "tokenize", "01", "cost")
    chips(drawing, y, run.tokens)
    ids_at = y + CHIP_HEIGHT / 2
    y = operation(drawing, y + CHIP_HEIGHT, "embed", "02", "memory")
    vectors(drawing, y, run.entering)
    note(drawing, y, f"{TOKENS} × {run.width}")
    y = layers(drawing, y + STRIP, run.tokens[-1][0], run.layers)
    vectors(drawing, y, run.leaving, only_last=True)
    note(drawing, y, f"1 × {run.width}, the last vector")
    y = operation(drawing, y + STRIP, "score", "06", "cost", x=last, left=True)
    y = candidates(drawing, y, run)
    y = operation(drawing, y, "choose", "07", "quality", x=BARS + CHIP / 2, left=True)
    chip(drawing, BARS, y, text, id, chosen=True)
    loop(drawing, y + CHIP_HEIGHT / 2, ids_at, run)
    to_text(drawing, y + CHIP_HEIGHT / 2, text)
    legend(drawing, y + CHIP_HEIGHT + 44)
    drawing.height = y + CHIP_HEIGHT + 66
    return drawing


def in_words(run: Run) -> str:
    """The map for a reader who cannot see it."""
    text, id, score, share = run.candidates[0]
    ids = ", ".join(str(id) for _, id in run.tokens)
    return (f"“{run.question}” becomes {TOKENS} tokens, ids {ids}, and each id a vector of {run.width} "
            f"numbers. In each of {run.layers} layers the query of the last token meets the keys in the KV cache, "
            f"values come back, and an MLP follows. The last vector gives {run.vocabulary:,} logits, then "
            f"probabilities; “{text}” ({score:.1f}, {share:.0%}) is chosen and shown. Its id {id} joins the others, "
            f"{run.more} more times.")


def middle(column: int) -> float:
    """Of a token's column."""
    return LEFT + CHIP / 2 + PITCH * column


def operation(drawing: Drawing, y: float, name: str, notebooks: str, lever: str, *, x: float = LEFT + CHIP / 2,
              left: bool = False, gap: float = 52) -> float:
    """An arrow down from y, and beside it what it does; where it ends."""
    drawing.arrow((x, y + 3), (x, y + gap - 5))
    label(drawing, x - 18 - label_width(name, notebooks, lever) if left else x + 18, y + 31, name, notebooks, lever)
    return y + gap


def label(drawing: Drawing, x: float, y: float, name: str, notebooks: str, lever: str, *, below: float = 0) -> None:
    """A stage in words and its tag: the notebooks that build it and its lever; the tag may be a line below."""
    drawing.text(x, y, name, bold=True, anchor="start")
    at = x if below else x + text_width(name, NORMAL, bold=True) + 12
    drawing.tag(at, y + below, on_tag(notebooks, lever), role=lever)


def on_tag(notebooks: str, lever: str) -> str:
    """What a tag says.

    >>> on_tag("03, 10", "latency")
    '03, 10 · latency'
    """
    return f"{notebooks} · {lever}"


def label_width(name: str, notebooks: str, lever: str) -> float:
    """How long a label on one line is."""
    return text_width(name, NORMAL, bold=True) + 12 + text_width(on_tag(notebooks, lever), SMALL) + 16


def chip(drawing: Drawing, left: float, y: float, text: str, id: int, *, chosen: bool = False) -> None:
    """A token, its text above its id."""
    drawing.box(Area(left, y, left + CHIP, y + CHIP_HEIGHT), text.replace(" ", "␣"), str(id), size=18,
                fill="mark" if chosen else "plain")


def chips(drawing: Drawing, y: float, tokens: Sequence[tuple[str, int]]) -> None:
    """The tokens side by side."""
    for i, (text, id) in enumerate(tokens):
        chip(drawing, middle(i) - CHIP / 2, y, text, id)


def vectors(drawing: Drawing, y: float, rows: Sequence[Sequence[float]], *, only_last: bool = False) -> None:
    """A strip of cells for each vector, or for the last one, darker where a number is larger in size."""
    largest = max(abs(x) for row in rows for x in row)
    for i, row in enumerate(rows):
        if only_last and i < len(rows) - 1:
            continue
        left, cell = middle(i) - CHIP / 2, CHIP / CELLS
        for j, x in enumerate(row[:CELLS]):
            drawing.rect(Area(left + cell * j, y, left + cell * (j + 1), y + STRIP), fill="ink", radius=0,
                         tint=round(0.05 + 0.8 * abs(x) / largest, 2))
        drawing.rect(Area(left, y, left + CHIP, y + STRIP), stroke="ink", radius=3)


def note(drawing: Drawing, y: float, shape: str) -> None:
    """The shape of the vectors, beside them."""
    drawing.text(middle(TOKENS - 1) + CHIP / 2 + 15, y + 20, shape, size=SMALL, role="faint", anchor="start")


def layers(drawing: Drawing, y: float, asking: str, count: int) -> float:
    """A pile of layers, the first one open: attention of the last token, the cache, and the MLP; its end."""
    top, last = y + 30, middle(TOKENS - 1)
    asked, kept = top + 42, top + 42 + FAN  # where the query ends, where the cache begins
    mixed = kept + KEPT + FAN
    inside = Area(14, top, RIGHT, mixed + 82)
    for offset in (8, 4, 0):
        drawing.rect(Area(inside.left + offset, inside.top + offset, inside.right + offset - 8, inside.bottom + offset),
                     fill="plain", stroke="faint", thick=1.4, radius=8)
    for i in range(TOKENS):
        drawing.arrow((middle(i), y + 3), (middle(i), top + 10 if middle(i) == last else top))
    attention(drawing, asked, asking)
    mlp_row(drawing, mixed + 30)
    drawing.text(BESIDE, top + 27, f"{count} layers, each:", anchor="start")
    label(drawing, BESIDE, asked + 21, "attention", "03, 10", "latency", below=29)
    label(drawing, BESIDE, kept + 22, "KV cache", "08", "memory", below=29)
    label(drawing, BESIDE, mixed + 37, "MLP", "04, 11", "quality", below=29)
    drawing.arrow((last, mixed + 73), (last, inside.bottom + 36))
    return inside.bottom + 40


def attention(drawing: Drawing, top: float, asking: str) -> None:
    """The query of the last token goes to every key that is kept; the values come back and are added up."""
    kept, last = top + FAN, middle(TOKENS - 1)
    mixed = kept + KEPT + FAN
    drawing.rect(Area(LEFT - 6, kept, last + CHIP / 2 + 6, kept + KEPT), fill="cache", tint=0.4, stroke="cache")
    for i in range(TOKENS):
        drawing.path([(last, top), (middle(i) - 19, kept + 3)], stroke="query", arrow=True)
        drawing.path([(middle(i) + 19, kept + KEPT - 4), (last, mixed)], stroke="value")
        vector(drawing, middle(i) - 19, kept + 5, "k", "key")
        vector(drawing, middle(i) + 19, kept + 5, "v", "value")
    vector(drawing, last, top - 30, "q", "query")
    drawing.circle(last, mixed, 11, fill="paper", stroke="value")
    drawing.text(last, mixed + 6, "+", size=SMALL, bold=True)
    for i in range(TOKENS):
        drawing.arrow((middle(i), mixed + 12), (middle(i), mixed + 28), stroke="ink" if middle(i) == last else "faint")
    drawing.text(LEFT, top - 7, f"the query of “{asking.strip()}” meets every key", size=SMALL, anchor="start")
    drawing.text(LEFT, mixed + 3, "the values come back", size=SMALL, anchor="start")


def vector(drawing: Drawing, x: float, y: float, name: str, role: str) -> None:
    """A query, a key or a value."""
    drawing.rect(Area(x - 16, y, x + 16, y + 30), fill="paper", radius=3)
    drawing.rect(Area(x - 16, y, x + 16, y + 30), fill=role, tint=0.3, stroke=role, radius=3)
    drawing.text(x, y + 20, name, size=NORMAL, bold=True)


def mlp_row(drawing: Drawing, y: float) -> None:
    """An MLP on each token alone: narrow, wide, narrow."""
    for i in range(TOKENS):
        x = middle(i)
        drawing.path([(x - 14, y), (x + 14, y), (x + 36, y + 20), (x + 14, y + 40), (x - 14, y + 40), (x - 36, y + 20)],
                     fill="weights", tint=0.45, stroke="weights", closed=True)
        drawing.text(x, y + 26, "MLP", size=SMALL)


def candidates(drawing: Drawing, y: float, run: Run) -> float:
    """The likeliest tokens with their logits, and at the right their probabilities as bars; where they end."""
    drawing.text(SCORES, y + 18, f"{run.vocabulary:,} logits", size=SMALL, role="faint", anchor="end")
    drawing.text(BARS, y + 18, "probabilities", size=SMALL, role="faint", anchor="start")
    highest = run.candidates[0][3]
    for i, (text, _, score, share) in enumerate(run.candidates):
        base, end = y + 26 + BAR * (i + 0.75), BARS + max(2, LONGEST * share / highest)
        drawing.text(SCORES - 62, base, text.replace(" ", "␣"), size=SMALL, mono=True, anchor="end", bold=not i)
        drawing.text(SCORES, base, f"{score:.1f}", size=SMALL, anchor="end", bold=not i)
        drawing.rect(Area(BARS, base - 16, end, base + 4), fill="weights" if i else "ink", radius=2)
        drawing.text(end + 8, base, f"{100 * share:.0f} %", size=SMALL, anchor="start", bold=not i)
    bottom = y + 26 + BAR * len(run.candidates)
    drawing.text(SCORES, bottom + 12, "…", anchor="end")
    across = y + 26 + BAR * len(run.candidates) / 2 + 4
    drawing.arrow((SCORES + 14, across), (BARS - 12, across))
    drawing.text((SCORES + BARS) / 2, across - 12, "softmax", size=SMALL)
    return bottom + 10


def loop(drawing: Drawing, chosen_at: float, ids_at: float, run: Run) -> None:
    """The chosen id goes back, to a place after the others."""
    left, (text, id, *_) = middle(TOKENS) - CHIP / 2, run.candidates[0]
    drawing.rect(Area(left, ids_at - CHIP_HEIGHT / 2, left + CHIP, ids_at + CHIP_HEIGHT / 2), stroke="ink", dashed=True,
                 fill="mark")
    drawing.text(left + CHIP / 2, ids_at - 6, text.replace(" ", "␣"), size=18, mono=True)
    drawing.text(left + CHIP / 2, ids_at + 16, str(id), size=SMALL, role="faint")
    drawing.path([(BARS + CHIP + 4, chosen_at), (TURN, chosen_at), (TURN, ids_at), (left + CHIP + 5, ids_at)],
                 arrow=True)
    drawing.text(TURN - 8, ids_at - 14, f"{run.more} more times", size=SMALL, anchor="end", bold=True)
    words = on_tag("09, 12, 14", "latency")
    drawing.tag(TURN - 8 - text_width(words, SMALL) - 16, ids_at + CHIP_HEIGHT / 2 + 31, words, role="latency")


def to_text(drawing: Drawing, y: float, text: str) -> None:
    """The way of the chosen token to the screen, from right to left."""
    drawing.box(Area(LEFT, y - 22, LEFT + 112, y + 22), f"“{text}”")
    drawing.arrow((BARS - 4, y), (LEFT + 118, y))
    said, centre = ("detokenize", "13", "latency"), (LEFT + 118 + BARS) / 2
    label(drawing, centre - label_width(*said) / 2, y - 15, *said)


def legend(drawing: Drawing, y: float) -> None:
    """What is on a tag."""
    at = drawing.tag(LEFT, y, on_tag("01", "cost"), role="cost")
    drawing.text(at + 3, y, "the notebook · what the stage lets you trade", size=SMALL, role="faint", anchor="start")
