"""The figures: what is written on them, what they say of themselves, no noise."""

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch

from course_lib.display import plots
from course_lib.display.labels import drawable, spread
from course_lib.display.show import png

NASTY = ["$x^2$", r"$\nosuch{$", " 中", "👩‍🚀", "a\nb", "\x1f", "<b>", "a_b", "é"]


def texts(figure):
    """Everything written in a figure that has been drawn."""
    figure.draw_without_rendering()
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [artist.get_text() for artist in found if artist.get_visible() and artist.get_text()]


def some_bars(**options):
    return plots.bars(["mat", "floor", "moon"], [0.6, 0.3, 0.1], xlabel="probability", ylabel="next token", **options)


def some_lines(**options):
    series = {"cached": ([1, 2, 4], [1, 1, 1.1]), "uncached": ([1, 2, 4], [1, 2, 4]), "third": ([1, 2], [1, 1])}
    return plots.lines(series, xlabel="position (tokens)", ylabel="time (ms)", **options)


def some_heat(**options):
    return plots.heat(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), row_labels=["a", "b"], column_labels=["c", "d"],
                      xlabel="key", ylabel="query", value_label="weight", **options)


MAKERS = {"bars": some_bars, "lines": some_lines, "heat": some_heat,
          "boxes": lambda: plots.boxes(["What", "␣is"] * 20, ["2061", "318"] * 20)}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_same_bytes_whatever_the_reader_has_set(make):
    first = png(make())
    assert first[:8] == b"\x89PNG\r\n\x1a\n" and b"matplotlib" not in first and len(first) < 60_000
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "savefig.dpi": 30, "xtick.labelsize": 4}):
        assert png(make()) == first


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_fonts_are_readable_and_nothing_leaves_the_figure(make):
    figure = make()
    figure.draw_without_rendering()
    written = [t for t in figure.findobj(mpl.text.Text) if t.get_visible() and t.get_text()]
    assert written and min(t.get_fontsize() for t in written) >= 9
    assert figure.get_size_inches()[0] == 7
    box = figure.get_tightbbox()
    assert box.x0 >= -0.01 and box.y0 >= -0.01
    assert box.x1 <= 7.01 and box.y1 <= figure.get_size_inches()[1] + 0.01


def test_bars_are_labelled_with_names_and_values():
    figure = some_bars(highlight=["floor"], reference=[0.2, 0.2, 0.2], value_format="{:.0%}")
    assert {"mat", "floor", "moon", "60%", "30%", "10%", "probability", "next token"} <= set(texts(figure))
    both = some_bars(reference=[0.2, 0.3, 0.5], value_format="{1:.0%} → {0:.0%}")
    assert {"20% → 60%", "30% → 30%", "50% → 10%"} <= set(texts(both))
    [axes] = figure.axes
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([0.6, 0.3, 0.1, 0.2, 0.2, 0.2])
    assert [t.get_fontweight() for t in axes.get_yticklabels()] == ["normal", "bold", "normal"]
    top, bottom = axes.transData.transform([(0, 0), (0, 2)])[:, 1]
    assert top > bottom, "the first bar is the highest"
    assert axes.get_xlim()[0] == 0
    assert plots.bars(["a"], [-1.0], xlabel="x", ylabel="y").axes[0].get_xlim()[0] < -1


def test_before_and_after_stand_at_their_own_ends():
    [axes] = some_bars(reference=[0.2, 0.31, 0.6]).axes
    notes = {note.get_text(): note for note in axes.texts}
    assert {"0.6", "0.3", "0.1", "0.2"} == set(notes), "a reference close to its bar is not written twice"
    assert notes["0.2"].xy == pytest.approx((0.2, 0)) and notes["0.1"].xy == pytest.approx((0.1, 2))
    assert notes["0.2"].get_color() == plots.FAINT != notes["0.1"].get_color()


def test_bars_of_a_role_have_its_colour():
    [axes] = some_bars(role="cache", highlight=["floor"]).axes
    assert [mpl.colors.to_hex(bar.get_facecolor()) for bar in axes.patches] == ["#cc79a7", "#d55e00", "#cc79a7"]


def test_bars_show_the_range_that_would_be_believed_and_other_words():
    figure = some_bars(limits=[(0.5, 0.7), (0.25, 0.35), (0.05, 0.15)], value_format="{:.0%}",
                       notes=["as expected", "too few", "removed"])
    assert {"as expected", "too few", "removed"} <= set(texts(figure)) and "60%" not in texts(figure)
    [drawn] = figure.axes[0].collections
    assert [segment[:, 0].tolist() for segment in drawn.get_segments()] == [[0.5, 0.7], [0.25, 0.35], [0.05, 0.15]]
    for wrong in ({"notes": ["one"]}, {"limits": [(0, 1)]}):
        with pytest.raises(ValueError, match="must be 3"):
            some_bars(**wrong)


def test_names_stand_at_the_ends_of_lines_and_apart():
    figure = some_lines(logx=True, logy=True)
    assert {"cached", "uncached", "third"} <= set(texts(figure))
    [axes] = figure.axes
    assert axes.get_legend() is None and axes.get_xscale() == axes.get_yscale() == "log"
    notes = {note.get_text(): note for note in axes.texts}
    assert notes["uncached"].xy == (4, 4) and notes["third"].xy == (2, 1)
    boxes = [note.get_window_extent() for note in axes.texts]
    heights = sorted(axes.transAxes.transform(note.xyann)[1] for note in axes.texts)
    assert len(boxes) == 3 and min(np.diff(heights)) > 10 * plots.DPI / 72
    assert heights[-1] == axes.transAxes.transform(notes["uncached"].xyann)[1]


