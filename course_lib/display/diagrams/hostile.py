"""One hostile result of a tool, encoded in two ways: pasted into the prompt's text, and apart, as data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.agents import CONTROL
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width

TOP, EDGE, END = 208, 18, 702  # where the first encoding begins, and where its lines begin and end
HIGH, ROW, GAP = 50, 57, 4  # a token, from line to line, and between two tokens

Tokens = Sequence[tuple[str, int]]


class Part(NamedTuple):
    """A piece of an encoded text: a control token, a token out of a tag's letters, or a text between.

    Attributes:
        text, under: what is in the box, and what is written under it.
        control: whether it is a control token.
        tag: the name whose letters it is a part of, if it is the first of them.
        inside: whether it is a later one of them, so that no line begins with it.
    """

    text: str
    under: str
    control: bool = False
    tag: str = ""
    inside: bool = False


def parts_of(tokens: Tokens) -> list[Part]:
    """The tokens one by one where a tag's name is, and in one piece between.

    >>> [part[:2] for part in parts_of([("a", 97), (" lamp", 898), ("<", 60), ("/", 47), ("tool_call>", 5)])]
    [('a lamp', '2 tokens'), ('<', '60'), ('/', '47'), ('tool_call>', '5')]
    """
    whole = "".join(text for text, _ in tokens)
    tags = [match.span() for match in CONTROL.finditer(whole)]
    parts: list[Part] = []
    place, run = 0, 0  # where the token begins, and how many tokens the text so far has
    for text, token_id in tokens:
        span = next((span for span in tags if span[0] <= place < span[1]), None)
        if span:
            control = bool(CONTROL.fullmatch(text))
            tag = whole[slice(*span)] if place == span[0] else ""
            parts.append(Part(text, str(token_id), control, tag, place > span[0]))
            run = 0
        else:
            before = parts.pop().text if run else ""
            run += 1
            parts.append(Part(before + text.replace("\n", "↵"), f"{run} tokens" if run > 1 else str(token_id)))
        place += len(text)
    return parts


def width_of(part: Part) -> float:
    """How wide the box of a part is."""
    return 10 + max(text_width(part.text, SMALL, mono=part.under.isdigit(), bold=part.control),
                    text_width(part.under, SMALL))


def lines_of(parts: Sequence[Part]) -> list[list[tuple[float, Part]]]:
    """Lines of parts, each with its left edge; a new line where a message begins, and none within a tag."""
    lines: list[list[tuple[float, Part]]] = [[]]
    x = float(EDGE)
    for i, part in enumerate(parts):
        rest = list(takewhile(lambda other: other.inside, parts[i + 1:]))
        width = sum(width_of(one) + GAP for one in (part, *rest)) - GAP
        if lines[-1] and (part.tag == "<|im_start|>" or (not part.inside and x + width > END)):
            lines.append([])
            x = float(EDGE)
        lines[-1].append((x, part))
        x += width_of(part) + GAP
    return lines


def two_encodings(result: str, pasted: Tokens, apart: Tokens, obeyed: str, unmoved: str) -> Drawing:
    """A tool's result with a forged message: pasted into the text, where tags become control tokens, and encoded apart.

    Args:
        result: as the tool returned it.
        pasted, apart: its tokens with their ids both ways.
        obeyed, unmoved: what the model answers to each.
    """
    for tokens in (pasted, apart):
        require("".join(text for text, _ in tokens) == result, "tokens", tokens, "those of the result")
    above, below = parts_of(pasted), parts_of(apart)
    control = [part for part in above if part.control]
    require(len(control) >= 2 and not any(part.control for part in below), "pasted", pasted,
            "with control tokens, which are none in the other")
    lines = [lines_of(above), lines_of(below)]
    second = TOP + ROW * len(lines[0]) + 94
    drawing = Drawing("One hostile result, pasted and encoded apart",
                      told_encodings(len(control), len(apart) - len(pasted), obeyed, unmoved),
                      height=second + ROW * len(lines[1]) + 38 + 24 * len(said(unmoved)))
    show_result(drawing, result)
    for top, words, rows, answer in ((TOP, f"pasted into the prompt: {len(control)} control tokens", lines[0], obeyed),
                                     (second, "encoded apart, as data: no control token", lines[1], unmoved)):
        drawing.text(EDGE, top, words, bold=True, anchor="start")
        for i, row in enumerate(rows):
            for x, part in row:
                draw_part(drawing, x, top + 14 + ROW * i, part)
        y = top + 14 + ROW * len(rows)
        drawing.path([(EDGE + 8, y), (EDGE + 8, y + 20), (EDGE + 34, y + 20)], arrow=True)
        for i, line in enumerate(said(answer)):
            drawing.text(EDGE + 42, y + 26 + 24 * i, line, size=SMALL, anchor="start", bold=True)
    return drawing


def said(answer: str) -> list[str]:
    """Lines with what the model answers."""
    return textwrap.wrap(f"the model answers: “{answer}”", 58)


def show_result(drawing: Drawing, result: str) -> None:
    """The result as the tool returned it."""
    lines = result.rstrip("\n").split("\n")
    require(len(lines) <= 4, "result", result, "up to 4 lines")
    drawing.text(EDGE, 34, "a tool returns a text that a stranger wrote", bold=True, anchor="start")
    drawing.rect(Area(EDGE, 46, END, 58 + 25 * len(lines)), fill="plain", stroke="line")
    for i, line in enumerate(lines):
        drawing.text(EDGE + 10, 70 + 25 * i, line, size=SMALL, mono=True, anchor="start")


def draw_part(drawing: Drawing, x: float, top: float, part: Part) -> None:
    """A part over its id or its number of tokens; a control token stands out."""
    width = width_of(part)
    drawing.rect(Area(x, top, x + width, top + HIGH), fill="plain" if part.control else "paper",
                 stroke="ink" if part.control else "faint", thick=3 if part.control else 1.2, radius=5)
    drawing.text(x + width / 2, top + 20, part.text, size=SMALL, mono=part.under.isdigit(), bold=part.control)
    drawing.text(x + width / 2, top + 42, part.under, size=SMALL, role="faint")


def told_encodings(control: int, more: int, obeyed: str, unmoved: str) -> str:
    """The description of the two."""
    return (f"A tool's result pretends to end its own message and to begin a user's, with a question. Pasted into the "
            f"prompt, the names become {control} control tokens: three messages, and the model answers: {obeyed} "
            f"Encoded apart, as data, the names stay letters, {more} tokens more and no control token: one message, "
            f"and it answers: {unmoved}")
