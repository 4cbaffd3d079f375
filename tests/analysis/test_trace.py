"""Recorded values against what the layers themselves took in and gave out."""

import pytest
import torch

from course_lib.analysis.trace import trace
from course_lib.config import ModelConfig
from course_lib.layers import apply_rope, repeat_kv, rope_tables
from course_lib.model import CausalLM

SHAPE = {"vocab_size": 37, "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": 3,
         "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "max_position_embeddings": 32}
GPT2 = {"norm": "layernorm", "positions": "learned", "gated_mlp": False, "attention_bias": True,
        "attention_out_bias": True, "mlp_bias": True, "num_key_value_heads": 6}
IDS = torch.tensor([[5, 1, 30, 7, 7, 2, 19], [3, 36, 0, 11, 4, 8, 9]])


@pytest.fixture(scope="module", params=[{}, GPT2, {"qk_norm": True}, {"sliding_window": 3}],
                ids=["llama", "gpt2", "qk norm", "window"])
def model(request):
    model, generator = CausalLM(ModelConfig(**SHAPE | request.param)), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return model.double().eval()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_shapes_and_logits(model):
    result = trace(model, IDS)
    assert result.hidden_states.shape == (4, 2, 7, 20)
    assert result.attentions.shape == (3, 2, 6, 7, 7)
    with torch.no_grad():
        assert torch.equal(result.logits, model(IDS))
    assert not result.logits.requires_grad and not result.attentions.is_inference()


def test_the_stream_runs_from_the_embedding_through_each_layer_to_the_head(model):
    states = trace(model, IDS).hidden_states
    with torch.no_grad():
        start = model.embed_tokens(IDS)
        if model.config.positions == "learned":
            start = start + model.embed_positions.weight[:7]
        close(states[0], start)
        rope = model.rope(slice(0, 7), torch.float64) if model.config.positions == "rope" else None
        for layer, x, y in zip(model.layers, states[:-1], states[1:]):
            close(layer(x, rope, model.mask(7, 7, None), None), y)
        close(model.lm_head(model.norm(states[-1])), trace(model, IDS).logits)


def test_rows_sum_to_one_and_the_future_weighs_nothing(model):
    weights = trace(model, IDS).attentions
    close(weights.sum(-1), torch.ones(3, 2, 6, 7, dtype=torch.float64))
    window = model.config.sliding_window or 7
    for query in range(7):
        seen = [key for key in range(7) if query - window < key <= query]
        unseen = [key for key in range(7) if key not in seen]
        assert (weights[..., query, unseen] == 0).all()
        assert (weights[..., query, seen] > 0).all()
    assert (weights[..., 0, 0] == 1).all(), "the first token can look at nothing but itself"


def test_the_weights_give_back_what_each_attention_did(model):
    calls = []
    hooks = [layer.self_attn.register_forward_hook(lambda _, args, output: calls.append((args[0], output)))
             for layer in model.layers]
    result = trace(model, IDS)
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        for layer, (x, y), weights in zip(model.layers, calls, result.attentions, strict=True):
            attention = layer.self_attn
            v = attention.v_proj(x).view(2, 7, -1, 4).transpose(1, 2)  # (B, Hkv, T, Dh)
            heads = weights @ repeat_kv(v, 6 // v.shape[1])  # (B, H, T, Dh)
            close(attention.o_proj(heads.transpose(1, 2).reshape(2, 7, 24)), y)


def test_a_weight_is_the_softmax_of_a_turned_product():
    model = CausalLM(ModelConfig(**SHAPE)).double().eval()
    result, (cos, sin) = trace(model, IDS), rope_tables(model.config)
    attention, layer = model.layers[1].self_attn, model.layers[1]
    with torch.no_grad():
        x = layer.input_layernorm(result.hidden_states[1])
        q = apply_rope(attention.q_proj(x)[1, :, 5 * 4 : 6 * 4], cos[:7].double(), sin[:7].double())  # head 5
        k = apply_rope(attention.k_proj(x)[1, :, 2 * 4 : 3 * 4], cos[:7].double(), sin[:7].double())  # its group
        expected = (k[:5] @ q[4] / 4**0.5).softmax(0)
    close(result.attentions[1, 1, 5, 4, :5], expected)


def hook_count(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_hooks_are_gone_afterwards_even_after_an_error(model):
    trace(model, IDS)
    assert hook_count(model) == 0
    with pytest.raises(ValueError, match="33 positions"):
        trace(model, torch.zeros(1, 33, dtype=torch.long))
    with pytest.raises(IndexError):
        trace(model, torch.full((1, 2), 37))
    assert hook_count(model) == 0


def test_one_token(model):
    result = trace(model, IDS[:, :1])
    assert (result.attentions == 1).all() and result.attentions.shape == (3, 2, 6, 1, 1)
