"""The times of a generation's steps: one for each step, from repeated runs, the first of which does not count."""

import pytest
import torch

from course_lib import SamplingParams, load
from course_lib.analysis import step_time
from course_lib.analysis.step_time import step_seconds


def test_there_is_a_time_for_each_step():
    lm = load("pocket", device="cpu", dtype=torch.float32)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    seconds = step_seconds(lm, "What is gravity?", params, runs=2)
    assert len(seconds) == 4 and min(seconds) > 0


class Told:
    """A finished generation with steps of given lengths."""

    def __init__(self, seconds):
        self.steps = [type("Step", (), {"seconds": s}) for s in seconds]

    def __iter__(self):
        return iter(["a"] * len(self.steps))


def test_it_is_the_median_of_each_step_without_the_first_generation(monkeypatch):
    told = iter([[90.0, 90.0], [3.0, 1.0], [2.0, 8.0], [7.0, 2.0]])
    monkeypatch.setattr(step_time, "stream", lambda lm, prompt, params: Told(next(told)))
    assert step_seconds(None, [1], SamplingParams(seed=0), runs=3) == [3.0, 2.0]


@pytest.mark.parametrize("params, runs, named", [(SamplingParams(temperature=0), 0, "runs"),
                                                 (SamplingParams(temperature=0.8), 1, "params")])
def test_what_cannot_be_measured_is_refused(params, runs, named):
    with pytest.raises(ValueError, match=named):
        step_seconds(None, [1], params, runs=runs)
