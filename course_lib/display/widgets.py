"""Interactive skins over `course_lib.display.views`: core ipywidgets, pictures as HTML and SVG text, keyboard first.

A widget computes nothing of its own. Beside its live form it carries a still picture and a description,
which a saved notebook shows where no kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from types import SimpleNamespace, TracebackType
from typing import Any

import ipywidgets as W
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.config import SamplingParams, require
from course_lib.display import plots, views
from course_lib.generate import CompletionOutput, LanguageModel, Prompt, check_prompt, encode_prompt, generate
from course_lib.sampling import filter_logits

MAX_CHARACTERS = 5_000
LABELLED = {"description_width": "90px"}
DIM = "<style>.course-message:has([role=alert])~.course-picture{opacity:.5}</style>"  # what is out of date


class Picture(W.HTML):
    """Text or a drawing that a knob changes."""

    def __init__(self) -> None:
        super().__init__()
        self.add_class("course-picture")


class Live(W.VBox):
    """A column of widgets that is saved as a picture, too.

    Args:
        figure: makes the still picture, when the widget is displayed.
        alt: what the widget shows in its default setting.
    """

    def __init__(self, children: Sequence[W.Widget], *, figure: Callable[[], Figure], alt: str) -> None:
        super().__init__(children)
        self.figure, self.alt = figure, alt

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        data, metadata = plots.picture(self.figure(), self.alt)
        return super()._repr_mimebundle_(**kwargs) | data, metadata


class Message(W.HTML):
    """A line that says what went wrong. In `with message:` every exception is shown there.

    A ValueError, the package's word for a setting that is not allowed, ends there; any other exception
    goes on, so that its traceback reaches the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.add_class("course-message")

    def __enter__(self) -> None:
        self.value = ""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> bool:
        if error is not None:
            name = "" if kind is ValueError else f"{kind.__name__}: "
            line = " ".join(f"{name}{error}".split())
            self.value = f'{DIM}<p class="course" role="alert"><b>Not updated.</b> {escape(line)}</p>'
        return isinstance(error, ValueError)


def tokenizer_widget(tokenizers: Mapping[str, Any], text: str) -> Live:
    """A text box and, as one types, the tokens that a tokenizer makes of the text.

    Args:
        tokenizers: by the name to show, each a `course_lib.tokenizer.Tokenizer` or a `tiktoken.Encoding`.
        text: to begin with.
    """
    require(len(tokenizers) > 0, "tokenizers", tokenizers, "at least one")
    box = W.Textarea(text, description="text", rows=3, style=LABELLED, layout=W.Layout(width="auto"))
    choice = W.Dropdown(options=list(tokenizers), description="tokenizer", style=LABELLED)
    control = W.Checkbox(False, description="read special tokens as control", indent=False,
                         layout=W.Layout(width="auto", margin="2px 0 2px 24px"))
    picture, message = Picture(), Message()

    def tokens() -> list[views.TokenView]:
        allowed = "all" if control.value else ()
        return views.token_table(tokenizers[choice.value], box.value[:MAX_CHARACTERS], allowed_special=allowed)

    def update(change: Any = None) -> None:
        with message:
            too_long = len(box.value) > MAX_CHARACTERS
            notice = f"The first {MAX_CHARACTERS:,} of {len(box.value):,} characters are encoded." * too_long
            picture.value = views.tokens_html(tokens(), notice=notice)

    first = views.token_table(tokenizers[choice.value], text[:MAX_CHARACTERS])
    update()
    for knob in (box, choice, control):
        knob.observe(update, "value")
    live = Live([box, W.HBox([choice, control]), message, picture], figure=lambda: tokens_figure(first),
                alt=f"The text {text[:200]!r} in tokens of {choice.value}: {views.token_summary(first)}.")
    return live.add_class("course-tokenizer")


def tokens_figure(tokens: Sequence[views.TokenView], limit: int = 60) -> Figure:
    """The still picture of `tokenizer_widget`: the first tokens in boxes, their ids beneath."""
    shown = tokens[:limit]
    more = len(tokens) - len(shown)
    return plots.boxes([views.visible(token.bytes) for token in shown] + [f"{more:,} more"] * (more > 0),
                       [str(token.id) for token in shown] + [""] * (more > 0))


