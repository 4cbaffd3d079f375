"""The same weights in `transformers` and here: equal logits, whatever way the text is cut up."""

import pytest
import torch
import transformers
from tiny_checkpoints import CONFIGS, make_model, make_tokenizer, write_tokenizer
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from course_lib.checkpoint import load
from course_lib.hf_config import config_from_hf
from course_lib.kv_cache import DynamicCache, StaticCache
from course_lib.layers import apply_rope, rope_tables

TOLERANCE = {"rtol": 0, "atol": 1e-5}  # of logits with standard deviation 1, float32
CHUNKS = {"token by token": [1] * 13, "one prompt, then tokens": [9, 1, 1, 1, 1], "chunks": [2, 5, 1, 3, 2]}


@pytest.fixture(scope="module", params=CONFIGS)
def pair(request, tmp_path_factory):
    """A model of `transformers` and the one that we load from what it saved."""
    folder = tmp_path_factory.mktemp("checkpoint")
    reference = make_model(request.param, folder)
    write_tokenizer(make_tokenizer("gpt2", 300), folder)
    return reference, load(folder, device="cpu").model


@pytest.fixture
def ids():
    return torch.randint(0, 101, (2, 13), generator=torch.Generator().manual_seed(1))  # (B, T)


@torch.no_grad()
def reference_logits(reference, ids, **options):
    return reference(ids, use_cache=False, **options).logits


@torch.no_grad()
def test_prefill(pair, ids):
    reference, model = pair
    expected = reference_logits(reference, ids)
    assert 0.5 < expected.std() < 2, "the tolerance is meant for logits of about this size"
    torch.testing.assert_close(model(ids), expected, **TOLERANCE)
    torch.testing.assert_close(model(ids, logits_to_keep=2), expected[:, -2:], **TOLERANCE)
    long = torch.randint(0, 101, (1, 64), generator=torch.Generator().manual_seed(2))  # the whole context
    torch.testing.assert_close(model(long), reference_logits(reference, long), **TOLERANCE)


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("kind", ["dynamic", "static"])
@torch.no_grad()
def test_cached(pair, ids, kind, sizes):
    reference, model = pair
    cache = DynamicCache() if kind == "dynamic" else StaticCache.for_model(model, 29, batch_size=2)
    logits = [model(chunk, kv_cache=cache) for chunk in ids.split(sizes, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), reference_logits(reference, ids), **TOLERANCE)


@torch.no_grad()
def test_ragged_batch_padded_on_the_left(pair, ids):
    reference, model = pair
    pads = [4, 0]
    mask = torch.arange(13) >= torch.tensor(pads)[:, None]  # (B, S)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = reference_logits(reference, ids, attention_mask=mask.long(), position_ids=positions)
    logits = model(ids, attention_mask=mask)
    assert logits.isfinite().all(), "a row that sees nothing must not turn into NaN in later layers"
    cache = DynamicCache()
    cached = [model(ids[:, :7], kv_cache=cache, attention_mask=mask[:, :7]),
              model(ids[:, 7:8], kv_cache=cache, attention_mask=mask[:, :8]),
              model(ids[:, 8:], kv_cache=cache, attention_mask=mask)]
    for row, pad in enumerate(pads):
        alone = model(ids[row : row + 1, pad:])[0]
        torch.testing.assert_close(logits[row, pad:], expected[row, pad:], **TOLERANCE)
        torch.testing.assert_close(logits[row, pad:], alone, **TOLERANCE)
        torch.testing.assert_close(torch.cat(cached, dim=1)[row, pad:], alone, **TOLERANCE)


@pytest.mark.parametrize("name", ["gpt2", "gpt2 untied, narrow", "llama", "qwen3"])
@torch.no_grad()
def test_sharded(name, ids, tmp_path):
    reference = make_model(name, tmp_path, max_shard_size="40KB")
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    torch.testing.assert_close(load(tmp_path).model(ids), reference_logits(reference, ids), **TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["gpt2", "llama 3.1", "qwen3"])
@torch.no_grad()
def test_other_precisions(name, dtype, ids, tmp_path):
    """Weights and activations are `dtype`, the RoPE tables stay float32, and the roundings are the same."""
    make_model(name, tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval()
    model = load(tmp_path, device="cpu", dtype=dtype).model
    assert {buffer.dtype for buffer in model.buffers()} <= {torch.float32}
    logits = model(ids)
    assert logits.dtype == dtype
    steps = 8 * torch.finfo(dtype).eps  # a few units in the last place of logits up to 4
    torch.testing.assert_close(logits, reference_logits(reference, ids), rtol=0, atol=max(steps, 1e-5))


@pytest.mark.parametrize("name", ["llama", "llama 3.1"])
def test_rope_at_positions_past_five(name):
    """Interleaved and half-split RoPE agree at position 0 and nowhere else."""
    hf = CONFIGS[name]()
    config = config_from_hf(hf.to_dict())
    x = torch.randn(1, 6, 64, config.head_dim, generator=torch.Generator().manual_seed(3))
    cos, sin = LlamaRotaryEmbedding(hf)(x, torch.arange(64)[None])
    expected, _ = apply_rotary_pos_emb(x, x, cos, sin)
    ours = apply_rope(x, *rope_tables(config))
    torch.testing.assert_close(ours[:, :, 5:], expected[:, :, 5:], **TOLERANCE)
    assert not torch.allclose(ours[:, :, 5:], x[:, :, 5:], atol=0.1)


def test_llama3_stretch_changes_some_frequencies_and_keeps_others():
    """The configuration above reaches all three branches of the rule."""
    stretched, plain = (LlamaRotaryEmbedding(transformers.LlamaConfig(
        head_dim=8, rope_parameters=parameters)).inv_freq for parameters in (
        CONFIGS["llama 3.1"]().rope_parameters, {"rope_type": "default", "rope_theta": 100.0}))
    ratio = stretched / plain
    assert ratio[0] == 1 and ratio[-1] == 0.25 and ((ratio > 0.25) & (ratio < 1)).any()
