"""The attention widget: a layer, a head, a text and a token; what that token takes from every other, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as W
import torch
from torch import Tensor

from course_lib.analysis.heads import projections
from course_lib.config import require
from course_lib.display.attention_view import (
    AttentionView,
    Weigh,
    attention_html,
    attention_view,
    cell_summary,
    row_figure,
    row_summary,
    token_label,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture
from course_lib.generate import LanguageModel, check_prompt, encode_prompt
from course_lib.layers import attention_weights, repeat_kv


def attention_widget(lm: LanguageModel, prompt: str, *, layer: int = 0, head: int = 0, query: int = -1,
                     weigh: Weigh = attention_weights,
                     repeat: Callable[[Tensor, int], Tensor] = repeat_kv) -> AttentionPanel:
    """Choose layer, head and token with sliders (arrow keys) or click a token; see its row of weights.

    Args:
        lm: as `load()` returns it.
        prompt: the text at first; it can be edited.
        layer, head: at first.
        query: position of the token that looks; negative positions count from the end.
        weigh: called as `attention_weights` is.
        repeat: called as `repeat_kv` is.

    Raises:
        ValueError: the prompt is empty or too long for the context, or there is no such layer, head or token.
    """
    return AttentionPanel(lm, prompt, (layer, head, query), weigh, repeat)


class AttentionPanel(Live):
    """What `attention_widget` returns. The model runs once over a text; a knob only picks another row."""

    def __init__(self, lm: LanguageModel, prompt: str, start: tuple[int, int, int], weigh: Weigh,
                 repeat: Callable[[Tensor, int], Tensor]) -> None:
        self.lm, self.weigh, self.repeat = lm, weigh, repeat
        L, H = lm.config.num_hidden_layers, lm.config.num_attention_heads
        layer, head, query = start
        require(0 <= layer < L, "layer", layer, f"in [0, {L - 1}]")
        require(0 <= head < H, "head", head, f"in [0, {H - 1}]")
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.prompt = W.Textarea(prompt, description="text", rows=2, continuous_update=False, **wide)
        self.layer = W.IntSlider(layer, min=0, max=L - 1, description="layer", continuous_update=False, **wide)
        self.head = W.IntSlider(head, min=0, max=H - 1, description="head", continuous_update=False, **wide)
        self.query = W.SelectionSlider(options=["-"], description="query", continuous_update=False, **wide)
        self.key = W.SelectionSlider(options=["-"], description="key", continuous_update=False, **wide)
        self.tokens = W.ToggleButtons(options=["-"], description="or click it",
                                      style={"button_width": "auto"} | LABELLED)
        self.picture, self.message, self.quiet = Picture(), Message(), False
        self.read(query)
        first = self.update(follow=True)
        self.prompt.observe(self.on_prompt, "value")
        for knob in (self.layer, self.head, self.query):
            knob.observe(self.on_row, "index" if knob is self.query else "value")
        self.tokens.observe(self.on_click, "index")
        self.key.observe(self.on_key, "index")
        grid = W.GridBox([self.layer, self.head, self.query, self.key],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([self.prompt, grid, self.tokens, self.message, self.picture],
                         figure=lambda: row_figure(first), turn=f"layer {layer}, head {head} and the query; "
                         "it then also shows the products that add up to a score, as bars",
                         alt=f"{row_summary(first, layer, head)} {cell_summary(first)}")
        self.add_class("course-attention")

    def read(self, query: int = -1) -> None:
        """Encode the text, run the model over it, and offer its tokens; the query is its last one.

        Raises:
            ValueError: the text is empty or does not fit the context, or the query is not in it.
        """
        ids = encode_prompt(self.lm.tokenizer, self.prompt.value)
        check_prompt(self.lm.config, ids)
        require(-len(ids) <= query < len(ids), "query", query, f"in [{-len(ids)}, {len(ids) - 1}]")
        device = next(self.lm.model.parameters()).device
        q, k, _ = projections(self.lm.model, torch.tensor([ids], device=device))
        self.q, self.k = q[:, 0], k[:, 0]  # (L, H or Hkv, T, Dh)
        self.pieces = [self.lm.tokenizer.decode_single_token_bytes(i) for i in ids]
        self.quiet = True
        names = [(token_label(self.pieces, i), i) for i in range(len(ids))]  # no two alike, as buttons need it
        self.query.options = self.key.options = self.tokens.options = names
        self.query.index = self.tokens.index = query % len(ids)
        self.quiet = False

    def view(self, key: int | None) -> AttentionView:
        """The row as the knobs stand."""
        layer, head = self.layer.value, self.head.value
        k = self.repeat(self.k[layer][None], self.q.shape[1] // self.k.shape[1])[0]  # (H, T, Dh)
        return attention_view(self.q[layer, head], k[head], self.pieces, self.query.index, key,
                              window=self.lm.config.sliding_window, weigh=self.weigh)

    def update(self, *, follow: bool) -> AttentionView:
        """Draw the row; with `follow` its cell is the one of the largest weight."""
        view = self.view(None if follow else self.key.index)
        self.quiet = True
        self.key.index, self.tokens.index = view.key, view.query
        self.quiet = False
        self.picture.value = attention_html(view, self.layer.value, self.head.value)
        return view

    def on_prompt(self, change: Any) -> None:
        """Another text."""
        with self.message:
            self.read()
            self.update(follow=True)

    def on_row(self, change: Any) -> None:
        """Another layer, head or query."""
        if not self.quiet:
            with self.message:
                self.update(follow=True)

    def on_click(self, change: Any) -> None:
        """A token was clicked."""
        if not self.quiet and change.new is not None:
            self.query.index = change.new

    def on_key(self, change: Any) -> None:
        """Another cell of the same row."""
        if not self.quiet:
            with self.message:
                self.update(follow=False)
