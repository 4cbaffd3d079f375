"""Formulas against the live objects: parameters, cache, and the multiplications that PyTorch counts."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib.config import ModelConfig
from course_lib.costs import (
    GPT2,
    LLAMA_3_8B,
    LLAMA_3_70B,
    decode_bytes,
    flops_per_token,
    kv_bytes_per_token,
    largest_batch,
    latent_kv_bytes_per_token,
    parameter_count,
    prefill_flops,
    price,
    step_seconds,
    tokens_to_outweigh,
    weight_bytes,
)
from course_lib.kv_cache import DynamicCache, SlidingWindowCache, StaticCache
from course_lib.model import CausalLM

BASE = {"vocab_size": 37, "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "max_position_embeddings": 32}
BIASES = {"attention_bias": True, "attention_out_bias": True, "mlp_bias": True}
CONFIGS = {name: ModelConfig(**BASE | changes) for name, changes in {
    "tied": {}, "untied": {"tie_word_embeddings": False}, "one kv head": {"num_key_value_heads": 1},
    "all kv heads": {"num_key_value_heads": 6}, "wide heads": {"head_dim": 8},
    "biases": BIASES, "q, k, v biases": {"attention_bias": True}, "qk norm": {"qk_norm": True},
    "gpt2": {"norm": "layernorm", "positions": "learned", "gated_mlp": False, **BIASES},
    "window": {"sliding_window": 4},
}.items()}
EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def live_parts(config):
    """Sizes of the parameters of a model, by the part that its name says."""
    with torch.device("meta"):
        model = CausalLM(config)
    parts = dict.fromkeys(("embedding", "attention", "mlp", "norm", "head"), 0)
    for name, parameter in model.named_parameters():
        words = [("norm", "norm"), ("embed", "embedding"), ("self_attn", "attention"), ("mlp", "mlp"),
                 ("lm_head", "head")]
        parts[next(part for word, part in words if word in name)] += parameter.numel()
    return parts


@EVERY
def test_parameters_equal_the_models_own(config):
    parts = live_parts(config)
    count = parameter_count(config)
    assert vars(count) == parts
    assert count.total == sum(parts.values())


@pytest.mark.parametrize("config, total", [(LLAMA_3_8B, 8_030_261_248), (LLAMA_3_70B, 70_553_706_496),
                                           (GPT2, 124_439_808)])
def test_published_totals(config, total):
    assert parameter_count(config).total == total == sum(live_parts(config).values())


@EVERY
@pytest.mark.parametrize("dtype, size", [(torch.float32, 4), (torch.bfloat16, 2)])
def test_cache_bytes_equal_the_caches_own(config, dtype, size):
    cache = StaticCache(config, 7, batch_size=2, dtype=dtype)
    assert cache.nbytes == 2 * 7 * kv_bytes_per_token(config, size)
    model, grown = CausalLM(config).to(dtype).eval(), DynamicCache()
    with torch.no_grad():
        model(torch.ones(2, 5, dtype=torch.long), kv_cache=grown)
    assert grown.nbytes == 2 * 5 * kv_bytes_per_token(config, size)


def counted_flops(model, ids, **arguments):
    """What PyTorch's own counter saw; it knows matrix products only, as our formulas do."""
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(ids, **arguments)
    return counter.get_total_flops()


@EVERY
@pytest.mark.parametrize("context", [1, 4, 9])
def test_flops_of_a_decode_step_equal_pytorchs_count(config, context):
    model = CausalLM(config).eval()
    cache = StaticCache.for_model(model, 16)
    cache.lengths = [context - 1] * config.num_hidden_layers
    counted = counted_flops(model, torch.ones(1, 1, dtype=torch.long), kv_cache=cache)
    unmasked = flops_per_token(config, context)
    if config.sliding_window:  # the model masks what it need not read, and the counter counts it
        counted -= 4 * 3 * 24 * max(0, context - config.sliding_window)
    assert unmasked.total == counted


@EVERY
def test_prefill_flops_are_those_of_its_tokens(config):
    each = [flops_per_token(config, context) for context in range(1, 10)]
    assert prefill_flops(config, 9) == sum(f.dense + f.attention for f in each) + each[0].head


