"""Each broken loop is wrong for exactly the sizes of tiles that its mistake explains, and the right loop for none."""

import pytest
import torch
import torch.nn.functional as F

from course_lib.classroom.broken_tiles import (
    BLOCKS,
    CLOSE,
    MISTAKES,
    SUSPECTS,
    TOKENS,
    attend_by_tiles,
    suspect_inputs,
)
from course_lib.classroom.checks.nb10 import EVIDENCE, diagnosis

WRONG_AT = {"no rescale": {1, 3}, "no tail": {3}, "open diagonal": {3, 7}}


def gap(loop, block, inputs):
    exact = F.scaled_dot_product_attention(*(x[None] for x in inputs), is_causal=True)[0]
    return (loop(*inputs, block) - exact).abs().max().item()


@pytest.mark.parametrize("block", [1, 2, 3, 6, 7, 20])
@pytest.mark.parametrize("size", [(7, 4), (1, 3), (12, 5)])
def test_without_a_mistake_the_loop_is_attention(block, size):
    generator = torch.Generator().manual_seed(3)
    inputs = [3 * torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(3)]
    assert gap(attend_by_tiles, block, inputs) < CLOSE


@pytest.mark.parametrize("letter", SUSPECTS)
def test_a_mistake_shows_at_its_sizes_and_at_no_other(letter):
    wrong = {block for block in BLOCKS if gap(SUSPECTS[letter], block, suspect_inputs()) > CLOSE}
    assert wrong == WRONG_AT[diagnosis()[letter]]
    clear = min(gap(SUSPECTS[letter], block, suspect_inputs()) for block in wrong)
    assert clear > 0.05, "far from rounding"


def test_one_size_of_tiles_finds_all_three():
    """It divides the text no more than it is one or all of it."""
    assert set.intersection(*WRONG_AT.values()) == {3} and TOKENS % 3 != 0
    assert set(WRONG_AT) == set(MISTAKES) == set(diagnosis().values()) and set(EVIDENCE) == set(SUSPECTS)


@pytest.mark.parametrize("wrong", [{"block": 0}, {"block": 1.5}, {"block": 2, "mistake": "none"}])
def test_what_is_not_allowed_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        attend_by_tiles(*suspect_inputs(), **wrong)
