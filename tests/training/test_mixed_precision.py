"""The formats of a training step: bfloat16 for products, float32 for attention on a CPU, and for what is kept."""

import torch
import torch.nn.functional as F

from course_lib.training.mixed_precision import mixed_precision


def attend():
    q, k, v = (torch.randn(2, 4, 5, 8, generator=torch.Generator().manual_seed(i), requires_grad=True)
               for i in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    return q.grad


def test_attention_is_exact_and_products_are_short():
    expected = attend()
    a = torch.randn(3, 3, generator=torch.Generator().manual_seed(3))
    with mixed_precision("cpu"):
        assert torch.equal(attend(), expected)
        y = F.scaled_dot_product_attention(a[None].bfloat16(), a[None], a[None])  # of mixed types, as after RoPE
        assert y.dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


def test_outside_attention_follows_its_arguments():
    with mixed_precision("cpu"):
        pass
    x = torch.ones(1, 1, 2, 8, dtype=torch.bfloat16)
    assert F.scaled_dot_product_attention(x, x, x).dtype == torch.bfloat16


def test_a_compiled_model_trains_with_it():
    linear = torch.nn.Linear(8, 8)

    def forward(x):
        y = linear(x)
        return F.scaled_dot_product_attention(y, y, y, is_causal=True).sum()

    with mixed_precision("cpu"):
        torch.compile(forward, backend="eager")(torch.ones(1, 1, 4, 8)).backward()
    assert linear.weight.grad.isfinite().all()
