"""Checks of notebook 10, FlashAttention. What is expected is summed key by key in Python, or counted by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib import flash
from course_lib.analysis.peak_memory import peak_bytes
from course_lib.classroom.broken_tiles import MISTAKES, SUSPECTS
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import (
    CheckFailed,
    expect_close,
    expect_diagnosis,
    expect_number,
    misfit,
    show,
)

# Pairwise distinct sizes, so that no exchange of two axes goes unseen.
T, S, DH = 4, 5, 9
PARTS = ("m", "l", "o")

Parts = tuple[Tensor, Tensor, Tensor]


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def expect_parts(got: Parts, expected: Parts, **likely: str) -> None:
    """Refuse `got` unless it is a tuple of the three tensors; `likely` has words for m, l and o, or for all."""
    if not (isinstance(got, tuple) and len(got) == 3):
        words = None if isinstance(got, tuple) else misfit(got, expected)
        raise CheckFailed("a tuple of three tensors", show(got), "result", words or "return three things: m, l, o")
    for name, one, wanted in zip(PARTS, got, expected):
        expect_close(one, wanted, likely.get(name, likely.get("all", "")), rtol=1e-4, where=name)


# 10.1


def merge(a: Parts, b: Parts) -> Parts:
    """The partial result over the keys of both.

    Args:
        a, b: m (..., 1), l (..., 1) and o (..., Dh), over different keys.
    """
    return tuple(flash.merge(flash.Partial(*a), flash.Partial(*b)))


def merged_by_loops(a: Parts, b: Parts) -> Parts:
    """The definition, row by row and number by number."""
    m, total, mix = (x.clone() for x in a)
    for t in range(len(m)):
        larger = max(a[0][t].item(), b[0][t].item())
        keep = [math.exp(x[0][t].item() - larger) if x[0][t].isfinite() else 0.0 for x in (a, b)]
        m[t] = larger
        total[t] = math.fsum(s * x[1][t].item() for s, x in zip(keep, (a, b)))
        for d in range(mix.shape[1]):
            mix[t, d] = math.fsum(s * x[2][t, d].item() for s, x in zip(keep, (a, b)))
    return m, total, mix


def check_merge(attempt: Callable) -> None:
    def parts(m: list[float], total: list[float], mix: list[list[float]]) -> Parts:
        return torch.tensor(m)[:, None], torch.tensor(total)[:, None], torch.tensor(mix)

    def expect_merged(a: Parts, b: Parts, **likely: str) -> None:
        expect_parts(attempt(a, b), merged_by_loops(a, b), **likely)

    even = parts([1.0], [2.0], [[4.0, 6.0, 8.0]]), parts([1.0], [3.0], [[10.0, 20.0, 30.0]])
    expect_merged(*even, m="the new maximum is the larger of the two",
                  l="with equal maxima nothing is rescaled: the two sums add up, 2 + 3",
                  o="with equal maxima the accumulators add up; they are sums, so neither divide nor average them")
    low, high = parts([1.0], [2.0], [[4.0, 6.0, 8.0]]), parts([3.0], [1.5], [[1.0, 2.0, 3.0]])
    shrink = "the side with the smaller maximum shrinks by exp(its m - the larger m), which is at most 1"
    expect_merged(low, high, m="the new maximum is the larger of the two", l=f"the sum l: {shrink}; here it is a",
                  o=f"the accumulator o: {shrink}, just as l does; here it is a")
    expect_merged(high, low, m="the new maximum is the larger of the two, wherever it stands",
                  l=f"the sum l: {shrink}; now it is b", o=f"the accumulator o: {shrink}; now it is b")
    rows = (parts([1.0, 4.0], [2.0, 1.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
            parts([3.0, 2.0], [1.0, 2.0], [[7.0, 8.0, 9.0], [3.0, 2.0, 1.0]]))
    expect_merged(*rows, all="each row has a maximum of its own: torch.maximum compares element by element")
    far = parts([1000.0], [2.0], [[1.0, 2.0, 3.0]]), parts([-500.0], [1.0], [[4.0, 5.0, 6.0]])
    expect_merged(*far, all="exp(own m - larger m) is never above 1; exp(larger - own), or exp(m) alone, overflows")
    none = parts([-math.inf], [0.0], [[0.0, 0.0, 0.0]])
    for a, b in ((none, high), (high, none)):
        expect_merged(a, b, all="a partial result without any key (m = -inf, l = 0, o = 0) changes nothing")
    expect_merged(none, none, all="two results without any key: -inf - (-inf) is NaN, and NaN never goes away; "
                                  "subtract a finite number there, such as m.clamp(min=-1e30), and exp gives 0")
    many = [tuple(rand(6, n, seed=n + first, dtype=torch.float64).abs() for n in (1, 1, 7)) for first in (0, 9)]
    expect_merged(*many, all="any number of rows, and the type stays what it is")


# 10.2


def one_row(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """The attention output (Dh,) of one query, its keys loaded at most `block` at a time.

    Args:
        q: (Dh,).
        k, v: (S, Dh), all that the query may see.
        block: keys in a tile.
    """
    out = flash.flash_attention(q[None, None, None], k[None, None], v[None, None], causal=False, block_k=block)
    return out[0, 0, 0]


def row_by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The definition: softmax of all scores, then the weighted sum, number by number."""
    scores = [math.fsum(x * y for x, y in zip(q.tolist(), key)) / math.sqrt(len(q)) for key in k.tolist()]
    weights = [math.exp(score - max(scores)) for score in scores]
    return torch.tensor([math.fsum(w * x for w, x in zip(weights, column)) / math.fsum(weights)
                         for column in v.T.tolist()], dtype=q.dtype)


