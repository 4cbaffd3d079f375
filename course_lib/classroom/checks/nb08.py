"""Checks of notebook 08, KV cache. What is expected is written by hand, or counted position by position."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.classroom.cache_ladder import MISTAKES, SUSPECTS, Buffers
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import (
    CheckFailed,
    expect_close,
    expect_diagnosis,
    expect_equal,
    expect_number,
    show,
)
from course_lib.config import ModelConfig
from course_lib.costs import kv_bytes_per_token

# Pairwise distinct sizes, so that no exchange of two axes goes unseen.
B, HKV, S, T, DH = 2, 3, 5, 4, 7


def states(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# 08.1


def append(held: Tensor | None, new: Tensor) -> tuple[Tensor, int]:
    """Keys or values of all positions, and how many bytes of the old ones were copied.

    Args:
        held: (B, Hkv, past, Dh), or None where nothing is kept yet.
        new: (B, Hkv, T, Dh).
    """
    if held is None:
        return new, 0
    return torch.cat((held, new), dim=2), held.numel() * held.element_size()


def check_append(attempt: Callable) -> None:
    def expect_appended(held: Tensor | None, new: Tensor, copied: int, likely: str, bytes_likely: str = "") -> None:
        try:
            got = attempt(held, new)
        except (TypeError, AttributeError) as error:
            if held is not None or "None" not in str(error):
                raise
            raise CheckFailed("a tensor and 0 bytes", f"{type(error).__name__}: {error}", "result does not come",
                              "held is None at first, and None is no tensor: return new, 0 before you join "
                              "anything") from error
        if not (isinstance(got, tuple) and len(got) == 2):
            raise CheckFailed("a tuple of a tensor and a number", show(got), "result",
                              "return both: all, copied")
        rows = [new[:, :, t] for t in range(new.shape[2])]
        rows = rows if held is None else [*(held[:, :, s] for s in range(held.shape[2])), *rows]
        expect_close(got[0], torch.stack(rows, dim=2), likely, rtol=0, atol=0, where="result[0]")
        expect_number(got[1], copied, bytes_likely or likely, rtol=0, atol=0, where="result[1]")

    new = states(B, HKV, T, DH)
    expect_appended(None, new, 0, "with nothing kept yet, all there is are the new positions",
                    "with nothing kept yet, no old position is copied: 0 bytes")
    held = states(B, HKV, S, DH, seed=1)
    expect_appended(held, new, B * HKV * S * DH * 4,
                    "positions are axis 2 of (B, Hkv, S, Dh), and the old ones come first",
                    "every number of held is copied, in all rows and heads: numel() of them, not only the positions, "
                    "and none of new; each takes element_size() bytes")
    expect_appended(states(1, HKV, 9, DH), states(1, HKV, 1, DH, seed=1), HKV * 9 * DH * 4,
                    "one new position at the end of those that are held",
                    "the bytes of what was held, however few are new")
    expect_appended(states(B, 1, S, DH, dtype=torch.bfloat16), states(B, 1, 2, DH, seed=3, dtype=torch.bfloat16),
                    B * S * DH * 2, "the type stays what it is",
                    "a number has element_size() bytes: 2 in bfloat16, 4 in float32, 8 in float64")
    expect_appended(states(1, 2, 3, DH, dtype=torch.float64), states(1, 2, 1, DH, dtype=torch.float64), 2 * 3 * DH * 8,
                    "the type stays what it is",
                    "a number has element_size() bytes: 2 in bfloat16, 4 in float32, 8 in float64")


# 08.2


def write_in_place(layer: Buffers, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
    """Write T positions into a layer's buffers; return views of all that are written, (B, Hkv, S, Dh) each."""
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end] = key_states
    layer.values[:, :, start:end] = value_states
    layer.length = end
    return layer.keys[:, :, :end], layer.values[:, :, :end]


