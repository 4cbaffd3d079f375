"""The widget *how many bits?*: a matrix, bits and who shares a scale; the weights on their marks, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as W
from torch import Tensor

from course_lib.config import require
from course_lib.display.rounding_view import (
    Rounding,
    RoundingView,
    rounding_drawing,
    rounding_html,
    rounding_summary,
    rounding_view,
    settings,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture

# What the model makes of a setting: perplexity and answer, by (bits, per)
Results = Mapping[tuple[int, str | int], tuple[float, str]]


def rounding_widget(weights: Mapping[str, Tensor], round_weights: Rounding, results: Results, *, bits: int = 4,
                    per: str | int = "channel") -> RoundingPanel:
    """Choose bits and groups; see the weights of a matrix, the marks of their ruler, and what the model says.

    Args:
        weights: matrices (N, K) by name, the first one is shown first.
        round_weights: (weight, bits, per) to the rounded weights; the panel runs on it.
        results: perplexity and answer of the whole model, for every pair of the settings that can be chosen.
        bits, per: at first.

    Raises:
        ValueError: there is no matrix, or no result for a pair.
    """
    require(bool(weights), "weights", weights, "at least one matrix")
    choices = [sorted({b for b, _ in results}, reverse=True), list(dict.fromkeys(p for _, p in results))]
    missing = [(b, p) for b in choices[0] for p in choices[1] if (b, p) not in results]
    require(not missing, "results", missing, "a result for every pair of bits and per")
    require((bits, per) in results, "(bits, per)", (bits, per), f"one of {list(results)}")
    return RoundingPanel(weights, round_weights, results, choices, bits, per)


class RoundingPanel(Live):
    """What `rounding_widget` returns."""

    def __init__(self, weights: Mapping[str, Tensor], round_weights: Rounding, results: Results,
                 choices: list[list], bits: int, per: str | int) -> None:
        self.weights, self.round_weights, self.results = weights, round_weights, results
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.bits = W.SelectionSlider(options=choices[0], value=bits, description="bits", continuous_update=False,
                                      **wide)
        self.per = W.Dropdown(options=[(f"group of {p}" if isinstance(p, int) else p, p) for p in choices[1]],
                              value=per, description="a scale per", **wide)
        self.matrix = W.Dropdown(options=list(weights), description="matrix", **wide)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        for knob in (self.bits, self.per, self.matrix):
            knob.observe(self.on_change, "value")
        grid = W.GridBox([self.bits, self.per, self.matrix],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([grid, self.message, self.picture], figure=lambda: rounding_drawing(first),
                         turn="bits, the sharing of scales and the matrix", alt=rounding_summary(first),
                         shown=f"{settings(first)}.")
        self.add_class("course-roundings")

    def update(self) -> RoundingView:
        """Round and draw.

        Raises:
            ValueError: the groups do not divide the matrix, or what comes back is not finite.
        """
        perplexity, answer = self.results[self.bits.value, self.per.value]
        view = rounding_view(self.matrix.value, self.weights[self.matrix.value], self.bits.value, self.per.value,
                             round_weights=self.round_weights, perplexity=perplexity, answer=answer)
        self.picture.value = rounding_html(view)
        return view

    def on_change(self, change: Any) -> None:
        """Another setting."""
        with self.message:
            self.update()
