"""Online softmax drawn: the numbers are those of the library's merge, the bars are as high as exp(score - m)."""

import math
import re
from itertools import accumulate

import pytest
import torch
from well_drawn import check, rects, words

from course_lib.display.diagrams.rescaling import BAR, HIGH, online_softmax, online_steps
from course_lib.flash import merge, partial_attention


@pytest.mark.parametrize("scores, values", [([2, 1, 5, 0, 3], [10, 20, 30, 40, 50]), ([1, 2, 4], [7, 6, 5]),
                                            ([3, 2, 1, 0], [1, 2, 3, 4])])
def test_the_numbers_are_those_of_the_library(scores, values):
    drawing = check(lambda: online_softmax(scores, values))
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    parts = [partial_attention(score * one, one, value * one) for score, value in zip(scores, values)]
    states = list(accumulate(parts, merge))
    said = words(drawing)
    for letter, places, numbers in zip("mlo", ("g", ".3f", ".2f"), zip(*states)):
        wanted = [f"{letter} = {format(x.item(), places)}" for x in numbers]
        assert [line for line in said if line.startswith(f"{letter} = ")] == wanted
    factors = [float(line.removeprefix("old × ")) for line in said if line.startswith("old × ")]
    assert factors == pytest.approx([(a.m - b.m).exp().item() for a, b in zip(states, states[1:])], abs=0.0006)
    shrunk = re.findall(r"shrink to ([\d.]+)", drawing.description)
    assert shrunk == [f"{keep:.3f}" for keep, _ in online_steps(scores, values)[1:] if keep < 1]


def test_the_bars():
    scores = [2, 1, 5, 0, 3]
    drawing = online_softmax(scores, [10, 20, 30, 40, 50])
    heights = [height for *_, width, height in rects(drawing, "key") if width == BAR]
    wanted = [HIGH * math.exp(score - max(scores[:i + 1])) for i in range(5) for score in scores[:i + 1]]
    assert heights == pytest.approx(wanted, abs=0.06)
    dashed = [part for part in drawing.parts if "stroke-dasharray" in part]
    assert len(dashed) == 2, "the two that were there before the maximum rose"
    assert len(rects(drawing, "mark")) == 1


@pytest.mark.parametrize("scores, values", [([1, 2], [1, 2]), ([1, 2, 3], [1, 2]), ([1] * 6, [1] * 6)])
def test_what_cannot_be_drawn_is_refused(scores, values):
    with pytest.raises(ValueError, match="is not allowed"):
        online_softmax(scores, values)
