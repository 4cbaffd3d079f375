"""The ways of attention compute the same; times are the fastest of runs that take turns."""

import pytest
import torch

from course_lib import ModelConfig
from course_lib.analysis import attention_time
from course_lib.analysis.attention_time import (
    attention_calls,
    attention_inputs,
    fastest,
    three_steps_into,
    times_by_cause,
)
from course_lib.analysis.peak_memory import peak_bytes

CONFIG = ModelConfig(vocab_size=37, hidden_size=20, intermediate_size=28, num_hidden_layers=2, num_attention_heads=6,
                     num_key_value_heads=2, head_dim=8)


def test_inputs_have_the_shape_of_the_model():
    q, k, v = attention_inputs(CONFIG, 11, dtype=torch.bfloat16)
    assert q.shape == (1, 6, 11, 8) and k.shape == v.shape == (1, 2, 11, 8) and q.dtype == torch.bfloat16
    again = attention_inputs(CONFIG, 11, dtype=torch.bfloat16)
    assert all(x.equal(y) for x, y in zip((q, k, v), again)) and not k.equal(v)


@pytest.mark.parametrize("causal", [True, False])
@torch.inference_mode()
def test_every_way_computes_attention(causal):
    inputs = attention_inputs(CONFIG, 300, dtype=torch.float64)
    calls = attention_calls(*inputs, causal=causal)
    assert list(calls) == ["three steps", "in tiles", "SDPA"]
    q, k, v = inputs
    exact = torch.nn.functional.scaled_dot_product_attention(
        q, *(x.repeat_interleave(3, dim=1) for x in (k, v)), is_causal=causal)
    kept = [torch.full((1, 6, 300, 300), torch.nan, dtype=torch.float64) for _ in range(2)]
    for call in (*calls.values(), lambda: three_steps_into(*inputs, *kept, causal=causal)):
        torch.testing.assert_close(call(), exact, rtol=0, atol=1e-12)
        torch.testing.assert_close(call(), exact, rtol=0, atol=1e-12)


@torch.inference_mode()
def test_kept_memory_is_not_allocated_again():
    inputs = attention_inputs(CONFIG, 300)
    matrix = 6 * 300 * 300 * 4
    kept = [torch.empty(1, 6, 300, 300) for _ in range(2)]
    assert peak_bytes(attention_calls(*inputs)["three steps"]) > 2 * matrix
    assert peak_bytes(lambda: three_steps_into(*inputs, *kept, causal=True)) < matrix / 4


def test_each_cause_is_timed_in_the_same_turns(monkeypatch):
    seen = []
    monkeypatch.setattr(attention_time, "fastest", lambda calls, rounds: seen.append((list(calls), rounds, {
        name: call() for name, call in calls.items()})) or {name: 1.0 for name in calls})
    names = ["three steps", "in tiles", "SDPA", "memory kept"]
    with torch.inference_mode():
        assert list(times_by_cause(CONFIG, 40, rounds=2)) == [*names, *(f"{name}, causal" for name in names)]
    [(_, rounds, results)] = seen
    assert rounds == 2
    for ending, other in (("", ", causal"), (", causal", "")):
        for name in names:
            torch.testing.assert_close(results[name + ending], results["SDPA" + ending])
            assert not torch.allclose(results[name + ending], results["SDPA" + other])


def test_the_fastest_counts_and_calls_take_turns(monkeypatch):
    clock, order = iter([*[10, 15, 0, 7], *[0, 3, 0, 9]]), []  # the first round is not timed
    monkeypatch.setattr(attention_time.machine_speed, "now", lambda: next(clock))
    calls = {name: lambda name=name: order.append(name) or torch.ones(1) for name in "ab"}
    assert fastest(calls, rounds=2) == {"a": 3, "b": 7} and order == ["a", "b"] * 3


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds = 0"):
        fastest({}, rounds=0)
