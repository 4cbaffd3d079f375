"""Three verifiers of speculative decoding with one mistake each, to be told apart by what they write.

Who reads on looks up the answer. Of the six in `MISTAKES` three are in `VERIFIERS`. A verifier plays one round: it is
called with the target's rows p (k + 1, V), the draft's rows q (k, V) and 2 k + 1 numbers in [0, 1), and returns the ids
that the round writes. The rows do not depend on the ids, which keeps the puzzle small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from course_lib.sampling import draw
from course_lib.speculative import accept, probability_of, residual

MISTAKES = {
    "target again": "after a rejection it draws from p, not from what q left over of it",
    "greedy draft": "the draft proposes its likeliest token, and is judged by p / q as if it had drawn it",
    "no bonus": "when every proposal is accepted, no bonus token is drawn",
    "all or nothing": "a proposal is accepted if p >= q, and never otherwise",
    "same number": "the number that rejected a proposal also draws its replacement",
    "draft's bonus": "the bonus token is drawn from the draft's last row",
}
Verifier = Callable[[Tensor, Tensor, Tensor], list[int]]
Rule = Callable[[Tensor, Tensor], Tensor]
Proposer = Callable[[Tensor, Tensor], list[int]]


def drawn(q_rows: Tensor, uniforms: Tensor) -> list[int]:
    """Proposals, each drawn from its row."""
    return draw(q_rows, uniforms).tolist()


def likeliest(q_rows: Tensor, uniforms: Tensor) -> list[int]:
    """Proposals, each the likeliest of its row."""
    return q_rows.argmax(-1).tolist()


def target_again(p: Tensor, q: Tensor) -> Tensor:
    """A replacement's distribution that forgets that q had its turn."""
    return p


def verifier(*, propose: Proposer = drawn, replacement: Rule = residual, bonus: bool = True) -> Verifier:
    """A round that proposes, accepts a beginning, and replaces the first rejected token or adds the bonus."""
    def play(p_rows: Tensor, q_rows: Tensor, uniforms: Tensor) -> list[int]:
        k = len(q_rows)
        proposal = propose(q_rows, uniforms[:k])
        stays = accept(probability_of(p_rows, proposal), probability_of(q_rows, proposal), uniforms[k : 2 * k])
        n = [*stays.tolist(), False].index(False)
        if n == k and not bonus:
            return proposal
        row = p_rows[k] if n == k else replacement(p_rows[n], q_rows[n])
        return [*proposal[:n], draw(row[None], uniforms[-1:]).item()]

    return play


VERIFIERS = {
    "A": verifier(bonus=False),
    "B": verifier(replacement=target_again),
    "C": verifier(propose=likeliest),
}
RIGHT = verifier()


def outcomes(play: Verifier, p_rows: Tensor, q_rows: Tensor, steps: int) -> Counter[tuple[int, ...]]:
    """What a verifier writes for each of steps ** (2 k + 1) combinations of numbers, counted.

    Each number runs through (i + 1/2) / steps. Where every border that matters is a multiple of 1 / steps (p / q below
    1, and the running sums of q, of p and of the residual), the shares are the exact probabilities.

    >>> p, q = torch.tensor([[3, 1], [2, 2]]) / 4, torch.tensor([[2, 2]]) / 4
    >>> sorted(outcomes(RIGHT, p, q, 4).items())
    [((0,), 16), ((0, 0), 16), ((0, 1), 16), ((1, 0), 8), ((1, 1), 8)]
    """
    numbers = [(i + 0.5) / steps for i in range(steps)]
    return Counter(tuple(play(p_rows, q_rows, torch.tensor(uniforms, dtype=torch.float64)))
                   for uniforms in product(numbers, repeat=2 * len(q_rows) + 1))
