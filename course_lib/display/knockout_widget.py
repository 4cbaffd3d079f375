"""The knock-out widget: a question, a layer and a part; what the model answers without it."""

from __future__ import annotations

from typing import Any

import ipywidgets as W

from course_lib.analysis.knockout import chat_prompt
from course_lib.config import require
from course_lib.display.knockout_view import (
    PARTS,
    KnockoutView,
    knockout_figure,
    knockout_html,
    knockout_summary,
    knockout_view,
    names_of,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture
from course_lib.generate import LanguageModel, check_prompt


def knockout_widget(lm: LanguageModel, question: str, *, layer: int = 0, part: str = "MLP",
                    max_tokens: int = 44) -> KnockoutPanel:
    """Choose a layer and a part to knock out; see the greedy answer to a question without it.

    Args:
        lm: as `load()` returns it, with any model whose modules have Llama's names.
        question: at first; it can be edited, and goes through the chat template where there is one.
        layer, part: at first; the part is one of `knockout_view.PARTS`.
        max_tokens: of an answer.

    Raises:
        ValueError: the question is empty or too long for the context, or there is no such layer or part.
    """
    return KnockoutPanel(lm, question, layer, part, max_tokens)


class KnockoutPanel(Live):
    """What `knockout_widget` returns."""

    def __init__(self, lm: LanguageModel, question: str, layer: int, part: str, max_tokens: int) -> None:
        L = lm.config.num_hidden_layers
        require(0 <= layer < L, "layer", layer, f"in [0, {L - 1}]")
        require(part in PARTS, "part", part, f"one of {', '.join(PARTS)}")
        self.lm, self.max_tokens = lm, max_tokens
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.question = W.Text(question, description="question", continuous_update=False, **wide)
        self.layer = W.IntSlider(layer, min=0, max=L - 1, description="layer", continuous_update=False, **wide)
        self.part = W.Dropdown(options=list(PARTS), value=part, description="knock out", **wide)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        for knob in (self.question, self.layer, self.part):
            knob.observe(self.on_change, "value")
        grid = W.GridBox([self.layer, self.part],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([self.question, grid, self.message, self.picture],
                         figure=lambda: knockout_figure(first), turn="the question and the part",
                         alt=f"{question} {knockout_summary(first)}")
        self.add_class("course-knockouts")

    def update(self) -> KnockoutView:
        """Ask both models and draw.

        Raises:
            ValueError: the question is empty, or leaves no room for an answer.
        """
        require(bool(self.question.value.strip()), "question", self.question.value, "not empty")
        ids = chat_prompt(self.lm, self.question.value)
        check_prompt(self.lm.config, ids)
        names = names_of(self.layer.value, self.part.value)
        what = f"the {self.part.value} of layer {self.layer.value}" if names else "nothing"
        view = knockout_view(self.lm, ids, names, what, max_tokens=self.max_tokens)
        self.picture.value = knockout_html(view)
        return view

    def on_change(self, change: Any) -> None:
        """Another question, layer or part."""
        with self.message:
            self.update()