def sampling_widget(lm: LanguageModel, prompt: Prompt, *, params: SamplingParams | None = None,
                    max_tokens: int = 24, filter: views.Filter = filter_logits) -> SamplingPanel:
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

    def __init__(self, lm: LanguageModel, prompt: Prompt, params: SamplingParams, filter: views.Filter) -> None:
        text = text_of(prompt)
        self.lm, self.start, self.base, self.filter = lm, prompt, params, filter
        self.prompt = W.Text(text, description="prompt", continuous_update=False, style=LABELLED,
                             layout=W.Layout(width="auto"))
        self.knobs = sampling_knobs(params)
        self.picture, self.text, self.message = Picture(), Picture(), Message()
        self.read_prompt()
        view, chosen = self.view(), self.params
        self.update()
        self.prompt.observe(self.on_prompt, "value")
        for knob in self.knobs.values():
            knob.observe(self.on_knob, "value")
        grid = W.GridBox(list(self.knobs.values()),
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([self.prompt, grid, self.message, self.picture, self.text],
                         figure=lambda: distribution_figure(view, lm.tokenizer),
                         alt=f"Next token after {text!r} with {chosen!r}: {views.distribution_summary(view, chosen)}")
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

    def view(self) -> views.DistributionView:
        """The next token's distribution as the knobs stand."""
        return views.distribution_view(self.logits, self.params, filter=self.filter, prompt_ids=self.prompt_ids)

    def update(self) -> None:
        """Draw the distribution, then write; the picture does not wait for the text."""
        self.picture.value = views.distribution_html(self.view(), self.params, self.lm.tokenizer)
        self.text.value = completion_html(continuation(self.lm, self.prompt_ids, self.params, self.filter))

    def on_prompt(self, change: Any) -> None:
        """Another prompt."""
        with self.message:
            self.read_prompt()
            self.update()

    def on_knob(self, change: Any) -> None:
        """Another setting."""
        with self.message:
            self.update()


def text_of(prompt: Prompt) -> str:
    """What a prompt field shows: the raw text, or the content of the last chat message.

    Raises:
        ValueError: the prompt is a list of ids.
    """
    require(isinstance(prompt, str) or all(isinstance(m, Mapping) for m in prompt), "prompt", prompt,
            "a string or chat messages")
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def with_text(prompt: Prompt, text: str) -> Prompt:
    """The prompt with another text in the place of `text_of` it.

    >>> with_text([{"role": "user", "content": "Hi"}], "Bye")
    [{'role': 'user', 'content': 'Bye'}]
    """
    return text if isinstance(prompt, str) else [*prompt[:-1], {**prompt[-1], "content": text}]


def sampling_knobs(params: SamplingParams) -> dict[str, W.Widget]:
    """A slider or field for each setting, by its name; ranges stretch to hold what `params` says."""
    return {"temperature": slider(W.FloatSlider, params.temperature, 0.0, 2.0, 0.05, "temperature"),
            "top_p": slider(W.FloatSlider, params.top_p, 0.05, 1.0, 0.01, "top-p"),
            "top_k": slider(W.IntSlider, params.top_k, 0, 100, 1, "top-k (0: off)"),
            "seed": seed_field(params.seed)}


def slider(kind: type, value: float, low: float, high: float, step: float, label: str, *,
           live: bool = False) -> W.Widget:
    """A labelled slider whose range stretches to hold the value; `live`: it reports while it is dragged."""
    return kind(value, min=min(low, value), max=max(high, value), step=step, description=label,
                continuous_update=live, style=LABELLED, layout=W.Layout(width="auto"))


def seed_field(seed: int | None) -> W.Widget:
    """A labelled field for a seed."""
    return W.BoundedIntText(seed or 0, min=0, max=2**31 - 1, description="seed", style=LABELLED,
                            layout=W.Layout(width="200px"))


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
    """A model whose logits have been filtered, so that whoever draws from their softmax draws filtered.

    It remembers the ids it is given: the first call brings the prompt, of which the last `written` ids
    count as output, and later calls bring the output.
    """

    def __init__(self, model: Any, params: SamplingParams, filter: views.Filter, written: int = 0) -> None:
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
        return views.apply_filter(self.filter, logits, self.params, self.prompt_ids, self.output_ids)[:, None]


def continuation(lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams,
                 filter: views.Filter = filter_logits, written: int = 0) -> CompletionOutput:
    """`generate`, with another filter; with `filter_logits` the tokens are the same.

    Args:
        written: how many ids at the end of the prompt are output, for the penalties.
    """
    filtered = SimpleNamespace(model=FilteredModel(lm.model, params, filter, written), tokenizer=lm.tokenizer,
                               config=lm.config, eos_token_ids=lm.eos_token_ids)
    plain = SamplingParams(max_tokens=params.max_tokens, stop=params.stop, stop_token_ids=params.stop_token_ids,
                           ignore_eos=params.ignore_eos, seed=params.seed)
    return generate(filtered, prompt_ids, plain)


def completion_html(output: CompletionOutput) -> str:
    """The text, and how it ended."""
    ends = {"stop": "and stops", "length": "and is cut off"}
    return (f'<div class="course course-text" data-tokens="{len(output.token_ids)}">'
            f'<p class="faint">The model writes {views.count(len(output.token_ids), "token")} '
            f'{ends[output.finish_reason]}:</p><p class="completion" style="white-space:pre-wrap;'
            f'border-left:3px solid var(--kept);padding-left:10px">{escape(output.text)}</p></div>')


def distribution_figure(view: views.DistributionView, tokenizer: Any, top: int = 10) -> Figure:
    """The still picture of `sampling_widget`: the likeliest tokens and all others together."""
    ids = view.ids[:top].tolist()
    labels = [views.visible(tokenizer.decode_single_token_bytes(id)) for id in ids]
    before, after, kept = view.before[:top].tolist(), view.after[:top].tolist(), view.kept[:top].tolist()
    if (rest := len(view.ids) - len(ids)) > 0:
        tail_before, tail_after = view.tail(top)
        labels, before, after = labels + [f"other {rest:,}"], before + [tail_before], after + [tail_after]
        kept.append(bool(view.kept[top:].any()))
    notes = [f"{views.percent(p)} → {views.percent(q) if stays else 'removed'}"
             for p, q, stays in zip(before, after, kept)]
    return plots.bars(labels, after, reference=before, notes=notes, ylabel="next token",
                      xlabel="probability (outline: the model; filled: after the filters)")
