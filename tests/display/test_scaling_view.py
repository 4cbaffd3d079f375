"""The best size for a budget: numbers against the law and brute force, pictures, and a panel on any formulas."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from diagrams.well_drawn import check, words
from saved_form import picture_of, still_of

from course_lib.analysis.scaling_law import LAWS, ScalingLaw, break_even_tokens, total_flops
from course_lib.display.scaling_chart import Chart, marks
from course_lib.display.scaling_picture import HIGH, PLOT, WIDE, scaling_html
from course_lib.display.scaling_still import scaling_drawing
from course_lib.display.scaling_view import OUR_RANGE, PUBLISHED_RANGE, Formulas, Setting, number, scaling_view
from course_lib.display.scaling_widget import BUDGETS, SERVED, scaling_widget
from course_lib.display.scaling_words import even_words, range_words, remark, scaling_summary
from course_lib.training.scaling_runs import FEWEST_TOKENS, results

BESIROGLU, HOFFMANN, OURS = "Besiroglu et al. 2024", "Hoffmann et al. 2022", "our fit"
ALL = {**LAWS, OURS: ScalingLaw(0.0, 2e3, 3e5, 0.6, 0.8, gamma=0.35)}
CASES = [(BESIROGLU, 1e23, 0.0), (BESIROGLU, 1e24, 1e13), (HOFFMANN, 2e20, 1e11), (OURS, 1e14, 1e8), (OURS, 1e13, 0.0),
         (BESIROGLU, 1e21, 1e12), (HOFFMANN, 1e27, 1e15), (BESIROGLU, 1e11, 0.0), (BESIROGLU, 7e23, 3e12)]
EACH = pytest.mark.parametrize("name, flops, served", CASES)


def optimal(law, flops):
    return law.optimal(flops)


FORMULAS = Formulas(total_flops, optimal, break_even_tokens)


def view_of(name=BESIROGLU, flops=1e23, served=0.0, **formulas):
    return scaling_view(Setting(name, ALL[name], flops, served), FORMULAS._replace(**formulas))


@EACH
def test_the_best_sizes_are_those_of_the_law(name, flops, served):
    view, law = view_of(name, flops, served), ALL[name]
    assert view.alone[:2] == law.optimal(flops) and view.spent == pytest.approx(1)
    assert view.lowest[:2] == pytest.approx(view.alone[:2], rel=1e-3)
    if served:
        sizes = np.geomspace(view.paid.N / 30, flops / max(6, 2 * served) * 0.999, 1_000_001)
        left = (flops - 2 * served * sizes) / (6 * sizes)
        best = law.loss(sizes, left).argmin()
        assert view.paid[:2] == pytest.approx((sizes[best], left[best]), rel=1e-3)
        assert total_flops(*view.paid[:2], served) == pytest.approx(flops)
        assert view.training == pytest.approx(6 * view.paid.N * view.paid.D / flops)
        assert view.paid.loss > view.alone.loss and view.paid.N < view.alone.N
    else:
        assert view.paid is None and view.training == 1
    for model in view.bests:
        assert model.loss == law.loss(*model[:2])


@EACH
def test_curves_spend_the_budget_and_are_nowhere_lower(name, flops, served):
    view = view_of(name, flops, served)
    assert len(view.curves) == len(view.bests)
    for models, tokens, best in zip(view.curves, (0, served), (view.alone, view.paid)):
        assert all(total_flops(*model[:2], tokens) == pytest.approx(flops) for model in models)
        assert [model.N for model in models] == sorted(model.N for model in models)
        assert min(model.loss for model in models) == pytest.approx(best.loss, rel=1e-3)
        assert min(model.loss for model in models) >= best.loss * (1 - 1e-9)


@EACH
def test_smaller_models_have_the_same_loss_and_pay_from_their_break_even(name, flops, served):
    view, law = view_of(name, flops, served), ALL[name]
    assert [one.model.N for one in view.smaller] == [view.alone.N / k for k in (2, 4, 8)]
    for one in view.smaller:
        if one.pays_from is None:
            assert law.loss(one.model.N, 1e300) >= view.alone.loss, "endless text is not enough"
            continue
        assert law.loss(*one.model[:2]) == pytest.approx(view.alone.loss)
        assert one.cost == pytest.approx(one.model.N * one.model.D / (view.alone.N * view.alone.D)) and one.cost > 1
        totals = [total_flops(*model[:2], one.pays_from) for model in (one.model, view.alone)]
        assert totals[0] == pytest.approx(totals[1])


def test_the_known_numbers_of_llama():
    (eight, small), (seventy, _) = view_of(flops=7.23e23).known
    assert (eight, seventy) == ("Llama 3 8B", "Llama 3 70B") and small[:2] == (8_030_261_248, 15e12)
    assert round(small.loss, 2) == 2.02 and round(small.D / small.N) == 1868
    page = scaling_html(view_of())
    assert "Llama 3 8B, 15 T tokens: 1,870 per parameter, loss 2.022" in page and "405B" not in page
    assert "Llama" not in scaling_html(view_of(OURS, 1e13)), "five orders of magnitude beyond the runs"


def test_where_the_laws_were_fitted():
    runs = results(fewest_tokens=FEWEST_TOKENS)
    assert OUR_RANGE.sizes == (min(run.parameters for run in runs), max(run.parameters for run in runs))
    (low, high) = OUR_RANGE.tokens
    assert all(low * 0.999 <= run.tokens <= high for run in runs)
    inside, outside = view_of(flops=1e21), view_of()
    assert range_words(inside) == ("Within the measured range: this law was fitted on 70 M to 16 B parameters and 5 B "
                                   "to 500 B tokens.")
    assert range_words(outside).endswith("and 29 B on 570 B is outside it.")
    assert "are outside" in range_words(view_of(served=1e12)) and PUBLISHED_RANGE.holds(inside.alone)
    assert "56 K to 1.6 M parameters and 2 M to 16 M tokens" in range_words(view_of(OURS, 1e13))


def test_the_summary_says_both_and_when_half_pays():
    view = view_of(served=1e12)
    assert scaling_summary(view) == (
        "10²³ FLOPs, law: Besiroglu et al. 2024. Training alone: the best model has 29.4 B parameters, 566 B tokens "
        "(19.2 per parameter), loss 2.032. With 1 T tokens to be served from the same budget: 14.9 B parameters, 783 B "
        "tokens (52.4 per parameter), loss 2.050; 70.1 % of the budget trains it. Half as many parameters reach 2.032 "
        "with 1.43 T tokens, and pay off after 881 B served tokens.")
    assert "served from" not in scaling_summary(view_of())
    assert remark(view_of()) == "19.2 tokens per parameter are best for training alone."
    assert remark(view).startswith("Serving makes the best model 1.97 times smaller: it reads 52.4 tokens")
    scarce = ScalingLaw(1.0, 1e3, 1e9, 0.9, 3.0)
    assert even_words(scaling_view(Setting("mine", scarce, 1e20), FORMULAS)).startswith("No model of half that size")


def test_wrong_formulas_are_seen():
    assert remark(view_of(optimal=lambda law, flops: law.optimal(6 * flops))).startswith(
        "The round dot is off its curve: the model of optimal(…) costs 6 times the budget.")
    swapped = remark(view_of(optimal=lambda law, flops: law.optimal(flops)[::-1]))
    assert "not where its curve is lowest" in swapped and "19.2 times the parameters" in swapped
    forward = view_of(total_flops=lambda N, D, served: 2 * N * D + 2 * N * served)
    assert "costs 0.333 times the budget" in remark(forward)


# --- pictures -----------------------------------------------------------------------------------

def svg_of(view):
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", scaling_html(view), re.S)[0])


@EACH
def test_the_picture_has_the_dots_at_the_lowest_points(name, flops, served):
    view = view_of(name, flops, served)
    root, chart = svg_of(view), Chart.of(view, PLOT)
    [circle] = root.findall("circle")
    assert (float(circle.get("cx")), float(circle.get("cy"))) == pytest.approx(chart.place(view.alone), abs=0.1)
    squares = root.findall("rect")
    assert len(squares) == (served > 0)
    if served:
        x, y = float(squares[0].get("x")) + 7, float(squares[0].get("y")) + 7
        assert (x, y) == pytest.approx(chart.place(view.paid), abs=0.1)
    for path in root.findall("path"):
        if "curve" in path.get("class"):
            numbers = [float(value) for value in path.get("d")[1:].split()]
            assert all(PLOT.left - 0.1 <= x <= PLOT.right + 0.1 for x in numbers[::2])
            assert all(PLOT.top - 0.1 <= y <= PLOT.bottom + 0.1 for y in numbers[1::2])
    for text in root.findall("text"):
        assert 0 <= float(text.get("x")) <= WIDE and 0 <= float(text.get("y")) <= HIGH
    assert root.get("aria-label") == scaling_summary(view)
    assert 2 <= len(chart.levels()) <= 7 and len(chart.ticks(22)) >= 3


@EACH
def test_names_cover_no_other_and_no_dot(name, flops, served):
    view = view_of(name, flops, served)
    found = marks(view, Chart.of(view, PLOT), 16)
    areas = [(mark.at[0] - 4 * len(mark.name), mark.at[0] + 4 * len(mark.name), mark.at[1] - 12, mark.at[1] + 3)
             for mark in found]
    for i, (left, right, top, bottom) in enumerate(areas):
        for a, b, c, d in areas[i + 1:]:
            assert right <= a or b <= left or bottom <= c or d <= top
        for mark in found:
            x, y = mark.place
            assert not (left < x < right and top < y < bottom)


@pytest.mark.parametrize("name, flops, kinds", [(BESIROGLU, 1e21, {True, False}), (BESIROGLU, 1e23, {False}),
                                                (OURS, 1e13, {True, False})])
def test_a_line_is_dashed_where_the_law_is_extrapolated(name, flops, kinds):
    view = view_of(name, flops)
    curves = [path for path in svg_of(view).findall("path") if "curve" in path.get("class")]
    assert {"beyond" not in path.get("class") for path in curves} == kinds
    chart = Chart.of(view, PLOT)
    for path in curves:
        xs = [float(value) for value in path.get("d")[1:].split()][::2]
        spread = [model for model in view.curves[0] if xs[0] + 0.2 < chart.place(model)[0] < xs[-1] - 0.2]
        assert {view.measured.holds(model) for model in spread} == {"beyond" not in path.get("class")}


@EACH
def test_the_still_is_the_same_picture(name, flops, served):
    view = view_of(name, flops, served)
    drawing = check(lambda: scaling_drawing(view))
    assert drawing.description == scaling_summary(view) and "training alone" in words(drawing)
    assert any("served" in text for text in words(drawing)) == (served > 0)


def test_a_dot_outside_of_the_picture_is_not_drawn():
    view = view_of(optimal=lambda law, flops: (1e15, flops / 6e15))
    assert svg_of(view).find("circle") is None and "costs" not in remark(view) and "not where" in remark(view)


# --- formulas and settings that are wrong -------------------------------------------------------

@pytest.mark.parametrize("value", [None, "many", float("nan"), float("inf"), 0, -1.0, True, ...])
def test_formulas_have_to_give_numbers(value):
    with pytest.raises(ValueError, match=r"total_flops\(…\) = .* must be a positive number"):
        view_of(total_flops=lambda *_: value)
    with pytest.raises(ValueError, match=r"optimal\(…\) = "):
        view_of(optimal=lambda *_: (1e9, value))
    if value != 0 or value is True:
        with pytest.raises(ValueError, match=r"break_even_tokens\(…\) = .* must be a number >= 0"):
            view_of(break_even_tokens=lambda *_: value)


@pytest.mark.parametrize("value", [None, 3.0, (1e9,), (1e9, 1e9, 1e9), "ab"])
def test_the_optimum_is_a_pair(value):
    with pytest.raises(ValueError, match=r"optimal\(…\) = "):
        view_of(optimal=lambda *_: value)


def test_numpy_numbers_are_numbers():
    assert number("x", np.float64(2), positive=True) == 2.0
    assert view_of(optimal=lambda law, flops: tuple(np.array(law.optimal(flops)))).alone.N == view_of().alone.N


@pytest.mark.parametrize("settings, said", [({"flops": 0}, "flops = 0"), ({"flops": math.inf}, "flops = inf"),
                                            ({"served": -1}, "served = -1"), ({"served": math.nan}, "served = nan")])
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Setting(BESIROGLU, LAWS[BESIROGLU], **settings)


def test_a_budget_that_does_not_pay_for_the_service_is_refused():
    with pytest.raises(ValueError, match=r"served = 1000000000000000.*10¹⁷ FLOPs pay for a model of 1,000 parameters"):
        view_of(flops=1e17, served=1e15)
    with pytest.raises(ValueError, match=r"flops = 1000.*1,000 parameters"):
        view_of(flops=1000)


def test_names_are_escaped():
    view = scaling_view(Setting("<b>&", LAWS[BESIROGLU]), FORMULAS)
    assert "<b>&" not in scaling_html(view)


# --- the panel ----------------------------------------------------------------------------------

def test_every_number_comes_through_the_formulas():
    asked = {"total": 0, "optimal": 0, "even": 0}

    def my_total(N, D, served):
        asked["total"] += 1
        return 12 * N * D + 4 * N * served  # a machine that computes everything twice

    def my_optimal(law, flops):
        asked["optimal"] += 1
        return law.optimal(flops / 2)

    def my_even(small, large):
        asked["even"] += 1
        return 77e9

    panel = scaling_widget(ALL, my_total, my_optimal, my_even, served=1e12)
    view = scaling_view(Setting(BESIROGLU, LAWS[BESIROGLU], 5e22, 1e12), FORMULAS)
    shown = panel.picture.value
    assert f'data-size="{view.alone.N:.4g}"' in shown and f'data-paid="{view.paid.N:.4g}"' in shown
    assert "pay off after 77 B served tokens" in shown and all(asked.values())
    before = dict(asked)
    panel.flops.value = 1e24
    assert all(asked[name] > before[name] for name in asked)


def test_knobs_have_labels_and_change_what_they_say():
    panel = scaling_widget(ALL, *FORMULAS, flops=3.7e22, served=12345.0)
    knobs = panel.children[0].children
    assert [knob.description for knob in knobs] == ["law", "FLOPs", "served"]
    assert ("3.7 × 10²²", 3.7e22) in panel.flops.options and ("12.3 K", 12345.0) in panel.served.options
    assert panel.served.options[0] == ("0", 0.0) and ("300 B", 3e11) in panel.served.options
    assert ("5 × 10²³", 5e23) in panel.flops.options and len(set(dict(panel.flops.options))) == len(BUDGETS) + 1
    assert len(set(dict(panel.served.options))) == len(SERVED) + 1
    seen = {panel.picture.value}
    for knob, value in ((panel.law, HOFFMANN), (panel.flops, 1e25), (panel.served, 1e13), (panel.law, OURS)):
        knob.value = value
        assert panel.picture.value not in seen and panel.message.value == "", knob.description
        seen.add(panel.picture.value)
    assert "course-scaling" in panel._dom_classes


def test_the_panel_says_what_is_wrong_and_goes_on():
    panel = scaling_widget(ALL, *FORMULAS)
    panel.served.value = 1e15
    before = panel.picture.value
    panel.flops.value = 1e17
    assert "Not updated." in panel.message.value and "1,000 parameters" in panel.message.value
    assert panel.picture.value == before
    panel.served.value = 1e9
    assert panel.message.value == "" and 'data-flops="1e+17"' in panel.picture.value


def test_an_error_of_a_readers_formula_is_shown():
    panel = scaling_widget(ALL, total_flops, lambda law, flops: (law.optimal(flops)[0] / (flops != 1e24), 1e11),
                           break_even_tokens)
    before = panel.picture.value
    with pytest.raises(ZeroDivisionError):  # to the log, with its traceback
        panel.flops.value = 1e24
    assert "ZeroDivisionError" in panel.message.value and panel.picture.value == before
    panel.formulas = FORMULAS._replace(total_flops=lambda *_: float("nan"))
    panel.flops.value = 1e22
    assert "total_flops(…) = nan is not allowed" in panel.message.value and panel.picture.value == before


@pytest.mark.parametrize("wrong", [{"law": "Murphy"}, {"flops": -1.0}, {"flops": 100.0}, {"served": -1.0}])
def test_a_panel_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        scaling_widget(ALL, *FORMULAS, **wrong)


def test_what_is_saved_is_a_picture_of_the_first_setting():
    panel = scaling_widget(ALL, *FORMULAS)
    first = picture_of(panel)
    assert "29.4 B parameters, 566 B tokens" in still_of(panel) and "Extrapolated: this law" in first
    panel.flops.value = 1e21
    assert picture_of(panel) == first


def test_a_view_is_a_pure_function():
    assert scaling_html(view_of(served=1e12)) == scaling_html(view_of(served=1e12))
    other = scaling_view(Setting(BESIROGLU, replace(LAWS[BESIROGLU], E=1.0)), FORMULAS)
    assert other.alone.N == view_of().alone.N, "E moves the loss, not the best size"
