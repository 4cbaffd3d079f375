"""The widget *tile by tile*: a row of the model's attention, stepped through one tile of keys at a time."""

from __future__ import annotations

from typing import Any

import ipywidgets as W
import torch
from torch import Tensor

from course_lib.analysis.heads import projections
from course_lib.config import require
from course_lib.display.tiles_view import Merge, TilesView, tiles_drawing, tiles_html, tiles_summary, tiles_view
from course_lib.display.widgets import LABELLED, Live, Message, Picture
from course_lib.generate import LanguageModel


def tiles_widget(lm: LanguageModel, ids: Tensor, merge: Merge, *, layer: int = 0, head: int = 0, block: int = 8,
                 step: int = 1) -> TilesPanel:
    """Step through the row of a text's last token; choose layer, head and how many keys a tile has.

    Args:
        lm: as `load()` returns it.
        ids: (T,), the text.
        merge: joins two partial results; the panel runs on it.
        layer, head, block, step: at first.

    Raises:
        ValueError: there is no such layer, head or tile.
    """
    L, H = lm.config.num_hidden_layers, lm.config.num_attention_heads
    require(0 <= layer < L, "layer", layer, f"in [0, {L - 1}]")
    require(0 <= head < H, "head", head, f"in [0, {H - 1}]")
    require(1 <= block <= len(ids), "block", block, f"in [1, {len(ids)}]")
    q, k, v = projections(lm.model, ids[None].to(next(lm.model.parameters()).device))
    return TilesPanel((q[:, 0, :, -1].cpu(), k[:, 0].cpu(), v[:, 0].cpu()), merge, layer, head, block, step)


class TilesPanel(Live):
    """What `tiles_widget` returns. The model ran once; a knob only picks another row, or another tile of it."""

    def __init__(self, projected: tuple[Tensor, Tensor, Tensor], merge: Merge, layer: int, head: int, block: int,
                 step: int) -> None:
        self.q, self.k, self.v = projected  # (L, H, Dh), (L, Hkv, S, Dh) twice
        self.merge, self.quiet = merge, False
        L, H, _ = self.q.shape
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.layer = W.IntSlider(layer, min=0, max=L - 1, description="layer", **wide)
        self.head = W.IntSlider(head, min=0, max=H - 1, description="head", **wide)
        self.block = W.IntSlider(block, min=1, max=self.k.shape[2], description="keys in a tile", **wide)
        self.step = W.IntSlider(1, min=1, max=self.steps, description="tile", **wide)
        self.step.value = step
        self.next = W.Button(description="next tile", tooltip="After the last, the first again")
        self.picture, self.message = Picture(), Message()
        first = self.update()
        for knob in (self.layer, self.head, self.step):
            knob.observe(self.on_change, "value")
        self.block.observe(self.on_block, "value")
        self.next.on_click(self.on_next)
        grid = W.GridBox([self.layer, self.head, self.block, self.step],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([grid, self.next, self.message, self.picture], figure=lambda: tiles_drawing(first),
                         turn="layer, head, keys in a tile and the tile", alt=tiles_summary(first),
                         shown=tiles_summary(first))
        self.add_class("course-tile-steps")

    @property
    def steps(self) -> int:
        """Tiles of the row."""
        return -(-self.k.shape[2] // self.block.value)

    def update(self) -> TilesView:
        """Draw the row after this tile."""
        layer, head = self.layer.value, self.head.value
        shared = head // (self.q.shape[1] // self.k.shape[1])
        with torch.inference_mode():
            view = tiles_view(self.q[layer, head], self.k[layer, shared], self.v[layer, shared],
                              block=self.block.value, step=self.step.value, merge=self.merge)
        self.picture.value = tiles_html(view)
        return view

    def on_change(self, change: Any) -> None:
        """Another row, or another tile of it."""
        if not self.quiet:
            with self.message:
                self.update()

    def on_block(self, change: Any) -> None:
        """Tiles of another size: from the first again."""
        self.quiet = True
        self.step.value, self.step.max = 1, self.steps
        self.quiet = False
        with self.message:
            self.update()

    def on_next(self, button: Any) -> None:
        """The next tile; after the last one, the first."""
        self.step.value = self.step.value % self.steps + 1
