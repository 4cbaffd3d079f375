"""The limits of believable counts, against sums of exact fractions."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.analysis.stats import accepted_counts, binomial_pmf, count_limits, outside, power
from course_lib.classroom.checks import nb07

chances = st.integers(0, 20).map(lambda i: Fraction(i, 20))


def exact_pmf(n, p):
    return [math.comb(n, x) * p**x * (1 - p) ** (n - x) for x in range(n + 1)]


@given(st.integers(1, 60), chances)
def test_pmf_is_the_binomial_law(n, p):
    assert binomial_pmf(n, float(p)) == pytest.approx([float(x) for x in exact_pmf(n, p)], rel=1e-9, abs=1e-300)


@given(st.integers(1, 60), chances, st.sampled_from([Fraction(1, 10), Fraction(1, 1000), Fraction(1, 10**6)]))
def test_limits_leave_out_as_much_as_allowed_and_no_more(n, p, tail):
    low, high = accepted_counts(n, float(p), float(tail) * (1 + 1e-9))
    pmf, most = exact_pmf(n, p), tail * (1 + Fraction(1, 10**6))
    assert sum(pmf[:low]) <= most and sum(pmf[high + 1 :]) <= most
    assert sum(pmf[: low + 1]) > tail and sum(pmf[high:]) > tail


def test_a_hundred_thousand_draws_neither_underflow_nor_lose_mass():
    assert math.fsum(binomial_pmf(100_000, 0.04)) == pytest.approx(1, abs=1e-8)
    low, high = accepted_counts(100_000, 0.04, 1e-9)
    assert low < 4_000 < high and high - low < 14 * math.sqrt(100_000 * 0.04 * 0.96)


def test_the_false_alarm_is_shared_by_all_outcomes_and_sides():
    limits = count_limits({i: Fraction(1, 8) for i in range(8)}, 400, false_alarm=1e-3)
    assert set(limits.values()) == {accepted_counts(400, 0.125, 1e-3 / 16)}
    missed = exact_pmf(400, Fraction(1, 8))
    low, high = limits[0]
    assert 8 * (sum(missed[:low]) + sum(missed[high + 1 :])) <= 1e-3


def test_outcomes_that_cannot_be_believed_are_named():
    limits = count_limits({"a": 0.5, "b": 0.5, "never": 0}, 1000, false_alarm=1e-6)
    assert outside({"a": 510, "b": 490}, limits) == []
    assert outside({"a": 1000}, limits) == ["a", "b"]
    assert outside({"a": 500, "b": 499, "never": 1}, limits) == ["never"]


def test_power_is_that_of_the_surest_outcome():
    limits = count_limits({"a": 0.5, "b": 0.5}, 1000, false_alarm=1e-6)
    assert power(limits, 1000, {"a": 0.5, "b": 0.5}) <= 1e-6
    assert power(limits, 1000, {"a": 1.0}) == 1
    assert min(power(limits, 1000, {"a": 0.5, "b": 0.9}), power(limits, 1000, {"a": 0.1, "b": 0.5})) > 0.999
    low, high = limits["a"]
    pmf = exact_pmf(1000, Fraction(3, 5))
    assert power(limits, 1000, {"a": 0.6, "b": 0.4}) == pytest.approx(float(sum(pmf[high + 1 :]) + sum(pmf[:low])))


def test_a_whole_vocabulary_gets_the_limits_that_each_token_would_get_alone():
    """Half the tokens equally likely, half as Zipf has them: minutes, if each were summed by itself."""
    V, n = 151_936, 10_000
    weights = [1 / (rank + 1) for rank in range(V // 2)] + [1e-4] * (V // 2)
    total = math.fsum(weights)
    law = {token: weight / total for token, weight in enumerate(weights)}
    limits = count_limits(law, n, false_alarm=1e-6)
    for token in (0, 1, 2, 7, 50, 500, 5_000, V // 2 - 1, V // 2, V - 1):
        assert limits[token] == accepted_counts(n, law[token], 1e-6 / (2 * V)), token
    wrong = {token: law[V - 1 - token] for token in law}
    some = [*range(0, 400, 5), *range(0, V, 997), V - 1]
    assert power({token: limits[token] for token in some}, n, wrong) == max(
        power({token: limits[token]}, n, wrong) for token in some)
    assert power(limits, n, wrong) == pytest.approx(1)


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match=r"p = 1\.5"):
        binomial_pmf(3, 1.5)
    with pytest.raises(ValueError, match="false_alarm = 0"):
        count_limits({"a": 0.5}, 10, false_alarm=0)
    for p in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"p = {p}"):
            count_limits({"a": 0.5, "b": p, "c": 0.1}, 10, false_alarm=0.1)
    assert count_limits({}, 10, false_alarm=0.1) == {} and power({}, 10, {}) == 0


@pytest.mark.parametrize("wrong", [
    {0: 1 / 102, 1: 81 / 102, 2: 16 / 102, 3: 4 / 102},  # without min-p
    {1: 9 / 15, 2: 4 / 15, 3: 2 / 15},  # without the temperature
    {1: 1.0},  # the likeliest
    dict.fromkeys(range(4), 0.25),
], ids=["no min-p", "no temperature", "greedy", "any"])
def test_the_draws_of_exercise_07_6_find_what_they_say_they_find(wrong):
    limits = count_limits(nb07.EXACT, nb07.N_DRAWS, false_alarm=nb07.FALSE_ALARM)
    assert power(limits, nb07.N_DRAWS, wrong) >= 1 - 1e-6
    assert sum(nb07.EXACT.values()) == 1 and power(limits, nb07.N_DRAWS, nb07.EXACT) <= nb07.FALSE_ALARM