def check_write_in_place(attempt: Callable) -> None:
    layer = Buffers(B, HKV, 9, DH)
    places = layer.keys.data_ptr(), layer.values.data_ptr()
    written: tuple[list[Tensor], list[Tensor]] = ([], [])

    def expect_written(n: int, likely: str) -> None:
        new = states(B, HKV, n, DH, seed=n), states(B, HKV, n, DH, seed=n + 10)
        got = attempt(layer, *new)
        if not (isinstance(got, tuple) and len(got) == 2):
            raise CheckFailed("a tuple of two tensors", show(got), "result", "return keys and values of all positions")
        for one, states_, name, result in zip(written, new, ("keys", "values"), got):
            one.append(states_)
            expect_close(result, torch.cat(one, dim=2), f"{name}: {likely}", rtol=0, atol=0, where=name)
        total = sum(states_.shape[2] for states_ in written[0])
        expect_equal(layer.length, total, "the next call starts where this one ended: add T to layer.length",
                     where="layer.length")
        for result, name, place, buffer in zip(got, ("keys", "values"), places, (layer.keys, layer.values)):
            if buffer.data_ptr() != place or buffer.shape[2] != 9:
                raise CheckFailed("the buffer that was allocated", "another tensor", f"layer.{name}",
                                  "assign to a slice of the buffer, layer.keys[:, :, start:end] = ..., so that nothing "
                                  "new is allocated")
            if result.data_ptr() != place:
                raise CheckFailed("a view of the buffer", "a copy", name,
                                  "return a slice of the buffer: .clone(), torch.cat and a list of indices copy")

    expect_written(4, "of the buffer only the first `length` positions are written; return those, and not the rest")
    expect_written(1, "a later call writes after the positions that are there")
    expect_written(3, "T is key_states.shape[2], and every call goes on at layer.length")
    expect_written(1, "the last place of the buffer is a place, too")


# 08.3


def positions_and_mask(T: int, past: int) -> tuple[Tensor, Tensor]:
    """For T new tokens after `past` cached ones: their positions (T,), and which keys each may see (T, past + T)."""
    positions = torch.arange(past, past + T)
    return positions, torch.arange(past + T) <= positions[:, None]


def check_positions_and_mask(attempt: Callable) -> None:
    def expect_both(T: int, past: int, positions: list[int], rows: list[list[int]], where_likely: str,
                    mask_likely: str) -> None:
        got = attempt(T, past)
        if not (isinstance(got, tuple) and len(got) == 2):
            raise CheckFailed("a tuple of two tensors", show(got), "result", "return positions, mask")
        expect_close(got[0], torch.tensor(positions), where_likely, where="positions")
        expect_close(got[1], torch.tensor(rows, dtype=torch.bool), mask_likely, where="mask")

    expect_both(3, 0, [0, 1, 2], [[1, 0, 0], [1, 1, 0], [1, 1, 1]], "an empty cache: the first token is at position 0",
                "an empty cache does not make the future visible: each token sees itself and those before it")
    expect_both(1, 4, [4], [[1, 1, 1, 1, 1]],
                "four positions are taken, 0 to 3: the next is number 4, read before the cache is updated",
                "a single new token sees everything that is cached, and itself")
    expect_both(2, 3, [3, 4], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], "the new tokens go on counting where the cache ends",
                "the first new token sees the three cached keys and itself: the triangle sits at the right end, "
                "not at the left")
    expect_both(4, 2, [2, 3, 4, 5], [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1] * 6],
                "T positions from `past` on", "new tokens do not see one another's future: token t sees past + t + 1")
    expect_both(2, 700, [700, 701], [[1] * 701 + [0], [1] * 702], "however much is cached",
                "however much is cached, token t sees past + t + 1 keys")


# 08.4


def cache_bytes(config: ModelConfig, positions: int, batch_size: int, bytes_per_number: float) -> float:
    """Bytes of the KV cache of `batch_size` texts of this many positions."""
    kept = min(positions, config.sliding_window or positions)
    return batch_size * kept * kv_bytes_per_token(config, bytes_per_number)


