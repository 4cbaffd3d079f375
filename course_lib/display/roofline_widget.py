"""The widget *roofline explorer*: a model, a machine, bits, a batch and a length; how fast, why, and for how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as W

from course_lib.analysis.roofline import Machine
from course_lib.config import ModelConfig, require
from course_lib.display.roofline_picture import roofline_drawing, roofline_html
from course_lib.display.roofline_view import (
    BATCHES,
    BITS,
    BOUNDS,
    CriticalBatch,
    RooflineView,
    Setting,
    StepSeconds,
    memory_words,
    roofline_summary,
    roofline_view,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture


def roofline_widget(models: Mapping[str, ModelConfig], machines: Mapping[str, Machine], step_seconds: StepSeconds,
                    critical_batch: CriticalBatch, *, model: str = "Llama 3 8B", machine: str = "H100 SXM",
                    batch: int = 1, context: int = 1000) -> RooflinePanel:
    """Choose a model and a machine; see what limits prefill and decode, how fast they can be, and what they cost.

    Args:
        models, machines: by name.
        step_seconds: seconds of a step from (flops, nbytes, machine); the panel runs on it.
        critical_batch: rows from (machine, bytes_per_weight); the panel runs on it.
        model, machine, batch, context: at first.

    Raises:
        ValueError: there is no such model or machine, the model has not that many positions, or a formula does not
            give a positive number.
    """
    require(model in models, "model", model, f"one of {', '.join(models)}")
    require(machine in machines, "machine", machine, f"one of {', '.join(machines)}")
    first = Setting(model, models[model], batch=batch, context=context)
    return RooflinePanel(models, machines, (step_seconds, critical_batch), first, machine)


class RooflinePanel(Live):
    """What `roofline_widget` returns."""

    def __init__(self, models: Mapping[str, ModelConfig], machines: Mapping[str, Machine],
                 formulas: tuple[StepSeconds, CriticalBatch], start: Setting, machine: str) -> None:
        self.models, self.machines, self.formulas = models, machines, formulas
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        longest = max(config.max_position_embeddings for config in models.values())
        lengths = sorted({start.context, *(2**n for n in range(4, longest.bit_length()))})
        self.model = W.Dropdown(options=list(models), value=start.name, description="model", **wide)
        self.machine = W.Dropdown(options=list(machines), value=machine, description="machine", **wide)
        self.bits = W.Dropdown(options=list(BITS), value=start.bits, description="weights", **wide)
        self.batch = W.SelectionSlider(options=sorted({start.batch, *BATCHES}), value=start.batch,
                                       description="batch", continuous_update=True, **wide)
        self.context = W.SelectionSlider(options=lengths, value=start.context, description="context",
                                         continuous_update=True, **wide)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        knobs = [self.model, self.machine, self.bits, self.batch, self.context]
        for knob in knobs:
            knob.observe(self.on_change, "value")
        grid = W.GridBox(knobs, layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))
        super().__init__([grid, self.message, self.picture], figure=lambda: roofline_drawing(first),
                         turn="model, machine, weights, batch and context", alt=roofline_summary(first),
                         shown=f"{roofline_summary(first)} {memory_words(first)} {BOUNDS}")
        self.add_class("course-roofline")

    def update(self) -> RooflineView:
        """Ask the formulas, and draw.

        Raises:
            ValueError: the context is longer than the model takes, or a formula does not give a positive number.
        """
        name = self.model.value
        setting = Setting(name, self.models[name], self.bits.value, self.batch.value, self.context.value)
        view = roofline_view(setting, self.machines[self.machine.value], *self.formulas)
        self.picture.value = roofline_html(view)
        return view

    def on_change(self, change: Any) -> None:
        """Another setting."""
        with self.message:
            self.update()
