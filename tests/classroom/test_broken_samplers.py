"""Each broken sampler has the mistake that its diagnosis names, and is right in everything else."""

from fractions import Fraction

import pytest
import torch

from course_lib.analysis.stats import count_limits, outside, power
from course_lib.classroom.broken_samplers import MISTAKES, RIGHT, SAMPLERS
from course_lib.classroom.checks.nb07 import EVIDENCE, diagnosis
from course_lib.config import SamplingParams
from course_lib.sampling import request_generator, sample

N, FALSE_ALARM = 10_000, 1e-6
# One experiment for each kind of mistake: weights, settings, prompt, the right probabilities, the mistaken ones.
EXPERIMENTS = {
    "too few": ([9, 6, 3, 2], SamplingParams(temperature=0.5, top_p=0.8), [], [81, 36], [1]),
    "top-p first": ([9, 6, 3, 2], SamplingParams(temperature=0.5, top_p=0.8), [], [81, 36], [81, 36, 9]),
    "ties": ([4, 3, 3, 2], SamplingParams(top_k=2), [], [4, 3], [4, 3, 3]),
    "sign": ([4, 2, 1, 1], SamplingParams(repetition_penalty=2.0), [1], [8, 1, 2, 2], [4, 4, 1, 1])}
SEEN = [("A", "ties"), ("C", "top-p first"), ("D", "sign"), ("E", "too few")]


def law(weights):
    return {i: Fraction(w, sum(weights)) for i, w in enumerate([*weights, 0, 0, 0][:4])}


def counts(sampler, weights, params, seen):
    logits = (torch.tensor([weights], dtype=torch.float64) / sum(weights)).log().expand(N, -1)
    ids = sampler(logits, [params] * N, [request_generator(3)] * N, [seen] * N)
    return dict(enumerate(torch.bincount(ids, minlength=4).tolist()))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("letter", SAMPLERS)
def test_a_sampler_is_wrong_where_its_mistake_is_and_nowhere_else(letter, experiment):
    """False alarms: at most 5 x 4 x 1e-6 for all of these together."""
    *setup, right, wrong = EXPERIMENTS[experiment]
    observed = counts(SAMPLERS[letter], *setup)
    mistaken = (letter, experiment) in SEEN
    assert outside(observed, count_limits(law(wrong if mistaken else right), N, false_alarm=FALSE_ALARM)) == [] or (
        {experiment, diagnosis()[letter]} == {"too few", "top-p first"}), "the same settings show both mistakes"


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_each_mistake_is_found_almost_surely(experiment):
    *_, right, wrong = EXPERIMENTS[experiment]
    limits = count_limits(law(right), N, false_alarm=FALSE_ALARM)
    assert power(limits, N, {i: float(p) for i, p in law(wrong).items()}) > 0.999999


@pytest.mark.parametrize("letter", SAMPLERS)
def test_only_one_sampler_mixes_up_its_generators(letter):
    def first_request(rows):
        logits, params = torch.zeros(rows, 50), [SamplingParams()] * rows
        generators = [request_generator(seed) for seed in range(rows)]
        return [SAMPLERS[letter](logits, params, generators, [[]] * rows)[0].item() for _ in range(20)]

    alone = first_request(1)
    assert len(set(alone)) > 5 and (first_request(2) == alone) == (diagnosis()[letter] != "shared generator")


def test_the_right_one_is_the_library_s():
    logits = torch.randn(3, 20, generator=request_generator(0))
    params = [SamplingParams(temperature=t, top_k=9, top_p=0.9, repetition_penalty=1.2) for t in (0.5, 1.0, 2.0)]
    prompts = [[1, 2], [], [3]]
    ours, theirs = ([request_generator(seed) for seed in range(3)] for _ in range(2))
    for _ in range(20):
        assert RIGHT(logits, params, ours, prompts).tolist() == sample(
            logits, params, theirs, prompt_ids=prompts, output_ids=[[], [], []]).tolist()


def test_every_sampler_has_a_known_mistake_and_evidence():
    assert list(SAMPLERS) == list(diagnosis()) == list(EVIDENCE)
    assert len(set(diagnosis().values())) == 5 and set(diagnosis().values()) < set(MISTAKES)
