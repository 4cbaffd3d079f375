"""A language of four words, small enough to count every case of speculative decoding with exact fractions.

Probabilities are multiples of 1 / 12, and so are the ratios p / q below 1 and the running sums of p and of the
residuals. So a random number matters only by the twelfth in which it lies, and twelve middles represent all numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

WORDS, LENGTH = 4, 3  # of the language, and of the texts that are counted
MIDDLES = [(i + 0.5) / 12 for i in range(12)]
FIRST = ([6, 3, 2, 1], [3, 6, 1, 2])  # weights of the first word, for the target and for the draft
LATER = [([4, 4, 2, 2], [2, 2, 4, 4]), ([6, 4, 1, 1], [3, 3, 2, 4]), ([0, 1, 5, 6], [2, 2, 4, 4]),
         ([1, 1, 4, 6], [4, 2, 3, 3])]
TARGET, DRAFT = 0, 1


def weights_after(text: Sequence[int]) -> tuple[list[int], list[int]]:
    """Weights of the next word in twelfths, for the target and for the draft."""
    return LATER[(text[-1] + len(text)) % len(LATER)] if text else FIRST


def chance(text: Sequence[int], model: int, start: int = 0) -> Fraction:
    """The probability with which TARGET or DRAFT writes a text, or what follows its first `start` words.

    >>> chance((0, 0), TARGET), chance((0, 0), DRAFT)
    (Fraction(1, 4), Fraction(1, 16))
    """
    share = Fraction(1)
    for i in range(start, len(text)):
        share *= Fraction(weights_after(text[:i])[model][text[i]], 12)
    return share


def rows_along(proposal: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What a verifier sees of a proposal of k words: p (k + 1, 4) and q (k, 4)."""
    rows = [weights_after(proposal[:i]) for i in range(len(proposal) + 1)]
    p_rows, q_rows = (torch.tensor([row[model] for row in rows]) / 12 for model in (TARGET, DRAFT))
    return p_rows, q_rows[:-1]


def completed(law: Mapping[tuple[int, ...], Fraction]) -> Counter[tuple[int, ...]]:
    """The law of texts of three words, if what a pass left out is written by the target."""
    whole: Counter[tuple[int, ...]] = Counter()
    for words, share in law.items():
        for rest in product(range(WORDS), repeat=LENGTH - len(words)):
            whole[words + rest] += share * chance(words + rest, TARGET, start=len(words))
    return whole


def distance(law: Mapping[tuple[int, ...], Fraction]) -> Fraction:
    """The total variation between what passes write and what the target writes: half the sum of all differences.

    Args:
        law: for each beginning that a pass writes, of three words at most, its probability.
    """
    whole = completed(law)
    return sum((abs(whole[text] - chance(text, TARGET)) for text in product(range(WORDS), repeat=LENGTH)),
               Fraction(0)) / 2
