"""The two kinds of MLP, and towers of layers: what is written, and areas as large as the weights."""

import pytest
from well_drawn import check, rects, words

from course_lib.costs import mlp_parameters
from course_lib.display.diagrams.mlp import plain_and_gated
from course_lib.display.diagrams.shapes import equal_size
from course_lib.training.shapes import shape


@pytest.mark.parametrize("width, plain, gated", [(256, 960, 640), (4096, 16384, 11008)])
def test_the_matrices_and_their_weights_are_written(width, plain, gated):
    drawing = check(lambda: plain_and_gated(width, plain, gated))
    said = words(drawing)
    assert said.count("up") == said.count("down") == 2 and said.count("gate") == said.count("SiLU") == 1
    assert said.count(f"T × {width}") == 4 and {f"T × {plain}", f"T × {gated}"} <= set(said)
    assert {f"= {2 * width * plain:,} weights", f"= {3 * width * gated:,} weights"} <= set(said)
    assert f"{3 * width * gated:,} weights" in drawing.description


def test_the_gated_mlp_has_the_weights_that_the_library_counts():
    config = shape(64, 2)
    drawing = plain_and_gated(config.hidden_size, 7, config.intermediate_size)
    assert f"= {mlp_parameters(config):,} weights" in words(drawing)


def test_an_mlp_has_an_inside():
    with pytest.raises(ValueError, match="gated"):
        plain_and_gated(256, 960, 0)


@pytest.mark.parametrize("shapes", [[(128, 1), (64, 4), (32, 16)], [(512, 2), (256, 8)]])
def test_a_square_for_each_layer_as_wide_as_it_and_all_towers_of_one_area(shapes):
    squares = rects(check(lambda: equal_size(shapes, 1_000)), "weights")
    assert len(squares) == sum(depth for _, depth in shapes)
    assert all(width == pytest.approx(height) for _, _, width, height in squares)
    areas, start = [], 0
    for _, depth in shapes:
        tower = squares[start : start + depth]
        areas.append(sum(width * height for _, _, width, height in tower))
        middles = [left + width / 2 for left, _, width, _ in tower]
        assert max(middles) - min(middles) < 0.2, "one below the other"
        start += depth
    assert max(areas) < 1.02 * min(areas)


def test_shapes_of_unlike_size_are_refused():
    with pytest.raises(ValueError, match="the same for all shapes"):
        equal_size([(128, 1), (64, 3)], 1_000)
