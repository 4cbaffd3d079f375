"""The roofline drawn: roofs, ridge and dots are where logarithms put them."""

import math
from dataclasses import replace

import pytest
from well_drawn import check, paths, words

from course_lib.analysis.roofline import LLAMAS, MACHINES, decode_seconds, prefill_seconds
from course_lib.display.diagrams.drawing import Area
from course_lib.display.diagrams.log_axes import Axes, Dot, powers
from course_lib.display.diagrams.roof import PLOT, four_steps, roofline

LLAMA, H100 = LLAMAS["Llama 3 8B"], MACHINES["H100 SXM"]
STEP = Dot("a step", flops=2e9, nbytes=1e9, seconds=1e-3)


def drawn(*dots, machine=H100):
    return roofline(machine, dots, "A roof, a ridge and dots. " * 5, title="A roof", heading="a machine")


def test_the_roof_rises_as_memory_reads_and_is_flat_after_the_ridge():
    axes = Axes.around(H100, [STEP], PLOT)
    start, ridge, end = axes.roof(H100)
    assert ridge == (axes.right(H100.balance), axes.height(H100.flops_per_s)) and end == (PLOT.right, ridge[1])
    for intensity in (1, 10, 100):  # on the line from start to ridge
        part = (axes.right(intensity) - start[0]) / (ridge[0] - start[0])
        assert axes.height(intensity * H100.bytes_per_s) == pytest.approx(start[1] + part * (ridge[1] - start[1]))
    drawn_memory, drawn_compute = paths(drawn(STEP), 6)
    assert drawn_memory == [pytest.approx(start, abs=0.1), pytest.approx(ridge, abs=0.1)]
    assert drawn_compute == [pytest.approx(ridge, abs=0.1), pytest.approx(end, abs=0.1)]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda m: m.name)
@pytest.mark.parametrize("dot", [STEP, replace(STEP, seconds=10.0), replace(STEP, flops=5e13)], ids=str)
def test_everything_is_within_the_frame(machine, dot):
    axes = Axes.around(machine, [dot], PLOT)
    for x, y in (axes.place(dot), *axes.roof(machine)):
        assert PLOT.left <= x <= PLOT.right and PLOT.top <= y <= PLOT.bottom + 0.1


def test_equal_factors_are_equally_far():
    axes = Axes(Area(0, 0, 100, 100), (1, 1e4), (1, 1e2))
    assert [axes.right(x) for x in (1, 10, 100, 1e4)] == pytest.approx([0, 25, 50, 100])
    assert [axes.height(y) for y in (1, 10, 100)] == pytest.approx([100, 50, 0])
    assert powers(1, 1e4) == [1, 10, 100, 1e3, 1e4] and powers(0.02, 7) == [0.1, 1]


def circles(drawing):
    return [part for part in drawing.parts if part.startswith("<circle")]


def test_a_dot_under_the_roof_is_hollow_and_hangs_on_a_line():
    on = Dot("on", flops=1e9, nbytes=1e9, seconds=1e9 / H100.bytes_per_s)
    under = replace(on, name="under", seconds=10 * on.seconds, side="left")
    one, both = check(lambda: drawn(on)), drawn(on, under)
    assert ["f-ink" in part for part in circles(one)] == [True]
    assert ["f-ink" in part for part in circles(both)] == [True, False]
    [(top, low)] = [line for line in paths(both, 2) if line[0][0] == line[1][0] and line[0][0] > PLOT.left + 5
                    and line[0][1] < PLOT.bottom - 1]
    axes = Axes.around(H100, [on, under], PLOT)
    assert low == pytest.approx(axes.place(under), abs=0.1) and top == pytest.approx(axes.place(on), abs=0.1)


def test_the_steps_of_a_model_have_the_times_of_the_formulas():
    drawing = check(lambda: four_steps(H100, LLAMA, "Llama 3 8B"))
    written = words(drawing)
    assert f"{1 / decode_seconds(LLAMA, 1000, H100):.0f} tokens/s" in written
    many = 64 / decode_seconds(LLAMA, 1000, H100, batch_size=64)
    assert f"{round(many, 2 - math.floor(math.log10(many))):,.0f} tokens/s" in written
    assert f"{1000 / prefill_seconds(LLAMA, 1000, H100):,.0f}"[:4] in "".join(written)
    assert "with 20 ms overhead" in written and "50 tokens/s" in written and "ridge: 295" in written
    assert len([part for part in circles(drawing) if "f-ink" in part]) == 3


@pytest.mark.parametrize("dots", [[], [STEP] * 6])
def test_what_cannot_be_drawn_is_refused(dots):
    with pytest.raises(ValueError, match="is not allowed"):
        drawn(*dots)


def test_each_axis_has_two_marks_at_least():
    for machine in MACHINES.values():
        axes = Axes.around(machine, [Dot("on", 1e9, 1e9 / machine.balance, 1e9 / machine.flops_per_s)], PLOT)
        assert min(len(powers(*axes.x)), len(powers(*axes.y))) >= 2