def check_cache_bytes(attempt: Callable) -> None:
    def shape(**changes: int) -> ModelConfig:
        return ModelConfig(**{"vocab_size": 100, "hidden_size": 48, "intermediate_size": 20, "num_hidden_layers": 5,
                              "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 64,
                              **changes})

    def expect_bytes(config: ModelConfig, positions: int, batch: int, each: float, expected: float,
                     likely: str) -> None:
        expect_number(attempt(config, positions, batch, each), expected, likely, rtol=1e-12, atol=0)

    plain = shape(num_hidden_layers=1, num_key_value_heads=1, num_attention_heads=1, hidden_size=8)
    expect_bytes(plain, 1, 1, 1, 2 * 8, "a position leaves a key *and* a value of head_dim numbers")
    expect_bytes(shape(num_key_value_heads=6), 1, 1, 1, 2 * 5 * 6 * 8, "every layer and every key/value head keeps "
                                                                      "keys of its own")
    expect_bytes(shape(), 1, 1, 1, 2 * 5 * 3 * 8,
                 "query heads share: the cache holds num_key_value_heads of them, not num_attention_heads")
    expect_bytes(shape(head_dim=16), 1, 1, 1, 2 * 5 * 3 * 16,
                 "head_dim is a setting of its own, and need not be hidden_size / num_attention_heads")
    expect_bytes(shape(), 11, 1, 1, 2 * 5 * 3 * 8 * 11, "each of the positions is kept")
    expect_bytes(shape(), 11, 7, 1, 2 * 5 * 3 * 8 * 11 * 7, "each text of the batch has a cache of its own")
    expect_bytes(shape(), 11, 1, 4, 2 * 5 * 3 * 8 * 11 * 4, "each number takes bytes_per_number")
    expect_bytes(shape(), 11, 1, 0.5, 2 * 5 * 3 * 8 * 11 * 0.5, "half a byte is possible: 4 bits a number")
    expect_bytes(shape(sliding_window=4), 11, 2, 2, 2 * 5 * 3 * 8 * 4 * 2 * 2,
                 "a model with a sliding_window keeps that many positions at most")
    expect_bytes(shape(sliding_window=20), 11, 2, 2, 2 * 5 * 3 * 8 * 11 * 2 * 2,
                 "a text shorter than the sliding_window keeps its own length")


# 08.5


def diagnosis() -> dict[str, str]:
    """The mistake of each cache, by its short name."""
    return {letter: next(name for name, kind in MISTAKES.items() if kind is suspect)
            for letter, suspect in SUSPECTS.items()}


# What in the table only one of the mistakes explains.
EVIDENCE = {
    "A": "it is right in one call, where nothing is cached, and token by token, where there is no row but one: which "
         "mistake needs both several rows and an old key?",
    "B": "it is right token by token, where no future exists in the call, and wrong in one call, where nothing is "
         "cached: what does a row see there that it should not?",
    "C": "it is right in one call, where every position is counted from 0, and wrong token by token, where there is "
         "nothing to hide: what is left that can be wrong?",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), MISTAKES, EVIDENCE)


# 08.6


def ring_slot(position: int, window: int, sink: int) -> int:
    """Where a position is written: the first `sink` keep their place, the others take turns in `window` slots."""
    return position if position < sink else sink + (position - sink) % window


def check_ring_slot(attempt: Callable) -> None:
    def expect_slots(window: int, sink: int, slots: list[int], likely: str, start: int = 0) -> None:
        for position, slot in enumerate(slots, start):
            expect_number(attempt(position, window, sink), slot, likely, rtol=0, atol=0)

    expect_slots(4, 0, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
                 "without a sink the slots are 0, 1, 2, 3 and then 0 again: the remainder after division by the window")
    expect_slots(5, 2, [0, 1], "the first `sink` positions keep slots 0 to sink - 1")
    expect_slots(3, 2, [2, 3, 4, 2, 3, 4, 2], "after the sink, `window` slots take turns: slots sink to "
                                             "sink + window - 1, and position `sink` gets the first of them", start=2)
    expect_slots(1, 0, [0, 0, 0], "a window of 1 has one slot")
    expect_slots(4, 1, [1 + (p - 1) % 4 for p in range(997, 1003)], "however long the text is", start=997)


# 08.7


def window_mask(queries: Tensor, keys: Tensor, window: int, sink: int) -> Tensor:
    """Which keys each query may see, by their positions in the text: (T, S), True where it may.

    Args:
        queries: positions (T,).
        keys: positions (S,), in any order.
        window: positions that a query sees, its own included.
        sink: first positions that every later query sees as well.
    """
    query = queries[:, None]
    return (keys <= query) & ((keys > query - window) | (keys < sink))


