"""Scaling laws drawn: areas, bars, lines and curves are as large as the laws and the formulas say."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from well_drawn import check, hatched, paths, rects, words

from course_lib.analysis.scaling_law import LAWS, ScalingLaw
from course_lib.display.diagrams.scaling import BAR, EDGE, MIDDLES, amount, isoflop, power, split
from course_lib.display.diagrams.scaling_lines import COSTS, LOSSES, NOTHING, extrapolate, fan, serve

NAME = "Besiroglu et al. 2024"
LAW = LAWS[NAME]
SIZES = [n * 1e6 for n in (1, 2, 3, 4, 6, 8, 12, 16)]
TRUE = ScalingLaw(1.6, 60.0, NOTHING, 0.27, 1.0)
NOISE = np.random.default_rng(4).standard_normal(len(SIZES))
LOSSES_OF = [round(float(TRUE.loss(n, 1) * (1 + 0.008 * e)), 3) for n, e in zip(SIZES, NOISE)]


def circles(drawing):
    """(x, y, hollow) of each circle."""
    return [(float(part.split('cx="')[1].split('"')[0]), float(part.split('cy="')[1].split('"')[0]),
             "f-paper" in part) for part in drawing.parts if part.startswith("<circle")]


# --- one budget ---------------------------------------------------------------------------------

@pytest.mark.parametrize("flops, law, factor", [(1e21, LAW, 3), (1e19, LAW, 2.5),
                                                (1e22, LAWS["Hoffmann et al. 2022"], 3)])
def test_rectangles_have_one_area_and_the_sides_of_their_models(flops, law, factor):
    drawing = check(lambda: isoflop(flops, law, "somebody", factor=factor))
    shapes = [rect[2:] for rect in rects(drawing, "cost")]
    assert [wide * high for wide, high in shapes] == pytest.approx([shapes[1][0] * shapes[1][1]] * 3, rel=0.01)
    assert shapes[0][1] * factor == pytest.approx(shapes[1][1], rel=0.01) == pytest.approx(shapes[2][1] / factor, 0.01)
    N, D = law.optimal(flops)
    for k in (1 / factor, 1, factor):
        assert {amount(N * k), f"{amount(D / k)} tokens", f"{law.loss(N * k, D / k):.2f}"} <= set(words(drawing))
    assert words(drawing).count(f"{power(flops)} FLOPs") == 3


def test_the_valley_is_the_loss_and_its_dots_are_under_the_rectangles():
    drawing = isoflop(1e21, LAW, NAME)
    dots, N, D = circles(drawing), *LAW.optimal(1e21)
    assert [x for x, *_ in dots] == list(MIDDLES)
    losses = [LAW.loss(N * k, D / k) for k in (1 / 3, 1, 3)]
    depths = [dots[1][1] - y for _, y, _ in dots]
    assert depths[1] == 0 and depths[0] / depths[2] == pytest.approx((losses[0] - losses[1]) / (losses[2] - losses[1]),
                                                                     rel=0.02)
    [curve] = paths(drawing, 3)
    assert max(y for _, y in curve) == pytest.approx(dots[1][1], abs=0.2), "nowhere lower"
    for x, y, _ in dots:
        assert min(abs(y - b) for a, b in curve if abs(a - x) <= 5) < 3, "on the curve"


# --- one loss -----------------------------------------------------------------------------------

@pytest.mark.parametrize("N, D, factor", [(150e6, 2.5e9, 10), (50e6, 5e9, 8)])
def test_bars_are_the_terms_of_the_law(N, D, factor):
    drawing = check(lambda: split(N, D, LAW, NAME, factor=factor))
    whole = LAW.loss(N, D)
    bars = sorted((top, left, width) for fill in ("plain", "weights", "latency")
                  for left, top, width, high in rects(drawing, fill) if high == BAR)
    rows = [[bar[1:] for bar in bars if bar[0] == top] for top in sorted({top for top, *_ in bars})]
    scale = 568 / whole
    for row, (n, d) in zip(rows, ((N, D), (factor * N, D), (N, factor * D)), strict=True):
        terms = [LAW.E, LAW.A / n**LAW.alpha, LAW.B / d**LAW.beta]
        assert [width / scale for _, width in row[:3]] == pytest.approx(terms, abs=0.001)
        assert [left for left, _ in row[:3]] == pytest.approx(
            [EDGE, EDGE + scale * terms[0], EDGE + scale * sum(terms[:2])], abs=0.15)
        assert f"{LAW.loss(n, d):.2f}" in words(drawing)
        saved = round(whole - sum(terms), 9)
        assert (len(row) == 3) == (saved == 0) and (not saved or row[3][1] / scale == pytest.approx(saved, abs=0.001))
    assert len(hatched(drawing)) == 2
    [(start, end)] = paths(drawing, 4)
    assert start[0] == end[0] == pytest.approx(EDGE + scale * LAW.E, abs=0.1), "the floor"


def test_the_figures_of_the_notebooks_bars_add_up_as_printed():
    drawing = split(150e6, 2.5e9, LAW, NAME)
    printed = [float(text) for text in words(drawing) if text[0].isdigit() and text[1] == "."]
    assert [round(sum(printed[i:i + 3]), 2) for i in (0, 4, 8)] == [printed[i] for i in (3, 7, 11)]


# --- one loss, two models -----------------------------------------------------------------------

@pytest.mark.parametrize("small, large", [(3e9, (9e9, 180e9)), (1e9, (2e9, 40e9))])
def test_lines_cross_at_the_break_even(small, large):
    drawing = check(lambda: serve(small, large, LAW, NAME))
    D = LAW.tokens_for(LAW.loss(*large), small)
    even = 6 * (small * D - large[0] * large[1]) / (2 * (large[0] - small))
    one, other = paths(drawing, 4)
    scale = (COSTS.bottom - one[0][1]) / (6 * small * D)
    for line, (n, d) in ((one, (small, D)), (other, large)):
        for (x, y), served in zip(line, (0, 2 * even)):
            assert COSTS.bottom - y == pytest.approx(scale * (6 * n * d + 2 * n * served), abs=0.2)
            assert x == pytest.approx(COSTS.left + served / (2 * even) * (COSTS.right - COSTS.left), abs=0.1)
    [(x, y, hollow)] = circles(drawing)
    assert hollow and x == pytest.approx((COSTS.left + COSTS.right) / 2, abs=0.1)
    assert y == pytest.approx((one[0][1] + one[1][1]) / 2, abs=0.2) == pytest.approx((other[0][1] + other[1][1]) / 2,
                                                                                    abs=0.2)
    assert f"break-even: {amount(even)} tokens" in words(drawing)
    assert LAW.loss(small, D) == pytest.approx(LAW.loss(*large)) and f"{LAW.loss(*large):.2f}" in words(drawing)[-1]


def test_who_computes_with_the_printed_numbers_gets_the_printed_break_even():
    drawing = serve(3e9, (9e9, 180e9), LAW, NAME)
    units = {"B": 1e9, "T": 1e12}
    small, large = ([float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) ([BT])", text)]
                    for text in words(drawing) if " parameters, " in text)
    extra = 6 * small[0] * small[1] - 6 * large[0] * large[1]
    assert f"break-even: {amount(extra / 2 / (large[0] - small[0]))} tokens" in words(drawing)
    assert f"begins {small[0] * small[1] / large[0] / large[1]:.1f} times as high" in drawing.description


# --- beyond what was measured -------------------------------------------------------------------

def test_curves_are_fits_of_the_size_alone_to_resamples():
    exact = fan(tuple(SIZES), tuple(float(TRUE.loss(n, 1)) for n in SIZES), 5)
    for one in exact:  # without noise every resample has the same law
        assert (one.E, one.A, one.alpha) == pytest.approx((TRUE.E, TRUE.A, TRUE.alpha), rel=1e-3)
    assert len({one.E for one in fan(tuple(SIZES), tuple(LOSSES_OF), 20)}) == 20


def test_the_fan_opens_and_the_bracket_holds_95_percent():
    held_out = (256e6, 1.92)
    drawing = check(lambda: extrapolate(SIZES, LOSSES_OF, held_out, samples=40))
    curves = paths(drawing, 1)
    assert len(curves) == 40
    ends = sorted(curve[-1][1] for curve in curves)
    middle = sorted(next(y for x, y in curve if x >= 200) for curve in curves)
    assert ends[-1] - ends[0] > 4 * (middle[-1] - middle[0]) > 0
    laws = fan(tuple(SIZES), tuple(LOSSES_OF), 40)
    low, high = np.quantile([one.loss(held_out[0], 1) for one in laws], (0.025, 0.975))
    assert f"95 % of 40 fits: {low:.2f} to {high:.2f}" in words(drawing) and "measured later: 1.92" in words(drawing)
    first, last = np.quantile([one.loss(SIZES[-1], 1) for one in laws], (0.025, 0.975))
    assert f"95 % at the last: {first:.2f} to {last:.2f}" in words(drawing) and high - low > 3 * (last - first)
    [bracket] = [path for path in paths(drawing, 2.4)]
    (_, top), *_, (_, bottom) = bracket
    *dots, (_, y, hollow), (_, _, legend) = circles(drawing)
    assert hollow and legend and [spot[2] for spot in dots] == [False] * len(SIZES)
    assert (bottom - y) / (bottom - top) == pytest.approx((1.92 - low) / (high - low), abs=0.01)
    steps = np.diff([spot[0] for spot in dots])
    assert steps == pytest.approx(np.diff(np.log(SIZES)) * steps[0] / math.log(SIZES[1] / SIZES[0]), abs=0.2)
    assert all(LOSSES.left <= a <= LOSSES.right + 0.1 and b <= LOSSES.bottom for curve in curves for a, b in curve)


@pytest.mark.parametrize("call", [
    lambda: isoflop(1e21, LAW, NAME, factor=1.5), lambda: isoflop(1e21, LAW, NAME, factor=4),
    lambda: isoflop(0, LAW, NAME), lambda: split(1e8, 1e9, replace(LAW, gamma=0.5), NAME),
    lambda: split(1e8, 1e9, LAW, NAME, factor=1), lambda: serve(1e8, (9e9, 180e9), LAW, NAME),
    lambda: serve(9e9, (3e9, 180e9), LAW, NAME), lambda: serve(8e9, (9e9, 1e9), LAW, NAME),
    lambda: extrapolate(SIZES[:4], LOSSES_OF[:4], (1e9, 2.0)), lambda: extrapolate(SIZES[::-1], LOSSES_OF, (1e9, 2.0)),
    lambda: extrapolate(SIZES, LOSSES_OF, (16e6, 2.0))])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
