"""Speculative decoding pass by pass: what was proposed, what stayed, with p and q, as HTML and as a still picture.

Pure functions; text from a model is escaped before it becomes markup. A round may be any object with `proposal`, `p`,
`q` and `tokens`, such as a `course_lib.speculative.Pass`, so that a reader's own loop can be watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.diagrams.speculating import proposed
from course_lib.display.views import THEME, count, visible


class Round(Protocol):
    """What is shown of a pass, as in `course_lib.speculative.Pass`."""

    proposal: Sequence[int]
    p: Sequence[float]
    q: Sequence[float]
    tokens: Sequence[int]


STYLE = """\
.course-passes ol{list-style:none;margin:4px 0;padding:0}.course-passes .pass{display:flex;flex-wrap:wrap;gap:6px;\
align-items:stretch;margin:6px 0}
.course-passes .name{min-width:64px;align-self:center;color:var(--faint)}
.course-passes .token{border:1px solid var(--ink);border-radius:4px;padding:3px 7px;min-width:62px;text-align:center;\
font-size:13px}
.course-passes .token bdi{display:block;font-family:var(--mono);font-size:15px;white-space:pre}
.course-passes .token small{display:block;font-size:12px}
.course-passes .accepted{background:color-mix(in srgb,var(--kept) 22%,transparent)}
.course-passes .rejected{border-style:dashed;background:repeating-linear-gradient(45deg,transparent 0 6px,\
var(--line) 6px 8px)}.course-passes .rejected bdi{text-decoration:line-through}
.course-passes .unseen{border:1px dashed var(--line);color:var(--faint)}
.course-passes .own{border-width:3px;font-weight:600}
.course-passes .written{white-space:pre-wrap;border-left:3px solid var(--kept);padding-left:10px}
.course-passes .new{font-weight:600;text-decoration:underline}"""
FATES = {"accepted": "kept", "rejected": "rejected", "unseen": "not looked at"}
SHOWN = 4  # passes of the still picture
LEFT, BOX, GAP, ROW, TOP = 92, 98, 8, 112, 58


def n_accepted(one: Round) -> int:
    """How many proposals stayed. A replacement is never the token that it replaces: the residual lacks it."""
    pairs = zip(one.proposal, one.tokens)
    return next((i for i, (guess, token) in enumerate(pairs) if guess != token),
                min(len(one.proposal), len(one.tokens)))


def fates(one: Round) -> list[str]:
    """Of each proposal, whether it was accepted, rejected or, after a rejected one, not looked at."""
    n = n_accepted(one)
    return ["accepted" if i < n else "rejected" if i == n else "unseen" for i in range(len(one.proposal))]


def own_kind(one: Round) -> str:
    """What the token is that the target adds: a replacement after a rejection, else a bonus."""
    return "bonus" if len(one.tokens) > len(one.proposal) else "replacement"


def summary(rounds: Sequence[Round]) -> str:
    """What the passes made, in words."""
    tokens = sum(len(one.tokens) for one in rounds)
    accepted, looked = sum(map(n_accepted, rounds)), sum(min(len(one.tokens), len(one.proposal)) for one in rounds)
    over = " The last pass adds none of its own: the text ended before." * (accepted + len(rounds) > tokens)
    return (f"{len(rounds)} {'pass' if len(rounds) == 1 else 'passes'} of the target wrote {count(tokens, 'token')}, "
            f"{tokens / len(rounds):.1f} a pass. Of {count(looked, 'proposal')} looked at, {accepted} "
            f"{'was' if accepted == 1 else 'were'} accepted.{over}")


def passes_html(rounds: Sequence[Round], tokenizer: Any, shown: int) -> str:
    """The first `shown` passes, the text up to there, and what they made.

    Raises:
        ValueError: there are not that many passes.
    """
    require(1 <= shown <= len(rounds), "shown", shown, f"in [1, {len(rounds)}]")
    rounds = rounds[:shown]
    before = [token for one in rounds[:-1] for token in one.tokens]
    old, both = tokenizer.decode(before), tokenizer.decode([*before, *rounds[-1].tokens])
    new = both[len(old):] if both.startswith(old) else both
    accepted, tokens = sum(map(n_accepted, rounds)), len(before) + len(rounds[-1].tokens)
    return (f'<div class="course course-passes" data-passes="{shown}" data-accepted="{accepted}" '
            f'data-tokens="{tokens}"><style>{THEME}{STYLE}</style>'
            f'<p class="written">{escape(old)}<span class="new">{escape(new)}</span></p>'
            f'<ol>{"".join(pass_html(i, one, tokenizer) for i, one in enumerate(rounds, 1))}</ol>'
            f'<p class="summary" role="status">{escape(summary(rounds))}</p></div>')


def pass_html(number: int, one: Round, tokenizer: Any) -> str:
    """One pass: its proposals, and the token that the target adds, if the text did not end before."""
    boxes = [token_html(tokenizer, token, fate, FATES[fate], f"p {p:.2f}", f"q {q:.2f}")
             for token, fate, p, q in zip(one.proposal, fates(one), one.p, one.q)]
    boxes += [token_html(tokenizer, token, "own", own_kind(one)) for token in one.tokens[n_accepted(one):]]
    return f'<li class="pass"><span class="name">pass {number}</span>{"".join(boxes)}</li>'


def token_html(tokenizer: Any, token: int, kind: str, *lines: str) -> str:
    """A token in its box, with lines beneath."""
    text = escape(visible(tokenizer.decode_single_token_bytes(token)))
    return (f'<span class="token {kind}"><bdi>{text}</bdi>'
            f'{"".join(f"<small>{escape(line)}</small>" for line in lines)}</span>')


def passes_drawing(rounds: Sequence[Round], tokenizer: Any) -> Drawing:
    """The still picture: the first passes, with four proposals of each at most."""
    rounds = rounds[:SHOWN]
    drawing = Drawing("Proposals with p and q", told(rounds, tokenizer), height=TOP + ROW * len(rounds) + 10)
    edge = LEFT + 4 * (BOX + GAP)
    drawing.text(LEFT, 36, "proposed by the draft", size=SMALL, anchor="start")
    drawing.text(edge + 18, 36, "by the target", size=SMALL, anchor="start")
    for row, one in enumerate(rounds):
        top = TOP + ROW * row
        drawing.text(22, top + 31, f"pass {row + 1}", size=SMALL, role="faint", anchor="start")
        for i, (token, fate, p, q) in enumerate(list(zip(one.proposal, fates(one), one.p, one.q))[:4]):
            left = LEFT + i * (BOX + GAP)
            proposed(drawing, Area(left, top, left + BOX, top + 46), label(tokenizer, token), fate)
            role = "faint" if fate == "unseen" else "ink"
            for line, words in enumerate((f"p {p:.2f}", f"q {q:.2f}")):
                drawing.text(left + BOX / 2, top + 67 + 21 * line, words, size=SMALL, role=role)
        for token in one.tokens[n_accepted(one):]:
            drawing.rect(Area(edge + 18, top, edge + 18 + BOX, top + 46), fill="mark", stroke="ink", thick=2.4)
            drawing.text(edge + 18 + BOX / 2, top + 30, visible(label(tokenizer, token)), mono=True, bold=True)
            drawing.text(edge + 18 + BOX / 2, top + 67, own_kind(one), size=SMALL)
    return drawing


def label(tokenizer: Any, token: int) -> str:
    """The text of a token, short enough for a box."""
    text = tokenizer.decode([token])
    return text if len(visible(text)) <= 7 else text[:6] + "…"


def told(rounds: Sequence[Round], tokenizer: Any) -> str:
    """The description of the still picture."""
    said = []
    for i, one in enumerate(rounds, 1):
        n = n_accepted(one)
        kept = visible(tokenizer.decode(list(one.tokens[:n])).strip())
        said.append(f"pass {i}: kept {kept or 'nothing'}")
        if n < len(one.proposal) and n < len(one.tokens):
            gone = visible(tokenizer.decode([one.proposal[n]]))
            said[-1] += f", rejected {gone} (p {one.p[n]:.2f}, q {one.q[n]:.2f})"
        if n < len(one.tokens):
            said[-1] += f", {own_kind(one)} {visible(tokenizer.decode([one.tokens[-1]]))}"
    return f"The first {len(rounds)} passes. " + "; ".join(said) + "."
