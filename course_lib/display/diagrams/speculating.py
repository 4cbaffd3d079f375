"""Speculative decoding: what a draft proposes and what stays, what is cut from the caches, and the rule as bars."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, WIDTH, Area, Drawing, text_width
from course_lib.display.views import visible

LABEL, BOX, GAP, ROW, TOP = 92, 98, 8, 62, 62  # of the passes: width of a label and a box, height of a row
COLUMN, SPACE, BASE = 84, 26, 300  # of the bars: their width and distance, and where they stand
HIGHEST = 224  # of a bar


def draft_and_verify(passes: Sequence[tuple[Sequence[str], int, str]]) -> Drawing:
    """Pass by pass what a draft proposed, how much of it stayed, and what the target wrote after it.

    Args:
        passes: one to six, each with up to four proposed tokens, how many were accepted, and the target's own token.
    """
    require(1 <= len(passes) <= 6, "len(passes)", len(passes), "1 to 6")
    for proposal, accepted, _ in passes:
        require(1 <= len(proposal) <= 4 and 0 <= accepted <= len(proposal), "pass", (proposal, accepted),
                "1 to 4 proposals, of which some were accepted")
    written = sum(accepted + 1 for _, accepted, _ in passes)
    drawing = Drawing("Draft and verify", told(passes, written), height=TOP + ROW * len(passes) + 46)
    edge = LABEL + 4 * (BOX + GAP)
    drawing.text(LABEL, 38, "the draft proposes", size=SMALL, anchor="start")
    drawing.text(edge + 18, 38, "the target adds", size=SMALL, anchor="start")
    for row, (proposal, accepted, own) in enumerate(passes):
        top = TOP + ROW * row
        drawing.text(22, top + 31, f"pass {row + 1}", size=SMALL, role="faint", anchor="start")
        for i, token in enumerate(proposal):
            proposed(drawing, box_at(i, top), token, "accepted" if i < accepted else
                     "rejected" if i == accepted else "unseen")
        area = Area(edge + 18, top, edge + 18 + BOX, top + 46)
        drawing.rect(area, fill="mark", stroke="ink", thick=2.4)
        drawing.text((area.left + area.right) / 2, top + 30, visible(own), size=NORMAL, mono=True, bold=True)
        drawing.text(area.right + 14, top + 30, f"+{accepted + 1}", size=SMALL, anchor="start", bold=True)
    foot = f"{written} tokens in {len(passes)} passes. Hatched: rejected. Dashed: not looked at."
    drawing.text(22, TOP + ROW * len(passes) + 22, foot, size=SMALL, anchor="start")
    return drawing


def told(passes: Sequence[tuple[Sequence[str], int, str]], written: int) -> str:
    """The description of the passes."""
    said = []
    for i, (proposal, accepted, own) in enumerate(passes, 1):
        kept = "".join(proposal[:accepted]).strip()
        bad = f"rejects “{proposal[accepted].strip()}”" if accepted < len(proposal) else "keeps all"
        said.append(f"{i}: the target keeps “{kept}”, {bad}" * bool(kept and accepted < len(proposal))
                    or f"{i}: the target {bad}")
        said[-1] += f", writes “{own.strip()}”"
    return (f"{len(passes)} passes, one a row. The draft proposes {len(passes[0][0])} tokens in each. Pass "
            f"{'; '.join(said)}. {written} tokens in {len(passes)} passes of the target.")


def box_at(i: int, top: float) -> Area:
    """The place of proposal i."""
    return Area(LABEL + i * (BOX + GAP), top, LABEL + i * (BOX + GAP) + BOX, top + 46)


def proposed(drawing: Drawing, area: Area, token: str, fate: str) -> None:
    """A proposal: solid if it stays, hatched if it goes, dashed and empty if nobody looked at it."""
    x, y = (area.left + area.right) / 2, area.top + 30
    drawing.rect(area, fill={"accepted": "latency", "rejected": "plain", "unseen": "paper"}[fate],
                 stroke="ink" if fate == "accepted" else "faint", thick=1.8, dashed=fate == "unseen",
                 hatched=fate == "rejected")
    if fate == "rejected":  # a plate, so that the word can be read on the hatching
        half = text_width(visible(token), NORMAL, mono=True) / 2 + 5
        drawing.rect(Area(x - half, y - 19, x + half, y + 8), fill="paper", radius=3)
    drawing.text(x, y, visible(token), size=NORMAL, mono=True, role="faint" if fate == "unseen" else "ink")


def roll_back(pending: str, proposal: Sequence[str], accepted: int, own: str) -> Drawing:
    """The rows of both caches after a check with a rejection: which stay, and which are cut.

    Args:
        pending: the token that the pass read first; it was written by the pass before.
        proposal: two to four tokens.
        accepted: how many stayed, not all.
        own: the target's token, which the next pass reads.
    """
    require(2 <= len(proposal) <= 4, "len(proposal)", len(proposal), "2 to 4")
    require(0 <= accepted < len(proposal), "accepted", accepted, f"in [0, {len(proposal) - 1}]")
    read, kept = [pending, *proposal], accepted + 1  # the draft never reads its last proposal
    drawing = Drawing("Both caches are rolled back", told_roll_back(read, kept, own), height=330)
    left, width = 150, (WIDTH - 150 - 22) / 6
    places = [left + width * i for i in range(len(read) + 2)]
    drawing.text(places[1], 38, "rows written in this pass", size=SMALL, role="faint", anchor="start")
    for name, top, rows in (("target", 58, len(read)), ("draft", 136, len(read) - 1)):
        drawing.text(22, top + 24, f"{name}'s", size=SMALL, anchor="start", bold=True)
        drawing.text(22, top + 45, "cache", size=SMALL, anchor="start")
        for i, token in enumerate(["…", *read[:rows]]):
            row(drawing, Area(places[i] + 4, top, places[i + 1] - 4, top + 52), token, cut=i > kept)
    x = places[kept + 1]
    drawing.path([(x, 48), (x, 204)], thick=3.4)
    drawing.text(x - 8, 218, "cut here", size=SMALL, anchor="end", bold=True)
    area = Area(x + 4, 254, x + width - 4, 302)
    drawing.rect(area, fill="mark", stroke="ink", thick=2.4)
    drawing.text((area.left + area.right) / 2, area.top + 31, visible(own), mono=True, bold=True)
    drawing.arrow(((area.left + area.right) / 2, area.top - 2), ((area.left + area.right) / 2, 198))
    drawing.text(area.left - 14, area.top + 31, "the next pass reads", size=SMALL, anchor="end")
    return drawing


def rows_of(n: int) -> str:
    """A number of rows, in words."""
    return f"{n} row" if n == 1 else f"{n} rows" if n else "none"


def row(drawing: Drawing, area: Area, token: str, *, cut: bool) -> None:
    """A row of a cache: solid if it stays, hatched if it is cut."""
    x, y = (area.left + area.right) / 2, area.top + 33
    drawing.rect(area, fill="plain" if cut else "cache", tint=1 if cut else 0.35, stroke="faint" if cut else "cache",
                 hatched=cut)
    if cut:  # a plate, so that the word can be read on the hatching
        half = text_width(visible(token), NORMAL, mono=True) / 2 + 5
        drawing.rect(Area(x - half, y - 19, x + half, y + 8), fill="paper", radius=3)
    drawing.text(x, y, visible(token), mono=True, role="faint" if cut else "ink")


def told_roll_back(read: Sequence[str], kept: int, own: str) -> str:
    """The description of the caches."""
    words = [f"“{token.strip()}”" for token in read]
    return (f"Two caches after a check. The target's has rows for {', '.join(words)}, the draft's the same without the "
            f"last, which it never read. {' and '.join(words[:kept])} {'stay' if kept > 1 else 'stays'}. The rest is "
            f"hatched and cut: {rows_of(len(read) - kept)} of the target's, {rows_of(len(read) - kept - 1)} of the "
            f"draft's. The next pass reads “{own.strip()}” and writes its row there.")


def overlap(tokens: Sequence[str], p: Sequence[int], q: Sequence[int]) -> Drawing:
    """Two distributions over each other: what is in both is accepted, what only q has is rejected, what only p has
    replaces it.

    Args:
        tokens: three or four.
        p, q: for each its probability for the target and for the draft, in parts of the same whole.
    """
    whole = sum(p)
    require(3 <= len(tokens) <= 4, "len(tokens)", len(tokens), "3 or 4")
    require(len(p) == len(q) == len(tokens) and sum(q) == whole, "p, q", (list(p), list(q)), "of the same sum")
    common, lost = sum(map(min, p, q)), sum(max(0, b - a) for a, b in zip(p, q))
    each = "; ".join(f"{token.strip()} p {a}, q {b}" for token, a, b in zip(tokens, p, q))
    drawing = Drawing("Overlap and residual",
                      f"Bars of p, the target, over bars of q, the draft, in parts of {whole}: {each}. Blue is what "
                      f"both have, {common} of {whole}: accepted. Hatched is what only q has, {lost}: rejected. Yellow "
                      f"is what only p has, also {lost}: the residual, from which replacements are drawn.", height=380)
    unit = HIGHEST / max(*p, *q)
    for i, (token, a, b) in enumerate(zip(tokens, p, q)):
        left = 30 + i * (COLUMN + SPACE)
        middle, both, high = left + COLUMN / 2, BASE - unit * min(a, b), BASE - unit * max(a, b)
        drawing.rect(Area(left, both, left + COLUMN, BASE), fill="latency", stroke="ink", thick=1.6, radius=0)
        if a != b:
            extra = Area(left, high, left + COLUMN, both)
            drawing.rect(extra, fill="mark" if a > b else "plain", stroke="ink" if a > b else "faint",
                         thick=3 if a > b else 1.6, hatched=b > a, radius=0)
        drawing.text(middle, BASE + 26, visible(token), mono=True)
        drawing.text(middle, BASE + 52, f"p {a}, q {b}", size=SMALL, role="faint")
    edge = 30 + len(tokens) * (COLUMN + SPACE) + 6
    for row, (head, words, fill, hatched) in enumerate((
            ("only p", f"residual: {lost} of {whole}", "mark", False),
            ("only q", f"rejected: {lost} of {whole}", "plain", True),
            ("both", f"accepted: {common} of {whole}", "latency", False))):
        top = 84 + 72 * row
        drawing.rect(Area(edge, top, edge + 34, top + 34), fill=fill, stroke="faint" if hatched else "ink",
                     thick=1.8, hatched=hatched, radius=0)
        drawing.text(edge + 46, top + 14, head, size=SMALL, anchor="start", bold=True)
        drawing.text(edge + 46, top + 38, words, size=SMALL, anchor="start")
    drawing.text(30, 40, f"probability, in parts of {whole}", size=SMALL, role="faint", anchor="start")
    return drawing
