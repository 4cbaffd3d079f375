"""Speculative decoding to watch: a question, the temperature, k and a seed; then pass after pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as W

from course_lib.config import SamplingParams, require
from course_lib.display.speculation_view import SHOWN, Round, passes_drawing, passes_html, summary, told
from course_lib.display.widgets import LABELLED, Live, Message, Picture, seed_field, slider

Write = Callable[[str, SamplingParams, int], Sequence[Round]]


def speculation_widget(write: Write, tokenizer: Any, text: str, *, temperature: float = 0.8, k: int = 4, seed: int = 0,
                       max_tokens: int = 48) -> SpeculationPanel:
    """Watch a draft propose and a target check.

    Args:
        write: called with a question, the settings and k; returns the passes, which may be a reader's own.
        tokenizer: turns ids into text.
        text, temperature, k, seed: at first.
        max_tokens: what is written at most.

    Raises:
        ValueError: k is not in [0, 8].
    """
    require(0 <= k <= 8, "k", k, "in [0, 8]")
    return SpeculationPanel(write, tokenizer, text, temperature, k, seed, max_tokens)


class SpeculationPanel(Live):
    """What `speculation_widget` returns."""

    def __init__(self, write: Write, tokenizer: Any, text: str, temperature: float, k: int, seed: int,
                 max_tokens: int) -> None:
        self.write, self.tokenizer, self.max_tokens = write, tokenizer, max_tokens
        self.rounds: Sequence[Round] = ()
        self.text = W.Text(text, description="question", continuous_update=False, style=LABELLED,
                           layout=W.Layout(width="auto"))
        self.temperature = slider(W.FloatSlider, temperature, 0.0, 2.0, 0.1, "temperature")
        self.k = slider(W.IntSlider, k, 0, 8, 1, "k")
        self.seed = seed_field(seed)
        self.shown = slider(W.IntSlider, 1, 1, 1, 1, "up to pass", live=True)
        self.picture, self.message = Picture(), Message()
        self.run()
        first = self.rounds
        for knob in (self.text, self.temperature, self.k, self.seed):
            knob.observe(self.on_setting, "value")
        self.shown.observe(self.on_shown, "value")
        grid = W.GridBox([self.temperature, self.k, self.seed, self.shown],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))
        super().__init__([self.text, grid, self.message, self.picture],
                         figure=lambda: passes_drawing(first, tokenizer), alt=told(first[:SHOWN], tokenizer),
                         shown=f"“{text}” at temperature {temperature:g}, k = {k}, seed {seed}. {summary(first)}",
                         turn="question, temperature, k and seed, and step through the passes")
        self.add_class("course-speculation")

    def run(self) -> None:
        """Write the answer, and show all of its passes.

        Raises:
            ValueError: there is no question, or the settings are not allowed.
        """
        require(bool(self.text.value.strip()), "question", self.text.value, "some words")
        params = SamplingParams(temperature=self.temperature.value, seed=self.seed.value, max_tokens=self.max_tokens)
        self.rounds = self.write(self.text.value, params, self.k.value)
        self.shown.max = max(self.shown.min, len(self.rounds))
        self.shown.value = self.shown.max
        self.draw()

    def draw(self) -> None:
        """The passes up to the one chosen."""
        self.picture.value = passes_html(self.rounds, self.tokenizer, min(self.shown.value, len(self.rounds)))

    def on_setting(self, change: Any) -> None:
        """Another text."""
        with self.message:
            self.run()

    def on_shown(self, change: Any) -> None:
        """Another place in the same text."""
        with self.message:
            self.draw()
