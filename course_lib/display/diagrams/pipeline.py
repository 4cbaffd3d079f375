"""The map of the course: from a question to the first word and round again, with the numbers of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing, text_width

LEFT, PITCH, CHIP, CHIP_HEIGHT = 26, 88, 82, 62  # a column for each token
MOST = 5  # tokens that there is room for, beside the next one
RIGHT, TURN = 688, 704  # where the layers end, and where the loop goes up
STRIP, CELLS = 28, 8  # how high a vector is, and how many of its numbers are drawn
BESIDE = 482  # where labels inside the layers begin
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
    """Every stage of one step with what it made of this question, its notebooks and its levers."""
    require(0 < len(run.tokens) <= MOST, "tokens", len(run.tokens), f"1 to {MOST}")
    drawing = Drawing("From a question to the first word, and round again", in_words(run), height=1000)
    shape, last, (text, id, *_) = f"{len(run.tokens)} × {run.width}", middle(len(run.tokens) - 1), run.candidates[0]
    y = 18.0
    drawing.box(Area(LEFT, y, middle(MOST - 1) + CHIP / 2, y + 44), f"“{run.question}”")
    drawing.text(middle(MOST) - CHIP / 2 + 9, y + 28, f"{len(run.question.encode())} bytes", size=SMALL, role="faint",
                 anchor="start")
    y = operation(drawing, y + 44, "tokenize", ["01"], ["cost"])
    chips(drawing, y, run.tokens)
    ids_at = y + CHIP_HEIGHT / 2
    y = operation(drawing, y + CHIP_HEIGHT, "look up one row per id", ["02"], ["memory"])
    vectors(drawing, y, run.entering, shape)
    y = layers(drawing, y + STRIP, len(run.tokens), run.layers)
    vectors(drawing, y, run.leaving, "only the last goes on", only_last=True)
    y = operation(drawing, y + STRIP, "score every token", ["06"], ["cost"], x=last, left=True)
    y = candidates(drawing, y, run)
    y = operation(drawing, y, "choose one", ["07", "12"], ["quality", "latency"], x=BARS + CHIP / 2, left=True, gap=70)
    chip(drawing, BARS, y, text, id, chosen=True)
    loop(drawing, y + CHIP_HEIGHT / 2, ids_at, len(run.tokens), run)
    to_text(drawing, y + CHIP_HEIGHT / 2, text)
    legend(drawing, y + CHIP_HEIGHT + 48)
    drawing.height = y + CHIP_HEIGHT + 72
    return drawing


def in_words(run: Run) -> str:
    """The map for a reader who cannot see it."""
    text, id, score, share = run.candidates[0]
    ids = ", ".join(str(id) for _, id in run.tokens)
    return (f"“{run.question}” becomes {len(run.tokens)} tokens, ids {ids}. Each id picks a row of {run.width} "
            f"numbers. In each of {run.layers} layers attention reads earlier positions from the KV cache, and an "
            f"MLP works on each alone. The last vector gives {run.vocabulary:,} logits, softmax their probabilities; "
            f"“{text}” ({score:.1f}, {share:.0%}) is chosen. Its text is shown, its id {id} joins the others, "
            f"{run.more} more times.")


def middle(column: int) -> float:
    """Of a token's column."""
    return LEFT + CHIP / 2 + PITCH * column


def operation(drawing: Drawing, y: float, name: str, notebooks: Sequence[str], levers: Sequence[str], *,
              x: float = LEFT + CHIP / 2, left: bool = False, gap: float = 52) -> float:
    """An arrow down from y, and beside it what it does; where it ends."""
    drawing.arrow((x, y + 3), (x, y + gap - 5))
    start = x - 18 - label_width(name, notebooks, levers) if left else x + 18
    label(drawing, start, y + 32, name, notebooks, levers)
    return y + gap


def label(drawing: Drawing, x: float, y: float, name: str, notebooks: Sequence[str], levers: Sequence[str], *,
          below: float = 0) -> None:
    """An operation in words, the notebooks that build it, and its levers, which may be a line below."""
    drawing.text(x, y, name, bold=True, anchor="start")
    at = x + text_width(name, NORMAL, bold=True) + 12
    for notebook in notebooks:
        at = drawing.tag(at, y, notebook, role="paper", stroke="faint", radius=3)
    at = x if below else at + 3
    for lever in levers:
        at = drawing.tag(at, y + below, lever, role=lever)


def label_width(name: str, notebooks: Sequence[str], levers: Sequence[str]) -> float:
    """How long a label on one line is."""
    return (text_width(name, NORMAL, bold=True) + 12 + 3 - 7
            + sum(text_width(word, SMALL) + 23 for word in (*notebooks, *levers)))


def chip(drawing: Drawing, left: float, y: float, text: str, id: int, *, chosen: bool = False) -> None:
    """A token, its text above its id."""
    drawing.box(Area(left, y, left + CHIP, y + CHIP_HEIGHT), text.replace(" ", "␣"), str(id), size=18,
                fill="mark" if chosen else "plain")


def chips(drawing: Drawing, y: float, tokens: Sequence[tuple[str, int]]) -> None:
    """The tokens side by side."""
    for i, (text, id) in enumerate(tokens):
        chip(drawing, middle(i) - CHIP / 2, y, text, id)


