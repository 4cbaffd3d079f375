"""The published shapes: parameters counted from them against the counts that the checkpoints have."""

import pytest

from course_lib.costs import parameter_count
from course_lib.published import LATENT, PARAMETERS, PUBLISHED, SOURCES


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_checkpoint(name):
    assert parameter_count(PUBLISHED[name]).total == PARAMETERS[name]


def test_gpt_3_is_as_large_as_its_name_says():
    """The paper says 175.0 billion; its shape holds 174.6."""
    assert parameter_count(PUBLISHED["GPT-3 175B"]).total == pytest.approx(175e9, rel=3e-3)
    assert PUBLISHED["GPT-3 175B"].num_hidden_layers == 96


def test_every_shape_has_a_source_and_a_test():
    assert set(PUBLISHED) == set(SOURCES) == {*PARAMETERS, "GPT-3 175B"}
    assert all(SOURCES.values()) and len(set(SOURCES.values())) == len(SOURCES)


def test_what_a_count_of_parameters_does_not_show():
    heads = {name: (c.num_attention_heads, c.num_key_value_heads, c.head_dim) for name, c in PUBLISHED.items()}
    assert heads["Llama-3.1-405B"] == (128, 8, 128) and heads["Llama-3.2-1B"] == (32, 8, 64)
    assert heads["Qwen3-8B"] == (32, 8, 128) and heads["Gemma-2B"] == (8, 1, 256)
    assert heads["GPT-2 XL"] == (25, 25, 64) and heads["Llama-2-70B"] == (64, 8, 128)
    tied = {name for name, c in PUBLISHED.items() if c.tie_word_embeddings}
    assert tied == {"GPT-2", "GPT-2 XL", "GPT-3 175B", "Llama-3.2-1B", "Qwen2-0.5B", "Qwen3-0.6B", "Gemma-2B",
                    "SmolLM2-135M"}


def test_the_latent_cache_is_that_of_the_paper():
    """DeepSeek-V2's table 1: 4.5 head_dim numbers a layer, so that it equals grouped attention with 2.25 groups."""
    assert set(LATENT) == {"DeepSeek-V2", "DeepSeek-V3"}
    for shape in LATENT.values():
        numbers = shape.kv_bytes_per_token(1) / shape.num_hidden_layers
        assert numbers == 576 == 4.5 * shape.v_head_dim == 2.25 * 2 * shape.v_head_dim
        assert shape.uncompressed_bytes_per_token(1) / shape.num_hidden_layers == 128 * (192 + 128)
    assert LATENT["DeepSeek-V3"].kv_bytes_per_token() == 70_272 and LATENT["DeepSeek-V2"].kv_bytes_per_token() == 69_120
