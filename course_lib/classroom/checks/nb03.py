"""Checks of notebook 03, Attention. The oracle is the definition, loop by loop in float64, or a case by hand."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.analysis.heads import induction_scores, zero_heads
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, show
from course_lib.layers import attention_weights, causal_mask, repeat_kv

# Pairwise distinct sizes, so that no exchange of two axes goes unseen.
B, H, T, S, DH = 2, 3, 4, 5, 9


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# 03.1


def weights_by_loops(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """The definition, number by number."""
    result = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        scores = {s: sum(x * y for x, y in zip(q[b, h, t].tolist(), k[b, h, s].tolist())) / math.sqrt(q.shape[3])
                  for s in range(k.shape[2]) if mask[t, s]}
        total = sum(math.exp(score - max(scores.values())) for score in scores.values())
        for s, score in scores.items():
            result[b, h, t, s] = math.exp(score - max(scores.values())) / total
    return result.float()


def check_attention_weights(attempt: Callable) -> None:
    def expect_weights(q: Tensor, k: Tensor, mask: Tensor, likely: str) -> None:
        expected = weights_by_loops(q, k, mask)
        try:
            with warnings.catch_warnings():  # PyTorch's about k.T; ours says what to write
                warnings.filterwarnings("ignore", "The use of `x.T`")
                got = attempt(q, k, mask)
        except RuntimeError as error:
            if "must match" not in str(error) and "Expected size" not in str(error):
                raise
            raise CheckFailed(show(expected), f"RuntimeError: {error}", "result does not come",
                              "do the axes of the product fit? k.transpose(-1, -2) exchanges the last two of "
                              "(B, H, S, Dh); k.T reverses all four, and k alone still has Dh last") from error
        expect_close(got, expected, likely, rtol=1e-4)

    open_mask = torch.ones(T, S, dtype=torch.bool)
    expect_weights(torch.zeros(B, H, T, DH), rand(B, H, S, DH), open_mask,
                   "equal scores give equal attention weights, 1/S each: softmax runs over the keys, the last axis of "
                   "(B, H, T, S), and True in the mask means that the key may be seen")
    one = torch.zeros(1, 1, 1, DH)
    one[..., 0] = 3.0
    keys = torch.zeros(1, 1, S, DH)
    keys[..., 0] = torch.arange(S) / 2
    expect_weights(one, keys, open_mask[:1],
                   "divide the scores by the square root of Dh, the size of a query, before the softmax")
    holes = torch.tensor([[True, False, True, True, False], [False, True, False, False, False],
                          [True, True, True, True, True], [False, False, True, False, True]])
    expect_weights(torch.zeros(B, H, T, DH), rand(B, H, S, DH), holes,
                   "a masked key gets weight 0 and the rest sum to 1: set its score to -inf before the softmax, "
                   "where the mask is False; a score of 0 still weighs exp(0)")
    low = torch.full((1, 1, S, DH), -8.0)
    expect_weights(torch.ones(1, 1, T, DH), low, open_mask,
                   "the attention weights of a row sum to 1 however low its scores are: exp of low scores is tiny, so "
                   "add nothing to their sum and set no smallest value for it; with the largest score subtracted "
                   "first, the sum is at least 1")
    low[0, 0, 1] = 8.0
    expect_weights(torch.ones(1, 1, T, DH), low, holes,
                   "a masked key weighs exactly 0 however low the other scores are: -inf, not a number that "
                   "seems large enough")
    expect_weights(rand(B, H, T, DH), rand(B, H, S, DH, seed=1), holes,
                   "every batch row and every head has scores of its own: q (B, H, T, Dh) times k transposed, "
                   "(B, H, Dh, S)")
    expect_weights(200 * rand(B, H, T, DH), rand(B, H, S, DH, seed=1), open_mask,
                   "exp of a large score overflows: softmax subtracts the largest score of the row first")
    expect_weights(200 * rand(B, H, T, DH), rand(B, H, S, DH, seed=1), holes,
                   "the largest score of a row may be a masked one: mask first, then subtract the largest that is left")
    expect_weights(rand(1, 2, 2, 4), rand(1, 2, 7, 4, seed=1), torch.ones(2, 7, dtype=torch.bool),
                   "Dh, T and S come from the shapes")
    holes[2] = False
    expect_weights(rand(B, H, T, DH), rand(B, H, S, DH, seed=1), holes,
                   "a query that may see no key takes nothing, a row of zeros; softmax gives NaN there if all scores "
                   "are -inf, and equal shares if all are the same large negative number, so set the zeros after it")


# 03.2


def check_causal_mask(attempt: Callable) -> None:
    def expect_mask(T: int, S: int, rows: list[list[int]], likely: str) -> None:
        expect_close(attempt(T, S), torch.tensor(rows, dtype=torch.bool), likely)

    expect_mask(1, 1, [[1]], "a bool tensor (T, S), True where the query may see; each sees itself")
    expect_mask(3, 3, [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
                "with T = S row t sees the keys 0 ... t, itself included and nothing later")
    expect_mask(1, 4, [[1, 1, 1, 1]],
                "the queries are the *last* T of the S positions: a single one sees everything")
    expect_mask(2, 5, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
                "query t is at position S - T + t and sees the keys up to there: the triangle sits at the "
                "bottom right")
    expect_mask(3, 4, [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
                "query t is at position S - T + t: the first one sees the S - T keys before the queries, "
                "and itself")
    expect_mask(9, 300, [[int(s <= 300 - 9 + t) for s in range(300)] for t in range(9)],
                "query t is at position S - T + t, however long the text is")
    expect_mask(12, 12, [[int(s <= t) for s in range(12)] for t in range(12)],
                "with T = S row t sees the keys 0 ... t, however long the text is")


# 03.3


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Separate what the heads made: (B, T, H * Dh) to (B, H, T, Dh).

    Head h takes the neighbouring numbers h * Dh ... (h + 1) * Dh - 1.
    """
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def check_split_heads(attempt: Callable) -> None:
    def expect_split(batch: int, n: int, likely: str, heads: int = 5, size: int = 4) -> None:
        x = torch.arange(float(batch * n * heads * size)).view(batch, n, heads * size)
        expected = torch.tensor([[[[x[b, t, h * size + d].item() for d in range(size)] for t in range(n)]
                                  for h in range(heads)] for b in range(batch)])
        expect_close(attempt(x, heads), expected, likely)

    expect_split(1, 1, "the result is (B, H, T, Dh), and head h takes Dh neighbouring numbers, from h * Dh on")
    expect_split(1, 3, "a head keeps the order of the tokens: split the last axis into (H, Dh) first, then "
                       "exchange T and H; a view straight to (B, H, T, Dh) mixes tokens")
    expect_split(2, 3, "batch rows stay apart")
    x = rand(2, 3, 20).double() / 3
    expect_close(attempt(x, 5), torch.stack([x[..., 4 * h : 4 * h + 4] for h in range(5)], dim=1),
                 "the numbers only move: each stays what it is, to the last bit", rtol=0, atol=0)
    expect_close(attempt(x, 2), torch.stack([x[..., :10], x[..., 10:]], dim=1), "the number of heads is an argument")
    expect_split(3, 6, "the number of heads is an argument, and Dh follows from it", heads=2, size=7)


