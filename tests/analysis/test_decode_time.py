"""The parts of a decode step: as many times as there are layers, and one for the LM head."""

from dataclasses import replace

import pytest
import torch

from course_lib.analysis.decode_time import decode_parts
from course_lib.config import ModelConfig

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
