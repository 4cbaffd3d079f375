"""Loss against arithmetic: every depth is written, and no words lie on others or on a point of their line."""

import pytest

from course_lib.display.shapes_figures import label_above, loss_by_shape
from course_lib.training.shapes import GRID, grid_results

RUNS = {shape: (run.flops_per_token, run.loss) for shape, run in grid_results().items()}


def words_and_boxes(figure):
    figure.draw_without_rendering()
    return [(text.get_text(), text.get_window_extent()) for text in figure.axes[0].texts]


def test_every_shape_of_the_grid_is_named_and_no_words_collide():
    figure = loss_by_shape(RUNS)
    written = words_and_boxes(figure)
    names = [text for text, _ in written if text.startswith("width")]
    assert names == [f"width {width}, 1 layer" for width in (32, 64, 128, 256)]
    assert len(written) == len(GRID)
    for i, (text, box) in enumerate(written):
        assert not [other for other, place in written[i + 1 :] if place.overlaps(box)], text
        assert box.x1 < figure.bbox.x1 and box.y1 < figure.bbox.y1, text
    points = figure.axes[0].transData.transform([(flops / 1e6, loss) for flops, loss in RUNS.values()])
    assert not [text for text, box in written for point in points if box.contains(*point)]


def test_both_axes_have_several_plain_ticks():
    axes = loss_by_shape(RUNS).axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        labels = [tick.get_text() for tick in axis.get_ticklabels()]
        assert len(labels) >= 5 and all("e" not in label for label in labels)


def test_the_description_names_first_and_last_values_and_the_depths():
    said = loss_by_shape(RUNS).get_label()
    assert "width 64: from 0.911 at 0.176 to 0.544 at 0.95, layers 1, 2, 4, 8." in said


def test_words_go_away_from_the_nearest_other_width():
    runs = {(32, 1): (1e5, 1.0), (64, 1): (1e5, 0.5)}
    assert label_above(runs, 32, runs[32, 1]) and not label_above(runs, 64, runs[64, 1])
    assert label_above({(32, 1): (1e5, 1.0)}, 32, (1e5, 1.0))


@pytest.mark.parametrize("runs", [{}, {(32, 1): (0.0, 1.0)}, {(32, 1): (1e5, float("nan"))}])
def test_what_a_log_axis_cannot_show_is_refused(runs):
    with pytest.raises(ValueError):
        loss_by_shape(runs)