def vectors(drawing: Drawing, y: float, rows: Sequence[Sequence[float]], shape: str, *,
            only_last: bool = False) -> None:
    """A strip of cells for each vector, darker where a number is larger in size; perhaps all but the last hatched."""
    largest = max(abs(x) for row in rows for x in row)
    for i, row in enumerate(rows):
        left, cell = middle(i) - CHIP / 2, CHIP / CELLS
        removed = only_last and i < len(rows) - 1
        for j, x in enumerate(row[:CELLS] if not removed else ()):
            drawing.rect(Area(left + cell * j, y, left + cell * (j + 1), y + STRIP), fill="ink", radius=0,
                         tint=round(0.05 + 0.8 * abs(x) / largest, 2))
        drawing.rect(Area(left, y, left + CHIP, y + STRIP), stroke="faint" if removed else "ink", radius=3,
                     hatched=removed)
    drawing.text(middle(len(rows) - 1) + CHIP / 2 + 15, y + 20, shape, size=SMALL, role="faint", anchor="start")


def layers(drawing: Drawing, y: float, tokens: int, count: int) -> float:
    """A pile of layers, the first one open: what is kept of each token, who reads whom, and the MLP; its end."""
    top, inside = y + 36, Area(14, y + 36, RIGHT, y + 36 + 254)
    for offset in (8, 4, 0):
        drawing.rect(Area(inside.left + offset, inside.top + offset, inside.right + offset - 8, inside.bottom + offset),
                     fill="plain", stroke="faint", thick=1.4, radius=8)
    for i in range(tokens):
        drawing.arrow((middle(i), y + 3), (middle(i), top + 43))
    drawing.text(BESIDE, top + 29, f"{count} layers, each:", anchor="start")
    cache_row(drawing, top + 46, tokens)
    attention_fan(drawing, top + 82, top + 164, tokens)
    mlp_row(drawing, top + 170, tokens)
    label(drawing, BESIDE, top + 66, "KV cache", ["08"], ["memory"], below=29)
    label(drawing, BESIDE, top + 132, "attention", ["03", "10"], ["latency"], below=29)
    label(drawing, BESIDE, top + 198, "MLP", ["04", "11"], ["quality"], below=29)
    for i in range(tokens):
        drawing.arrow((middle(i), top + 213), (middle(i), inside.bottom + 36))
    return inside.bottom + 40


def cache_row(drawing: Drawing, y: float, tokens: int) -> None:
    """Keys and values of each token."""
    for i in range(tokens):
        drawing.rect(Area(middle(i) - 30, y, middle(i) + 30, y + 34), stroke="cache", radius=3, fill="cache", tint=0.4)
        drawing.text(middle(i), y + 23, "k v", size=SMALL)


def attention_fan(drawing: Drawing, top: float, bottom: float, tokens: int) -> None:
    """A line from each token to itself and to those after it; those to the last one in ink."""
    for to in range(tokens):
        for start in range(to + 1):
            ink = to == tokens - 1
            drawing.path([(middle(start), top), (middle(to), bottom)], stroke="ink" if ink else "line",
                         thick=2.2 if ink else 1.4)


def mlp_row(drawing: Drawing, y: float, tokens: int) -> None:
    """An MLP on each token alone: narrow, wide, narrow."""
    for i in range(tokens):
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


def loop(drawing: Drawing, chosen_at: float, ids_at: float, tokens: int, run: Run) -> None:
    """The chosen id goes back, to a place after the others."""
    left, (text, id, *_) = middle(tokens) - CHIP / 2, run.candidates[0]
    drawing.rect(Area(left, ids_at - CHIP_HEIGHT / 2, left + CHIP, ids_at + CHIP_HEIGHT / 2), stroke="ink", dashed=True,
                 fill="mark")
    drawing.text(left + CHIP / 2, ids_at - 6, text.replace(" ", "␣"), size=18, mono=True)
    drawing.text(left + CHIP / 2, ids_at + 18, str(id), size=SMALL, role="faint")
    drawing.path([(BARS + CHIP + 4, chosen_at), (TURN, chosen_at), (TURN, ids_at), (left + CHIP + 5, ids_at)],
                 arrow=True)
    drawing.text(TURN - 8, ids_at - 14, f"{run.more} more times", size=SMALL, anchor="end", bold=True)
    at = drawing.tag(left + CHIP + 14, ids_at + 33, "09", role="paper", stroke="faint", radius=3)
    at = drawing.tag(at, ids_at + 33, "14", role="paper", stroke="faint", radius=3)
    drawing.tag(at, ids_at + 33, "cost", role="cost")


def to_text(drawing: Drawing, y: float, text: str) -> None:
    """The way of the chosen token to the screen, from right to left."""
    drawing.box(Area(LEFT, y - 22, LEFT + 112, y + 22), f"“{text}”")
    drawing.arrow((BARS - 4, y), (LEFT + 118, y))
    name, notebooks, levers = "detokenize, stream", ["13"], ["latency"]
    centre = (LEFT + 118 + BARS) / 2
    label(drawing, centre - label_width(name, notebooks, levers) / 2, y - 15, name, notebooks, levers)


def legend(drawing: Drawing, y: float) -> None:
    """What the two kinds of tags are."""
    at = drawing.tag(LEFT, y, "01", role="paper", stroke="faint", radius=3)
    drawing.text(at, y, "notebook", size=SMALL, role="faint", anchor="start")
    at = drawing.tag(at + text_width("notebook", SMALL) + 24, y, "cost", role="cost")
    drawing.text(at, y, "what the stage lets you trade", size=SMALL, role="faint", anchor="start")
