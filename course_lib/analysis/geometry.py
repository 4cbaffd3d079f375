"""Where the rows of an embedding table lie: which point the same way, and how they look in two dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.config import require

TINY = 1e-12  # stands in for a length of 0, so that a row of zeros has cosine 0 with everything


def nearest(weight: Tensor, id: int, k: int) -> list[tuple[int, float]]:
    """The k rows of a table that point most nearly the way row `id` does, with their cosines, nearest first.

    The row itself is left out; of equally near rows the one with the lower id comes first.

    Args:
        weight: (V, D).
        id: in [0, V).
        k: in [1, V - 1].

    >>> nearest(torch.tensor([[2.0, 0.0], [0.0, 1.0], [30.0, 40.0]]), 0, 2)
    [(2, 0.6000000238418579), (1, 0.0)]
    """
    require(0 <= id < len(weight), "id", id, f"in [0, {len(weight)})")
    require(1 <= k < len(weight), "k", k, f"in [1, {len(weight) - 1}]")
    lengths = weight.norm(dim=-1)  # (V,)
    cosines = weight @ weight[id] / (lengths * lengths[id]).clamp(min=TINY)  # (V,)
    cosines[id] = -torch.inf
    order = cosines.sort(descending=True, stable=True)
    return list(zip(order.indices[:k].tolist(), order.values[:k].tolist()))


class Projection(NamedTuple):
    """A flat view of many rows.

    Attributes:
        mean: of the rows, (D,), which lies at the origin of the view.
        axes: (n, D), of length 1 and at right angles: the directions in which the rows differ most.
        shares: (n,), how much of the rows' variance each axis shows; they fall.
    """

    mean: Tensor
    axes: Tensor
    shares: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Coordinates (..., n) of rows (..., D), those it was made from or others."""
        return (rows - self.mean) @ self.axes.T


def principal_axes(rows: Tensor, n: int = 2) -> Projection:
    """Principal component analysis (Pearson 1901): the flat view that keeps most of the variance.

    An axis and its opposite show the same; the one is taken whose largest component is positive.

    Args:
        rows: (N, D), at least two, and not all equal.
        n: axes, in [1, min(N, D)].
    """
    require(1 <= n <= min(rows.shape), "n", n, f"in [1, {min(rows.shape)}]")
    mean = rows.mean(0)
    _, lengths, axes = torch.linalg.svd(rows - mean, full_matrices=False)  # axes (min(N, D), D)
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return Projection(mean, (axes * largest.sign())[:n], (lengths**2 / (lengths**2).sum())[:n])


def single_token_words(tokenizer: Any, words: Iterable[str]) -> dict[str, int]:
    """Those of the words that are one token when they follow a space, with that token's id.

    A word of several tokens has no row of its own in the embedding table.
    """
    ids = {word: tokenizer.encode_ordinary(f" {word}") for word in words}
    return {word: found[0] for word, found in ids.items() if len(found) == 1}
