"""Attention by tiles is attention: merging partial results, the tiled loop, split keys, and the bytes that move."""

import random
import subprocess
import sys
from functools import reduce
from itertools import permutations, product

import pytest
import torch
from attention_cases import AttentionCases, assert_close, expected, tensors
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from course_lib import flash
from course_lib.flash import (
    Partial,
    Traffic,
    finish,
    flash_attention,
    flash_decode,
    flash_traffic,
    merge,
    naive_traffic,
    nothing,
    partial_attention,
    tile_bytes,
)
from course_lib.layers import attention, causal_mask


class TestFlashAttention(AttentionCases):
    """The cases that the Triton kernel has to pass as well."""

    DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    BLOCKS = ((1, 1), (3, 5), (16, 16), (64, 7), (100, 100))
    attend = staticmethod(flash_attention)


# --- one partial result ---------------------------------------------------------------------------


def of_scores(scores, values):
    """The partial result of scores and values, two lists: a query of 1 and keys that are the scores."""
    one, keys = torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.tensor(scores, dtype=torch.float64)
    return partial_attention(one, keys.view(1, 1, -1, 1), torch.tensor(values, dtype=torch.float64).view(1, 1, -1, 1),
                             keys.isfinite())


def numbers(partial):
    return tuple(x.item() for x in partial)


def test_a_partial_result_by_hand():
    m, total, o = numbers(of_scores([1.0, 3.0, 2.0], [10.0, 20.0, 30.0]))
    assert m == 3.0
    assert total == pytest.approx(0.1353352832 + 1 + 0.3678794412, rel=1e-9)
    assert o == pytest.approx(1.353352832 + 20 + 11.036383235, rel=1e-9)


def test_a_masked_key_is_in_neither_the_maximum_nor_the_sums():
    q, k, v = tensors(2, 6, 3, 5, 9, 4)
    mask = torch.rand(5, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[2] = False
    mask[3] = torch.arange(9) == 7
    partial = partial_attention(q, k, v, mask)
    assert [tuple(x.shape) for x in partial] == [(2, 6, 5, 1), (2, 6, 5, 1), (2, 6, 5, 4)]
    assert partial.m[:, :, 2].eq(-torch.inf).all() and partial.l[:, :, 2].eq(0).all() and partial.o[:, :, 2].eq(0).all()
    assert partial.l[:, :, 3].eq(1).all()
    assert_close(finish(partial), attention(q, k, v, mask), 1e-12)


def test_a_masked_block_is_nothing_wherever_it_comes():
    """The trap of the first tile: -inf - (-inf) is NaN, and a NaN stays."""
    q, k, v = tensors(1, 2, 1, 4, 6, 3)
    masked = partial_attention(q, k, v, torch.zeros(4, 6, dtype=torch.bool))
    seen = partial_attention(q, k, v)
    assert all(x.equal(y) for x, y in zip(masked, nothing(q, 3)))
    for blocks in ([masked, seen], [seen, masked], [masked, masked, seen, masked]):
        assert all(x.equal(y) for x, y in zip(reduce(merge, blocks), seen))
    assert finish(merge(masked, masked)).eq(0).all()


def test_sixteen_bits_are_computed_with_in_float32():
    """Sums of thousands of terms would lose theirs: 256 + 1 is 256 in bfloat16."""
    q, k, v = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 5000, 4), torch.ones(1, 1, 5000, 4)
    for dtype in (torch.bfloat16, torch.float16):
        partial = partial_attention(q.to(dtype), k.to(dtype), v.to(dtype))
        assert {x.dtype for x in partial} == {torch.float32} and partial.l.item() == 5000
        assert nothing(q.to(dtype), 4).m.dtype == torch.float32
        assert flash_attention(q.to(dtype), k.to(dtype), v.to(dtype), causal=False).eq(1).all()


# --- merging ------------------------------------------------------------------------------------

SCORE = st.one_of(st.just(-torch.inf), st.floats(-5, 5), st.floats(-1e4, 1e4))
KEYS = st.lists(st.tuples(SCORE, st.floats(-10, 10)), min_size=1, max_size=6)


def partial_of(keys, dtype=torch.float64):
    return Partial(*(x.to(dtype) for x in of_scores(*zip(*keys))))


def assert_same(a, b, tolerance):
    """The same maximum; sums that differ by rounding, of which each step makes some at the size of its terms."""
    assert a.m.equal(b.m)
    for x, y in ((a.l, b.l), (a.o, b.o)):
        assert x.isfinite().all() and (x - y).abs().max() <= tolerance * max(1.0, a.l.item()) * 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@given(a=KEYS, b=KEYS, c=KEYS)
def test_merging_is_associative_and_commutative_and_has_an_identity(dtype, a, b, c):
    a, b, c = (partial_of(keys, dtype) for keys in (a, b, c))
    assert_same(merge(merge(a, b), c), merge(a, merge(b, c)), 10 * torch.finfo(dtype).eps)
    assert all(x.equal(y) for x, y in zip(merge(a, b), merge(b, a))), "to the last bit"
    none = nothing(a.o, 1)._replace(**{name: x.to(dtype) for name, x in nothing(a.o, 1)._asdict().items()})
    for merged in (merge(a, none), merge(none, a)):
        assert all(x.equal(y) for x, y in zip(merged, a)), "to the last bit"


