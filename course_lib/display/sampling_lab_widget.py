"""The sampling laboratory of notebook 07: every knob, every step on the whole vocabulary, two settings side by side.

A knob filters logits that are already there, so the picture follows at once, also while an arrow key is
held down. The model runs when the prompt changes, and when the button is pressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import ipywidgets as W

from course_lib.config import SamplingParams, require
from course_lib.display.sampling_lab_still import still
from course_lib.display.sampling_lab_view import (
    STEPS,
    ChainView,
    Texts,
    chain_html,
    chain_view,
    texts_html,
)
from course_lib.display.sampling_view import Filter
from course_lib.display.sampling_widget import continuation, last_logits
from course_lib.display.widgets import LABELLED, Live, Message, Picture, seed_field, slider, text_of, with_text
from course_lib.generate import LanguageModel, Prompt, encode_prompt
from course_lib.sampling import filter_logits

KNOBS = tuple(field for fields in STEPS.values() for field in fields)
MAX_TEXTS = 8


def sampling_lab(lm: LanguageModel, prompt: Prompt, settings: Mapping[str, SamplingParams], *, written: str = "",
                 n: int = 3, max_tokens: int = 32, filter: Filter = filter_logits) -> SamplingLab:
    """All knobs of `SamplingParams`, what each one does to the next token, and n texts under every setting.

    Args:
        lm: as `load()` returns it.
        prompt: raw text, or chat messages, of which the last one's content can be edited.
        settings: by name, usually two; the knobs belong to one of them at a time. They share the first
            one's seed, or 0.
        written: what the model has written already; it stands after the prompt, and the presence and
            frequency penalties count its tokens.
        n: texts for each setting, with seeds that go up by 1.
        max_tokens: new tokens of a text.
        filter: used for the picture and for the texts, called as `filter_logits` is.

    Raises:
        ValueError: the prompt is empty, too long for the context, or a list of ids; there is no setting;
            n is not in [1, 8].
    """
    require(len(settings) > 0, "settings", settings, "at least one")
    require(1 <= n <= MAX_TEXTS, "n", n, f"in [1, {MAX_TEXTS}]")
    seed = next(iter(settings.values())).seed or 0
    shared = {name: replace(params, seed=seed, max_tokens=max_tokens) for name, params in settings.items()}
    return SamplingLab(lm, prompt, shared, written, n, filter)


class SamplingLab(Live):
    """What `sampling_lab` returns.

    Attributes:
        settings: by name, as the knobs left them.
        texts: by name, what was written last.
    """

    def __init__(self, lm: LanguageModel, prompt: Prompt, settings: dict[str, SamplingParams], written: str, n: int,
                 filter: Filter) -> None:
        text = text_of(prompt)
        self.lm, self.start, self.settings, self.filter = lm, prompt, settings, filter
        self.texts: dict[str, Texts] = {}
        self.asked: Any = None  # what the texts answer
        self.setting_knobs = False
        self.prompt = text_field(text, "prompt")
        self.written = text_field(written, "written so far")
        self.choice = W.ToggleButtons(options=list(settings), description="knobs set", style=LABELLED)
        self.knobs = lab_knobs(self.params, settings.values())
        self.seed = seed_field(self.params.seed)
        self.count = W.BoundedIntText(n, min=1, max=MAX_TEXTS, description="texts", style=LABELLED,
                                      layout=W.Layout(width="200px"))
        self.button = W.Button(description="Write", tooltip="Let the model continue the text under every setting")
        self.message, self.picture, self.writing = Message(), Picture(), Picture()
        self.read_prompt()
        self.update()
        picture = still({name: (self.view(params), params) for name, params in settings.items()}, text + written,
                        lm.tokenizer)
        super().__init__(
            [self.prompt, self.written, self.choice, grid_of(self.knobs.values()), self.message, self.picture,
             W.HBox([self.seed, self.count, self.button], layout=W.Layout(flex_flow="row wrap")), self.writing],
            figure=lambda: picture, turn="every knob, A's or B's", alt=picture.description)
        self.add_class("course-lab")
        self.listen()

    def listen(self) -> None:
        """Tie the knobs to what they do."""
        for field in (self.prompt, self.written):
            field.observe(self.on_prompt, "value")
        for knob in (*self.knobs.values(), self.seed):
            knob.observe(self.on_knob, "value")
        self.choice.observe(self.on_choice, "value")
        self.button.on_click(self.on_write)

    @property
    def params(self) -> SamplingParams:
        """The setting that the knobs show."""
        return self.settings[self.choice.value]

    def read_prompt(self) -> None:
        """Encode the prompt and what is written, and run the model over them.

        Raises:
            ValueError: the prompt is empty, or leaves no room for a new token.
        """
        prompt_ids = encode_prompt(self.lm.tokenizer, with_text(self.start, self.prompt.value))
        written_ids = self.lm.tokenizer.encode(self.written.value)
        self.logits = last_logits(self.lm, [*prompt_ids, *written_ids])
        self.prompt_ids, self.written_ids = prompt_ids, written_ids

    def view(self, params: SamplingParams) -> ChainView:
        """Every step of the chain under a setting; no model is needed."""
        return chain_view(self.logits, params, filter=self.filter, prompt_ids=self.prompt_ids,
                          output_ids=self.written_ids)

    def update(self) -> None:
        """Draw the distribution, and say which texts are out of date."""
        name = self.choice.value
        self.picture.value = chain_html(self.view(self.params), self.params, self.lm.tokenizer, name=name)
        self.show_texts()

    def show_texts(self) -> None:
        """The texts, if there are any."""
        stale = {name: self.texts[name].params != self.settings[name] or self.asked[0] != self.source
                 for name in self.texts}
        self.writing.value = texts_html(self.texts, stale=stale)

    @property
    def source(self) -> tuple[list[int], list[int]]:
        """What the texts continue."""
        return self.prompt_ids, self.written_ids

    def write(self) -> None:
        """Let the model write `count` texts under each setting, unless it has just written these.

        A key that is held down on the button sends many presses, which arrive while the model writes; with
        the settings unchanged the same seeds would give the same texts, so those presses cost nothing.
        """
        asked = (self.source, dict(self.settings), self.count.value)
        if asked == self.asked:
            return
        self.writing.value = '<p class="course" role="status">The model writes ...</p>'
        try:
            self.texts, self.asked = {name: self.continuations(params) for name, params in asked[1].items()}, asked
        finally:
            self.show_texts()

    def continuations(self, params: SamplingParams) -> Texts:
        """What the model writes under one setting, with a seed for each text."""
        ids, written = [*self.prompt_ids, *self.written_ids], len(self.written_ids)
        seeds = range(params.seed, params.seed + self.count.value)
        return Texts(params, tuple(continuation(self.lm, ids, replace(params, seed=seed), self.filter, written)
                                   for seed in seeds))

    def on_prompt(self, change: Any) -> None:
        """Another prompt: the only knob that runs the model."""
        with self.message:
            self.read_prompt()
            self.update()

    def on_knob(self, change: Any) -> None:
        """Another value: of the chosen setting, or of the seed, which all settings share."""
        if self.setting_knobs:
            return
        with self.message:
            values = {name: round(knob.value, 6) for name, knob in self.knobs.items()}
            self.settings[self.choice.value] = replace(self.params, **values)
            self.settings = {name: replace(params, seed=self.seed.value) for name, params in self.settings.items()}
            self.update()

    def on_choice(self, change: Any) -> None:
        """Another setting: the knobs move to its values."""
        self.setting_knobs = True
        try:
            for name, knob in self.knobs.items():
                knob.value = getattr(self.params, name)
        finally:
            self.setting_knobs = False
        with self.message:
            self.update()

    def on_write(self, button: Any) -> None:
        """The button was pressed."""
        with self.message:
            self.write()


def text_field(text: str, label: str) -> W.Text:
    """A line of text that counts when Enter is pressed or the field is left."""
    return W.Text(text, description=label, continuous_update=False, style=LABELLED, layout=W.Layout(width="auto"))


def grid_of(knobs: Any) -> W.GridBox:
    """The knobs in as many columns as there is room for."""
    return W.GridBox(list(knobs), layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))


def lab_knobs(params: SamplingParams, settings: Iterable[SamplingParams]) -> dict[str, W.Widget]:
    """A slider for each setting of the chain, in its order, that stands as `params` and can stand as any of
    the others; it reports while it moves."""
    ranges = {"repetition_penalty": (W.FloatSlider, 0.5, 3.0, 0.05, "repetition"),
              "presence_penalty": (W.FloatSlider, -2.0, 2.0, 0.1, "presence"),
              "frequency_penalty": (W.FloatSlider, -2.0, 2.0, 0.1, "frequency"),
              "temperature": (W.FloatSlider, 0.0, 3.0, 0.05, "temperature"),
              "top_k": (W.IntSlider, 0, 100, 1, "top-k (0: off)"),
              "top_p": (W.FloatSlider, 0.05, 1.0, 0.01, "top-p"),
              "min_p": (W.FloatSlider, 0.0, 1.0, 0.01, "min-p")}
    knobs = {}
    for name in KNOBS:
        kind, low, high, step, label = ranges[name]
        values = [getattr(other, name) for other in settings]
        knobs[name] = slider(kind, getattr(params, name), min(low, *values), max(high, *values), step, label, live=True)
    return knobs
