"""The widget *best size for a budget*: a law, operations and served tokens; how large, on how much text, from when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as W

from course_lib.analysis.scaling_law import ScalingLaw
from course_lib.config import require
from course_lib.display.diagrams.scaling import amount, power
from course_lib.display.scaling_picture import scaling_html
from course_lib.display.scaling_still import scaling_drawing
from course_lib.display.scaling_view import Formulas, ScalingView, Setting, scaling_view
from course_lib.display.scaling_words import range_words, scaling_summary
from course_lib.display.widgets import LABELLED, Live, Message, Picture

BUDGETS = tuple(float(f"{k}e{n}") for n in range(11, 28) for k in (1, 2, 5))
SERVED = (0.0, *(float(f"{k}e{n}") for n in range(6, 15) for k in (1, 3)), 1e15)


def scaling_widget(laws: Mapping[str, ScalingLaw], total_flops: Callable[[float, float, float], float],
                   optimal: Callable[[ScalingLaw, float], tuple[float, float]],
                   break_even_tokens: Callable[[tuple[float, float], tuple[float, float]], float], *,
                   law: str = "Besiroglu et al. 2024", flops: float = 1e23, served: float = 0.0) -> ScalingPanel:
    """Choose a law, a budget and the tokens to be served; see the best size of a model, and when a smaller one pays.

    Args:
        laws: by name; one whose name is not in `course_lib.analysis.scaling_law.LAWS` counts as fitted to the
            course's own runs.
        total_flops: of (parameters, training tokens, served tokens); the panel runs on it.
        optimal: parameters and tokens from (law, flops), nothing served; the panel runs on it.
        break_even_tokens: served tokens from two pairs of parameters and tokens; the panel runs on it.
        law, flops, served: at first.

    Raises:
        ValueError: there is no such law, the budget does not pay for what is to be served, or a formula returns what
            it cannot.
    """
    require(law in laws, "law", law, f"one of {', '.join(laws)}")
    return ScalingPanel(laws, Formulas(total_flops, optimal, break_even_tokens),
                        Setting(law, laws[law], flops, served))


class ScalingPanel(Live):
    """What `scaling_widget` returns."""

    def __init__(self, laws: Mapping[str, ScalingLaw], formulas: Formulas, start: Setting) -> None:
        self.laws, self.formulas = laws, formulas
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.law = W.Dropdown(options=list(laws), value=start.name, description="law", **wide)
        self.flops = W.SelectionSlider(options=[(power(n), n) for n in sorted({start.flops, *BUDGETS})],
                                       value=start.flops, description="FLOPs", continuous_update=True, **wide)
        self.served = W.SelectionSlider(options=[(amount(n, 3), n) for n in sorted({start.served, *SERVED})],
                                        value=start.served, description="served", continuous_update=True, **wide)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        knobs = [self.law, self.flops, self.served]
        for knob in knobs:
            knob.observe(self.on_change, "value")
        grid = W.GridBox(knobs, layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))
        super().__init__([grid, self.message, self.picture], figure=lambda: scaling_drawing(first),
                         turn="law, FLOPs and served tokens", alt=scaling_summary(first),
                         shown=f"{scaling_summary(first)} {range_words(first)}")
        self.add_class("course-scaling")

    def update(self) -> ScalingView:
        """Ask the formulas, and draw.

        Raises:
            ValueError: the budget is too small, or a formula returns what it cannot.
        """
        setting = Setting(self.law.value, self.laws[self.law.value], self.flops.value, self.served.value)
        view = scaling_view(setting, self.formulas)
        self.picture.value = scaling_html(view)
        return view

    def on_change(self, change: Any) -> None:
        """Another setting."""
        with self.message:
            self.update()