@given(blocks=st.lists(KEYS, min_size=1, max_size=5), data=st.data())
def test_merging_in_any_order_gives_the_softmax_of_all_keys(blocks, data):
    keys = [key for block in blocks for key in block]
    scores, values = torch.tensor(keys, dtype=torch.float64).T
    exact = (scores.softmax(0).nan_to_num(0.0) * values).sum() if scores.isfinite().any() else torch.tensor(0.0)
    shuffled = data.draw(st.permutations([partial_of(block) for block in blocks]))
    while len(shuffled) > 1:
        i = data.draw(st.integers(0, len(shuffled) - 2))
        shuffled[i : i + 2] = [merge(*shuffled[i : i + 2])]
    assert_close(finish(shuffled[0]).squeeze(), exact.double(), 1e-12)


def test_merging_does_not_overflow():
    big, small = of_scores([1e4, 9e3], [1.0, 2.0]), of_scores([-1e4], [5.0])
    assert numbers(merge(big, small)) == numbers(merge(small, big)) == (1e4, 1.0, 1.0)
    tiny = of_scores([-1e5, -1e5], [1.0, 3.0])  # all scores low: nothing is lost to an initial maximum of 0
    assert finish(merge(nothing(tiny.o, 1), tiny)).item() == 2.0


def test_the_maximum_may_come_first_last_or_between():
    """A forgotten rescale shows as soon as the maximum rises; of the sum alone, only in the division."""
    for scores in permutations([0.0, 1.0, 4.0]):
        partial = reduce(merge, [of_scores([score], [10 * score + 1]) for score in scores])
        exact = of_scores(scores, [10 * score + 1 for score in scores])
        assert numbers(partial) == pytest.approx(numbers(exact), rel=1e-12)


# --- the tiled loop -----------------------------------------------------------------------------


@pytest.mark.parametrize("T, S", [*product((1, 2, 5, 8), (1, 3, 7, 8))])
def test_every_pair_of_blocks_gives_attention(T, S):
    q, k, v = tensors(1, 2, 1, T, S, 3)
    for causal, block_q, block_k in product((True, False), range(1, T + 2), range(1, S + 2)):
        result = flash_attention(q, k, v, causal=causal, block_q=block_q, block_k=block_k)
        assert_close(result, expected(q, k, v, causal), 1e-12)


def test_tiles_that_nobody_sees_are_skipped_and_only_those_on_the_diagonal_masked(monkeypatch):
    tiles = []

    def record(q, k, v, mask=None):
        tiles.append((q.shape[2], k.shape[2], mask is not None))
        assert mask is None or (not mask.all() and mask.any(0).all()), "masked for a reason, no column for nothing"
        return partial_attention(q, k, v, mask)

    monkeypatch.setattr(flash, "partial_attention", record)
    q, k, v = tensors(1, 1, 1, 12, 12, 2)
    flash_attention(q, k, v, causal=True, block_q=4, block_k=4)
    assert tiles == [(4, 4, True), *[(4, 4, False), (4, 4, True)], *[(4, 4, False)] * 2, (4, 4, True)]
    tiles.clear()
    flash_attention(q[:, :, :5], k, v, causal=True, block_q=4, block_k=5)
    assert tiles == [(4, 5, False), (4, 5, True), (4, 1, True), (1, 5, False), (1, 5, False), (1, 2, False)]
    tiles.clear()
    flash_attention(q, k, v, causal=False, block_q=12, block_k=7)
    assert tiles == [(12, 7, False), (12, 5, False)]


@pytest.mark.parametrize("block_q, block_k", [(1, 1), (3, 5), (8, 4), (40, 40)])
def test_not_one_multiplication_less_than_naive_attention(block_q, block_k):
    q, k, v = tensors(2, 6, 3, 21, 34, 4)
    counts = []
    for call in (lambda: attention(q, k, v),
                 lambda: flash_attention(q, k, v, causal=False, block_q=block_q, block_k=block_k)):
        with FlopCounterMode(display=False) as counter:
            call()
        counts.append(counter.get_total_flops())
    assert counts == [2 * 2 * 21 * 34 * 4 * 2 * 6] * 2


def test_the_inputs_stay_as_they_are():
    q, k, v = tensors(2, 6, 3, 9, 9, 4)
    before = [x.clone() for x in (q, k, v)]
    flash_attention(q, k, v, causal=True, block_q=2, block_k=4)
    flash_decode(q[:, :, :1], k, v, splits=2)
    assert all(x.equal(y) for x, y in zip((q, k, v), before))


