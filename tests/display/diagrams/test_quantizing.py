"""Quantization drawn: marks, arrows, hatched weights and bits are where the numbers say."""

import pytest
from well_drawn import check, hatched, rects, words

from course_lib.display.diagrams.quantizing import (
    GAP,
    bits_of_a_weight,
    error_feedback_by_hand,
    nibbles,
    ruler,
    shared_scales,
)

MATRIX = [[0.7, 0.1, -0.3, 0.6, -0.2, 0.4, -0.7, 0.3], [0.4, -0.7, 0.2, 0.5, 0.6, 14.0, -0.3, 0.2]]


@pytest.mark.parametrize("weights, codes", [((0.7, -0.32, 0.04), (7, -3, 0)), ((-1.4, 0.62), (-7, 3)),
                                            ((3.5, 1.9, -0.2, -2.6), (7, 4, 0, -5))])
def test_a_weight_points_at_its_nearest_mark(weights, codes):
    drawing = check(lambda: ruler(weights))
    step = max(map(abs, weights)) / 7
    points = [part for part in drawing.parts if "marker-end" in part]
    ends = [float(part.split("L")[1].split()[0]) for part in points]
    starts = [float(part.split('d="M')[1].split()[0]) for part in points]
    assert ends == pytest.approx([60 + GAP * (code + 8) for code in codes], abs=0.1)
    assert starts == pytest.approx([60 + GAP * (w / step + 8) for w in weights], abs=0.1)
    assert all(abs(a - b) <= GAP / 2 + 0.1 for a, b in zip(starts, ends)), "half a step at most"
    assert [word for word in words(drawing) if word.startswith("kept: the codes")]


@pytest.mark.parametrize("group_size, lost", [(4, (15, 7, 3)), (2, (15, 7, 1)), (8, (15, 7, 7))])
def test_the_outlier_takes_those_along_that_share_its_scale(group_size, lost):
    drawing = check(lambda: shared_scales(MATRIX, group_size))
    assert len(hatched(drawing)) == sum(lost)
    assert [word for word in words(drawing) if word.endswith(" become 0")] == [f"{n} become 0" for n in lost]
    assert len(rects(drawing, "cost")) == 3 and words(drawing).count("14") == 3


@pytest.mark.parametrize("first, second, byte", [(3, -2, 0xE3), (-8, 7, 0x78), (0, 0, 0), (-1, -1, 0xFF)])
def test_a_byte_holds_both_codes_bit_by_bit(first, second, byte):
    drawing = check(lambda: nibbles(first, second))
    bits = "".join(word for word in words(drawing) if word in ("0", "1"))
    assert bits == 2 * f"{byte >> 4:04b}" + 2 * f"{byte & 15:04b}"
    assert f"{byte >> 4:04b} {byte & 15:04b} = {byte}" in words(drawing)


@pytest.mark.parametrize("group_size, share", [(32, 1.0), (128, 0.25), (64, 0.5)])
def test_bars_are_as_long_as_the_bits(group_size, share):
    drawing = check(lambda: bits_of_a_weight(group_size))
    grey = [width for _, _, width, _ in rects(drawing, "weights")]
    [(_, _, more, _)] = rects(drawing, "cost")
    assert [width / grey[3] * 4 for width in grey] == pytest.approx([32, 16, 8, 4])
    assert more / grey[3] * 4 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("weight, step, correlation, sums", [(0.27, 0.2, 0.9, (0.54, 0.40, 0.60)),
                                                             (1.4, 1.0, 0.5, (2.8, 2.0, 3.0))])
def test_the_second_weight_takes_over_a_share_of_the_error(weight, step, correlation, sums):
    drawing = check(lambda: error_feedback_by_hand(weight, step, correlation))
    (_, _, lost, _), (_, _, passed, _) = rects(drawing, "cost")
    assert passed / lost == pytest.approx(correlation, abs=0.01)
    exact, nearest, feedback = (f"{total:.2f}" for total in sums)
    assert f"output for inputs 1 and 1: exact {exact}" in words(drawing)
    assert f"nearest marks {nearest}, with feedback {feedback}" in words(drawing)


@pytest.mark.parametrize("call", [lambda: error_feedback_by_hand(0.35, 0.2, 0.9),
                                  lambda: error_feedback_by_hand(0.21, 0.2, 0.9),
                                  lambda: ruler([0.1]), lambda: ruler([0.1] * 5), lambda: nibbles(8, 0),
                                  lambda: shared_scales([[1.0] * 8], 4), lambda: shared_scales(MATRIX, 3)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises((ValueError, RuntimeError)):
        call()
