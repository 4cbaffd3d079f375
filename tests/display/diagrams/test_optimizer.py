"""AdamW on paper: the numbers are PyTorch's, and the weight goes as far as they say."""

import pytest
import torch
from well_drawn import check, paths, rects, words

from course_lib.display.diagrams.optimizer import adamw_steps, updates

SLOPES, RATE = [-2, -2, 2], 0.1


@pytest.mark.parametrize("slopes, rate", [(SLOPES, RATE), ([-0.3, -4.0, 0.1], 0.5), ([-7, -1], 3)])
def test_the_steps_are_those_of_pytorch(slopes, rate):
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=rate)
    for slope, update in zip(slopes, updates(slopes, rate), strict=True):
        weight.grad = torch.tensor([slope], dtype=torch.float64)
        optimizer.step()
        assert update.weight == pytest.approx(weight.item(), abs=1e-9)
        state = optimizer.state[weight]
        step = state["step"].item()
        assert update.mean == pytest.approx(state["exp_avg"].item() / (1 - 0.9**step))
        assert update.root == pytest.approx((state["exp_avg_sq"].item() / (1 - 0.999**step)) ** 0.5)


def test_the_third_mean_by_hand():
    # 0.1 * (0.81 * -2 + 0.9 * -2 + 2) / (1 - 0.729)
    assert updates(SLOPES, RATE)[2].mean == pytest.approx(-0.142 / 0.271)
    small = updates([slope / 1000 for slope in SLOPES], RATE)
    assert [step.weight for step in small] == pytest.approx([step.weight for step in updates(SLOPES, RATE)], abs=1e-5)


def test_every_number_is_in_its_row_and_the_quotients_are_marked():
    drawing = check(lambda: adamw_steps(SLOPES, RATE))
    said = words(drawing)
    assert said.count("−2.00") == said.count("−1.00") == 2 and said.count("2.00") == 3
    assert {"−2", "2", "−0.52", "−0.26", "rate 0.1"} <= set(said)
    assert said[-4:] == ["0.00", "0.10", "0.20", "0.23"]
    assert len(rects(drawing, "mark")) == 3
    heights = {text: round(area.top) for text, area in drawing.texts}
    assert heights["−0.52"] < heights["−0.26"] < heights["0.23"]


def test_hops_are_as_long_as_the_steps_and_slopes_lean_their_way():
    drawing = adamw_steps(SLOPES, RATE)
    hops = [points[-1][0] - points[0][0] + 6 for points in paths(drawing, 2.2)]
    weights = [0, *(step.weight for step in updates(SLOPES, RATE))]
    scale = hops[0] / weights[1]
    assert hops == pytest.approx([scale * (b - a) for a, b in zip(weights, weights[1:])], abs=0.5)
    lean = [start[1] - end[1] for start, end in paths(drawing, 3)]
    assert [x > 0 for x in lean] == [slope > 0 for slope in SLOPES]


@pytest.mark.parametrize("slopes, rate", [([-1, -1], 0.01), ([-99, -99, 50], 9.5), ([-0.5, -0.25, 0.1], 1)])
def test_other_slopes(slopes, rate):
    drawing = check(lambda: adamw_steps(slopes, rate))
    assert f"rate {rate:g}" in words(drawing) and len(paths(drawing, 2.2)) == len(slopes)


@pytest.mark.parametrize("slopes, rate, word", [
    ([-1], 0.1, "slopes"), ([-1] * 4, 0.1, "slopes"), ([0, 0], 0.1, "slopes"), ([-100, -1], 0.1, "slopes"),
    ([1, 1], 0.1, "slopes"), ([-1, 9], 0.1, "slopes"), (SLOPES, 0.001, "rate"), (SLOPES, 10, "rate")])
def test_what_cannot_be_drawn_is_refused(slopes, rate, word):
    with pytest.raises(ValueError, match=word):
        adamw_steps(slopes, rate)
