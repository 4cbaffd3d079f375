"""The widget *will it fit?*: a model, a precision, a batch, a length and a device; weights and caches as one bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as W

from course_lib.config import ModelConfig, require
from course_lib.display.fit_view import (
    DEVICES,
    PRECISIONS,
    CacheBytes,
    FitView,
    fit_drawing,
    fit_html,
    fit_summary,
    fit_view,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture, slider


def fit_widget(models: Mapping[str, ModelConfig], cache_bytes: CacheBytes, *, model: str,
               device: str = "80 GB (H100)", context: int = 8192, batch: int = 16) -> FitPanel:
    """Choose a model and a device; see what its weights and the caches of a batch take, and how many texts fit.

    Args:
        models: shapes by name.
        cache_bytes: bytes of a cache from (config, positions, batch_size, bytes_per_number); the panel runs on it.
        model, device, context, batch: at first.

    Raises:
        ValueError: there is no such model or device, or the model has not that many positions.
    """
    require(model in models, "model", model, f"one of {', '.join(models)}")
    require(device in DEVICES, "device", device, f"one of {', '.join(DEVICES)}")
    return FitPanel(models, cache_bytes, model, device, context, batch)


class FitPanel(Live):
    """What `fit_widget` returns."""

    def __init__(self, models: Mapping[str, ModelConfig], cache_bytes: CacheBytes, model: str, device: str,
                 context: int, batch: int) -> None:
        self.models, self.cache_bytes = models, cache_bytes
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.model = W.Dropdown(options=list(models), value=model, description="model", **wide)
        self.device = W.Dropdown(options=list(DEVICES), value=device, description="device", **wide)
        self.precision = W.Dropdown(options=list(PRECISIONS), value="16 bits", description="weights", **wide)
        self.batch = slider(W.IntSlider, batch, 1, 256, 1, "texts", live=True)
        lengths = sorted({context, *(2**n for n in range(8, 18))})
        self.context = W.SelectionSlider(options=lengths, value=context, description="tokens each",
                                         continuous_update=True, **wide)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        for knob in (self.model, self.device, self.precision, self.batch, self.context):
            knob.observe(self.on_change, "value")
        grid = W.GridBox([self.model, self.device, self.precision, self.batch, self.context],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([grid, self.message, self.picture], figure=lambda: fit_drawing(first),
                         turn="model, device, precision, texts and tokens", alt=fit_summary(first),
                         shown=fit_summary(first))
        self.add_class("course-fits")

    def update(self) -> FitView:
        """Add up and draw.

        Raises:
            ValueError: the text is longer than the model takes.
        """
        view = fit_view(self.model.value, self.models[self.model.value], self.device.value,
                        context=self.context.value, batch=self.batch.value, precision=self.precision.value,
                        cache_bytes=self.cache_bytes)
        self.picture.value = fit_html(view)
        return view

    def on_change(self, change: Any) -> None:
        """Another setting."""
        with self.message:
            self.update()
