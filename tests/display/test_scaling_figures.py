"""Figures of notebook 15: every run is a point, a law begins where its fit does, and words say what is drawn."""

import numpy as np
import pytest

from course_lib.analysis.scaling_law import ScalingLaw
from course_lib.display import scaling_figures
from course_lib.training.scaling_runs import FEWEST_TOKENS, results

LAW = ScalingLaw(E=0.5, A=50.0, B=9e4, alpha=0.4, beta=0.8)


MARKERS = set(scaling_figures.MARKERS)


def points(figure):
    return [(line.get_xdata()[0], line.get_ydata()[0], line.get_markerfacecolor()) for line in figure.axes[0].lines
            if line.get_marker() in MARKERS]


def curves(figure):
    return [line for line in figure.axes[0].lines if line.get_marker() not in MARKERS]


def test_every_run_is_a_point_and_those_left_out_are_hollow():
    runs = results()
    drawn = points(scaling_figures.losses(runs, fewest_tokens=FEWEST_TOKENS))
    assert sorted((x, y) for x, y, _ in drawn) == sorted((r.tokens / 1e6, r.loss) for r in runs)
    assert all((face == "white") == (x * 1e6 < FEWEST_TOKENS) for x, _, face in drawn)


def test_without_laws_points_are_joined_and_with_laws_each_size_has_its_curves():
    runs = results()
    sizes = {run.size for run in runs}
    assert len(curves(scaling_figures.losses(runs))) == len(sizes)
    both = curves(scaling_figures.losses(runs, {"one": LAW, "two": LAW}, fewest_tokens=FEWEST_TOKENS))
    assert len(both) == 2 * len(sizes) and {line.get_linestyle() for line in both} == {"-", "--"}
    smallest = min(runs, key=lambda run: run.parameters).parameters
    x, y = both[0].get_xdata(), both[0].get_ydata()
    assert x[0] == pytest.approx(FEWEST_TOKENS / 1e6) and y[-1] == pytest.approx(LAW.loss(smallest, x[-1] * 1e6))


def test_a_size_looks_the_same_in_every_figure_and_its_name_and_its_curves_end_at_its_last_run():
    runs, few = results(), [run for run in results() if run.size in (3, 8)]
    looks = [{(line.get_xdata()[0], line.get_ydata()[0]): (line.get_color(), line.get_marker())
              for line in scaling_figures.losses(some).axes[0].lines if line.get_marker() in MARKERS}
             for some in (runs, few)]
    assert looks[1].items() <= looks[0].items() and len(set(looks[0].values())) == len({run.size for run in runs})
    figure = scaling_figures.losses(runs, {"one": LAW}, fewest_tokens=FEWEST_TOKENS)
    last = {f"size {run.size}": (run.tokens / 1e6, run.loss) for run in runs}
    assert {text.get_text(): text.xy for text in figure.axes[0].texts} == last
    assert sorted(line.get_xdata()[-1] for line in curves(figure)) == sorted(x for x, _ in last.values())


def test_what_was_trained_again_is_a_ring_where_it_landed():
    runs = [run for run in results() if run.size == 2]
    figure = scaling_figures.losses(runs, again=[(5e5, 3.25)])
    assert len(points(figure)) == len(runs) + 1 and points(figure)[-1] == (0.5, 3.25, "none")
    assert figure.get_label().endswith("Trained again: 3.25 at 0.5.")


def test_a_valley_is_the_law_at_one_price_and_the_runs():
    runs = [run for run in results() if run.tokens > 3e6][:3]
    figure = scaling_figures.valley(LAW, 1e13, runs, 3e5)
    curve, dots = (next(line for line in figure.axes[0].lines if len(line.get_xdata()) == n) for n in (60, 3))
    N = 1e3 * np.array(curve.get_xdata())
    assert curve.get_ydata() == pytest.approx([LAW.loss(size, 1e13 / 6 / size) for size in N])
    assert list(dots.get_ydata()) == pytest.approx([run.loss for run in runs])
    assert N[0] < min(run.parameters for run in runs) and N[-1] > max(run.parameters for run in runs)


def test_an_extrapolation_shows_the_law_the_range_and_what_was_measured():
    fans = {"fan": [ScalingLaw(E, 50.0, 9e4, 0.4, 0.8) for E in (0.4, 0.5, 0.6)]}
    figure = scaling_figures.extrapolation(3e6, {"fan": LAW}, fans, (2e6, 16e6), measured={8e6: 1.25})
    [middle] = curves(figure)
    assert middle.get_ydata()[-1] == pytest.approx(LAW.loss(3e6, 16e6))
    assert [(x, y) for x, y, _ in points(figure)] == [(8, 1.25)]
    assert "Measured at 8: 1.250." in figure.get_label() and "3,000,000 parameters" in figure.get_label()
    assert len(points(scaling_figures.extrapolation(3e6, {"fan": LAW}, fans, (2e6, 16e6)))) == 0


@pytest.mark.parametrize("call, words", [
    (lambda: scaling_figures.losses([]), r"len\(results\) = 0"),
    (lambda: scaling_figures.valley(LAW, 1e13, results()[:1], 3e5), r"len\(results\) = 1"),
    (lambda: scaling_figures.losses(results(), {str(i): LAW for i in range(4)}), r"len\(laws\) = 4"),
    (lambda: scaling_figures.extrapolation(1e6, {}, {}, (1e6, 2e6)), r"len\(laws\) = 0"),
    (lambda: scaling_figures.extrapolation(1e6, {"a": LAW}, {"b": [LAW]}, (1e6, 2e6)), r"fans = \['b'\]"),
])
def test_what_cannot_be_drawn_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_kinds_of_text_are_lines_and_the_bold_ones_have_colours():
    losses = {2e6: {"one": 3.0, "two": 2.0, "three": 1.5}, 8e6: {"one": 2.0, "two": 1.9, "three": 0.75}}
    figure = scaling_figures.kinds(losses, ["three"])
    lines = figure.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [[3.0, 2.0], [2.0, 1.9], [1.5, 0.75]]
    assert all(list(line.get_xdata()) == [2, 8] for line in lines)
    assert [line.get_color() == scaling_figures.GREY for line in lines] == [True, True, False]
    assert "three: 1.50 at 2, 0.75 at 8." in figure.get_label()
    with pytest.raises(ValueError, match="bold"):
        scaling_figures.kinds(losses, ["four"])
    with pytest.raises(ValueError, match="len"):
        scaling_figures.kinds({2e6: {"one": 3.0}})
