"""The sampler's main knobs over one next-token distribution, and what the model then writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ipywidgets as W
import torch
from torch import Tensor

from course_lib.config import SamplingParams
from course_lib.display.sampling_view import (
    DistributionView,
    Filter,
    apply_filter,
    completion_html,
    distribution_figure,
    distribution_html,
    distribution_summary,
    distribution_view,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture, seed_field, slider, text_of, with_text
from course_lib.generate import CompletionOutput, LanguageModel, Prompt, check_prompt, encode_prompt, generate
from course_lib.sampling import filter_logits


def sampling_widget(lm: LanguageModel, prompt: Prompt, *, params: SamplingParams | None = None,
                    max_tokens: int = 24, filter: Filter = filter_logits) -> SamplingPanel:
    """Temperature, top-k, top-p and a seed; the next token's distribution over the whole vocabulary, and
    what the model then writes.

    Args:
        lm: as `load()` returns it.
        prompt: raw text, or chat messages, of which the last one's content can be edited.
        params: where the knobs stand at first; what has no knob, such as a penalty, applies throughout.
        max_tokens: new tokens to write after each change.
        filter: used for the picture and for the text, called as `filter_logits` is.

    Raises:
        ValueError: the prompt is empty, too long for the context, or a list of ids.
    """
    return SamplingPanel(lm, prompt, replace(params or SamplingParams(), max_tokens=max_tokens), filter)


class SamplingPanel(Live):
    """What `sampling_widget` returns. The model runs over the prompt once; a knob filters its logits anew."""

    def __init__(self, lm: LanguageModel, prompt: Prompt, params: SamplingParams, filter: Filter) -> None:
        text = text_of(prompt)
        self.lm, self.start, self.base, self.filter = lm, prompt, params, filter
        self.prompt = W.Text(text, description="prompt", continuous_update=False, style=LABELLED,
                             layout=W.Layout(width="auto"))
        self.knobs = sampling_knobs(params)
        self.picture, self.text, self.message = Picture(), Picture(), Message()
        self.read_prompt()
        view, chosen = self.view(), self.params
        written = self.update()
        self.prompt.observe(self.on_prompt, "value")
        for knob in self.knobs.values():
            knob.observe(self.on_knob, "value")
        grid = W.GridBox(list(self.knobs.values()),
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([self.prompt, grid, self.message, self.picture, self.text],
                         figure=lambda: distribution_figure(view, lm.tokenizer),
                         turn="temperature, top-p, top-k and seed",
                         shown=f"At temperature {chosen.temperature:g}, top-p {chosen.top_p:g}, top-k {chosen.top_k} "
                               f"and seed {chosen.seed} the model writes: {written.text.strip()!r}.",
                         alt=f"Next token after {text!r} with {chosen!r}: {distribution_summary(view, chosen)}")
        self.add_class("course-sampling")

    @property
    def params(self) -> SamplingParams:
        """As the knobs stand; a slider's 0.7000000000000001 is 0.7."""
        values = {name: knob.value for name, knob in self.knobs.items()}
        return replace(self.base, **{name: round(value, 6) for name, value in values.items()})

    def read_prompt(self) -> None:
        """Encode the prompt and run the model over it.

        Raises:
            ValueError: the prompt is empty, or leaves no room for a new token.
        """
        ids = encode_prompt(self.lm.tokenizer, with_text(self.start, self.prompt.value))
        self.logits, self.prompt_ids = last_logits(self.lm, ids), ids

    def view(self) -> DistributionView:
        """The next token's distribution as the knobs stand."""
        return distribution_view(self.logits, self.params, filter=self.filter, prompt_ids=self.prompt_ids)

    def update(self) -> CompletionOutput:
        """Draw the distribution, then write; the picture does not wait for the text."""
        self.picture.value = distribution_html(self.view(), self.params, self.lm.tokenizer)
        written = continuation(self.lm, self.prompt_ids, self.params, self.filter)
        self.text.value = completion_html(written)
        return written

    def on_prompt(self, change: Any) -> None:
        """Another prompt."""
        with self.message:
            self.read_prompt()
            self.update()

    def on_knob(self, change: Any) -> None:
        """Another setting."""
        with self.message:
            self.update()


def sampling_knobs(params: SamplingParams) -> dict[str, W.Widget]:
    """A slider or field for each setting, by its name; ranges stretch to hold what `params` says."""
    return {"temperature": slider(W.FloatSlider, params.temperature, 0.0, 2.0, 0.05, "temperature"),
            "top_p": slider(W.FloatSlider, params.top_p, 0.05, 1.0, 0.01, "top-p"),
            "top_k": slider(W.IntSlider, params.top_k, 0, 100, 1, "top-k (0: off)"),
            "seed": seed_field(params.seed)}


@torch.inference_mode()
def last_logits(lm: LanguageModel, ids: Sequence[int]) -> Tensor:
    """Logits (1, V) of the token after `ids`.

    Raises:
        ValueError: the ids leave no room for another one.
    """
    check_prompt(lm.config, ids)
    device = next(lm.model.parameters()).device
    return lm.model(torch.tensor([ids], device=device), logits_to_keep=1)[:, -1]


class FilteredModel:
    """A model whose logits have been filtered, so that a draw from their softmax is a filtered draw.

    It remembers the ids it is given: the first call brings the prompt, of which the last `written` ids
    count as output, and later calls bring the output.
    """

    def __init__(self, model: Any, params: SamplingParams, filter: Filter, written: int = 0) -> None:
        self.model, self.params, self.filter, self.written = model, params, filter, written
        self.config = model.config
        self.prompt_ids: list[int] = []
        self.output_ids: list[int] = []

    def parameters(self) -> Any:
        """Those of the model, which tell its device and type."""
        return self.model.parameters()

    def __call__(self, input_ids: Tensor, **kwargs: Any) -> Tensor:
        """Logits (1, 1, V) after ids (1, T)."""
        ids = input_ids[0].tolist()
        border = 0 if self.prompt_ids else len(ids) - self.written
        self.prompt_ids += ids[:border]
        self.output_ids += ids[border:]
        logits = self.model(input_ids, **kwargs)[:, -1]
        return apply_filter(self.filter, logits, self.params, self.prompt_ids, self.output_ids)[:, None]


def continuation(lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams,
                 filter: Filter = filter_logits, written: int = 0) -> CompletionOutput:
    """`generate`, with another filter; with `filter_logits` the tokens are the same.

    Args:
        written: how many ids at the end of the prompt are output, for the penalties.
    """
    filtered = SimpleNamespace(model=FilteredModel(lm.model, params, filter, written), tokenizer=lm.tokenizer,
                               config=lm.config, eos_token_ids=lm.eos_token_ids)
    plain = SamplingParams(max_tokens=params.max_tokens, stop=params.stop, stop_token_ids=params.stop_token_ids,
                           ignore_eos=params.ignore_eos, seed=params.seed)
    return generate(filtered, prompt_ids, plain)
