"""The figures: what is written on them, the same bytes each time, no noise, alt text where viewers look."""

import math
import re
from base64 import b64decode

import matplotlib as mpl
import numpy as np
import pytest
import torch
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output

from course_lib.display import plots
from course_lib.display.labels import drawable, spread

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
    first = plots.png(make())
    assert first[:8] == b"\x89PNG\r\n\x1a\n" and b"matplotlib" not in first
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "savefig.dpi": 30, "xtick.labelsize": 4}):
        assert plots.png(make()) == first


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


@pytest.mark.parametrize("label", NASTY)
def test_labels_of_any_text_draw_without_warning(label):
    figure = plots.bars([label], [1.0], xlabel=label, ylabel="y", highlight=[label])
    plots.png(figure)
    assert drawable(label) in texts(figure)
    plots.png(plots.boxes([label], [label]))
    plots.png(plots.lines({label: ([1, 2], [1, 2])}, xlabel="x", ylabel=label))
    plots.png(plots.heat([[1.0]], row_labels=[label], column_labels=[label], xlabel="x", ylabel="y"))


@pytest.mark.parametrize("call, words", [
    (lambda: plots.bars(["a"], [1.0, 2.0], xlabel="x", ylabel="y"), "len.values. = 2"),
    (lambda: plots.bars([], [], xlabel="x", ylabel="y"), "len.values. = 0"),
    (lambda: plots.bars(["a"], [math.nan], xlabel="x", ylabel="y"), "finite"),
    (lambda: plots.bars(["a"], [1], xlabel="x", ylabel="y", highlight=["b"]), "highlight"),
    (lambda: plots.lines({"a": ([1, 2], [1])}, xlabel="x", ylabel="y"), "len.x of 'a'. = 2"),
    (lambda: plots.lines({"a": ([1, 2], [0, 1])}, xlabel="x", ylabel="y", logy=True), "> 0 on a log axis"),
    (lambda: plots.lines({}, xlabel="x", ylabel="y"), "len.series. = 0"),
    (lambda: plots.boxes(["a"], []), "len.notes. = 0"),
    (lambda: plots.show(some_bars(), caption=" ", alt="a"), "caption"),
    (lambda: plots.show(some_bars(), caption="c", alt=""), "alt"),
])
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_show_gives_picture_alt_text_and_caption(capture_displays):
    plots.show(some_bars(), caption="The mat wins with 60 %.", alt='bars; "mat" is longest')
    picture, caption = capture_displays()
    assert b64decode(picture["data"]["image/png"]) == plots.png(some_bars())
    assert picture["data"]["text/plain"] == 'bars; "mat" is longest'
    assert picture["metadata"] == {"image/png": {"alt": 'bars; "mat" is longest'}}
    assert caption["data"]["text/markdown"].startswith("*Figure: The mat wins with 60 %.*\n\n<details>")
    assert "bars; &quot;mat&quot; is longest</details>" in caption["data"]["text/markdown"]


@pytest.mark.parametrize("template, attribute", [("classic", True), ("lab", False)])
def test_every_export_has_the_description(template, attribute, capture_displays):
    plots.show(some_bars(), caption="The mat wins.", alt="bars <mat> is longest")
    outputs = [new_output("display_data", output["data"], metadata=output["metadata"]) for output in capture_displays()]
    exporter = HTMLExporter(template_name=template)
    html, _ = exporter.from_notebook_node(new_notebook(cells=[new_code_cell(outputs=outputs)]))
    image = re.search("<img[^>]*>", html)[0]
    assert ("bars &lt;mat&gt; is longest" in image) is attribute, "as the docstring of show() says"
    assert re.search("<details>.*bars &lt;mat&gt; is longest.*</details>", html, re.S)


@pytest.fixture
def capture_displays(monkeypatch):
    """A function that returns what has been displayed since."""
    shell = InteractiveShell.instance()
    publisher = CapturingDisplayPublisher(shell=shell)
    monkeypatch.setattr(shell, "display_pub", publisher)
    yield lambda: publisher.outputs
    InteractiveShell.clear_instance()
