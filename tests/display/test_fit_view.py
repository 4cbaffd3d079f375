"""Will it fit: bar, verdict and largest batch against the formulas, and a panel that runs on any formula."""

import re

import pytest
from diagrams.well_drawn import check, rects, words
from saved_form import picture_of, still_of

from course_lib.classroom.checks.nb08 import cache_bytes
from course_lib.costs import kv_bytes_per_token, weight_bytes
from course_lib.display.fit_view import DEVICES, LEFT_OUT, FitView, fit_drawing, fit_html, fit_summary, fit_view, size
from course_lib.display.fit_widget import fit_widget
from course_lib.published import PUBLISHED

LLAMA = PUBLISHED["Llama-3-8B"]


def view_of(name="Llama-3-8B", device="80 GB (H100)", **settings):
    settings = {"context": 8192, "batch": 16, "cache_bytes": cache_bytes} | settings
    return fit_view(name, PUBLISHED[name], device, **settings)


def test_a_view_adds_up():
    view = view_of()
    assert view.weights == weight_bytes(LLAMA) and view.row == 8192 * kv_bytes_per_token(LLAMA)
    assert view.cache == 16 * view.row and view.memory == 80e9 and view.fits and view.largest == 59
    assert not view_of(batch=60).fits and view_of(batch=59).fits
    assert view_of(precision="4 bits").weights == weight_bytes(LLAMA, 0.5)
    assert view_of(precision="4 bits").row == view.row, "the cache keeps its 16 bits"


def test_a_window_bounds_the_cache_and_weights_may_be_too_large():
    assert view_of("Mistral-7B", context=32_768).row == view_of("Mistral-7B", context=4096).row
    view = view_of("Llama-3-70B")
    assert view.largest == 0 and not view.fits and view.weights > view.memory
    assert view_of("Llama-3-70B", "8 × 80 GB (a server)").largest > 100


@pytest.mark.parametrize("settings, words", [
    ({}, "Llama-3-8B with 16 texts of 8,192 tokens fits: 16.1 GB of weights and 17.2 GB of cache, of 80 GB. "
         "At most 59 texts of this length fit."),
    ({"batch": 60}, "does not fit: 16.1 GB of weights and 64.4 GB of cache are more than 80 GB. At most 59 texts"),
    ({"name": "Llama-3-70B", "batch": 1}, "with 1 text of 8,192 tokens does not fit: the weights alone, 141 GB, are "
                                          "larger than 80 GB."),
    ({"name": "Llama-3-70B", "device": "141 GB (H200)"}, "the weights alone"),
    ({"name": "Llama-2-7B", "device": "24 GB (RTX 4090)", "context": 4096, "precision": "32 bits"}, "weights alone"),
    ({"device": "24 GB (RTX 4090)", "batch": 1, "precision": "16 bits"}, "At most 7 texts"),
])
def test_the_verdict_says_it_in_words(settings, words):
    assert words in fit_summary(view_of(**settings))


def test_a_text_that_does_not_fit_beside_the_weights():
    view = FitView("m", "d", weights=9e9, row=2e9, memory=10e9, batch=1, context=5, largest=0)
    assert "are more than 10 GB. Not one text fits." in fit_summary(view)


def bars(markup):
    found = re.findall(r'class="(\w+)" x="[\d.]+" y="\d+" width="([\d.]+)"', markup)
    return {kind: float(width) for kind, width in found}


def test_the_bar_is_in_proportion_and_in_the_picture():
    for settings in ({}, {"batch": 200}, {"name": "Llama-3-70B"}):
        view = view_of(**settings)
        drawn = bars(fit_html(view))
        assert drawn["cache"] / drawn["room"] == pytest.approx(view.cache / view.memory, rel=0.01)
        assert drawn["weights"] / drawn["room"] == pytest.approx(view.weights / view.memory, rel=0.01)
        assert max(drawn["room"], drawn["weights"] + drawn["cache"]) < 640
    assert LEFT_OUT in fit_html(view_of()) and LEFT_OUT in words(fit_drawing(view_of()))
    assert 'data-largest="59"' in fit_html(view_of()) and 'data-fits="true"' in fit_html(view_of())


