"""What every attention that works on tiles has to do, whoever wrote it: inherit these tests and name the function."""

import pytest
import torch
import torch.nn.functional as F

from course_lib.layers import attention, causal_mask

# B, H, Hkv, T, S, Dh: groups of 2, 3, 1 and 6 heads; lengths that no block divides, and one that every block does.
SHAPES = {
    "ragged": (2, 6, 3, 37, 37, 20), "after a cache": (2, 6, 2, 5, 43, 8), "one query": (1, 4, 4, 1, 50, 5),
    "one kv head": (1, 6, 1, 19, 33, 4), "whole blocks": (1, 2, 1, 64, 64, 16), "one position": (1, 3, 3, 1, 1, 4),
    "chunk over a border": (1, 4, 2, 33, 65, 7), "more queries than keys": (2, 4, 2, 21, 18, 6),
}
# Of the output's rounding: an entry is below 4, so half a unit in its last place is 2**-7 and 2**-10; and a share of
# the weights is rounded before the products.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def tensors(B, H, Hkv, T, S, Dh, dtype=torch.float64, seed=0):
    """Normal queries (B, H, T, Dh), keys and values (B, Hkv, S, Dh)."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
                 for shape in ((B, H, T, Dh), (B, Hkv, S, Dh), (B, Hkv, S, Dh)))


def expected(q, k, v, causal):
    """By PyTorch in float64, for the mask of the last T positions; a row that sees nothing is zeros."""
    T, S = q.shape[2], k.shape[2]
    mask = torch.tensor([[not causal or s <= S - T + t for s in range(S)] for t in range(T)], device=q.device)
    result = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask, enable_gqa=True)
    return result.masked_fill(~mask.any(1)[:, None], 0.0)


def assert_close(result, exact, atol):
    """A NaN is never close."""
    assert result.isfinite().all() and result.shape == exact.shape
    assert (result.double() - exact).abs().max() <= atol


class AttentionCases:
    """Subclasses give `attend(q, k, v, *, causal, block_q, block_k)`, `DTYPES`, `BLOCKS` and, if it is not the CPU,
    `DEVICE`."""

    DEVICE = "cpu"

    def pytest_generate_tests(self, metafunc):
        """Give each test the shapes, types and blocks that it asks for."""
        for name, values in (("dtype", self.DTYPES), ("shape", SHAPES), ("blocks", self.BLOCKS),
                             ("causal", (True, False))):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values, ids=lambda value: str(value).removeprefix("torch."))

    def test_it_is_attention(self, dtype, shape, blocks, causal):
        q, k, v = (x.to(self.DEVICE) for x in tensors(*SHAPES[shape], dtype))
        result = self.attend(q, k, v, causal=causal, block_q=blocks[0], block_k=blocks[1])
        assert result.dtype == dtype
        exact = expected(q, k, v, causal)
        assert_close(result, exact, TOLERANCES[dtype])
        if dtype == torch.float64:  # and that of the course, which keeps the whole matrix
            mask = causal_mask(q.shape[2], k.shape[2]) if causal else None
            assert_close(result, attention(q, k, v, mask), TOLERANCES[dtype])

    def test_scores_in_the_thousands(self, blocks):
        """exp of them would be infinite, and each new maximum makes everything before it vanish."""
        q, k, v = (x.to(self.DEVICE) for x in tensors(1, 2, 1, 35, 40, 16, torch.float32))
        k = k * torch.arange(1, 41, device=self.DEVICE)[:, None] * 8  # larger and larger
        assert (q @ k.repeat_interleave(2, 1).mT / 4).max() > 500
        result = self.attend(q, k, v, causal=True, block_q=blocks[0], block_k=blocks[1])
        assert_close(result, expected(q, k, v, True), 2e-3)  # a score of 1,000 is rounded by up to 6e-5, and its terms

    def test_rows_that_see_nothing_are_zeros(self, blocks):
        q, k, v = (x.to(self.DEVICE) for x in tensors(2, 4, 2, 21, 18, 6, torch.float32))
        result = self.attend(q, k, v, causal=True, block_q=blocks[0], block_k=blocks[1])
        assert result[:, :, :3].eq(0).all() and result[:, :, 3:].ne(0).all()
        torch.testing.assert_close(result[:, :, 3], v[:, :, 0].repeat_interleave(2, 1))  # sees the first key alone
        nothing = self.attend(q, k[:, :, :0], v[:, :, :0], causal=False, block_q=blocks[0], block_k=blocks[1])
        assert nothing.eq(0).all() and nothing.shape == q.shape
        assert self.attend(q[:, :, :0], k, v, causal=True, block_q=blocks[0], block_k=blocks[1]).shape == (2, 4, 0, 6)

    def test_views_of_a_longer_buffer(self, blocks):
        """As a cache gives them: what lies beyond their end is not looked at."""
        q, k, v = (x.to(self.DEVICE) for x in tensors(2, 4, 2, 5, 43, 8, torch.float32))
        buffers = [torch.full((2, 2, room, 8), torch.nan, device=self.DEVICE) for room in (60, 71)]
        for buffer, states in zip(buffers, (k, v)):
            buffer[:, :, :43] = states
        long_k, long_v = (buffer[:, :, :43] for buffer in buffers)
        turned = q.transpose(1, 2).contiguous().transpose(1, 2)
        result = self.attend(turned, long_k, long_v, causal=True, block_q=blocks[0], block_k=blocks[1])
        assert_close(result, expected(q, k, v, True), 1e-5)

    def test_what_cannot_be_attended_is_refused(self):
        q, k, v = tensors(2, 6, 3, 4, 5, 8, torch.float32)
        wrong = [(q[0], k, v, r"q\.shape = \(6, 4, 8\)"), (q, k[:, :, :, :4], v, r"k\.shape = \(2, 3, 5, 4\)"),
                 (q, k[:1], v[:1], r"k\.shape = \(1, 3, 5, 8\)"), (q, k, v[:, :, :4], r"v\.shape = \(2, 3, 4, 8\)"),
                 (q[:, :4], k, v, r"k\.shape\[1\] = 3 .* divisor of the 4"),
                 (q, k.half(), v, r"k\.dtype = torch\.float16"), (q, k[:, :0], v[:, :0], r"k\.shape\[1\] = 0")]
        for a, b, c, message in wrong:
            with pytest.raises(ValueError, match=message):
                self.attend(a, b, c, causal=True, block_q=16, block_k=16)
        for sizes in ({"block_q": 0, "block_k": 16}, {"block_q": 16, "block_k": -16}, {"block_q": 16.0, "block_k": 16}):
            with pytest.raises(ValueError, match=r"block_[qk] = (0|-16|16\.0) is not allowed"):
                self.attend(q, k, v, causal=True, **sizes)
