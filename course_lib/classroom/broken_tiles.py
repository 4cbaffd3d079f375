"""Three loops over tiles, each with one mistake, and the sizes of tiles that find it or hide it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from course_lib.config import is_size, require

Loop = Callable[[Tensor, Tensor, Tensor, int], Tensor]

TOKENS, BLOCKS = 7, (1, 3, 7)  # 3 does not divide 7
CLOSE = 1e-10  # of outputs of about 1 in float64, where rounding leaves some 1e-16


def attend_by_tiles(q: Tensor, k: Tensor, v: Tensor, block: int, *, mistake: str | None = None) -> Tensor:
    """Causal attention (T, Dh) of one head, a row at a time and of each row `block` keys at a time.

    Args:
        q, k, v: (T, Dh).
        block: keys in a tile, >= 1; the last tile has the rest.
        mistake: one of `MISTAKES`, or None for a loop that is right.
    """
    require(is_size(block), "block", block, "a positive integer")
    require(mistake is None or mistake in MISTAKES, "mistake", mistake, f"None, {', '.join(MISTAKES)}")
    T, rows = len(q), []
    for t in range(T):
        m, total, mix = -math.inf, 0.0, torch.zeros_like(v[0])
        for start in range(0, T - block + 1 if mistake == "no tail" else t + 1, block):
            end = start + block if mistake == "open diagonal" else min(start + block, t + 1)
            if start > t:
                break
            scores = k[start:end] @ q[t] / math.sqrt(q.shape[1])  # (keys,)
            larger = max(m, scores.max().item())
            keep = 1.0 if mistake == "no rescale" else math.exp(m - larger)
            weights = (scores - larger).exp()
            m, total, mix = larger, keep * total + weights.sum(), keep * mix + weights @ v[start:end]
        rows.append(mix / total)
    return torch.stack(rows)


MISTAKES = {
    "no rescale": "what came before is not rescaled when the maximum rises",
    "no tail": "only whole tiles are visited, not the shorter one at the end",
    "open diagonal": "a tile counts as a whole as soon as its first key may be seen",
}
SUSPECTS: dict[str, Loop] = {letter: partial(attend_by_tiles, mistake=name)
                             for letter, name in zip("ABC", ("no tail", "open diagonal", "no rescale"))}


def suspect_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (T, Dh) of one head, in float64; the same on every call."""
    generator = torch.Generator().manual_seed(6)
    return tuple(torch.randn(TOKENS, 4, generator=generator, dtype=torch.float64) for _ in range(3))