def check_one_row(attempt: Callable) -> None:
    def expect_row(q: Tensor, k: Tensor, v: Tensor, block: int, likely: str) -> None:
        expect_close(attempt(q, k, v, block), row_by_loops(q, k, v), likely, rtol=1e-4, atol=1e-5)

    k, v = rand(6, DH), rand(6, DH, seed=1)
    expect_row(torch.zeros(DH), k, v, 6, "one tile and equal scores: the output (Dh,) is the mean of the values; "
                                         "divide o by l at the end")
    expect_row(3 * torch.ones(DH), k, v, 6, "divide the scores by the square root of Dh, the length of q")
    expect_row(torch.zeros(DH), k, v, 3, "divide by l once, after the last tile: o is a sum until then")
    expect_row(torch.zeros(DH), k[:5], v[:5], 3, "the last tile may be shorter; its keys count, and each key counts "
                                                 "the same: a mean of the tiles' results is something else")
    one = torch.zeros(DH)
    one[0] = 3.0
    falling, rising = torch.zeros(2, 5, DH)
    falling[:, 0], rising[:, 0] = torch.arange(5, 0, -1), torch.arange(1, 6)
    expect_row(one, falling, v[:5], 2, "a tile whose scores are lower than those before it: its own sums shrink in "
                                       "merge")
    expect_row(one, rising, v[:5], 2, "the maximum rises from tile to tile: merge rescales what came before")
    expect_row(1000 * one, rising, v[:5], 2, "scores of 1000: exp overflows unless the tile's own maximum is "
                                             "subtracted")
    expect_row(1000 * one, -rising, v[:5], 2, "all scores are about -1000: the maximum starts at -inf, not at 0, or "
                                              "every exp is 0")
    expect_row(rand(3), rand(7, 3, seed=2), rand(7, 3, seed=3), 10, "a tile may be larger than the text")
    expect_row(rand(3, dtype=torch.float64), rand(7, 3, seed=2, dtype=torch.float64),
               rand(7, 3, seed=3, dtype=torch.float64), 1, "the type stays what it is; a tile may be a single key")
    many = 4096
    q, k, v = rand(4), rand(many, 4, seed=4), rand(many, 4, seed=5)
    if (held := peak_bytes(lambda: attempt(q, k, v, 8))) >= many * q.element_size():
        raise CheckFailed(f"fewer than {many * q.element_size():,} bytes, the row of all scores",
                          f"{held:,} bytes at once", "the memory that the loop needs",
                          "score one tile at a time: the row of all scores must never exist")


# 10.3


def traffic(T: int, S: int, head_dim: int, causal: bool, block_q: int, bytes_per_number: float) -> tuple[float, float]:
    """Bytes that one head of attention in tiles loads and stores: (loaded, stored)."""
    return tuple(flash.flash_traffic(T, S, head_dim, causal=causal, block_q=block_q,
                                     bytes_per_element=bytes_per_number))