# 03.4


def check_repeat_kv(attempt: Callable) -> None:
    def expect_repeated(x: Tensor, groups: int, likely: str) -> None:
        expected = torch.stack([x[:, h // groups] for h in range(x.shape[1] * groups)], dim=1)
        expect_close(attempt(x, groups), expected, likely, rtol=0, atol=0)

    x = rand(2, 3, 5, 4)
    heads = torch.tensor([10.0, 20.0, 30.0]).view(1, 3, 1, 1)
    expect_repeated(heads, 2, "four axes, and neighbours share: head 10, 10, 20, 20, 30, 30; tiling gives "
                              "10, 20, 30, 10, 20, 30")
    expect_repeated(heads[:, :1], 7, "each head comes `groups` times, so Hkv * groups heads in all")
    expect_repeated(x, 2, "only the axis of heads grows; batch, positions and Dh do not change")
    expect_repeated(rand(1, 6, 3, 2), 4, "query head h reads key head h // groups, for any number of heads")
    expect_repeated(x.double() / 3, 2, "the numbers only move: each stays what it is, to the last bit")
    expect_repeated(x, 1, "with one query head per group nothing changes")


# 03.5


def check_induction_scores(attempt: Callable) -> None:
    n, layers, batch, heads = 4, 3, 2, 5
    i = torch.arange(n, 2 * n - 1)  # the queries that count: 4, 5, 6

    def looking(*looks: tuple[int, int, int | None, Tensor, Tensor]) -> Tensor:
        """All attention on oneself, but for (layer, head, batch row, queries, keys)."""
        weights = torch.eye(2 * n).repeat(layers, batch, heads, 1, 1)
        for layer, head, row, queries, keys in looks:
            rows = slice(None) if row is None else slice(row, row + 1)
            weights[layer, rows, head, queries] = 0.0
            weights[layer, rows, head, queries, keys] = 1.0
        return weights

    def scores(**found: float) -> Tensor:
        expected = torch.zeros(layers, heads)
        for place, value in found.items():
            expected[int(place[1]), int(place[3])] = value
        return expected

    def expect_scores(weights: Tensor, expected: Tensor, likely: str) -> None:
        expect_close(attempt(weights, n), expected, likely)

    expect_scores(looking(), scores(),
                  "the result is (L, H), and a head that looks at its own position all the time scores 0")
    expect_scores(looking((1, 3, None, i[-1:], i[-1:] - 2 * n + 3)), scores(),
                  "two slices take a block of entries; you need one entry for each query: index with two tensors, "
                  "i and i - n + 1, or take a diagonal")
    expect_scores(looking((1, 3, None, i, i - n)), scores(),
                  "the place is where the *next* token stood, i - n + 1; i - n holds the query's own token")
    expect_scores(looking((2, 0, None, i, i - 1)), scores(),
                  "looking at the previous token is no induction: look n - 1 positions back")
    expect_scores(looking((1, 3, None, i, i - n + 1)), scores(l1h3=1.0),
                  "a head with all its attention on i - n + 1 for i = n ... 2n - 2 scores 1: the first half, which "
                  "has nothing to copy, does not count, nor the last position, whose next token is not in the row; "
                  "rows are queries, columns are keys")
    expect_scores(looking((0, 4, None, i[1:], i[1:] - n + 1)), scores(l0h4=2 / 3),
                  "the mean over the n - 1 queries: right for two of three scores 2/3")
    expect_scores(looking((2, 1, 1, i, i - n + 1)), scores(l2h1=0.5), "the mean over the batch")
    expect_scores(0.5 * looking() + 0.5 * looking((2, 2, None, i, i - n + 1)), scores(l2h2=0.5),
                  "the score is the share of attention, not whether it is the largest")
    n, weights = 6, rand(2, 3, 4, 12, 12).softmax(-1)
    expected = torch.tensor([[math.fsum(weights[layer, b, h, i, i - n + 1].item() for b in range(3)
                                        for i in range(n, 2 * n - 1)) / (3 * (n - 1)) for h in range(4)]
                             for layer in range(2)])
    expect_scores(weights, expected, "n is an argument: the queries are i = n ... 2n - 2, whatever n is")


# 03.6


def check_zero_heads(attempt: Callable) -> None:
    def expect_zeros(x: Tensor, gone: list[int], num_heads: int, likely: str) -> None:
        expected, size = x.clone(), x.shape[2] // num_heads
        for b, t, h in torch.cartesian_prod(*map(torch.arange, (*x.shape[:2], num_heads))).tolist():
            for d in range(size):
                if h in gone:
                    expected[b, t, h * size + d] = 0
        expect_close(attempt(x, gone, num_heads), expected, likely, rtol=0, atol=0)

    x = rand(1, 1, 12) + 10
    expect_zeros(x, [1], 3, "head h has Dh neighbouring numbers, from h * Dh on, and Dh is the width divided by the "
                            "number of heads")
    expect_zeros(x, [0], 4, "the number of heads is an argument, and Dh follows from it")
    expect_zeros(x, [0, 3], 4, "the list may name several heads, not neighbours: each of them is zero, and no other")
    expect_zeros(x, [], 4, "with an empty list nothing changes: there is no head to remove")
    expect_zeros(rand(2, 5, 12) + 10, [2, 1], 3, "a removed head is zero in every text and at every token, and the "
                                                 "numbers of a token stay in their places")
    expect_zeros(rand(3, 4, 14).double() / 3, [1], 2, "the other numbers stay what they are, to the last bit")
    broken = rand(2, 3, 8)
    broken[:, :, 2:4] = torch.tensor([math.inf, math.nan])
    expect_zeros(broken, [1], 4, "set the numbers to 0: 0 times an infinity or a NaN is NaN")


EXERCISES = (
    Exercise(
        "03.1", "attention weights with a mask", attention_weights, check_attention_weights, minutes=8, hints=(
            "Take one_head line by line and ask of each line: what changes when there are two more axes in front? "
            "And which axis of (B, H, T, S) has to sum to 1?",
            "k.transpose(-1, -2) is (B, H, Dh, S); masked_fill(~mask, -torch.inf) removes what may not be seen; "
            "softmax(-1) runs over the keys.",
            "A row without any key comes out of the softmax as NaN. One more masked_fill, on the attention weights and "
            "with 0.0, repairs it and changes no other row.",
        )),
    Exercise(
        "03.2", "a mask for the last few queries", causal_mask, check_causal_mask, minutes=5,
        kind="find the bug", difficulty="stretch", hints=(
            "Print the broken mask for T = 2, S = 5. Which position does its first row belong to?",
            "The queries are the last T of S positions. So query t is at position S - T + t.",
            "Compare a column of query positions, arange(S - T, S)[:, None], with a row of key positions, or give "
            "`tril` its second argument.",
        )),
    Exercise(
        "03.3", "split a vector into heads", split_heads, check_split_heads, minutes=3, hints=(
            "Nothing is computed here, numbers only move. In x they lie in the order b, t, h, d. Which order do you "
            "need?",
            "A view can split the last axis in two, (B, T, H, Dh). It cannot exchange axes.",
            "First split the last axis, then exchange axis 1 and axis 2.",
        )),
    Exercise(
        "03.4", "repeat the key/value heads", repeat_kv, check_repeat_kv, minutes=3, difficulty="warm-up", hints=(
            "Six query heads, three key heads: write down which key head each query head reads.",
            "Query head h reads key head h // groups: 0, 0, 1, 1, 2, 2.",
            "PyTorch has two calls: repeat_interleave gives 0, 0, 1, 1, and repeat gives 0, 1, 0, 1.",
        )),
    Exercise(
        "03.5", "find the induction head", induction_scores, check_induction_scores, minutes=15,
        difficulty="stretch", hints=(
            "In `a b c d a b c d` take the second b, at i = 5 with n = 4. Which position should an induction "
            "head look at, and which is i - n?",
            "Two index tensors pick one entry for each pair: attentions[..., i, j] with i = arange(n, 2n - 1) and "
            "j = i - n + 1 is (L, B, H, n - 1).",
            "What is left is a mean over two axes of (L, B, H, n - 1): the texts, axis 1, and the queries, axis 3.",
        )),
    Exercise(
        "03.6", "knock heads out", zero_heads, check_zero_heads, minutes=5, hints=(
            "Three heads of two numbers each: which numbers of a token belong to head 1? Which slice is that?",
            "Dh is merged.shape[-1] // num_heads. Head h has the numbers h * Dh ... (h + 1) * Dh - 1.",
            "Work on merged.clone(), so that the input does not change. For each h of the list, set the slice "
            "[..., h * Dh : (h + 1) * Dh] to 0.",
        )),
)
