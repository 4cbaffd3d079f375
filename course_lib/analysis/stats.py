"""How far the counts of random draws may stray before something is wrong.

The count of one outcome among n independent draws is binomial, and its tails are summed exactly. A test
that looks at several outcomes shares its false-alarm probability between them and between both their sides (union
bound), so that the probability stated is one the test cannot exceed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from course_lib.config import require

Outcome = TypeVar("Outcome", bound=Hashable)
Limits = Mapping[Outcome, tuple[int, int]]


def binomial_pmf(n: int, p: float) -> np.ndarray:
    """P(X = 0), ..., P(X = n) of n draws that succeed with probability p, each by its logarithm.

    >>> binomial_pmf(2, 0.5).round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    p = float(p)
    require(0 <= p <= 1, "p", p, "in [0, 1]")
    x = np.arange(n + 1)
    if p in (0, 1):
        return (x == n * p).astype(float)
    return np.exp(log_choose(n) + x * math.log(p) + (n - x) * math.log1p(-p))


@lru_cache(maxsize=8)
def log_choose(n: int) -> np.ndarray:
    """The logarithm of how many ways there are to choose 0, ..., n of n."""
    log_factorial = np.array([math.lgamma(x + 1) for x in range(n + 1)])
    return log_factorial[n] - log_factorial - log_factorial[::-1]


def accepted_counts(n: int, p: float, tail: float) -> tuple[int, int]:
    """The lowest and the highest count of n draws that are believed: each side leaves out at most `tail`.

    >>> accepted_counts(3, 0.5, 0.13)
    (1, 2)
    """
    pmf = binomial_pmf(n, p)
    return first_believed(pmf, tail), n - first_believed(pmf[::-1], tail)


def first_believed(pmf: np.ndarray, tail: float) -> int:
    """How many values at the start hold at most `tail` together."""
    return int(np.searchsorted(pmf.cumsum(), tail, side="right"))


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
    chances = {outcome: float(p) for outcome, p in probabilities.items()}
    for p in chances.values():
        require(0 <= p <= 1, "p", p, "in [0, 1]")
    tail = false_alarm / (2 * max(1, len(chances)))
    limits = dict(limits_in_order(sorted(set(chances.values())), n, tail))
    return {outcome: limits[p] for outcome, p in chances.items()}


def limits_in_order(chances: Sequence[float], n: int, tail: float) -> Iterator[tuple[float, tuple[int, int]]]:
    """Each of the ascending probabilities with its `accepted_counts`, which never fall as p rises.

    So where both ends of a stretch have the same limits, all between them have; other stretches are halved.
    A vocabulary of 150,000 tokens has only some dozens of different limits.
    """
    ends = [accepted_counts(n, p, tail) for p in (*chances[:1], *chances[-1:])]
    stretches = [(chances, *ends)] if chances else []
    while stretches:
        stretch, first, last = stretches.pop()
        if first == last:
            yield from ((p, first) for p in stretch)
            continue
        half = len(stretch) // 2
        left, right = stretch[:half], stretch[half:]
        stretches += [(left, first, accepted_counts(n, left[-1], tail)),
                      (right, accepted_counts(n, right[0], tail), last)]


def outside(counts: Mapping[Outcome, int], limits: Limits) -> list[Outcome]:
    """The outcomes whose counts cannot be believed; an outcome without a count came 0 times."""
    return [outcome for outcome, (low, high) in limits.items() if not low <= counts.get(outcome, 0) <= high]


def power(limits: Limits, n: int, wrong: Mapping[Outcome, float]) -> float:
    """A lower bound of the probability that n draws from `wrong` are found out: that of the surest outcome.

    Of the outcomes with the same limits only the rarest and the most frequent are looked at. A count is
    most likely to lie within limits at one probability, and the less the farther from it.
    """
    chances: dict[tuple[int, int], list[float]] = {}
    for outcome, pair in limits.items():
        chances.setdefault(pair, []).append(float(wrong.get(outcome, 0)))
    return max((chance_outside(n, p, *pair) for pair, ps in chances.items() for p in {min(ps), max(ps)}), default=0.0)


def chance_outside(n: int, p: float, low: int, high: int) -> float:
    """How likely a count of n draws is below `low` or above `high`."""
    pmf = binomial_pmf(n, p)
    return min(1.0, math.fsum(pmf[:low]) + math.fsum(pmf[high + 1 :]))
