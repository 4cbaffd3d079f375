"""Ticks stand where the points are; bound, shares, line and trade are the numbers that were given."""

import matplotlib.pyplot as plt
import pytest

from course_lib.analysis.machine_speed import Calibration, K, N
from course_lib.analysis.roofline import Machine, bound
from course_lib.display.phase_figures import fitted, log_lines, rates, shares_of_bound, trade


def words(axis):
    """What stands at the ticks of an axis."""
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize("ys, ticks", [
    ([3, 40, 50, 70], ["5", "10", "20", "50"]), ([2, 40, 500, 9000], ["10", "100", "1,000"])])
def test_ticks_stand_where_the_points_are(ys, ticks):
    figure = log_lines({"a": ([1, 8, 64, 1024], ys)}, xlabel="rows", ylabel="ms")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert words(axes.xaxis) == ["1", "8", "64", "1,024"] and not len(axes.xaxis.get_minorticklocs())
    assert words(axes.yaxis) == ticks and not len(axes.yaxis.get_minorticklocs())


def test_a_calibration_beside_its_bound():
    """2 FLOPs a row for 4 bytes: at 10 GB/s one row may do 5 GFLOP/s, and no number of rows more than 20."""
    found = Calibration(Machine("m", 10e9, 20e9), {1: 5e9, 4: 10e9, 16: 15e9}, {}, 0)
    figure, shares = rates(found, bound)
    assert shares == pytest.approx({1: 1, 4: 0.5, 16: 0.75}) and N != K
    most, measured = figure.axes[0].lines[:2]
    assert list(most.get_ydata()) == pytest.approx([5, 20, 20]) and list(measured.get_ydata()) == [5, 10, 15]


def test_the_share_of_the_bound():
    figure, shares = shares_of_bound({"a": (1, 2), "b": (3, 4)}, {"a": (2, 8), "b": (4, 4)})
    assert shares == {("a", "prefill"): 50, ("b", "prefill"): 75, ("a", "decode"): 25, ("b", "decode"): 100}
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels if label.get_fontweight() == "bold"] == ["a, decode"]


def test_the_line_begins_at_no_operations():
    figure = fitted([100, 300], [3, 7], (0.02, 1), 0.9)
    line, points, level = figure.axes[0].lines
    assert list(level.get_ydata()) == pytest.approx([0.9, 0.9]) and list(line.get_xdata()) == [0, 300]
    assert list(line.get_ydata()) == pytest.approx([1, 7]) and list(points.get_ydata()) == [3, 7]
    assert figure.axes[0].get_ylim()[0] == 0


def test_the_trade_between_one_user_and_all():
    figure = trade({1: 0.01, 2: 0.01, 8: 0.02})
    [points] = figure.axes[0].lines
    assert list(points.get_xdata()) == [100, 100, 50] and list(points.get_ydata()) == [100, 200, 400]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if text] == ["1", "2", "8 rows"]
    assert figure.get_label().endswith("1: 100 each, 100 in all; 2: 100 each, 200 in all; 8: 50 each, 400 in all.")
    assert not plt.get_fignums()
    with pytest.raises(ValueError, match=r"len\(times\) = 1"):
        trade({1: 0.1})