def test_the_gradients_are_those_of_attention():
    gradients = []
    for call in (lambda q, k, v: attention(q, k, v, causal_mask(7, 9)),
                 lambda q, k, v: flash_attention(q, k, v, causal=True, block_q=3, block_k=4)):
        inputs = [x.requires_grad_() for x in tensors(1, 4, 2, 7, 9, 3)]
        call(*inputs).square().sum().backward()
        gradients.append([x.grad for x in inputs])
    for ours, theirs in zip(*gradients):
        assert_close(ours, theirs, 1e-12)


# --- keys split between workers --------------------------------------------------------------------


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("Hkv", [1, 2, 6])
def test_any_number_of_workers_gives_attention(dtype, atol, Hkv):
    q, k, v = tensors(3, 6, Hkv, 1, 23, 4, dtype)
    for splits in range(1, 24):
        result = flash_decode(q, k, v, splits=splits)
        assert result.dtype == dtype
        assert_close(result, expected(q, k, v, True), atol)


def test_the_work_is_shared_evenly(monkeypatch):
    shares = []
    monkeypatch.setattr(flash, "partial_attention",
                        lambda q, k, v: (shares.append(k.shape[2]), partial_attention(q, k, v))[1])
    flash_decode(*tensors(1, 4, 2, 1, 23, 4), splits=4)
    assert shares == [6, 6, 6, 5]


@pytest.mark.parametrize("T, splits, message", [(2, 1, r"q\.shape\[2\] = 2 .* 1, a single query"),
                                                (1, 0, r"splits = 0 .* \[1, S = 5\]"), (1, 6, "splits = 6"),
                                                (1, 2.0, r"splits = 2\.0"), (1, True, "splits = True")])
def test_a_decode_that_cannot_be_split_is_refused(T, splits, message):
    with pytest.raises(ValueError, match=message):
        flash_decode(*tensors(1, 4, 2, T, 5, 4), splits=splits)


# --- bytes ---------------------------------------------------------------------------------------


def test_the_query_tile_decides_the_traffic():
    """With tiles of n queries the keys and values pass T / n times; with one tile, once."""
    each = [flash_traffic(1024, 1024, 32, causal=False, block_q=n) for n in (1, 64, 128, 1024, 5000)]
    assert [t.stored for t in each] == [1024 * 32 * 2] * 5
    assert [t.loaded // (1024 * 32 * 2) for t in each] == [1 + 2 * n for n in (1024, 16, 8, 1, 1)]


def test_half_the_keys_pass_under_a_causal_mask():
    full, half = (flash_traffic(1024, 1024, 32, causal=causal, block_q=1).loaded for causal in (False, True))
    assert full - half == 2 * 32 * 2 * (1024 * 1023 // 2)
    assert flash_traffic(1, 1024, 32, causal=True, block_q=64) == flash_traffic(1, 1024, 32, causal=False, block_q=64)


@pytest.mark.parametrize("N, d, M", random.Random(0).sample([*product((2048, 8192), (32, 64, 128),
                                                                      (2**14, 2**16, 2**17))], 8))
def test_it_is_the_papers_order(N, d, M):
    """A quarter of a fast memory of M numbers for the queries: 8 N^2 d^2 / M numbers of keys and values pass."""
    block_q = M // (4 * d)
    keys = flash_traffic(N, N, d, causal=False, block_q=block_q, bytes_per_element=1).loaded - N * d
    assert keys == pytest.approx(8 * N**2 * d**2 / M, rel=block_q / N)  # the last tile may be ragged
    assert tile_bytes(block_q, 16, d, bytes_per_element=1) < M


def test_what_naive_attention_writes_for_8192_tokens_and_what_it_needs_to():
    naive = naive_traffic(8192, 8192, 32, bytes_per_element=4)
    tiled = flash_traffic(8192, 8192, 32, causal=True, block_q=128, bytes_per_element=4)
    assert naive == Traffic(loaded=540_016_640, stored=537_919_488)
    assert tiled == Traffic(loaded=69_206_016, stored=1_048_576)


@pytest.mark.parametrize("call, message", [
    (lambda: naive_traffic(0, 8, 4), "T = 0"), (lambda: naive_traffic(8, 1.5, 4), r"S = 1\.5"),
    (lambda: flash_traffic(8, 8, 4, causal=True, block_q=0), "block_q = 0"),
    (lambda: flash_traffic(8, 8, -4, causal=True, block_q=2), "head_dim = -4"),
    (lambda: tile_bytes(8, 0, 4), "block_k = 0"),
])
def test_sizes_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=f"{message} is not allowed: must be a positive integer"):
        call()


# --- the kernel, which is optional ----------------------------------------------------------------


def in_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_nothing_but_the_kernel_needs_triton():
    run = in_python("import sys; sys.modules['triton'] = None\n"
                    "import course_lib.flash, course_lib.analysis.attention_time, course_lib.classroom.exercises")
    assert run.returncode == 0, run.stderr


def test_the_kernel_says_how_to_get_triton():
    run = in_python("import sys; sys.modules['triton'] = None; import course_lib.flash_triton")
    assert run.returncode == 1
    assert "ImportError: course_lib.flash_triton needs Triton" in run.stderr
    assert "pip install -c constraints.txt -e '.[kernels]'" in run.stderr
