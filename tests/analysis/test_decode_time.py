"""The parts of a decode step: as many times as there are layers, and one for the LM head; its share by counting."""

from dataclasses import replace

import pytest
import torch

from course_lib.analysis.decode_time import decode_parts
from course_lib.config import ModelConfig
from course_lib.costs import decode_bytes, flops_per_token, parameter_count
from course_lib.published import PUBLISHED

SMALL = ModelConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                    num_key_value_heads=2)


def test_each_layer_and_the_lm_head_are_timed_on_one_thread():
    before = torch.get_num_threads()
    layers, head = decode_parts(SMALL, rounds=2)
    assert len(layers) == 3 and min(*layers, head) > 0
    assert torch.get_num_threads() == before


def test_a_larger_vocabulary_costs_the_lm_head_more_time():
    """A thousand times the rows; they would have to be as fast as the layers' noise for this to fail."""
    _, small = decode_parts(SMALL, rounds=3)
    _, large = decode_parts(replace(SMALL, vocab_size=64_000), rounds=3)
    assert large > 3 * small


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds = 0"):
        decode_parts(SMALL, rounds=0)


def test_the_lm_head_by_weights_bytes_and_flops_is_near_the_rule_of_thumb():
    """V / (V + 12 L D) is within a factor of two of each share; the shares range from below 1 % to above 30 %."""
    shares = {}
    for name, config in PUBLISHED.items():
        V, table = config.vocab_size, config.vocab_size * config.hidden_size
        flops = flops_per_token(config, 1)
        shares[name] = (table / parameter_count(config).total, 2 * table / decode_bytes(config, context=1),
                        flops.head / flops.total)
        rule = V / (V + 12 * config.num_hidden_layers * config.hidden_size)
        assert all(0.5 < rule / share < 2 for share in shares[name])
    assert max(shares, key=lambda name: shares[name][2]) == "GPT-2" and shares["GPT-2"][2] > 0.3
    assert min(shares, key=lambda name: shares[name][2]) == "GPT-3 175B" and shares["GPT-3 175B"][2] < 0.005
