"""The shifted labels and the loss valley: what stands under what, and where the walks end."""

import math

import pytest
from well_drawn import check, hatched, paths, words

from course_lib.display.diagrams.learning import descent, loss_valley, shifted_labels

COUNTING = [str(i) for i in range(100, 109)]


@pytest.mark.parametrize("tokens", [COUNTING, "The cat sat on the mat".split(), ["a", "b", "c"]])
def test_each_label_is_under_the_token_before_it(tokens):
    drawing = check(lambda: shifted_labels(tokens))
    placed = [(round(area.left + area.right), round(area.top), text) for text, area in drawing.texts if text in tokens]
    heights = sorted({top for _, top, _ in placed})
    read, labels, wrong = ([(x, text) for x, top, text in placed if top == height] for height in heights)
    assert [text for _, text in read] == list(tokens)
    assert [text for _, text in labels] == list(tokens[1:])
    assert [text for _, text in wrong] == list(tokens[:-1])
    assert [x for x, _ in labels] == pytest.approx([x for x, _ in read[:-1]], abs=2)
    assert len(hatched(drawing)) == len(tokens) - 1


def test_an_arrow_leads_from_each_position_to_the_next():
    arrows = paths(shifted_labels(COUNTING), 2.2)
    assert len(arrows) == 8
    pitch = arrows[1][0][0] - arrows[0][0][0]
    assert all(0.6 * pitch < points[-1][0] - points[0][0] < pitch for points in arrows)


@pytest.mark.parametrize("tokens", [["a", "b"], COUNTING + ["109"], ["a word that fits no box"] * 9])
def test_tokens_that_do_not_fit_are_refused(tokens):
    with pytest.raises(ValueError, match="tokens"):
        shifted_labels(tokens)


def test_three_rates_have_three_ends():
    walks = [descent(0.6, rate, start=-3.0, steps=40) for rate in (0.2, 3, 10)]
    assert [walk.verdict[0] for walk in walks] == ["too small", "right", "too large"]
    assert walks[1].weights[-1] == pytest.approx(math.log(1.5), abs=1e-6)
    said = words(check(lambda: loss_valley(0.6, (0.2, 3, 10), start=-3.0, steps=40)))
    assert ["rate 0.2", "too small", "40 steps, 0.6 to go"] == said[:3]
    assert {"there after 6 steps", "jumps back and forth", "−3", "0.41"} <= set(said)


def test_a_walk_is_on_the_curve_and_the_lowest_point_is_at_the_bottom():
    drawing = loss_valley(0.6, (0.2, 3, 10), start=-3.0, steps=40)
    curves, walks = paths(drawing, 3), [points for points in paths(drawing, 1.6) if len(points) == 41]
    assert len(curves) == len(walks) == 3
    for curve, walk in zip(curves, walks):
        for x, y in walk:
            after = next(i for i, point in enumerate(curve) if point[0] >= x)
            low, high = sorted((curve[max(after - 1, 0)][1], curve[after][1]))
            assert low - 1 <= y <= high + 1
    assert walks[1][-1][1] == pytest.approx(264, abs=0.2), "arrived"
    assert len({walk[0][1] for walk in walks}) == 1, "all from the same start"


@pytest.mark.parametrize("share, rates, start, steps", [
    (0.3, (0.5, 9), 2.0, 20), (0.5, (1, 4, 100), 0.1, 2), (0.9, (0.1, 2, 60), 9.0, 1000), (0.01, (1, 2), -10.0, 5)])
def test_other_valleys(share, rates, start, steps):
    drawing = check(lambda: loss_valley(share, rates, start=start, steps=steps))
    assert all(f"rate {rate:g}" in words(drawing) for rate in rates)


@pytest.mark.parametrize("change", [{"share": 1.0}, {"rates": (1,)}, {"rates": (0, 1)}, {"steps": 1}, {"start": 99.0}])
def test_what_cannot_be_walked_is_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        loss_valley(**{"share": 0.6, "rates": (0.2, 3), "start": -3.0, "steps": 40, **change})
