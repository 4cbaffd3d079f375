"""FlashAttention: the matrices that three steps leave in slow memory, the tiles that need none, and the merge."""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.flash import flash_traffic, naive_traffic

SIDE, MATRIX = 150, 88  # of a matrix of scores, and where its top is
CHIP = 460  # where the fast memory begins
ROUTES = {112: "store scores", 152: "load scores", 192: "store weights", 232: "load weights"}  # the four passes
LEFT, TOP, CELL = 116, 92, 30  # of a grid of tiles

Numbers = tuple[float, float, float]


def megabytes(nbytes: float) -> str:
    """Bytes in MB, three digits."""
    return f"{nbytes / 1e6:.3g} MB"


def two_memories(T: int, head_dim: int, block_q: int, *, bytes_per_element: float = 4) -> Drawing:
    """One head of attention in three steps, whose matrices go to slow memory and back, and in tiles, which stay.

    Args:
        T: tokens, each a query and a key.
        head_dim: of the head.
        block_q: queries in a tile; causal.
        bytes_per_element: of a number.
    """
    matrix = megabytes(T * T * bytes_per_element)
    small = megabytes(T * head_dim * bytes_per_element)
    flash = flash_traffic(T, T, head_dim, causal=True, block_q=block_q, bytes_per_element=bytes_per_element)
    naive = naive_traffic(T, T, head_dim, bytes_per_element=bytes_per_element)
    drawing = Drawing("Attention in two memories",
                      f"One head, {T:,} tokens. In three steps: scores and attention weights, {T:,} × {T:,} numbers or "
                      f"{matrix} each, lie in slow memory. Four arrows: store scores, load scores, store weights, load "
                      f"weights; {megabytes(naive.loaded)} loaded, {megabytes(naive.stored)} stored. In tiles: slow "
                      f"memory has only q, k, v and the output, {small} each; {megabytes(flash.loaded)} are loaded, "
                      f"{megabytes(flash.stored)} stored, and the scores of a tile stay on the chip.", height=566)
    drawing.text(24, 34, "in three steps", bold=True, anchor="start")
    memories(drawing, 50, 316)
    for left, lines in ((36, ("scores",)), (58 + SIDE, ("attention", "weights"))):
        middle, bottom = left + SIDE / 2, MATRIX + SIDE
        drawing.box(Area(left, MATRIX, left + SIDE, bottom), role="key")
        for i, line in enumerate(reversed(lines)):
            drawing.text(middle, bottom - 72 - 24 * i, line)
        drawing.text(middle, bottom - 46, f"{T:,} × {T:,}", size=SMALL, role="faint")
        drawing.text(middle, bottom + 24, matrix, size=SMALL)
    strips(drawing, 292)
    for y, words in ROUTES.items():
        pass_by(drawing, y, words, stored=words.startswith("store"))
    drawing.text(CHIP + 118, 276, f"loaded: {megabytes(naive.loaded)}", size=SMALL)
    drawing.text(CHIP + 118, 300, f"stored: {megabytes(naive.stored)}", bold=True)
    drawing.text(24, 358, f"in tiles of {block_q} queries", bold=True, anchor="start")
    memories(drawing, 374, 540)
    strips(drawing, 456, tall=True)
    pass_by(drawing, 436, "load q, k, v", stored=False)
    pass_by(drawing, 476, "store out", stored=True)
    drawing.box(Area(CHIP + 150, 410, CHIP + 222, 482), "tile", "", role="key", mono=False, size=SMALL)
    drawing.text(CHIP + 118, 506, f"loaded: {megabytes(flash.loaded)}", size=SMALL)
    drawing.text(CHIP + 118, 530, f"stored: {megabytes(flash.stored)}", bold=True)
    return drawing


def memories(drawing: Drawing, top: float, bottom: float) -> None:
    """The frames of slow and of fast memory."""
    drawing.rect(Area(20, top, 400, bottom), stroke="faint", fill="plain")
    drawing.text(34, top + 24, "slow memory", size=SMALL, role="faint", anchor="start")
    drawing.rect(Area(CHIP, top, 704, bottom), stroke="ink", fill="plain")
    drawing.text(CHIP + 14, top + 24, "fast memory, on the chip", size=SMALL, role="faint", anchor="start")


