"""Figures in words: first and last values, and extremes, for readers who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def some(pairs: Sequence[tuple[str, str]], most: int = 8) -> str:
    """`a 1, b 2`; of many pairs the first, the last and how many lie between.

    >>> some([("a", "1"), ("b", "2")]), some([(c, "1") for c in "abcdefghij"], most=3)
    ('a 1, b 2', 'a 1, b 1, then 7 more, and last j 1')
    """
    words = [f"{name} {value}" for name, value in pairs]
    if len(words) > most:
        words[most - 1 : -1] = [f"then {len(words) - most} more"]
        words[-1] = f"and last {words[-1]}"
    return ", ".join(words)


def course(name: str, points: tuple[Sequence[float], Sequence[float]]) -> str:
    """A line in words: where it begins and ends, and its extremes where they lie between.

    >>> course("loss", ([1, 2, 3], [4, 5.5, 0.25]))
    'loss: from 4 at 1 to 0.25 at 3, highest 5.5 at 2.'
    """
    xs, ys = ([float(v) for v in values] for values in points)
    turns = "".join(f", {word} {ys[i]:.3g} at {xs[i]:.3g}" for word, pick in (("highest", max), ("lowest", min))
                    if 0 < (i := ys.index(pick(ys))) < len(ys) - 1)
    return f"{name}: from {ys[0]:.3g} at {xs[0]:.3g} to {ys[-1]:.3g} at {xs[-1]:.3g}{turns}."


def extremes(values: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> str:
    """The first, the last, the largest and the smallest cell of a matrix, in words."""
    seen = [(float(value), f"{rows[i]} and {columns[j]}") for (i, j), value in np.ndenumerate(values)
            if math.isfinite(value)]
    cells = {"First": seen[0], "last": seen[-1], "largest": max(seen), "smallest": min(seen)}
    return ", ".join(f"{word} {value:.3g} ({place})" for word, (value, place) in cells.items()) + "."
