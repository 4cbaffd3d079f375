"""FlashAttention drawn: the bytes are those of the formulas, the tiles those of the loop, the merge the library's."""

import re

import pytest
import torch
from well_drawn import check, hatched, paths, rects, words

from course_lib.analysis.slow_memory import SlowMemory
from course_lib.display.diagrams.tiles import CELL, causal_tiles, causal_walk, partial, two_memories, two_workers
from course_lib.flash import finish, flash_attention, merge, partial_attention


@pytest.mark.parametrize("T, Dh, block, size, said", [
    (8192, 32, 128, 4, ["268 MB", "stored: 538 MB", "loaded: 69.2 MB", "stored: 1.05 MB"]),
    (2048, 64, 64, 2, ["8.39 MB", "stored: 17 MB", "loaded: 8.91 MB", "stored: 0.262 MB"])])
def test_the_bytes_are_those_of_one_head(T, Dh, block, size, said):
    drawing = check(lambda: two_memories(T, Dh, block, bytes_per_element=size))
    assert set(said) <= set(words(drawing)), words(drawing)
    assert f"{T:,} × {T:,}" in words(drawing) and f"in tiles of {block} queries" in words(drawing)
    assert {"store scores", "load scores", "store weights", "load weights"} <= set(words(drawing))
    arrows = [line for line in paths(drawing, 3.2) if len(line) == 2]
    assert [start[0] > end[0] for start, end in arrows] == [True, False, True, False, False, True], "store goes left"


def test_the_bytes_are_those_that_a_run_moves():
    memory = SlowMemory()
    q, k, v = (memory.hold(torch.randn(1, 1, 2048, 64).bfloat16()) for _ in range(3))
    flash_attention(q, k, v, causal=True, block_q=64)
    drawing = two_memories(2048, 64, 64, bytes_per_element=2)
    assert f"loaded: {memory.loaded / 1e6:.3g} MB" in words(drawing)
    assert f"stored: {memory.stored / 1e6:.3g} MB" in words(drawing)


@pytest.mark.parametrize("tokens, block", [(12, 4), (12, 3), (6, 3), (8, 4)])
def test_the_walk_is_the_loop_s(tokens, block):
    """Which slices of keys the loop loads for which queries."""
    loads = []

    class Spy(torch.Tensor):
        def __getitem__(self, where):
            if isinstance(where, tuple) and len(where) == 3 and isinstance(where[2], slice):
                loads.append(where[2])
            return super().__getitem__(where)

    x = torch.randn(1, 1, tokens, 4)
    flash_attention(x, x.as_subclass(Spy), x, causal=True, block_q=block, block_k=block)
    visited = [(i, j) for i, j, kind in causal_walk(tokens, block) if kind != "skipped"]
    assert [load.start // block for load in loads] == [j for _, j in visited]
    drawing = check(lambda: causal_tiles(tokens, block))
    n = tokens // block
    assert [word for word in words(drawing) if word.isdigit()] == [str(i + 1) for i in range(len(visited))]
    assert len(hatched(drawing)) == n * (n - 1) // 2 + 1, "and one in the legend"
    grid = rects(drawing, "key", "0.5") or rects(drawing, "key", "0.4")
    assert len(grid) == n * (n - 1) // 2 + 1
    assert {round(width) for *_, width, _ in grid} == {CELL * block, 40}


@pytest.mark.parametrize("scores, values, cut", [([2, 1, 5, 0, 3], [10, 20, 30, 40, 50], 3), ([1, 4, 2], [5, 6, 7], 1),
                                                 ([4, 4, 0, 1, 2, 3], [1, 2, 3, 4, 5, 6], 2)])
def test_the_numbers_are_those_of_the_library(scores, values, cut):
    drawing = check(lambda: two_workers(scores, values, cut))
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    keys, given = (torch.tensor(x, dtype=torch.float64).view(1, 1, -1, 1) for x in (scores, values))
    parts = [partial_attention(one, keys[:, :, share], given[:, :, share]) for share in (slice(cut), slice(cut, None))]
    for part in (*parts, merge(*parts)):
        assert {f"m = {part.m.item():g}", f"l = {part.l.item():.3f}", f"o = {part.o.item():.2f}"} <= set(words(drawing))
    assert partial(scores, values) == pytest.approx([x.item() for x in merge(*parts)])
    assert f"o / l = {finish(merge(*parts)).item():.2f}" in words(drawing)
    factors = [float(word[2:]) for word in words(drawing) if re.fullmatch(r"× [\d.]+", word)]
    assert factors == pytest.approx([(part.m - merge(*parts).m).exp().item() for part in parts], abs=0.0006)


@pytest.mark.parametrize("call", [
    lambda: causal_tiles(13, 13), lambda: causal_tiles(12, 5), lambda: causal_tiles(4, 4),
    lambda: two_workers([1, 2], [1, 2], 1), lambda: two_workers([1, 2, 3], [1, 2], 1),
    lambda: two_workers([1, 2, 3], [1, 2, 3], 3)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
