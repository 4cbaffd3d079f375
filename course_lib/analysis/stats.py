"""How far the counts of random draws may stray before something is wrong.

The count of one outcome among n independent draws is binomial, and its tails are summed exactly. A test
that looks at several outcomes shares its false-alarm probability among them and both their sides (union
bound), so that the probability stated is one the test cannot exceed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from course_lib.config import require

Outcome = TypeVar("Outcome", bound=Hashable)
Limits = Mapping[Outcome, tuple[int, int]]


def binomial_pmf(n: int, p: float) -> list[float]:
    """P(X = 0), ..., P(X = n) of n draws that succeed with probability p, each by its logarithm.

    >>> [round(x, 12) for x in binomial_pmf(2, 0.5)]
    [0.25, 0.5, 0.25]
    """
    p = float(p)
    require(0 <= p <= 1, "p", p, "in [0, 1]")
    if p in (0, 1):
        return [float(x == n * p) for x in range(n + 1)]
    log_choose = [math.lgamma(n + 1) - math.lgamma(x + 1) - math.lgamma(n - x + 1) for x in range(n + 1)]
    return [math.exp(c + x * math.log(p) + (n - x) * math.log1p(-p)) for x, c in enumerate(log_choose)]


def accepted_counts(n: int, p: float, tail: float) -> tuple[int, int]:
    """The lowest and the highest count of n draws that are believed: each side leaves out at most `tail`.

    >>> accepted_counts(3, 0.5, 0.13)
    (1, 2)
    """
    pmf = binomial_pmf(n, p)
    return first_believed(pmf, tail), n - first_believed(pmf[::-1], tail)


def first_believed(pmf: list[float], tail: float) -> int:
    """How many values at the start hold at most `tail` together."""
    x, left_out = 0, pmf[0]
    while left_out <= tail:
        x += 1
        left_out += pmf[x]
    return x


def count_limits(probabilities: Mapping[Outcome, float], n: int, *, false_alarm: float) -> Limits:
    """For each outcome, the lowest and the highest believable count among n draws.

    Args:
        probabilities: of the outcomes looked at; they need not sum to 1, and 0 means never.
        false_alarm: of the whole test, in (0, 1): the probability that any count of a right sampler
            lies outside its limits is at most this.

    >>> count_limits({"heads": 0.5, "edge": 0}, 100, false_alarm=1e-6)
    {'heads': (25, 75), 'edge': (0, 0)}
    """
    require(0 < false_alarm < 1, "false_alarm", false_alarm, "in (0, 1)")
    tail = false_alarm / (2 * len(probabilities))
    return {outcome: accepted_counts(n, p, tail) for outcome, p in probabilities.items()}


def outside(counts: Mapping[Outcome, int], limits: Limits) -> list[Outcome]:
    """The outcomes whose counts cannot be believed; an outcome without a count came 0 times."""
    return [outcome for outcome, (low, high) in limits.items() if not low <= counts.get(outcome, 0) <= high]


def power(limits: Limits, n: int, wrong: Mapping[Outcome, float]) -> float:
    """A lower bound of the probability that n draws from `wrong` are found out: that of the surest outcome."""
    found = [0.0]
    for outcome, (low, high) in limits.items():
        pmf = binomial_pmf(n, wrong.get(outcome, 0))
        found.append(min(1.0, math.fsum(pmf[:low]) + math.fsum(pmf[high + 1 :])))
    return max(found)
