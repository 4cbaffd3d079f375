"""Costs of a pass, the forecast made of them, and the stopwatch: what is counted is right, times are sane."""

import pytest
import torch

from course_lib import DraftModel, PromptLookup, SamplingParams, load
from course_lib.analysis.acceptance import Tally, write_all
from course_lib.analysis.draft_race import (
    Check,
    Forecast,
    PassCosts,
    check_ms,
    forecast,
    guess_seconds,
    pass_costs,
    race,
)
from course_lib.speculative import Pass


def one(k, accepted):
    return Pass(tuple(range(k)), (1.0,) * k, (1.0,) * k, tuple(range(accepted + 1)), k + 1, 0.0, 0.0)


def test_a_forecast_prices_each_pass_by_its_own_proposals():
    tally = Tally(((1, 2, 3, 4, 5, 6),), ((one(4, 2), one(0, 0), one(2, 1)),), 1.0)  # 6 tokens in 3 passes
    costs = PassCosts({1: 1.0, 3: 2.0, 5: 4.0}, {"small": 0.25, "free": 0.0})
    expected = forecast(tally, costs, "small")
    assert expected == pytest.approx((2, (4 + 1 + 2) / 3, (4 + 0 + 2) / 3 * 0.25))
    assert expected.speed_up == pytest.approx(2 / (7 / 3 + 0.5))
    assert forecast(tally, costs, "free").speed_up == pytest.approx(6 / 7)
    assert Forecast(1.0, 1.0, 0.0).speed_up == 1


def test_costs_lie_on_a_line_between_those_that_were_timed():
    costs = PassCosts({1: 1.0, 5: 3.0, 9: 4.0}, {})
    assert [costs.check(rows) for rows in (1, 2, 5, 7, 9, 12)] == [1, 1.5, 3, 3.5, 4, 4]


class Clock:
    """A draft whose every proposal takes one second of a false clock."""

    def __init__(self):
        self.now, self.length = 0.0, 0

    def propose(self, ids, uniforms):
        assert self.length == len(ids) - 1, "all but the last id is known"
        self.now += len(uniforms)
        return list(range(len(uniforms))), None

    def crop(self, length):
        self.length = length


@pytest.mark.parametrize("k, seconds", [(4, 1), (1, 1), (0, 0)])
def test_a_guess_is_a_share_of_the_proposal(monkeypatch, k, seconds):
    clock = Clock()
    monkeypatch.setattr("course_lib.analysis.draft_race.time.perf_counter", lambda: clock.now)
    assert guess_seconds(clock, [1, 2, 3], k) == seconds


def test_a_check_looks_at_new_tokens_after_the_same_text():
    lm = load("pocket", device="cpu", dtype=torch.float32)
    with torch.inference_mode():
        check = Check(lm, torch.arange(10)[None].expand(2, -1), 6)
        assert check.seconds(3) > 0 and check.kv_cache.get_seq_length() == 9
        assert check.seconds(1) > 0 and check.kv_cache.get_seq_length() == 7


def test_parts_are_timed():
    lm, small = load("pocket"), load("pocket-draft")
    drafts = {"small": DraftModel(small, 2), "itself": DraftModel(lm, 2), "look-up": PromptLookup(2)}
    costs = pass_costs(lm, drafts, runs=2)
    assert costs.checks[1] == 1 and list(costs.checks) == sorted(costs.checks) and set(costs.guesses) == set(drafts)
    assert 0 < costs.guesses["look-up"] < costs.guesses["itself"] and costs.guesses["small"] < costs.guesses["itself"]
    first, three = check_ms(lm, [1, 3], batch_size=2, runs=2)
    assert 0 < first and 0 < three


def test_a_race_has_a_ratio_for_each_text_draft_and_round():
    lm = load("pocket")
    texts, drafts = {"a": ["Once"], "b": ["The cat", "A dog"]}, {"one": PromptLookup(1), "two": PromptLookup(2)}
    ratios = race(lm, texts, drafts, max_tokens=5, rounds=2)
    assert list(ratios) == [("a", "one"), ("a", "two"), ("b", "one"), ("b", "two")]
    assert all(len(each) == 2 and 0.02 < min(each) and max(each) < 50 for each in ratios.values())


def test_a_ratio_is_plain_seconds_per_token_over_those_of_the_draft(monkeypatch):
    def written(lm, prompts, params, draft):
        assert params.max_tokens == 7 and params.temperature == 0.5 and len(prompts) == 1
        tokens = {"short": 2, "long": 6}[prompts[0]]
        return Tally(((0,) * tokens,), (), {None: 8.0, "fast": 2.0, "slow": 16.0}[draft])
    monkeypatch.setattr("course_lib.analysis.draft_race.write_all", written)
    texts, drafts = {"both": ["short", "long"]}, {"f": "fast", "s": "slow"}
    ratios = race(None, texts, drafts, temperature=0.5, max_tokens=7, rounds=3)
    assert ratios == {("both", "f"): [4.0] * 3, ("both", "s"): [0.5] * 3}


def test_a_tally_of_the_model_can_be_priced():
    lm, draft = load("pocket"), DraftModel(load("pocket-draft"), 2)
    tally = write_all(lm, ["Once upon"], SamplingParams(temperature=0, max_tokens=8), draft)
    assert 1 <= forecast(tally, PassCosts({1: 1.0, 3: 1.0}, {"d": 0.0}), "d").speed_up <= 3