def check_traffic(attempt: Callable) -> None:
    def expect_traffic(sizes: tuple[int, int, int, bool, int, float], loaded: float, stored: float, likely: str,
                       stored_likely: str = "") -> None:
        got = attempt(*sizes)
        if not (isinstance(got, tuple) and len(got) == 2):
            raise CheckFailed("a tuple of two numbers", show(got), "result", "return both: loaded, stored")
        expect_number(got[0], loaded, likely, rtol=1e-12, atol=0, where="loaded")
        expect_number(got[1], stored, stored_likely or likely, rtol=1e-12, atol=0, where="stored")

    expect_traffic((4, 7, 10, False, 4, 1), 40 + 140, 40,
                   "one tile of 4 queries: 4 · 10 numbers of q, and 7 · 10 each of k and v; scores stay on the chip",
                   "what is stored is the output, T · Dh numbers, and no scores")
    expect_traffic((4, 7, 10, False, 2, 1), 40 + 2 * 140, 40,
                   "every tile of queries loads all keys and values once; it loads its own queries only",
                   "each output row is stored once, however many tiles there are")
    expect_traffic((5, 7, 10, False, 3, 1), 50 + 2 * 140, 50,
                   "the last tile may be shorter, and it loads all keys and values as well: round T / block_q up")
    expect_traffic((4, 7, 10, False, 9, 1), 40 + 140, 40, "a tile may be larger than the text: it holds T queries")
    expect_traffic((4, 4, 10, True, 2, 1), 40 + 20 * (2 + 4), 40,
                   "causal: the first tile ends at query 2 and loads 2 keys, the second loads 4")
    expect_traffic((5, 5, 10, True, 3, 1), 50 + 20 * (3 + 5), 50,
                   "causal: a tile loads keys up to its last query, min(first + block_q, T), and no more")
    expect_traffic((5, 8, 10, True, 2, 1), 50 + 20 * (5 + 7 + 8), 50,
                   "causal, after a cache: the queries are the last T of S positions, so a tile sees S - T + end keys")
    expect_traffic((4, 7, 10, False, 4, 2), 2 * 180, 2 * 40, "each number takes bytes_per_number",
                   "each number takes bytes_per_number, in the output as well")
    expect_traffic((300, 300, 3, True, 1, 0.5), 0.5 * (900 + 6 * 300 * 301 / 2), 0.5 * 900,
                   "however many tiles; half a byte is possible")


# 10.4


