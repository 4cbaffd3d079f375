"""How many bits: histogram, marks and errors against the numbers, and a panel that runs on any rounding."""

import re

import pytest
import torch
from diagrams.well_drawn import check, rects, words
from saved_form import picture_of, still_of

from course_lib.display.rounding_view import (
    BINS,
    effect,
    rounding_drawing,
    rounding_html,
    rounding_summary,
    rounding_view,
    said,
)
from course_lib.display.rounding_widget import rounding_widget
from course_lib.rounding import round_weights

WEIGHT = torch.linspace(-1, 0.5, 6 * 64).view(6, 64)
RESULTS = {(b, p): (10.0 * b, f"{b} bits, {p}") for b in (8, 4, 2) for p in ("tensor", "channel", 32)}


def view_of(bits=4, per="channel", **changes):
    given = {"round_weights": round_weights, "perplexity": 16.559, "answer": "It is New Delhi."} | changes
    return rounding_view("up", WEIGHT, bits, per, **given)


@pytest.mark.parametrize("bits, per", [(2, "tensor"), (4, "channel"), (8, 32), (3, 64)])
def test_a_view_counts_what_rounding_did(bits, per):
    view, rounded = view_of(bits, per), round_weights(WEIGHT, bits, per)
    moved = (rounded - WEIGHT).abs()
    assert view.mean == pytest.approx(moved.mean().item()) and view.worst == pytest.approx(moved.max().item())
    assert view.zeros == pytest.approx((rounded == 0).float().mean().item())
    first = rounded[0, : per if isinstance(per, int) else None] if per != "tensor" else rounded
    assert list(view.marks) == first.unique().tolist() and len(view.marks) < 2**bits
    assert len(view.heights) == BINS and max(view.heights) == 1 and min(view.heights) == 0  # nothing above 0.5
    assert view.largest == 1


def test_words_say_setting_effect_and_answer():
    view = view_of(4, "tensor")
    text = rounding_summary(view)
    assert text.startswith("up in 4 bits, one scale for the matrix: ") and effect(view) in text
    assert "the perplexity is 16.6" in text and text.endswith("the capital of India: “It is New Delhi.”")
    assert "a scale for each row" in rounding_summary(view_of())
    assert "a scale for each 32 weights" in rounding_summary(view_of(4, 32))


def test_a_mark_beyond_the_largest_weight_is_in_the_picture():
    view = view_of(2, "tensor", round_weights=lambda w, bits, per: torch.where(w > 0, 3.0, -1.0))
    assert view.largest == 3 and view.marks == (-1.0, 3.0)
    assert view.heights[BINS // 2 + BINS // 6 :] == (0,) * (BINS // 2 - BINS // 6), "the bars share the axis"
    assert [float(x) for x in re.findall(r'class="mark" d="M([\d.]+)', rounding_html(view))] == pytest.approx(
        [1 + 638 / 3, 639], abs=0.06)


def test_a_long_answer_is_cut_at_a_word():
    assert said(view_of(answer="bees \n and  glue")) == "bees and glue"
    cut = said(view_of(answer="memory animals bounces " * 9))
    assert len(cut) <= 82 and cut.endswith(" …") and " bounces"[:4] in cut


def test_the_picture_has_a_bar_for_each_bin_and_a_line_for_each_mark():
    for bits, per in ((2, "tensor"), (4, 32), (8, "channel")):
        view = view_of(bits, per)
        markup = rounding_html(view)
        assert markup.count('<rect class="weights"') == BINS and markup.count('class="mark"') == len(view.marks)
        assert f'data-marks="{len(view.marks)}"' in markup and 'data-perplexity="16.559"' in markup
        xs = [float(x) for x in re.findall(r'class="mark" d="M([\d.]+)', markup)]
        assert xs == sorted(xs) and all(0 <= x <= 640 for x in xs)
        drawing = check(lambda view=view: rounding_drawing(view))
        assert len(rects(drawing, "weights")) == BINS and "India: “It is New Delhi.”" in words(drawing)
    assert "&lt;b&gt;" in rounding_html(view_of(answer="<b>"))


def test_a_long_answer_stays_on_the_paper():
    check(lambda: rounding_drawing(view_of(answer="W" * 200)))


def test_what_does_not_round_is_refused():
    with pytest.raises(ValueError, match="bits = 9"):
        view_of(9)
    with pytest.raises(ValueError, match="shape"):
        view_of(round_weights=lambda w, bits, per: w[:2])
    with pytest.raises(ValueError, match="NaN or infinity"):
        view_of(round_weights=lambda w, bits, per: w / 0 * 0)


def test_the_widget_runs_on_the_rounding_that_it_gets():
    asked = []

    def halves(weight, bits, per):
        asked.append((tuple(weight.shape), bits, per))
        return weight / 2

    panel = rounding_widget({"up": WEIGHT, "down": WEIGHT[:2]}, halves, RESULTS)
    assert asked == [((6, 64), 4, "channel")] and "4 bits, channel" in panel.picture.value
    panel.bits.value = 2
    panel.per.value = 32
    panel.matrix.value = "down"
    assert asked[-1] == ((2, 64), 2, 32) and "2 bits, 32" in panel.picture.value
    assert 'data-perplexity="20.000"' in panel.picture.value
    assert all(knob.description for knob in (panel.bits, panel.per, panel.matrix))


def test_the_widget_says_what_is_wrong_and_goes_on():
    def fussy(weight, bits, per):
        return weight / (bits != 2)

    panel = rounding_widget({"up": WEIGHT}, fussy, RESULTS)
    before = panel.picture.value
    panel.bits.value = 2
    assert "Not updated." in panel.message.value and "NaN or infinity" in panel.message.value
    assert panel.picture.value == before
    panel.bits.value = 8
    assert panel.message.value == "" and "8 bits, channel" in panel.picture.value


def test_what_is_saved_is_a_picture_of_the_first_setting():
    panel = rounding_widget({"up": WEIGHT}, round_weights, RESULTS, bits=4, per="tensor")
    first = picture_of(panel)
    assert "one scale for the matrix" in still_of(panel) and "course-roundings" in panel._dom_classes
    panel.bits.value = 2
    assert picture_of(panel) == first


@pytest.mark.parametrize("weights, results, settings", [
    ({}, RESULTS, {}), ({"up": WEIGHT}, {(4, "channel"): (1.0, "")} | {(2, 32): (1.0, "")}, {}),
    ({"up": WEIGHT}, RESULTS, {"bits": 3})])
def test_a_panel_that_cannot_be_is_refused(weights, results, settings):
    with pytest.raises(ValueError, match="is not allowed"):
        rounding_widget(weights, round_weights, results, **settings)
