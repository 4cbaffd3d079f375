"""Each broken verifier has the mistake that its diagnosis names, and is right in everything else."""

from fractions import Fraction
from itertools import product

import pytest
import torch

from course_lib.analysis.stats import count_limits, outside, power
from course_lib.classroom.broken_verifiers import MISTAKES, RIGHT, VERIFIERS, drawn, likeliest, outcomes, verifier
from course_lib.sampling import draw, request_generator
from course_lib.speculative import expected_tokens, verify

DIAGNOSIS = {"A": "no bonus", "B": "target again", "C": "greedy draft"}
# Twelfths; every border that matters is a multiple of 1 / 12.
P, Q, BONUS = [7, 4, 1, 0], [1, 2, 3, 6], [3, 3, 2, 4]
STEPS, N, FALSE_ALARM = 12, 4000, 1e-6


def first_token(play):
    """The exact law of the first token of a round of one proposal, and the mean number of tokens."""
    counts = outcomes(play, torch.tensor([P, BONUS]) / 12, torch.tensor([Q]) / 12, STEPS)
    total = Fraction(sum(counts.values()))
    law = [sum(n for ids, n in counts.items() if ids[0] == x) / total for x in range(4)]
    return law, sum(len(ids) * n for ids, n in counts.items()) / total


# By hand: of q, token 2 is rejected in 2 of 3 cases and token 3 always, 8/12 together; p - q leaves tokens 0 and 1
# in the ratio 6 : 2. The likeliest of q is token 3.
STAYS = [Fraction(n, 12) for n in (1, 2, 1, 0)]
LAWS = {"right": [Fraction(n, 12) for n in P],
        "no bonus": [Fraction(n, 12) for n in P],
        "target again": [s + Fraction(8, 12) * Fraction(n, 12) for s, n in zip(STAYS, P)],
        "greedy draft": [Fraction(3, 4), Fraction(1, 4), Fraction(0), Fraction(0)]}


@pytest.mark.parametrize("mistake, play", [("right", RIGHT), *((DIAGNOSIS[letter], play)
                                                               for letter, play in VERIFIERS.items())])
def test_the_law_of_each_verifier_is_the_one_of_its_mistake(mistake, play):
    law, mean = first_token(play)
    assert law == LAWS[mistake]
    acceptance = Fraction(0) if mistake == "greedy draft" else sum(STAYS)
    assert mean == (1 if mistake == "no bonus" else expected_tokens(acceptance, 1))


@pytest.mark.parametrize("letter", ["B", "C"])
def test_counts_of_draws_find_it_almost_surely(letter):
    """4,000 rounds; a right verifier fails once in a million, a broken one passes more rarely."""
    limits = count_limits(dict(enumerate(LAWS["right"])), N, false_alarm=FALSE_ALARM)
    wrong = dict(enumerate(map(float, LAWS[DIAGNOSIS[letter]])))
    assert power(limits, N, wrong) > 0.999999
    p, q, generator = torch.tensor([P, BONUS]) / 12, torch.tensor([Q]) / 12, request_generator(0)
    for play, found in ((VERIFIERS[letter], True), (RIGHT, False)):
        counts = dict.fromkeys(range(4), 0)
        for _ in range(N):
            counts[play(p, q, torch.rand(3, generator=generator, dtype=torch.float64))[0]] += 1
        assert bool(outside(counts, limits)) == found


def test_a_forgotten_bonus_shows_in_the_number_of_tokens():
    """What it writes has the right law: only where all is accepted, one token is missing."""
    p, q = torch.tensor([[0.5, 0.5]] * 3), torch.tensor([[0.5, 0.5]] * 2)
    for letter, play in VERIFIERS.items():
        assert set(map(len, outcomes(play, p, q, 2))) == ({2} if letter == "A" else {3})


def test_the_right_one_is_the_library_s():
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        p, q = (2 * torch.randn(4, 9, generator=generator)).softmax(-1), (2 * torch.randn(
            3, 9, generator=generator)).softmax(-1)
        uniforms = torch.rand(7, generator=generator, dtype=torch.float64)
        proposal = draw(q, uniforms[:3]).tolist()
        assert RIGHT(p, q, uniforms) == verify(p, q, proposal, uniforms[3:])


def test_the_parts_of_a_verifier():
    q = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]])
    assert likeliest(q, torch.zeros(2)) == [1, 0] and drawn(q, torch.tensor([0.1, 0.9])) == [0, 2]
    assert verifier(propose=likeliest)(torch.cat((q, q[:1])), q, torch.full((5,), 0.5)) == [1, 0, 1]


def test_every_verifier_has_a_known_mistake():
    assert list(DIAGNOSIS) == list(VERIFIERS) and set(DIAGNOSIS.values()) < set(MISTAKES) and len(MISTAKES) == 6
    laws = {tuple(map(tuple, (sorted(outcomes(play, *(torch.tensor(w) / 12 for w in ([P, BONUS], [Q])), 12).items()))))
            for play in (RIGHT, *VERIFIERS.values())}
    assert len(laws) == 4, "no two of them write alike"


def test_outcomes_counts_every_combination():
    p, q = torch.tensor([[0.5, 0.5]] * 2), torch.tensor([[0.5, 0.5]])
    assert outcomes(RIGHT, p, q, 4) == {ids: 16 for ids in product(range(2), repeat=2)}
