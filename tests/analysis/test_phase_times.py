"""Measured times belong to what they are said to belong to; models with shared layers do the same work."""

from dataclasses import replace

import pytest
import torch

from course_lib.analysis import machine_speed, stalls
from course_lib.analysis.machine_speed import calibrate, fastest
from course_lib.analysis.phase_times import (
    SHAPES,
    batch_times,
    cut_into_layers,
    decode_times,
    operations_per_step,
    prefill_times,
    timing_model,
    twin,
)
from course_lib.analysis.stalls import gaps_between_tokens, percentile
from course_lib.config import ModelConfig
from course_lib.costs import parameter_count
from course_lib.fast_layer import FastLayer, Joined
from course_lib.kv_cache import StaticCache

SMALL = ModelConfig(vocab_size=64, hidden_size=24, intermediate_size=36, num_hidden_layers=5, num_attention_heads=6,
                    num_key_value_heads=3, max_position_embeddings=256)


@pytest.mark.parametrize("name, millions", [("30M", 30), ("124M", 124), ("350M", 360)])
def test_shapes_have_the_parameters_of_their_names(name, millions):
    assert parameter_count(SHAPES[name]).total / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("layers", [1, 2, 5, 20])
def test_the_same_weights_cut_into_other_layers(layers):
    config = SHAPES["30M"]
    cut = cut_into_layers(config, layers)
    assert cut.num_hidden_layers == layers and cut.intermediate_size % 2 == 0
    assert parameter_count(cut).total == pytest.approx(parameter_count(config).total, rel=2e-3)
    for same in ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads"):
        assert getattr(cut, same) == getattr(config, same)
    assert cut_into_layers(config, 8) == config
    with pytest.raises(ValueError, match=r"layers = 25 .*below 24"):
        cut_into_layers(config, 25)


@torch.no_grad()
def test_layers_that_share_weights_work_and_are_cached_each_for_itself(monkeypatch):
    shared = timing_model(SMALL, distinct_layers=2)
    layers = shared.layers
    assert len(layers) == 5 and {type(layer) for layer in layers} == {FastLayer}
    assert [layer.self_attn.layer_idx for layer in layers] == [0, 1, 2, 3, 4]
    assert layers[4].mlp is layers[0].mlp and layers[3].self_attn.q_proj is layers[1].self_attn.q_proj
    numbers = sum(parameter.numel() for parameter in shared.parameters())
    assert numbers == parameter_count(replace(SMALL, num_hidden_layers=2)).total

    whole = timing_model(SMALL)
    for i, layer in enumerate(whole.layers):
        layer.load_state_dict(layers[i % 2].state_dict())
    whole.embed_tokens.load_state_dict(shared.embed_tokens.state_dict())
    calls = []
    times = Joined.times
    monkeypatch.setattr(Joined, "times", lambda self, x: (calls.append(1), times(self, x))[1])
    logits = []
    for model in (shared, whole):
        cache = StaticCache.for_model(model, 6)
        model(torch.arange(5)[None], kv_cache=cache)
        logits.append(model(torch.tensor([[7]]), kv_cache=cache))
        assert cache.get_seq_length() == 6 and not cache.keys[4].equal(cache.keys[0])
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)
    assert len(calls) == 2 * 2 * 5 * 4, "shared layers take the fast way as well"
    assert twin(layers[0], 9).self_attn.layer_idx == 9 and layers[0].self_attn.layer_idx == 0


def test_there_is_a_time_for_each_length_context_and_batch():
    model = timing_model(SMALL)
    for times, keys in ((prefill_times(model, [2, 40], rounds=2), [2, 40]),
                        (decode_times(model, [1, 200], rounds=2), [1, 200]),
                        (batch_times(model, [1, 8], context=5, rounds=2), [1, 8])):
        assert list(times) == keys and min(times.values()) > 0


def test_a_longer_prompt_takes_longer():
    """128 times the work of about a millisecond: noise would have to be as large for this to fail."""
    times = prefill_times(timing_model(replace(SMALL, hidden_size=96, intermediate_size=512)), [2, 256])
    assert times[256] > 2 * times[2]


def test_fewer_layers_start_fewer_operations():
    five, one = (operations_per_step(timing_model(replace(SMALL, num_hidden_layers=L))) for L in (5, 1))
    per_layer = (five - one) / 4
    assert per_layer == int(per_layer) and 20 < per_layer < 80 and 0 < one - per_layer < 40


def test_the_fastest_round_counts_and_calls_take_turns(monkeypatch):
    clock = iter([0, 5, 5, 15, 20, 23, 30, 39, 40, 44, 50, 70])
    order = []
    monkeypatch.setattr(machine_speed, "now", lambda: next(clock))
    times = fastest({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert times == {"a": 3, "b": 9} and order == list("ababab")
    with pytest.raises(ValueError, match="rounds = 0"):
        fastest({}, rounds=0)


def test_calibration_finds_plausible_numbers(monkeypatch):
    monkeypatch.setattr(machine_speed, "MATRICES", 2)
    found = calibrate(rounds=1)
    assert found.machine.bytes_per_s == max(found.bytes_by_rows.values())
    assert found.machine.flops_per_s == max(found.flops_by_rows.values())
    assert 1e8 < found.machine.bytes_per_s < 1e13 and 1e8 < found.machine.flops_per_s < 1e15
    assert 1e-8 < found.call_s < 1e-3
    for rows in machine_speed.ROWS:  # 2 FLOPs a weight and row, 4 bytes a weight
        assert found.flops_by_rows[rows] / found.bytes_by_rows[rows] == pytest.approx(rows / 2)


def test_percentiles_are_values():
    assert percentile([3, 1, 2], 100) == 3 and percentile([3, 1, 2], 1) == 1
    assert percentile(range(1, 101), 99) == 99
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


@pytest.mark.parametrize("chunk, pieces", [(None, 1), (100, 1), (32, 4), (25, 4)])
def test_prompts_are_read_in_pieces_between_the_steps(chunk, pieces):
    gaps = gaps_between_tokens(timing_model(SMALL), chunk=chunk, prompt_tokens=100, running=2, steps=20, every=10)
    assert len(gaps.seconds) == 20 and len(gaps.ttft_s) == 2 and min(gaps.seconds) > 0
    assert gaps.stretched == [*range(pieces), *range(10, 10 + pieces)]
    for first, ttft in zip((0, 10), gaps.ttft_s):  # all steps in between, and the piece after them
        assert sum(gaps.seconds[first : first + pieces - 1]) < ttft < sum(gaps.seconds[first : first + pieces])


def test_a_prompt_that_would_meet_the_next_one_is_refused():
    with pytest.raises(ValueError, match=r"chunk = 4 .*>= 10, to be done in 10 steps"):
        gaps_between_tokens(timing_model(SMALL), chunk=4, prompt_tokens=100, every=10)


def test_the_clock_is_the_threads_own_while_it_is_alone(monkeypatch):
    monkeypatch.setattr(machine_speed.time, "thread_time", lambda: 1.0)
    monkeypatch.setattr(machine_speed.time, "perf_counter", lambda: 2.0)
    for threads, expected in ((1, 1.0), (2, 2.0)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert stalls.now() == expected
