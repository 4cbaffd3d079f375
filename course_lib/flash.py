"""FlashAttention: attention a tile at a time, without ever holding the (T, S) matrix of scores.

Attention over some of the keys comes down to three small tensors, a `Partial`. Two of them merge into the
one of all their keys, in any order and any grouping. A loop over tiles is this merge, and so is decoding with the
keys split between workers. The result is attention, not an approximation of it.
Sources: Milakov & Gimelshein 2018; Dao et al. 2022; Dao 2023; for decoding, Dao et al. 2023 (Flash-Decoding).
"""

from __future__ import annotations

import math
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.config import is_int, is_size, require
from course_lib.layers import causal_mask, repeat_kv


class Partial(NamedTuple):
    """Attention over some of the keys, not divided yet; the names are those of the papers.

    Attributes:
        m: (B, H, T, 1), the largest score that each query has met; -inf before the first.
        l: (B, H, T, 1), the sum of exp(score - m).
        o: (B, H, T, Dh), the sum of exp(score - m) times value, the accumulator.
    """

    m: Tensor
    l: Tensor  # noqa: E741
    o: Tensor


def nothing(q: Tensor, head_dim: int) -> Partial:
    """The partial result over no keys at all: merged with any other, it changes nothing.

    Args:
        q: queries (B, H, T, Dh).
        head_dim: of the values.
    """
    m = torch.full((*q.shape[:3], 1), -torch.inf, dtype=wide(q).dtype, device=q.device)
    return Partial(m, torch.zeros_like(m), m.new_zeros(*q.shape[:3], head_dim))


def partial_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Partial:
    """What these keys contribute to each query; numbers of 16 bits are computed with in float32.

    Args:
        q: (B, H, T, Dh).
        k, v: (B, Hkv, S, Dh) with S >= 1, some of the keys and their values.
        mask: broadcastable to (B, H, T, S), True where the query may see the key; None: everywhere.

    >>> m, l, o = partial_attention(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 3, 1), torch.ones(1, 1, 3, 1))
    >>> m.item(), l.item(), o.item()
    (0.0, 3.0, 3.0)
    """
    groups = q.shape[1] // k.shape[1]
    q, k, v = wide(q), repeat_kv(wide(k), groups), repeat_kv(wide(v), groups)
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    m = scores.amax(-1, keepdim=True)
    weights = exp_below(scores, m)
    return Partial(m, weights.sum(-1, keepdim=True), weights @ v)


def merge(a: Partial, b: Partial) -> Partial:
    """The partial result over the keys of both: each is rescaled to the larger maximum, then they add up."""
    m = torch.maximum(a.m, b.m)
    keep_a, keep_b = exp_below(a.m, m), exp_below(b.m, m)
    return Partial(m, keep_a * a.l + keep_b * b.l, keep_a * a.o + keep_b * b.o)


def exp_below(scores: Tensor, m: Tensor) -> Tensor:
    """exp(scores - m) for scores up to m, and 0 rather than NaN where both are -inf."""
    return (scores - m.clamp(min=torch.finfo(m.dtype).min)).exp()


def finish(partial: Partial) -> Tensor:
    """The attention output (B, H, T, Dh); zeros for a query that saw no key.

    The largest score of a query adds exp(0) = 1 to its sum, so a sum below 1 is the 0 of a query without keys.
    """
    return partial.o / partial.l.clamp(min=1)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, block_q: int = 128,
                    block_k: int = 256) -> Tensor:
    """Attention (B, H, T, Dh), a tile of queries against a tile of keys at a time.

    Args:
        q: (B, H, T, Dh).
        k, v: (B, Hkv, S, Dh), H a multiple of Hkv.
        causal: whether the queries are the last T of the S positions, none of which sees a later one. If T > S,
            the first T - S queries see nothing, and their rows are zeros. Tiles that nobody sees are skipped.
        block_q, block_k: queries and keys of a tile, >= 1; T and S need not be multiples of them.

    Raises:
        ValueError: shapes that do not belong together, or a block size that is no positive integer.
    """
    check_shapes(q, k, v)
    for name, size in (("block_q", block_q), ("block_k", block_k)):
        require(is_size(size), name, size, "a positive integer")
    T, S = q.shape[2], k.shape[2]
    out = q.new_empty(*q.shape[:3], v.shape[3])  # (B, H, T, Dh)
    for first in range(0, T, block_q):
        rows = q[:, :, first : first + block_q]
        n = rows.shape[2]
        seen = S - T + first + n if causal else S  # keys up to the last that the last of the rows may see
        partial = nothing(rows, v.shape[3])
        for start in range(0, seen, block_k):
            end = min(start + block_k, seen)
            mask = None
            if causal and end > seen - n + 1:  # the diagonal runs through this tile
                mask = causal_mask(n, seen - start, device=rows.device)[:, : end - start]
            partial = merge(partial, partial_attention(rows, k[:, :, start:end], v[:, :, start:end], mask))
        out[:, :, first : first + n] = finish(partial)
    return out


