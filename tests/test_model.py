"""The layers against written-out float64 loops and PyTorch's own functions; the model's edges."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_lib.config import ModelConfig
from course_lib.layers import (
    ACTIVATION,
    RMSNorm,
    attention,
    attention_weights,
    causal_mask,
    repeat_kv,
    rope_frequencies,
    rope_tables,
)
from course_lib.model import CausalLM

SHAPE = {"vocab_size": 37, "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": 2,
         "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "max_position_embeddings": 32}


def make_model(dtype=torch.float32, **changes):
    model = CausalLM(ModelConfig(**SHAPE | changes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (parameter.dim() == 1))
    return model.to(dtype).eval()


def qkv(H=6, Hkv=3, T=5, S=7, Dh=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, length, Dh, generator=generator, dtype=dtype)
            for heads, length in ((H, T), (Hkv, S), (Hkv, S))]


@pytest.mark.parametrize("T, S, window", [(5, 7, None), (7, 7, None), (1, 7, None), (5, 7, 2), (7, 7, 3),
                                          (5, 7, 20)])
def test_attention_equals_sdpa(T, S, window):
    q, k, v = qkv(T=T, S=S)
    mask = causal_mask(T, S, window=window)
    expected = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(attention(q, k, v, mask), expected, rtol=0, atol=1e-12)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(attention(q, k, v), expected, rtol=0, atol=1e-12)


def test_attention_equals_its_loops():
    (q, k, v), mask = qkv(H=6, Hkv=2), causal_mask(5, 7, window=4)
    result = attention(q, k, v, mask)
    for b, h, t in [(b, h, t) for b in range(2) for h in range(6) for t in range(5)]:
        seen = [s for s in range(7) if s <= t + 2 and s > t + 2 - 4]
        scores = [sum(q[b, h, t, d] * k[b, h // 3, s, d] for d in range(4)).item() / 2.0 for s in seen]
        total = sum(math.exp(score) for score in scores)
        expected = sum(math.exp(score) / total * v[b, h // 3, s] for score, s in zip(scores, seen))
        torch.testing.assert_close(result[b, h, t], expected, rtol=0, atol=1e-12)


def test_masked_weight_is_exactly_zero():
    q, k, _ = qkv()
    mask = causal_mask(5, 7)
    weights = attention_weights(100 * q, k, mask)
    assert (weights[~mask.expand_as(weights)] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, 5, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_query_that_sees_nothing_takes_nothing(dtype):
    """Zeros: not NaN (-inf everywhere) and not a uniform row (the lowest float everywhere)."""
    q, k, v = qkv(dtype=dtype)
    mask = causal_mask(5, 7).clone()
    mask[2] = False
    for result in (attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)):
        assert (result[:, :, 2] == 0).all() and result.isfinite().all()
        assert (result[:, :, 3] != 0).all()


def test_causal_mask_belongs_to_the_last_queries():
    """Aligned at the bottom right: one new query sees everything, not only key 0."""
    assert causal_mask(1, 7).tolist() == [[True] * 7]
    for T, S in ((1, 1), (3, 7), (7, 7)):
        assert causal_mask(T, S).sum(-1).tolist() == list(range(S - T + 1, S + 1))


@pytest.mark.parametrize("window", [1, 2, 3, 7, 20])
def test_window_counts_the_query_itself(window):
    assert causal_mask(7, 7, window=window).sum(-1).tolist() == [min(i + 1, window) for i in range(7)]
    assert causal_mask(3, 7, window=window).equal(causal_mask(7, 7, window=window)[-3:])
    assert causal_mask(7, 7, window=window).diagonal().all()


@pytest.mark.parametrize("H, Hkv", [(6, 3), (6, 2), (5, 5), (4, 1)])
def test_neighbouring_query_heads_share_a_key_head(H, Hkv):
    """[0, 0, 1, 1], not [0, 1, 0, 1]: each key head holds its own number."""
    x = torch.arange(Hkv, dtype=torch.float64).view(1, Hkv, 1, 1).expand(1, Hkv, 3, 4)
    heads = repeat_kv(x, H // Hkv)
    assert heads.shape == (1, H, 3, 4)
    assert heads[0, :, 0, 0].tolist() == [h // (H // Hkv) for h in range(H)]
    q, k = torch.randn(1, H, 3, 4).double(), torch.randn(1, Hkv, 3, 4).double()
    assert attention(q, k, x)[0, :, 0, 0].round(decimals=9).tolist() == heads[0, :, 0, 0].tolist()


@pytest.mark.parametrize("value", [1e-4, 1.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rms_norm_squares_in_float32(value, dtype):
    """In float16 the square of 300 is infinite and that of 1e-4 is lost beside eps."""
    norm = RMSNorm(10, eps=1e-12).to(dtype)
    result = norm(torch.full((3, 10), value, dtype=dtype))
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), torch.ones(3, 10), rtol=0, atol=0.01)


def test_rms_norm_equals_pytorch():
    norm, x = RMSNorm(10, eps=1e-3).double(), torch.randn(3, 10, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (10,), norm.weight, 1e-3), rtol=0, atol=1e-12)


def test_the_two_gelus_are_two():
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    exact = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    tanh = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(ACTIVATION["gelu"](x), exact)
    torch.testing.assert_close(ACTIVATION["gelu_tanh"](x), tanh)
    assert (exact - tanh).abs().max() > 1e-4


def test_rope_scores_depend_on_the_distance_alone():
    config = ModelConfig(**SHAPE | {"head_dim": 8})
    angles = torch.outer(torch.arange(32.0), rope_frequencies(config)).double()
    q, k = torch.randn(2, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    scores = torch.einsum("d,td,sd->ts", q * k.conj(), torch.polar(torch.ones(1).double(), angles),
                          torch.polar(torch.ones(1).double(), -angles)).real
    torch.testing.assert_close(scores[5:, 5:], scores[:-5, :-5], rtol=0, atol=1e-5)
    cos, sin = rope_tables(config)
    torch.testing.assert_close(cos[:, :4].double(), angles.cos(), rtol=0, atol=1e-6)
    assert cos.shape == sin.shape == (32, 8) and cos[:, :4].equal(cos[:, 4:])


def test_tables_are_made_once_and_are_no_parameters():
    model = make_model()
    cos = model.rope_cos
    model(torch.zeros(1, 20, dtype=torch.long))
    assert model.rope_cos is cos and cos.dtype == torch.float32
    assert not [name for name in model.state_dict() if "rope" in name]


def test_tied_head_is_the_embedding_and_counts_once():
    tied, untied = make_model(), make_model(tie_word_embeddings=False)
    assert tied.lm_head.weight is tied.embed_tokens.weight
    assert untied.lm_head.weight is not untied.embed_tokens.weight
    D, width, V, H, Hkv, Dh = 20, 28, 37, 6, 3, 4
    layer = 2 * D * H * Dh + 2 * D * Hkv * Dh + 3 * D * width + 2 * D
    assert sum(parameter.numel() for parameter in tied.parameters()) == V * D + 2 * layer + D
    assert sum(parameter.numel() for parameter in untied.parameters()) == 2 * V * D + 2 * layer + D


def test_text_longer_than_the_context_names_both_numbers():
    model = make_model()
    assert model(torch.zeros(1, 32, dtype=torch.long)).shape == (1, 32, 37)
    with pytest.raises(ValueError, match=r"33 positions.*max_position_embeddings = 32"):
        model(torch.zeros(1, 33, dtype=torch.long))


def test_a_token_sees_no_later_token():
    model, ids = make_model(), torch.arange(12)[None]
    changed = ids.clone()
    changed[0, 8] = 30
    with torch.no_grad():
        same = (model(ids) == model(changed)).all(-1)[0]
    assert same.tolist() == [True] * 8 + [False] * 4


def test_initial_weights_come_from_the_generator_alone():
    first, second = CausalLM(ModelConfig(**SHAPE)), CausalLM(ModelConfig(**SHAPE))
    for model in (first, second):
        model.init_weights(torch.Generator().manual_seed(1))
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters()))
    assert first.layers[0].self_attn.o_proj.weight.std() < 0.6 * first.layers[0].self_attn.q_proj.weight.std()
