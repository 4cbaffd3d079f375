"""Counted bytes equal the formulas, and counting changes no result."""

from itertools import product

import pytest
import torch
from attention_cases import assert_close, expected, tensors

from course_lib.analysis.slow_memory import SlowMemory, attention_in_three_steps
from course_lib.flash import Traffic, flash_attention, flash_traffic, naive_traffic


def held(q, k, v):
    memory = SlowMemory()
    return memory, [memory.hold(x) for x in (q, k, v)]


def times(traffic, heads):
    return Traffic(*(heads * nbytes for nbytes in traffic))


@pytest.mark.parametrize("T, S, Dh", [(1, 1, 1), (5, 9, 4), (16, 16, 8)])
@pytest.mark.parametrize("dtype, size", [(torch.float64, 8), (torch.float32, 4), (torch.bfloat16, 2)])
def test_three_steps_move_what_the_formula_says(T, S, Dh, dtype, size):
    q, k, v = tensors(2, 3, 3, T, S, Dh, dtype)
    memory, slow = held(q, k, v)
    out = attention_in_three_steps(*slow).tensor
    assert memory.traffic == times(naive_traffic(T, S, Dh, bytes_per_element=size), 2 * 3)
    assert_close(out, expected(q, k, v, False), {8: 1e-12, 4: 1e-5, 2: 5e-2}[size])  # each step rounds its result


@pytest.mark.parametrize("T, S", [(1, 9), (5, 9), (16, 16), (9, 5)])
@pytest.mark.parametrize("causal", [True, False])
def test_tiles_move_what_the_formula_says(T, S, causal):
    q, k, v = tensors(2, 3, 3, T, S, 4, torch.float32)
    for block_q, block_k in product((1, 3, 4, 16, 50), (1, 5, 16)):
        memory, slow = held(q, k, v)
        out = flash_attention(*slow, causal=causal, block_q=block_q, block_k=block_k).tensor
        formula = flash_traffic(T, S, 4, causal=causal, block_q=block_q, bytes_per_element=4)
        assert memory.traffic == times(formula, 2 * 3), (block_q, block_k)
        assert out.equal(flash_attention(q, k, v, causal=causal, block_q=block_q, block_k=block_k))


def test_heads_of_a_group_share_what_passes_by():
    """Keys and values move once for the three query heads of a group."""
    q, k, v = tensors(1, 6, 2, 8, 8, 4, torch.float32)
    memory, slow = held(q, k, v)
    flash_attention(*slow, causal=False, block_q=4, block_k=4)
    each = 8 * 4 * 4  # bytes of a head
    assert memory.traffic == Traffic(loaded=6 * each + 2 * (2 * 2 * each), stored=6 * each)


def test_a_load_is_a_copy_and_a_store_arrives():
    memory = SlowMemory()
    far = memory.hold(torch.arange(6.0).view(2, 3))
    near = far[0]
    near += 10
    assert far.tensor[0].tolist() == [0, 1, 2] and memory.traffic == Traffic(12, 0)
    far[:, 1] = torch.tensor([7.0, 8.0])
    assert far.tensor.tolist() == [[0, 7, 2], [3, 8, 5]] and memory.traffic == Traffic(12, 8)
    other = far.new_empty(4, 5)
    assert other.shape == (4, 5) and other.memory is memory and memory.traffic == Traffic(12, 8)