def flash_decode(q: Tensor, k: Tensor, v: Tensor, *, splits: int) -> Tensor:
    """Attention of one new query (B, H, 1, Dh), its keys split between workers whose results are merged.

    With one query there are no tiles of queries to share out, so the keys are. Here the workers take turns.

    Args:
        q: (B, H, 1, Dh).
        k, v: (B, Hkv, S, Dh), all positions up to the query's own.
        splits: workers, in [1, S]; their shares differ by one key at most.

    Raises:
        ValueError: shapes that do not belong together, more than one query, or splits out of range.
    """
    check_shapes(q, k, v)
    require(q.shape[2] == 1, "q.shape[2]", q.shape[2], "1, a single query")
    require(is_int(splits) and 1 <= splits <= k.shape[2], "splits", splits, f"an integer in [1, S = {k.shape[2]}]")
    rows = q.reshape(*k.shape[:2], -1, q.shape[3])  # (B, Hkv, H / Hkv, Dh), queries that share a head of keys
    shares = zip(k.tensor_split(splits, dim=2), v.tensor_split(splits, dim=2))
    out = finish(reduce(merge, [partial_attention(rows, *share) for share in shares]))
    return out.to(q.dtype).reshape(*q.shape[:3], v.shape[3])


class Traffic(NamedTuple):
    """Bytes that go between slow and fast memory."""

    loaded: float
    stored: float


def naive_traffic(T: int, S: int, head_dim: int, *, bytes_per_element: float = 2) -> Traffic:
    """Of one head of attention in three steps: scores, softmax, weighted sum.

    Each step loads what it needs once and stores what it made, so (T, S) matrices pass four times.

    >>> naive_traffic(8192, 8192, 128)
    Traffic(loaded=274726912, stored=270532608)
    """
    check_sizes(T=T, S=S, head_dim=head_dim)
    return Traffic(((T + 2 * S) * head_dim + 2 * T * S) * bytes_per_element,
                   (2 * T * S + T * head_dim) * bytes_per_element)


def flash_traffic(T: int, S: int, head_dim: int, *, causal: bool, block_q: int,
                  bytes_per_element: float = 2) -> Traffic:
    """Of one head of `flash_attention`.

    A tile of queries is loaded once and its output stored once; all the keys and values that it sees pass by. So
    block_q decides, and block_k only has to fit. With a fast memory of M numbers, of which a quarter is for the
    queries, block_q = M / (4 Dh), and what passes by is 8 T S Dh^2 / M numbers: the O(N^2 d^2 / M) of the paper.

    >>> flash_traffic(8192, 8192, 128, causal=False, block_q=128)
    Traffic(loaded=270532608, stored=2097152)
    """
    check_sizes(T=T, S=S, head_dim=head_dim, block_q=block_q)
    ends = [min(first + block_q, T) for first in range(0, T, block_q)]
    keys = sum(max(0, S - T + end) for end in ends) if causal else S * len(ends)
    return Traffic((T + 2 * keys) * head_dim * bytes_per_element, T * head_dim * bytes_per_element)


def tile_bytes(block_q: int, block_k: int, head_dim: int, *, bytes_per_element: float = 4) -> float:
    """Bytes of fast memory that one step of `flash_attention` needs for one head.

    They hold queries and accumulator (block_q, Dh), keys and values (block_k, Dh), the scores
    (block_q, block_k), and a maximum and a sum for each query.

    >>> tile_bytes(128, 128, 32)
    132096
    """
    check_sizes(block_q=block_q, block_k=block_k, head_dim=head_dim)
    return (2 * (block_q + block_k) * head_dim + block_q * block_k + 2 * block_q) * bytes_per_element


def wide(x: Tensor) -> Tensor:
    """Numbers of 16 bits as float32; others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse queries, keys and values that do not belong together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        require(len(x.shape) == 4, f"{name}.shape", tuple(x.shape), "of four axes, (batch, heads, positions, Dh)")
        require(x.dtype == q.dtype, f"{name}.dtype", x.dtype, f"that of q, {q.dtype}")
    B, H, _, Dh = q.shape
    require(k.shape[0] == B and k.shape[3] == Dh, "k.shape", tuple(k.shape), f"(B = {B}, Hkv, S, Dh = {Dh}), as q")
    require(v.shape[:3] == k.shape[:3], "v.shape", tuple(v.shape), f"{tuple(k.shape)}, as k, but for the last axis")
    require(k.shape[1] > 0 and H % k.shape[1] == 0, "k.shape[1]", k.shape[1], f"a divisor of the {H} query heads")


def check_sizes(**sizes: int) -> None:
    """Refuse a size that is no positive integer."""
    for name, size in sizes.items():
        require(is_size(size), name, size, "a positive integer")
