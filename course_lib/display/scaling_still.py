"""The still picture of the best size for a budget."""

from __future__ import annotations

from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.diagrams.scaling import amount, power
from course_lib.display.scaling_chart import Chart, Mark, marks, pieces
from course_lib.display.scaling_view import Model, ScalingView
from course_lib.display.scaling_words import scaling_summary

PLOT = Area(76, 70, 700, 386)


def scaling_drawing(view: ScalingView) -> Drawing:
    """The still picture: the same curves and dots."""
    drawing = Drawing("Best size for a budget", scaling_summary(view), height=486)
    chart, left, top, right, bottom = Chart.of(view, PLOT), *PLOT
    drawing.text(right, 34, f"{power(view.setting.flops)} FLOPs, {view.setting.name}", size=SMALL, anchor="end")
    drawing.text(14, 34, "loss", size=SMALL, role="faint", anchor="start")
    drawing.path([(left, top - 12), (left, bottom), (right, bottom)], stroke="faint")
    for x, words in chart.ticks(26):
        drawing.text(x, bottom + 26, words, size=SMALL)
    for loss in chart.levels():
        drawing.text(left - 10, chart.place(Model(chart.sizes[0], 1, loss))[1] + 6, f"{loss:g}", size=SMALL,
                     anchor="end")
    drawing.text((left + right) / 2, bottom + 54, "parameters", size=SMALL, role="faint")
    legend(drawing, view, bottom + 84)
    for stroke, models in zip(("ink", "query"), view.curves):
        for inside, points in pieces(view, chart, models):
            drawing.path(points, stroke=stroke, thick=4 if inside else 2.4, dashed=not inside)
    for mark in marks(view, chart, 20):
        still_mark(drawing, mark)
    return drawing


def legend(drawing: Drawing, view: ScalingView, y: float) -> None:
    """What the dots and the dashes are."""
    x = PLOT.left
    for kind, words in (("alone", "training alone"), ("paid", f"with {amount(view.setting.served, 3)} served"),
                        ("", "dashed: extrapolated")):
        if kind == "paid" and not view.paid:
            continue
        if kind:
            shape(drawing, kind, x + 8, y - 6)
            x += 26
        drawing.text(x, y, words, size=SMALL, role="faint", anchor="start")
        x += text_width(words, SMALL) + 28


def still_mark(drawing: Drawing, mark: Mark) -> None:
    """A dot of the still, with its name."""
    shape(drawing, mark.kind, *mark.place)
    drawing.text(*mark.at, mark.name, size=SMALL)


def shape(drawing: Drawing, kind: str, x: float, y: float) -> None:
    """A circle, a square or a triangle."""
    if kind == "alone":
        drawing.circle(x, y, 9, fill="ink", stroke="paper")
    elif kind == "paid":
        drawing.rect(Area(x - 9, y - 9, x + 9, y + 9), fill="query", stroke="paper", radius=0)
    else:
        drawing.path([(x - 9, y + 8), (x, y - 9), (x + 9, y + 8)], fill="paper", closed=True, thick=2.4)
