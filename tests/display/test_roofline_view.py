"""The roofline explorer: rates, limits and prices against the formulas, pictures, and a panel on any formulas."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from diagrams.well_drawn import check, words
from saved_form import picture_of, still_of

from course_lib.analysis.roofline import (
    LLAMAS,
    MACHINES,
    Machine,
    bound,
    critical_batch,
    decode_seconds,
    dollars_per_million,
    prefill_seconds,
)
from course_lib.costs import kv_bytes_per_token, weight_bytes
from course_lib.display.diagrams.pocket import CONFIG as POCKET
from course_lib.display.roofline_picture import HIGH, PLOT, WIDE, roofline_drawing, roofline_html
from course_lib.display.roofline_view import (
    BATCHES,
    BOUNDS,
    Setting,
    memory_words,
    positive,
    reason,
    roofline_summary,
    roofline_view,
)
from course_lib.display.roofline_widget import roofline_widget

MODELS = {**LLAMAS, "pocket": POCKET}
ANY = {**MACHINES, "slow to start": Machine("slow to start", 26e9, 200e9, overhead_s=0.6)}
CASES = [("Llama 3 8B", "H100 SXM", {}), ("Llama 3 70B", "H100 SXM", {"batch": 512, "context": 8192}),
         ("Llama 3 8B", "laptop", {"bits": "4 bits", "batch": 8, "context": 16}), ("pocket", "M4 Max", {"batch": 64}),
         ("Llama 3 8B", "H200", {"bits": "8 bits", "batch": 512, "context": 16}), ("pocket", "slow to start", {}),
         ("Llama 3 8B", "M4 Max", {"batch": 16, "context": 16}), ("Llama 3 70B", "laptop", {"context": 1})]
EACH = pytest.mark.parametrize("name, machine, settings", CASES, ids=lambda case: str(case).replace(" ", "_"))


def view_of(name="Llama 3 8B", machine="H100 SXM", formulas=(bound, critical_batch), **settings):
    return roofline_view(Setting(name, MODELS[name], **settings), ANY[machine], *formulas)


@EACH
def test_times_are_those_of_the_formulas_for_a_machine_with_room(name, machine, settings):
    view, config = view_of(name, machine, **settings), MODELS[name]
    width = {"16 bits": 2, "8 bits": 1, "4 bits": 0.5}[settings.get("bits", "16 bits")]
    batch, context = settings.get("batch", 1), settings.get("context", 1000)
    need = weight_bytes(config, width) + batch * context * kv_bytes_per_token(config)
    memory = ANY[machine].memory_bytes
    assert view.machines == (math.ceil(need / memory) if memory else 1) and view.weights + view.caches == need
    used = ANY[machine].times(view.machines) if view.machines > 1 else ANY[machine]
    assert view.machine == used and (memory is None or need <= used.memory_bytes)
    step = decode_seconds(config, context, used, batch_size=batch, bytes_per_weight=width)
    read = prefill_seconds(config, context, used, bytes_per_weight=width)
    assert (view.decode.dot.seconds, view.prefill.dot.seconds) == pytest.approx((step, read))
    assert view.decode.rate == pytest.approx(batch / step) and view.prefill.rate == pytest.approx(context / read)
    assert view.critical == pytest.approx(critical_batch(ANY[machine], width)), "more machines, the same balance"
    if used.dollars_per_hour:
        assert view.decode.dollars == pytest.approx(dollars_per_million(step, batch, used))
        assert view.prefill.dollars == pytest.approx(dollars_per_million(read, context, used))
    else:
        assert view.decode.dollars is None and "no price known" in roofline_html(view)


def test_the_known_numbers_of_an_h100():
    view = view_of()
    assert round(view.decode.rate) == 221 and round(view.critical) == 295
    assert view.prefill.dot.seconds == pytest.approx(0.0144, abs=5e-5)
    assert view.decode.limit == "memory" and view.prefill.limit == "compute"
    many = view_of(batch=64)
    assert round(many.prefill.dollars, 3) == 0.010 and round(many.decode.dollars, 3) == 0.076
    assert view_of("Llama 3 70B").machines == 2


@pytest.mark.parametrize("settings, limit", [
    ({}, "memory"), ({"machine": "laptop", "batch": 64}, "compute"), ({"machine": "slow to start"}, "overhead"),
    ({"batch": 512, "context": 16}, "compute"), ({"batch": 512, "context": 1000}, "memory")])
def test_what_limits_decode(settings, limit):
    view = view_of(**settings)
    assert view.decode.limit == limit and f"Decode is limited by {limit}: " in reason(view)
    assert f'data-decode="{limit}"' in roofline_html(view)


def test_it_says_which_bytes_are_read():
    assert "99.1 % of the bytes of a step are weights" in reason(view_of())
    view = view_of(batch=512, context=1000)  # above the critical batch, and still memory
    caches = 512 * 1000 * kv_bytes_per_token(MODELS["Llama 3 8B"])
    part = caches / view.decode.dot.nbytes
    assert f"{100 * part:.1f} % of the bytes of a step are caches, which rows do not share" in reason(view)


def test_it_says_what_fits():
    assert memory_words(view_of()) == "Fits: 16.1 GB of weights and 131 MB of cache, of 80 GB."
    assert memory_words(view_of("Llama 3 70B")).startswith(
        "Does not fit into one: 141 GB of weights and 328 MB of cache are more than 80 GB. The numbers are for 2 x")
    assert "is not known" in memory_words(view_of(machine="slow to start"))
    assert "on 2 x H100 SXM. Prefill" in roofline_summary(view_of("Llama 3 70B"))


def test_the_summary_says_both_phases():
    assert roofline_summary(view_of(batch=64)) == (
        "Llama 3 8B with 16-bit weights on one H100 SXM. Prefill of 1,000 tokens: first token after 14.4 ms, limited "
        "by compute. Decode of 64 rows: 9,160 tokens/s, 143 for each user, limited by memory. Critical batch: 295 "
        "rows.")
    assert "each user" not in roofline_summary(view_of())


# --- pictures -----------------------------------------------------------------------------------

def svg_of(view):
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", roofline_html(view), re.S)[0])


@EACH
def test_the_picture_has_both_dots_under_one_roof(name, machine, settings):
    view = view_of(name, machine, **settings)
    root = svg_of(view)
    [square], [circle] = root.findall("rect"), root.findall("circle")
    for x, y in ((float(square.get("x")) + 7, float(square.get("y")) + 7),
                 (float(circle.get("cx")), float(circle.get("cy")))):
        assert PLOT.left - 1 <= x <= PLOT.right + 1 and PLOT.top <= y <= PLOT.bottom + 1
    for text in root.findall("text"):
        assert 0 <= float(text.get("x", 10)) <= WIDE and 0 <= float(text.get("y", 10)) <= HIGH
    assert ("hanging" in circle.get("class")) == (view.decode.limit == "overhead")
    assert root.get("aria-label") == roofline_summary(view) and BOUNDS in roofline_html(view)
    names = {text.text: (float(text.get("x")), float(text.get("y"))) for text in root.findall("text")
             if text.text in ("prefill", "decode")}
    (a, b), (c, d) = names.values()
    assert abs(a - c) >= 70 or abs(b - d) >= 15, "names do not cover each other"


def test_a_larger_batch_moves_the_dot_to_the_right_and_not_the_axes():
    views = [view_of(batch=batch, context=128) for batch in BATCHES]
    places = [float(svg_of(view).find("circle").get("cx")) for view in views]
    assert places == sorted(places) and places[-1] - places[0] > 200
    assert len({re.search(r'class="memory" d="([^"]*)"', roofline_html(view))[1] for view in views}) == 1


@EACH
def test_the_still_is_the_same_roof(name, machine, settings):
    view = view_of(name, machine, **settings)
    drawing = check(lambda: roofline_drawing(view))
    assert drawing.description == roofline_summary(view)
    assert {"prefill", "decode"} <= set(words(drawing)) and f"ridge: {view.machine.balance:.0f}" in words(drawing)


# --- formulas and settings that are wrong -------------------------------------------------------

@pytest.mark.parametrize("value", [None, "fast", float("nan"), float("inf"), 0, -1.0, True, ...])
def test_a_formula_has_to_give_a_positive_number(value):
    with pytest.raises(ValueError, match=r"step_seconds\(…\) = .* must be a positive number"):
        view_of(formulas=(lambda *_: value, critical_batch))
    with pytest.raises(ValueError, match=r"critical_batch\(…\) = "):
        view_of(formulas=(bound, lambda *_: value))


def test_tensors_and_numpy_numbers_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert positive("x", numpy.float64(2)) == 2.0 and positive("x", 3) == 3.0


def test_a_dot_above_the_roof_is_called_one():
    view = view_of(formulas=(lambda flops, nbytes, machine: flops / machine.flops_per_s, critical_batch))
    assert "above the roof" in reason(view) and "above the roof" in roofline_html(view)
    added = view_of(formulas=(lambda f, b, m: f / m.flops_per_s + b / m.bytes_per_s, critical_batch))
    assert "above" not in reason(added)


@pytest.mark.parametrize("settings, said", [
    ({"bits": "7 bits"}, "bits"), ({"batch": 0}, "batch = 0"), ({"context": 0}, "context = 0"),
    ({"context": 8193}, r"context = 8193.*\[1, 8192\]")])
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Setting("Llama 3 8B", MODELS["Llama 3 8B"], **settings)


def test_names_are_escaped():
    config = MODELS["Llama 3 8B"]
    view = roofline_view(Setting("<b>&", config), replace(ANY["laptop"], name="<i>"), bound, critical_batch)
    assert "<b>&" not in roofline_html(view) and "<i>" not in roofline_html(view)


# --- the panel ----------------------------------------------------------------------------------

def test_every_number_comes_through_the_formulas():
    asked = []

    def seconds(flops, nbytes, machine):
        asked.append((flops, nbytes, machine))
        return 0.5

    panel = roofline_widget(MODELS, MACHINES, seconds, lambda machine, bytes_per_weight: 40 * bytes_per_weight)
    shown = panel.picture.value
    assert "500 ms to the first token" in shown and "500 ms a step" in shown and "2 in all" in shown
    assert "Critical batch: 80 rows." in shown and {machine for *_, machine in asked} == {MACHINES["H100 SXM"]}
    panel.bits.value = "4 bits"
    assert "Critical batch: 20 rows." in panel.picture.value
    panel.batch.value = 8
    assert "16 in all" in panel.picture.value and 'data-batch="8"' in panel.picture.value
    panel.machine.value = "laptop"
    assert asked[-1][-1] == MACHINES["laptop"]
    panel.model.value = "Llama 3 70B"
    assert 'data-machines="2"' in panel.picture.value and asked[-1][-1] == MACHINES["laptop"].times(2)


def test_knobs_have_labels_and_batches_are_powers_of_two():
    panel = roofline_widget(MODELS, MACHINES, bound, critical_batch, batch=3, context=700)
    knobs = panel.children[0].children
    assert [knob.description for knob in knobs] == ["model", "machine", "weights", "batch", "context"]
    assert panel.batch.options == (1, 2, 3, *BATCHES[2:]) and BATCHES == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert panel.context.options[-1] == 8192 and 700 in panel.context.options
    assert "course-roofline" in panel._dom_classes


def test_the_panel_says_what_is_wrong_and_goes_on():
    panel = roofline_widget(MODELS, MACHINES, bound, critical_batch)
    before = panel.picture.value
    panel.context.value = 8192
    panel.model.value = "pocket"
    assert "Not updated." in panel.message.value and "the positions of pocket" in panel.message.value
    assert "pocket" not in panel.picture.value and panel.picture.value != before
    panel.context.value = 512
    assert panel.message.value == "" and "pocket" in panel.picture.value


def test_an_error_of_a_readers_formula_is_shown():
    panel = roofline_widget(MODELS, MACHINES, lambda f, b, machine: 1 / (machine.name != "laptop"), critical_batch)
    before = panel.picture.value
    with pytest.raises(ZeroDivisionError):  # to the log, with its traceback
        panel.machine.value = "laptop"
    assert "ZeroDivisionError" in panel.message.value and panel.picture.value == before
    panel.formulas = (lambda *_: float("nan"), critical_batch)
    panel.machine.value = "H200"
    assert "step_seconds(…) = nan is not allowed" in panel.message.value and panel.picture.value == before


def test_what_is_saved_is_a_picture_of_the_first_setting():
    panel = roofline_widget(MODELS, MACHINES, bound, critical_batch)
    first = picture_of(panel)
    assert "221 tokens/s" in still_of(panel) and BOUNDS in first and "Fits: 16.1 GB of weights" in first
    panel.batch.value = 64
    assert picture_of(panel) == first


@pytest.mark.parametrize("wrong", [{"model": "GPT-9"}, {"machine": "abacus"}, {"context": 8193}, {"batch": 0}])
def test_a_panel_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        roofline_widget(MODELS, MACHINES, bound, critical_batch, **wrong)
