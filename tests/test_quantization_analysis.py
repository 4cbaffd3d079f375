"""What rounding costs the shipped model: better methods are better, and measuring leaves no trace."""

import math
from copy import copy
from dataclasses import replace

import pytest
import torch

from course_lib import load
from course_lib.analysis.quantization import (
    cached_loss,
    calibration_ids,
    first_questions,
    input_moments,
    kinds_of,
    layers_of,
    loss,
    parts_of,
    quality,
    right_answers,
    rounded,
    rounded_in_place,
    rounded_with_feedback,
    sensitivity,
    step_times,
    story_ids,
)
from course_lib.quantize import matrices, quantize
from course_lib.training.scores import score


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu")


@pytest.fixture(scope="module")
def ids(lm):
    return story_ids(lm, rows=6, length=64)


def test_finer_grids_cost_less(lm, ids):
    losses = [loss(rounded(lm, bits, per), ids) for bits, per in ((8, 32), (4, 32), (3, 32), (3, "channel"))]
    assert losses == sorted(losses) and abs(losses[0] - loss(lm, ids)) < 0.01
    assert loss(rounded(lm, 3, "tensor"), ids) > losses[-1] + 1


def test_error_feedback_is_better_than_rounding_to_nearest_at_three_bits(lm, ids):
    """Both from the same grids; only the layers up to the second are rounded, to be quick."""
    parts = [name for name in parts_of(lm) if name.startswith(("layers.0.", "layers.1."))]
    moments = input_moments(lm, calibration_ids(lm, rows=16), parts)
    exact = loss(lm, ids)
    nearest = loss(rounded(lm, 3, "channel", parts=parts), ids) - exact
    feedback = loss(rounded_with_feedback(lm, 3, None, moments), ids) - exact
    assert 0 < feedback < 0.7 * nearest
    assert not lm.model.layers[0].self_attn.q_proj._forward_pre_hooks


def test_the_packed_model_loses_what_the_rounded_one_does(lm, ids):
    """The same grids; bfloat16 in scales and activations moves the loss by less than a hundredth."""
    packed = loss(quantize(lm, 4, 32, embedding_bits=None), ids)
    assert abs(packed - loss(rounded(lm, 4, 32), ids)) < 0.01
    assert abs(loss(quantize(lm), ids) - loss(lm, ids)) < 0.01


def test_a_cache_in_int8_costs_nothing_that_shows(lm, ids):
    assert abs(cached_loss(lm, ids) - loss(lm, ids)) < 0.005


def test_sensitivity_leaves_the_model_as_it_was(lm, ids):
    before = {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}
    groups = layers_of(lm)
    assert set(groups) == {"embedding and head", *(f"layers.{i}" for i in range(10))}
    for named in (groups, kinds_of(lm)):
        assert sorted(name for names in named.values() for name in names) == sorted(matrices(lm.model))
    some = {label: groups[label] for label in ("embedding and head", "layers.0")}
    result = sensitivity(lm, 3, ids, groups=some)
    assert list(result) == list(some) and all(rise > 0 for rise in result.values())
    with pytest.raises(RuntimeError), rounded_in_place(lm, 2, "tensor", groups["layers.0"]):
        raise RuntimeError("interrupted")
    assert all(tensor.equal(before[name]) for name, tensor in lm.model.state_dict().items())


def test_batched_answers_are_those_of_the_evaluation(lm):
    """Batches add in another order; that no answer of these changes is checked, not presumed."""
    for kind in ("capitals", "calculator"):
        questions = first_questions(kind, 12)
        assert sum(right_answers(lm, questions, together=5)) == score(lm, iter(questions), 12).right


def test_quality_knows_a_dead_model(lm, ids):
    asked = first_questions("capitals", 8), first_questions("calculator", 4)
    alive, dead = (quality(one, ids, *asked) for one in (lm, rounded(lm, 2, "tensor")))
    assert alive.capitals > 0.7 and alive.tool_calls > 0.5 and alive.perplexity < 4
    assert dead.capitals == dead.tool_calls == 0 and dead.perplexity > 100


def test_parts_that_are_not_there_are_refused(lm):
    with pytest.raises(ValueError, match=r"parts = \['layers.99'\]"):
        rounded(lm, 4, "channel", parts=["layers.99"])


def test_texts_to_measure_on_are_not_those_to_calibrate_on(lm):
    rows = {tuple(row) for row in story_ids(lm, rows=8, length=32).tolist()}
    assert len(rows) == 8 and not rows & {tuple(row) for row in calibration_ids(lm, rows=8, length=32).tolist()}
    assert math.isfinite(loss(lm, torch.tensor([[5, 6, 7]])))


def test_a_step_is_timed_in_four_formats(lm):
    times = step_times(lm, context=8, rounds=2)
    assert list(times) == ["float32", "bfloat16", "int8", "int4"] and all(0 < t < 10 for t in times.values())


def test_a_vocabulary_without_tool_calls_can_be_asked_for_capitals(lm):
    tokenizer = copy(lm.tokenizer)
    tokenizer.special_tokens = {k: v for k, v in tokenizer.special_tokens.items() if k != "</tool_call>"}
    assert len(right_answers(replace(lm, tokenizer=tokenizer), first_questions("capitals", 2))) == 2
