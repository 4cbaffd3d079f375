"""Does a model mean its probabilities? Confidence against accuracy, in bins, with a standard error.

A prediction is the likeliest next token, its probability is the confidence, and it is right if the text
goes on so. A model is calibrated if, of the predictions made with confidence 0.7, 70 % are right (Guo et
al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.config import require
from course_lib.model import CausalLM


@dataclass(frozen=True)
class Predictions:
    """Of one document: confidence (T - 1,), in (0, 1], and whether it was right (T - 1,)."""

    confidence: Tensor
    correct: Tensor


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence.

    Attributes:
        low, high: confidence in (low, high].
        count: predictions.
        confidence, accuracy: their means.
        error: standard error of accuracy - confidence; infinite where a single document is in the bin.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float
    error: float

    @property
    def gap(self) -> float:
        """Accuracy - confidence: negative where the model is too sure of itself."""
        return self.accuracy - self.confidence


@torch.no_grad()
def predict(model: CausalLM, ids: Sequence[int]) -> Predictions:
    """The likeliest next token at each place of a text, against the token that stands there."""
    row = torch.tensor([ids], device=next(model.parameters()).device)
    best = model(row)[0, :-1].float().softmax(-1).max(-1)  # (T - 1,)
    return Predictions(best.values.double().cpu(), (best.indices == row[0, 1:]).cpu())


def reliability(documents: Sequence[Predictions], edges: Sequence[float]) -> list[Bin]:
    """Bins of predictions by confidence, those that are not empty.

    The tokens of one document are not independent, so the error of a bin is that of a mean over documents:
    with g the sum of (right - confidence) in a document's part of the bin and n its size, the variance of
    sum g / sum n is D / (D - 1) * sum (g - gap * n)^2 / (sum n)^2 over the D documents of the bin.

    Args:
        edges: ascending, of which the first lies below every confidence and the last not.
    """
    require(list(edges) == sorted(set(edges)) and len(edges) >= 2, "edges", list(edges), "ascending, two or more")
    bins = []
    for low, high in zip(edges, edges[1:]):
        parts = []
        for d in documents:
            inside = (d.confidence > low) & (d.confidence <= high)
            if inside.any():
                parts.append((int(inside.sum()), d.confidence[inside].sum().item(), int(d.correct[inside].sum())))
        if parts:
            bins.append(bin_of(low, high, parts))
    return bins


def bin_of(low: float, high: float, parts: Sequence[tuple[int, float, int]]) -> Bin:
    """A bin from (predictions, sum of confidence, right ones) of each document in it."""
    n, D = sum(part[0] for part in parts), len(parts)
    confidence, accuracy = (sum(part[i] for part in parts) / n for i in (1, 2))
    spread = sum((right - sure - (accuracy - confidence) * count) ** 2 for count, sure, right in parts)
    error = math.sqrt(D / (D - 1) * spread) / n if D > 1 else math.inf
    return Bin(low, high, n, confidence, accuracy, error)


def calibration_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean of |accuracy - confidence| over the predictions, by bins.

    >>> calibration_error([Bin(0, 0.5, 30, 0.4, 0.3, 0), Bin(0.5, 1, 10, 0.9, 1.0, 0)])  # doctest: +ELLIPSIS
    0.1...
    """
    return sum(b.count * abs(b.gap) for b in bins) / sum(b.count for b in bins)


class Together(NamedTuple):
    """Several bins as one: how many predictions, their mean confidence, and the share that is right."""

    count: int
    confidence: float
    accuracy: float


def together(bins: Sequence[Bin]) -> Together:
    """Bins as one, every prediction counting once; of none the means are NaN.

    >>> together([Bin(0, 0.5, 30, 0.4, 0.3, 0), Bin(0.5, 1, 10, 0.8, 0.9, 0)])
    Together(count=40, confidence=0.5, accuracy=0.45)
    """
    n = sum(b.count for b in bins)
    if n == 0:
        return Together(0, math.nan, math.nan)
    return Together(n, math.fsum(b.count * b.confidence for b in bins) / n,
                    math.fsum(b.count * b.accuracy for b in bins) / n)