def test_bytes_of_a_decode_step():
    tied, untied, learned = (CONFIGS[name] for name in ("tied", "untied", "gpt2"))
    assert decode_bytes(tied, 9) == weight_bytes(tied) + 9 * kv_bytes_per_token(tied)
    without = weight_bytes(untied) - 2 * 37 * 20  # of the embedding, one row of 20 is read
    assert decode_bytes(untied, 9) == without + 2 * 20 + 9 * kv_bytes_per_token(untied)
    without = weight_bytes(learned) - 2 * 32 * 20
    assert decode_bytes(learned, 9) == without + 2 * 20 + 9 * kv_bytes_per_token(learned)
    assert (decode_bytes(untied, 9, batch_size=3) - decode_bytes(untied, 9, batch_size=2)
            == 2 * 20 + 9 * kv_bytes_per_token(untied))
    assert decode_bytes(tied, 9, bytes_per_weight=0.5, bytes_per_element=1) \
        == weight_bytes(tied, 0.5) + 9 * kv_bytes_per_token(tied, 1)
    assert decode_bytes(CONFIGS["window"], 9) == decode_bytes(tied, 4)


@EVERY
def test_a_ring_has_the_bytes_of_its_window(config):
    window = min(3, config.sliding_window or 3)
    ring = SlidingWindowCache(config, window, sink=2, batch_size=2)
    assert ring.nbytes == 2 * (window + 2) * kv_bytes_per_token(config, 4)


def test_the_largest_batch_is_the_last_that_fits():
    for memory, weights, row in [(100, 40, 7), (100, 40, 60), (100, 40, 61), (100, 100, 1), (10, 40, 7), (1e9, 0, 3.5)]:
        rows = largest_batch(memory, weights, row)
        assert rows >= 0 and (weights + rows * row <= memory or rows == 0)
        assert weights + (rows + 1) * row > memory and isinstance(rows, int)


def test_one_token_less_does_not_outweigh():
    for weights, each in [(100, 7), (100, 10), (16e9, 131072), (0, 3)]:
        tokens = tokens_to_outweigh(weights, each)
        assert tokens * each > weights >= (tokens - 1) * each


def test_the_latent_of_mla_is_made_of_two_vectors():
    assert latent_kv_bytes_per_token(60) == 60 * 576 * 2
    assert latent_kv_bytes_per_token(3, kv_lora_rank=8, qk_rope_head_dim=2, bytes_per_element=1) == 30


def test_the_slower_of_computing_and_reading_counts():
    assert step_seconds(6, 1, flops_per_s=2, bytes_per_s=1) == 3
    assert step_seconds(6, 8, flops_per_s=2, bytes_per_s=1) == 8


def test_price_is_linear_in_both_kinds_of_tokens():
    assert price(1_000_000, 0, per_million_in=3, per_million_out=15) == 3
    assert price(0, 1_000_000, per_million_in=3, per_million_out=15) == 15
    assert price(2_000_000, 3_000_000, per_million_in=3, per_million_out=15) == 51


@pytest.mark.parametrize("call, message", [
    (lambda: weight_bytes(LLAMA_3_8B, 0), "bytes_per_weight = 0"),
    (lambda: kv_bytes_per_token(LLAMA_3_8B, -1), "bytes_per_element = -1"),
    (lambda: flops_per_token(LLAMA_3_8B, 0), "context = 0"),
    (lambda: prefill_flops(LLAMA_3_8B, 0), "tokens = 0"),
    (lambda: decode_bytes(LLAMA_3_8B, 9, batch_size=0), "batch_size = 0"),
    (lambda: latent_kv_bytes_per_token(0), "num_hidden_layers = 0"),
    (lambda: latent_kv_bytes_per_token(1, kv_lora_rank=0), "kv_lora_rank = 0"),
    (lambda: latent_kv_bytes_per_token(1, qk_rope_head_dim=-1), "qk_rope_head_dim = -1"),
    (lambda: largest_batch(-1, 1, 1), "memory_bytes = -1"),
    (lambda: largest_batch(1, 1, 0), "row_bytes = 0"),
    (lambda: tokens_to_outweigh(1, 0), "bytes_per_token = 0"),
    (lambda: price(-1, 0, per_million_in=1, per_million_out=1), "tokens_in = -1"),
])
def test_numbers_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