def test_a_short_log_axis_has_plain_numbers_and_a_long_one_powers_of_ten():
    short, long = (plots.lines({"loss": ([1, 2, 3], ys)}, xlabel="step", ylabel="loss", logy=True)
                   for ys in ([4.8, 1.2, 0.57], [4096, 12, 1]))
    assert {"0.6", "1", "2", "4"} <= set(texts(short)) and not [text for text in texts(short) if "10^" in text]
    assert [text for text in texts(long) if "10^{3}" in text]


def test_dashed_lines_stand_where_they_are_told_with_their_words():
    figure = some_lines(marks={"trained up to here": 2}, levels={"guessing": 3})
    assert {"trained up to here", "guessing"} <= set(texts(figure))
    down, across = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert down.get_xdata() == [2, 2] and across.get_ydata() == [3, 3]


def test_spread_is_ordered_apart_and_touches_nothing_that_fits():
    assert spread([0.1, 0.5, 0.9], 0.2) == [0.1, 0.5, 0.9]
    places = spread([0.5, 0.5, 0.5, 0.55], 0.1)
    assert np.diff(places) == pytest.approx([0.1] * 3) and np.mean(places) == pytest.approx(0.5125)


def test_heat_writes_small_matrices_and_hides_only_zeros():
    assert {"1.00", "0.00", "0.25", "0.75", "weight", "key", "query"} <= set(texts(some_heat()))
    figure = some_heat(causal=True)
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.25", "0.75"]
    assert np.isnan(figure.axes[0].images[0].get_array().filled(math.nan)[0, 1])
    with pytest.raises(ValueError, match="above the diagonal"):
        plots.heat([[1, 0.1], [0, 1]], row_labels="ab", column_labels="ab", xlabel="k", ylabel="q", causal=True)
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\)"):
        plots.heat(torch.ones(2, 3), row_labels="abc", column_labels="ab", xlabel="k", ylabel="q")
    large = plots.heat(torch.ones(20, 20), row_labels="a" * 20, column_labels="b" * 20, xlabel="k", ylabel="q")
    assert not large.axes[0].texts and not some_heat(written=False).axes[0].texts


def test_heat_frames_the_cells_that_are_to_be_outlined():
    [frame] = some_heat(outlined=[(1, 0)]).axes[0].patches
    assert not some_heat().axes[0].patches and not frame.get_fill()
    assert -0.5 < frame.get_x() < 0 < frame.get_x() + frame.get_width() < 0.5 < frame.get_y()


def test_heat_leaves_a_gap_before_a_second_group():
    [axes, _] = some_heat(gap_before=1).axes
    [gap] = axes.lines
    assert gap.get_xdata() == [0.5, 0.5] and gap.get_color() == "white" and not some_heat().axes[0].lines


def test_boxes_are_as_dark_as_their_shades():
    figure = plots.boxes(["a", "b", "c"], ["1", "2", "3"], shades=[0, 0.5, 1])
    alphas = [patch.get_facecolor()[3] for patch in figure.axes[0].patches]
    assert alphas == pytest.approx([0, 0.375, 0.75])


@pytest.mark.parametrize("make, words", [
    (some_bars, "3 bars of probability for each next token: mat 0.6, floor 0.3, moon 0.1."),
    (some_lines, "time (ms) against position (tokens). cached: from 1 at 1 to 1.1 at 4. uncached: from 1 at 1 to 4"),
    (lambda: some_lines(marks={"trained": 2}), "Dashed line 'trained' at 2."),
    (some_heat, "2 rows (query), 2 columns (key). First 1 (a and c), last 0.75 (b and d), largest 1 (a and c)"),
    (MAKERS["boxes"], "40 boxes with notes: What 2061, ␣is 318"),
    (lambda: plots.scatter({"k": {"a": (0, 0), "b": (1, 3)}}, xlabel="x", ylabel="y"), "k: a, b, around (0.5, 1.5)."),
])
def test_a_figure_says_in_words_what_it_shows(make, words):
    assert words in make().get_label()


@pytest.mark.parametrize("label", NASTY)
def test_labels_of_any_text_draw_without_warning(label):
    figure = plots.bars([label], [1.0], xlabel=label, ylabel="y", highlight=[label])
    png(figure)
    assert drawable(label) in texts(figure)
    png(plots.boxes([label], [label]))
    png(plots.lines({label: ([1, 2], [1, 2])}, xlabel="x", ylabel=label))
    png(plots.heat([[1.0]], row_labels=[label], column_labels=[label], xlabel="x", ylabel="y"))


@pytest.mark.parametrize("call, words", [
    (lambda: plots.bars(["a"], [1.0, 2.0], xlabel="x", ylabel="y"), "len.values. = 2"),
    (lambda: plots.bars([], [], xlabel="x", ylabel="y"), "len.values. = 0"),
    (lambda: plots.bars(["a"], [math.nan], xlabel="x", ylabel="y"), "finite"),
    (lambda: plots.bars(["a"], [1], xlabel="x", ylabel="y", highlight=["b"]), "highlight"),
    (lambda: plots.lines({"a": ([1, 2], [1])}, xlabel="x", ylabel="y"), "len.x of 'a'. = 2"),
    (lambda: plots.lines({"a": ([1, 2], [0, 1])}, xlabel="x", ylabel="y", logy=True), "> 0 on a log axis"),
    (lambda: plots.lines({}, xlabel="x", ylabel="y"), "len.series. = 0"),
    (lambda: plots.boxes(["a"], []), "len.notes. = 0"),
])
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()