@pytest.mark.parametrize("settings", [{}, {"batch": 200}, {"name": "Llama-3-70B"}], ids=str)
def test_the_still_is_the_same_bar(settings):
    view = view_of(**settings)
    drawing = check(lambda: fit_drawing(view))
    (bar, *squares), (other, *others) = rects(drawing, "weights"), rects(drawing, "cache")  # left, top, width, height
    weights, cache = bar[2], other[2]
    assert len(squares) == len(others) == 1, "each colour is explained"
    longest = max(view.memory, view.weights + view.cache)
    assert weights == pytest.approx(660 * view.weights / longest, abs=0.1)
    assert cache == pytest.approx(660 * view.cache / longest, abs=0.1)
    assert drawing.description == fit_summary(view) and f"dashed: {view.device}" in words(drawing)


@pytest.mark.parametrize("settings, said", [
    ({"device": "3 GB"}, "device = '3 GB'"), ({"precision": "7 bits"}, "precision"), ({"batch": 0}, "batch = 0"),
    ({"context": 8193}, r"context = 8193.*\[1, 8192\]"), ({"context": 0}, "context = 0")])
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        view_of(**settings)


def test_bytes_are_written_in_three_digits():
    assert [size(n) for n in (100, 999.4, 1e6, 999.6e6, 17_179_869_184, 2.5e12)] == [
        "0.1 kB", "0.999 kB", "1 MB", "1 GB", "17.2 GB", "2.5 TB"]


def test_the_widget_runs_on_the_formula_that_it_gets():
    asked = []

    def formula(config, positions, batch_size, bytes_per_number):
        asked.append((config, positions, batch_size, bytes_per_number))
        return 1e9 * positions / 8192

    panel = fit_widget(PUBLISHED, formula, model="Llama-3-8B")
    assert asked == [(LLAMA, 8192, 1, 2)] and 'data-cache="16000000000"' in panel.picture.value
    panel.batch.value = 20
    panel.device.value = "24 GB (RTX 4090)"
    assert 'data-cache="20000000000"' in panel.picture.value and 'data-fits="false"' in panel.picture.value
    panel.precision.value = "4 bits"
    assert 'data-largest="19"' in panel.picture.value
    panel.context.value = 4096
    assert 'data-largest="39"' in panel.picture.value
    panel.model.value = "Gemma-2B"
    assert asked[-1][:2] == (PUBLISHED["Gemma-2B"], 4096)
    assert all(knob.description for knob in (panel.model, panel.device, panel.precision, panel.batch, panel.context))


def test_the_widget_says_what_is_wrong_and_goes_on():
    panel = fit_widget(PUBLISHED, cache_bytes, model="Llama-3-8B")
    before = panel.picture.value
    panel.context.value = 32_768
    assert "Not updated." in panel.message.value and "the positions of Llama-3-8B" in panel.message.value
    assert panel.picture.value == before
    panel.model.value = "Qwen3-8B"
    assert panel.message.value == "" and "Qwen3-8B" in panel.picture.value


def test_what_is_saved_is_a_picture_of_the_first_setting():
    panel = fit_widget(PUBLISHED, cache_bytes, model="Llama-3-8B")
    first = picture_of(panel)
    assert "At most 59 texts" in still_of(panel) and "course-fits" in panel._dom_classes
    panel.batch.value = 3
    assert picture_of(panel) == first


@pytest.mark.parametrize("wrong", [{"model": "GPT-9"}, {"model": "GPT-2", "device": "none"},
                                   {"model": "GPT-2", "context": 8192}])
def test_a_panel_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        fit_widget(PUBLISHED, cache_bytes, **wrong)


def test_devices_are_those_of_the_course():
    assert list(DEVICES.values()) == [24e9, 48e9, 80e9, 141e9, 640e9]