def masked_tile(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Parts:
    """What the keys of one tile contribute to each query: m (T, 1), l (T, 1) and o (T, Dh).

    Args:
        q: (T, Dh).
        k, v: (S, Dh).
        mask: (T, S), True where the query may see the key.
    """
    partial = flash.partial_attention(q[None, None], k[None, None], v[None, None], mask)
    return tuple(x[0, 0] for x in partial)


def tile_by_loops(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Parts:
    """The definition, query by query, over the keys that it may see."""
    m, total, mix = q.new_full((len(q), 1), -math.inf), q.new_zeros(len(q), 1), q.new_zeros(len(q), v.shape[1])
    for t, row in enumerate(q.tolist()):
        scores = {s: math.fsum(x * y for x, y in zip(row, key)) / math.sqrt(len(row))
                  for s, key in enumerate(k.tolist()) if mask[t, s]}
        if scores:
            weights = {s: math.exp(score - max(scores.values())) for s, score in scores.items()}
            m[t], total[t] = max(scores.values()), math.fsum(weights.values())
            mix[t] = torch.tensor([math.fsum(w * v[s, d].item() for s, w in weights.items())
                                   for d in range(v.shape[1])], dtype=v.dtype)
    return m, total, mix


def check_masked_tile(attempt: Callable) -> None:
    def expect_tile(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **likely: str) -> None:
        expect_parts(attempt(q, k, v, mask), tile_by_loops(q, k, v, mask), **likely)

    k, v, seen = rand(S, DH), rand(S, DH, seed=1), torch.ones(T, S, dtype=torch.bool)
    expect_tile(torch.zeros(T, DH), k, v, seen, m="equal scores of 0: the maximum of each row is 0, as (T, 1); True in "
                                                 "the mask means that the query may see the key",
                l="equal scores: each key adds exp(0) = 1, so l is S, as (T, 1)",
                o="o is the sum of exp(score - m) times value, (T, Dh); it is not divided yet")
    expect_tile(3 * torch.ones(T, DH), k, v, seen, all="divide the scores by the square root of Dh, the last axis of q")
    holes = torch.tensor([[True, False, True, True, False], [False, True, False, False, False],
                          [True, True, True, True, True], [False, False, True, False, True]])
    expect_tile(torch.zeros(T, DH), k, v, holes,
                m="where the mask is True the query may see the key; the maximum there is 0",
                l="a masked key adds nothing: its score becomes -inf where the mask is False, and a score of 0 would "
                  "still add exp(0)", o="a masked key adds nothing to o either: mask the scores, before exp")
    one, loud = torch.zeros(T, DH), torch.zeros(S, DH)
    one[:, 0], loud[:, 0] = 3.0, torch.tensor([1.0, 2.0, 200.0, 0.0, 1.0])
    expect_tile(one, loud, v, torch.tensor([[True, True, False, True, True]]).expand(T, -1),
                all="the largest score belongs to a masked key: mask first, and take the maximum of what is left")
    rows = torch.zeros(T, DH)
    rows[:, 0] = torch.tensor([1000.0, 1.0, -1000.0, 2.0])
    expect_tile(rows, loud / 100, v, seen, all="each row has a maximum of its own; with the one of the whole tile, "
                                               "low rows come out as 0, and without any, exp overflows")
    nobody = holes.clone()
    nobody[2] = False
    expect_tile(rand(T, DH), k, v, nobody,
                m="a row that sees no key has m = -inf, so that merging it changes nothing; a large negative number "
                  "in place of -inf makes a maximum out of nothing",
                l="a row that sees no key has l = 0; exp(-inf - (-inf)) is NaN, so subtract a finite number there, "
                  "such as m.clamp(min=-1e30)",
                o="a row that sees no key has o = 0; exp(-inf - (-inf)) is NaN, so subtract a finite number there, "
                  "such as m.clamp(min=-1e30)")
    expect_tile(rand(2, 3, dtype=torch.float64), rand(6, 3, seed=2, dtype=torch.float64),
                rand(6, 3, seed=3, dtype=torch.float64), torch.ones(2, 6, dtype=torch.bool).tril(3),
                all="sizes come from the shapes, and the type stays what it is")


# 10.5


def diagnosis() -> dict[str, str]:
    """The mistake of each loop, by its short name."""
    return {letter: loop.keywords["mistake"] for letter, loop in SUSPECTS.items()}


# What in the table only one of the mistakes explains.
EVIDENCE = {
    "A": "tiles of 1 are right, so nothing goes wrong between two tiles, nor inside one. What is special about 7 keys "
         "in tiles of 3?",
    "B": "tiles of 1 are right, and one tile of 7 is wrong, where nothing is merged. Which mistake happens inside a "
         "tile?",
    "C": "one tile of 7 is right, and tiles of 1 are wrong. Which mistake happens between two tiles, and only there?",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), MISTAKES, EVIDENCE)


EXERCISES = (
    Exercise(
        "10.1", "merge two partial results", merge, check_merge, minutes=7, hints=(
            "Write the two sums of the five numbers with one maximum in both. Which one has to change?",
            "m = torch.maximum(m_a, m_b). The factors are (m_a - m).exp() and (m_b - m).exp(), for l and for o.",
            "Where both maxima are -inf the difference is NaN. Subtract m.clamp(min=-1e30): then "
            "exp(-inf) is 0.",
        )),
    Exercise(
        "10.2", "one row, a tile at a time", one_row, check_one_row, minutes=12, hints=(
            "for start in range(0, len(k), block). A slice may go over the end; it then is shorter.",
            "Of a tile: scores = k[start:end] @ q / sqrt(Dh), m = its maximum, weights = (scores - m).exp(), "
            "l = their sum, o = weights @ v[start:end].",
            "Before the first tile: m = -inf and l = 0, of shape (1,), and o = torch.zeros_like(q). After the last: "
            "o / l.",
        )),
    Exercise(
        "10.3", "bytes in tiles", traffic, check_traffic, minutes=9, difficulty="stretch", hints=(
            "Take T = S = 4 and block_q = 2. What does the first tile of queries load, and what the second?",
            "A loop: for first in range(0, T, block_q), with end = min(first + block_q, T). Add up the keys that each "
            "tile loads.",
            "loaded = (T + 2 * keys) * head_dim numbers, where a tile adds S - T + end keys if causal, S if not. "
            "stored = T * head_dim numbers.",
        )),
    Exercise(
        "10.4", "a tile with a mask", masked_tile, check_masked_tile, minutes=8, difficulty="stretch", hints=(
            "Notebook 03 says what a masked score is. Take the maximum after that, with keepdim=True.",
            "scores = (q @ k.T / sqrt(Dh)).masked_fill(~mask, -torch.inf), then m = scores.amax(-1, keepdim=True).",
            "A row without any key has m = -inf, and -inf - (-inf) is NaN. (scores - m.clamp(min=-1e30)).exp() is 0 "
            "there.",
        )),
    Exercise(
        "10.5", "diagnose three loops", diagnosis, check_diagnosis, minutes=6, kind="find the bug",
        difficulty="stretch", hints=(
            "For each mistake ask: with one tile for the whole row, does it do anything at all?",
            "With tiles of a single key, every tile is whole, and it is either seen or not. Which mistakes cannot "
            "show?",
            "A missing rescale needs two tiles. A missing tail needs a tile that is too short. The open diagonal needs "
            "a tile of two keys or more.",
        )),
)
