"""The language of four words: its fractions are exact, and a wrong verifier is at a distance."""

from collections import Counter
from fractions import Fraction
from itertools import accumulate, product

import pytest
import torch

from course_lib.classroom.four_words import (
    DRAFT,
    FIRST,
    LATER,
    MIDDLES,
    TARGET,
    chance,
    completed,
    distance,
    rows_along,
    weights_after,
)
from course_lib.speculative import verify


def test_twelve_numbers_stand_for_all():
    """Every border at which an answer changes is a multiple of 1 / 12."""
    for p, q in (FIRST, *LATER):
        assert sum(p) == sum(q) == 12 and min(q) > 0
        left = [max(0, a - b) for a, b in zip(p, q)]
        borders = [Fraction(a, b) for a, b in zip(p, q) if a < b]
        borders += [Fraction(total, 12) for total in accumulate(p)]
        borders += [Fraction(total, sum(left)) for total in accumulate(left) if sum(left)]
        assert all((12 * border).denominator == 1 for border in borders)
    assert len(MIDDLES) == 12 and all(0 < u < 1 for u in MIDDLES)


def test_chances_are_a_distribution_that_depends_on_the_text():
    for model in (TARGET, DRAFT):
        assert sum(chance(text, model) for text in product(range(4), repeat=3)) == 1
    assert chance((1, 2, 3), TARGET, start=1) == chance((1, 2, 3), TARGET) / Fraction(3, 12)
    assert len({tuple(weights_after(text)[0]) for text in ((0,), (1,), (2,), (3,))}) == 4
    p_rows, q_rows = rows_along((1, 3))
    assert p_rows.shape == (3, 4) and q_rows.shape == (2, 4)
    assert p_rows[0].mul(12).round().tolist() == FIRST[0]
    assert q_rows[1].mul(12).round().tolist() == weights_after((1,))[1]


def test_distance_is_zero_for_the_target_alone():
    alone = {(x,): chance((x,), TARGET) for x in range(4)}
    assert distance(alone) == 0 and sum(completed(alone).values()) == 1
    draft = {text: chance(text, DRAFT) for text in product(range(4), repeat=3)}
    assert distance(draft) == sum(max(0, chance(text, TARGET) - share) for text, share in draft.items())


@pytest.mark.parametrize("k", [1, 2])
def test_the_library_s_verifier_is_exact(k):
    law = Counter()
    for proposal in product(range(4), repeat=k):
        rows = rows_along(proposal)
        for case in product(MIDDLES, repeat=k + 1):
            tokens = verify(*rows, proposal, torch.tensor(case, dtype=torch.float64))
            law[tuple(tokens)] += chance(proposal, DRAFT) / 12 ** (k + 1)
    assert distance(law) == 0 and sum(law.values()) == 1
