"""The ways of attention compute the same; times are the fastest of runs that take turns."""

import pytest
import torch

from course_lib import ModelConfig
from course_lib.analysis import attention_time
from course_lib.analysis.attention_time import attention_calls, attention_inputs, fastest

CONFIG = ModelConfig(vocab_size=37, hidden_size=20, intermediate_size=28, num_hidden_layers=2, num_attention_heads=6,
                     num_key_value_heads=2, head_dim=8)


def test_inputs_have_the_shape_of_the_model():
    q, k, v = attention_inputs(CONFIG, 11, dtype=torch.bfloat16)
    assert q.shape == (1, 6, 11, 8) and k.shape == v.shape == (1, 2, 11, 8) and q.dtype == torch.bfloat16
    again = attention_inputs(CONFIG, 11, dtype=torch.bfloat16)
    assert all(x.equal(y) for x, y in zip((q, k, v), again)) and not k.equal(v)


def test_every_way_computes_causal_attention():
    calls = attention_calls(*attention_inputs(CONFIG, 300, dtype=torch.float64))
    naive, tiled, fused = (calls[name]() for name in ("naive", "tiled", "SDPA"))
    assert list(calls) == ["naive", "tiled", "SDPA"]
    for other in (tiled, fused):
        torch.testing.assert_close(other, naive, rtol=0, atol=1e-12)


def test_the_fastest_counts_and_calls_take_turns(monkeypatch):
    clock, order = iter([*[0, 90, 0, 90], *[10, 15, 0, 7], *[0, 3, 0, 9]]), []
    monkeypatch.setattr(attention_time.time, "perf_counter", lambda: next(clock))
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    assert fastest(calls, rounds=2) == {"a": 3, "b": 7} and order == ["a", "b"] * 3


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds = 0"):
        fastest({}, rounds=0)