def strips(drawing: Drawing, y: float, *, tall: bool = False) -> None:
    """Queries, keys, values and output, long and thin."""
    for i, (name, role) in enumerate((("q", "query"), ("k", "key"), ("v", "value"), ("out", "ink"))):
        left = 36 + 88 * i
        half = 24 if tall else 12
        drawing.rect(Area(left, y - half, left + 80, y + half), fill="plain" if role == "ink" else role,
                     tint=1 if role == "ink" else 0.3, stroke=role)
        drawing.text(left + 40, y + 6, name, size=SMALL)


def pass_by(drawing: Drawing, y: float, words: str, *, stored: bool) -> None:
    """An arrow between the memories, with what it carries."""
    ends = ((CHIP, y), (404, y)) if stored else ((400, y), (CHIP - 4, y))
    drawing.arrow(*ends, thick=3.2)
    drawing.text(CHIP + 14, y + 6, words, size=SMALL, anchor="start")


def causal_walk(tokens: int, block: int) -> list[tuple[int, int, str]]:
    """The tiles of causal attention, (row, column) in tiles, each "free", "masked" or "skipped", in the loop's order.

    >>> causal_walk(4, 2)
    [(0, 0, 'masked'), (0, 1, 'skipped'), (1, 0, 'free'), (1, 1, 'masked')]
    """
    n = -(-tokens // block)
    return [(i, j, "free" if j < i else "masked" if j == i else "skipped") for i in range(n) for j in range(n)]


def causal_tiles(tokens: int = 12, block: int = 4) -> Drawing:
    """The causal matrix cut into tiles: which are visited and in what order, which need a mask, which are skipped.

    Args:
        tokens: a multiple of block, at most 12.
        block: queries and keys of a tile.
    """
    require(tokens <= 12 and tokens % block == 0 and tokens > block, "tokens", tokens, "a multiple of block, up to 12")
    walk = causal_walk(tokens, block)
    kinds = [kind for *_, kind in walk]
    free, masked, skipped = (kinds.count(kind) for kind in ("free", "masked", "skipped"))
    side = CELL * tokens
    drawing = Drawing("Causal attention in tiles",
                      f"{tokens} queries against {tokens} keys, cut into {len(walk)} tiles of {block} × {block}. "
                      f"{skipped} tiles above the diagonal are hatched: skipped. The loop visits {free + masked}, "
                      f"numbered row by row. {free} of them are full and need no mask; {masked} on the diagonal are "
                      f"half full, and need one.", height=TOP + max(side, 254) + 34)
    drawing.text(LEFT + side / 2, 34, f"{tokens} keys", size=SMALL)
    for j in range(tokens // block):
        words = f"{block * j}–{block * (j + 1) - 1}"
        drawing.text(LEFT + CELL * block * (j + 0.5), 72, words, size=SMALL, role="faint")
        drawing.text(LEFT - 12, TOP + CELL * block * (j + 0.5) + 6, words, size=SMALL, role="faint", anchor="end")
    drawing.text(14, TOP - 20, "queries", size=SMALL, anchor="start")
    step = 0
    for i, j, kind in walk:
        area = Area(LEFT + CELL * block * j, TOP + CELL * block * i, LEFT + CELL * block * (j + 1),
                    TOP + CELL * block * (i + 1))
        drawing.rect(area, fill="key" if kind == "free" else "plain", tint=0.45 if kind == "free" else 1,
                     stroke="faint" if kind == "skipped" else "key", radius=0, hatched=kind == "skipped")
        if kind == "masked":
            staircase(drawing, area, block)
        if kind != "skipped":
            step += 1
            x, y = (area.left + area.right) / 2, (area.top + area.bottom) / 2
            drawing.circle(x, y, 19, fill="paper", stroke="key")
            drawing.text(x, y + 7, str(step), bold=True)
    x = LEFT + side + 34
    for row, (kind, words, more) in enumerate((("free", f"{free} tiles, full:", "no mask"),
                                               ("masked", f"{masked} tiles, half full:", "a mask"),
                                               ("skipped", f"{skipped} tiles:", "skipped"))):
        y = TOP + 40 + 84 * row
        area = Area(x, y, x + 40, y + 40)
        drawing.rect(area, fill="key" if kind == "free" else "plain", tint=0.45 if kind == "free" else 1,
                     stroke="faint" if kind == "skipped" else "key", radius=0, hatched=kind == "skipped")
        if kind == "masked":
            staircase(drawing, area, block)
        drawing.text(x + 52, y + 16, words, size=SMALL, anchor="start")
        drawing.text(x + 52, y + 40, more, size=SMALL, anchor="start")
    return drawing


def staircase(drawing: Drawing, area: Area, block: int) -> None:
    """What may be seen of a tile on the diagonal."""
    step = (area.right - area.left) / block
    points = [(area.left, area.top)]
    for i in range(block):
        points += [(area.left + step * (i + 1), area.top + step * i),
                   (area.left + step * (i + 1), area.top + step * (i + 1))]
    drawing.path([*points, (area.left, area.bottom)], fill="key", stroke="key", tint=0.45, thick=1, closed=True)


def partial(scores: Sequence[float], values: Sequence[float]) -> Numbers:
    """(m, l, o) of some keys, by the definition.

    >>> partial([2, 1], [10, 20])[:2]
    (2, 1.3678794411714423)
    """
    m = max(scores)
    weights = [math.exp(score - m) for score in scores]
    return m, sum(weights), sum(w * value for w, value in zip(weights, values))


def two_workers(scores: Sequence[float], values: Sequence[float], cut: int) -> Drawing:
    """Keys shared between two workers, what each has found, and the two results merged.

    Args:
        scores, values: of three to six keys.
        cut: keys of the first worker.
    """
    n = len(scores)
    require(3 <= n <= 6 and len(values) == n, "len(scores)", n, "3 to 6, as many as values")
    require(0 < cut < n, "cut", cut, f"in [1, {n - 1}]")
    shares = (slice(0, cut), slice(cut, n))
    parts = [partial(scores[share], values[share]) for share in shares]
    whole = partial(scores, values)
    shrinks = [math.exp(part[0] - whole[0]) for part in parts]
    low = min(range(2), key=lambda i: parts[i][0])
    drawing = Drawing("Two workers and one merge",
                      f"{n} keys with scores {', '.join(map(str, scores))}. Worker A takes the first {cut}: "
                      f"{in_words(parts[0])}. Worker B takes the others: {in_words(parts[1])}. {'AB'[low]} has the "
                      f"smaller maximum, so its l and o are multiplied by {shrinks[low]:.3f}. The merge: "
                      f"{in_words(whole)}. Then o / l is {whole[2] / whole[1]:.2f}.", height=436)
    width = 92
    lefts = [360 - (width * n + 40) / 2 + width * i + (40 if i >= cut else 0) for i in range(n)]
    for i, left in enumerate(lefts):
        drawing.box(Area(left, 44, left + width - 8, 106), f"{scores[i]:g}", f"value {values[i]:g}", role="key",
                    mono=False)
    drawing.text(360, 30, "scores", size=SMALL, role="faint")
    middles = []
    for name, share, part in zip("AB", shares, parts):
        mine = lefts[share]
        middle = (mine[0] + mine[-1] + width - 8) / 2
        middles.append(middle)
        for left in mine:
            drawing.path([(left + width / 2 - 4, 108), (middle, 148)], stroke="faint")
        found(drawing, middle, 150, f"worker {name}", part)
    for middle, target, shrink in zip(middles, (300, 420), shrinks):
        drawing.arrow((middle, 258), (target, 316))
        outside = "end" if target < 360 else "start"
        drawing.text((middle + target) / 2 + (-16 if target < 360 else 16), 294,
                     f"× {shrink:.3f}" if shrink < 1 else "× 1", size=SMALL, anchor=outside, bold=shrink < 1)
    found(drawing, 360, 318, "merged", whole)
    drawing.text(484, 366, f"o / l = {whole[2] / whole[1]:.2f}", bold=True, anchor="start")
    return drawing


def in_words(part: Numbers) -> str:
    """The three numbers of a partial result."""
    return f"m {part[0]:g}, l {part[1]:.3f}, o {part[2]:.2f}"


def found(drawing: Drawing, middle: float, top: float, name: str, part: Numbers) -> None:
    """A box with a partial result."""
    drawing.rect(Area(middle - 108, top, middle + 108, top + 106), fill="cache", tint=0.2, stroke="cache")
    drawing.text(middle, top + 25, name, size=SMALL, bold=True)
    for i, line in enumerate((f"m = {part[0]:g}", f"l = {part[1]:.3f}", f"o = {part[2]:.2f}")):
        drawing.text(middle, top + 49 + 23 * i, line, size=SMALL)