def check_window_mask(attempt: Callable) -> None:
    def expect_seen(queries: list[int], keys: list[int], window: int, sink: int, likely: str) -> None:
        expected = [[k <= q and (q - k < window or k < sink) for k in keys] for q in queries]
        expect_close(attempt(torch.tensor(queries), torch.tensor(keys), window, sink), torch.tensor(expected), likely)

    expect_seen([5], [5], 1, 0, "the window counts the query's own position: with a window of 1 it sees itself")
    expect_seen([5], [0, 1, 2, 3, 4, 5], 3, 0, "a window of 3 at position 5 holds 3, 4 and 5, and no more")
    expect_seen([3, 4], [0, 1, 2, 3, 4], 9, 0, "a wide window does not show the future")
    expect_seen([3, 4, 7], [0, 1, 2, 3, 4], 2, 0, "the positions count, not the places in the row: result[t, s] is "
                                                  "about queries[t] and keys[s]")
    expect_seen([9], [8, 9, 6, 7], 3, 0, "in a ring the keys lie in any order; each carries its position")
    expect_seen([8], [0, 1, 2, 7, 8], 2, 2, "the first `sink` positions, 0 to sink - 1, are seen from everywhere")
    expect_seen([0, 1, 6], [0, 1, 2, 6], 2, 3, "the sink does not show the future either")
    expect_seen([10, 11], [0, 1, 2, 3, 8, 9, 10, 11], 3, 1, "the window or the sink, and never the future")


EXERCISES = (
    Exercise(
        "08.1", "append, and count the copies", append, check_append, minutes=5, difficulty="warm-up", hints=(
            "Which axis of (B, Hkv, S, Dh) grows when a token is added?",
            "torch.cat((held, new), dim=2) makes a new tensor. What was in `held` is copied into it.",
            "A tensor has numel() numbers of element_size() bytes. With held None there is nothing to copy: "
            "return new, 0.",
        )),
    Exercise(
        "08.2", "write in place", write_in_place, check_write_in_place, minutes=7, hints=(
            "The buffers are there. Which positions of them are free, and which of those do you need?",
            "start = layer.length, end = start + key_states.shape[2]. A slice can stand on the left of `=`.",
            "layer.keys[:, :, start:end] = key_states, the same for values, then layer.length = end. Return "
            "layer.keys[:, :, :end] and layer.values[:, :, :end]: slices are views.",
        )),
    Exercise(
        "08.3", "positions and mask after a cache", positions_and_mask, check_positions_and_mask, minutes=6, hints=(
            "Two new tokens after three cached ones: write down their positions, and the row of each.",
            "The positions are torch.arange(past, past + T). The keys have the positions 0 to past + T - 1.",
            "A key may be seen where its position is at most the query's: compare a row, torch.arange(past + T), with "
            "a column, positions[:, None].",
        )),
    Exercise(
        "08.4", "bytes of a cache", cache_bytes, check_cache_bytes, minutes=4, hints=(
            "Start with one position of one text in one layer. What is kept, and how many numbers is that?",
            "2 for key and value, times config.num_hidden_layers, config.num_key_value_heads, config.head_dim; then "
            "positions, texts and bytes.",
            "config.sliding_window is None or a number. With a number, no more than that many positions are kept: "
            "min(positions, config.sliding_window or positions).",
        )),
    Exercise(
        "08.5", "diagnose three caches", diagnosis, check_diagnosis, minutes=8, kind="find the bug",
        difficulty="stretch", hints=(
            "For each mistake ask: in one call through an empty cache, does it do anything at all?",
            "With one token in a call there is no future and no second row. Which mistakes can show there?",
            "A wrong count of positions shows as soon as something is cached. A missing mask shows as soon as there "
            "are two rows. A triangle in the wrong corner needs both.",
        )),
    Exercise(
        "08.6", "the slot of a position", ring_slot, check_ring_slot, minutes=5, difficulty="stretch", hints=(
            "Write the positions 0 to 9 in a row, and beneath them the slots of a ring of four.",
            "position % window starts again at 0. With a sink, count from the sink: position - sink.",
            "The first `sink` positions keep their place. The others: sink + (position - sink) % window.",
        )),
    Exercise(
        "08.7", "a mask by positions", window_mask, check_window_mask, minutes=8, difficulty="stretch", hints=(
            "A query at position 5 with a window of 3 sees 3, 4, 5. Which two comparisons say that?",
            "queries[:, None] is a column and keys a row, so that a comparison of the two is a table (T, S).",
            "Not the future, keys <= query; and in the window, keys > query - window, or in the sink, keys < sink.",
        )),
)
