"""The word map with knobs: which kinds of words are drawn, and whose neighbours are listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as W
from torch import Tensor

from course_lib.analysis.geometry import nearest
from course_lib.config import require
from course_lib.display import map_view
from course_lib.display.views import visible
from course_lib.display.widgets import LABELLED, Live, Message, Picture

Nearest = Callable[[Tensor, int, int], list[tuple[int, float]]]


def map_widget(lm: Any, groups: map_view.Groups, word: str, *, chosen: Sequence[str] | None = None,
               nearest: Nearest = nearest, k: int = 8) -> MapPanel:
    """A map of words by their embeddings, a box to tick for each group, and a field for one word.

    Args:
        lm: as `load()` returns it.
        groups: words with their ids by kind, at most eight kinds.
        word: whose neighbours are listed at first; one token when it follows a space.
        chosen: the kinds that are drawn at first; None: all.
        nearest: finds the neighbours, called as `course_lib.analysis.geometry.nearest` is.
        k: neighbours to list.

    Raises:
        ValueError: the word is not one token, or a chosen kind is none of the groups.
    """
    return MapPanel(lm, groups, word, list(groups) if chosen is None else chosen, nearest, k)


class MapPanel(Live):
    """What `map_widget` returns. Each change draws the map anew; the axes depend on the words it holds."""

    def __init__(self, lm: Any, groups: map_view.Groups, word: str, chosen: Sequence[str], nearest: Nearest,
                 k: int) -> None:
        require(set(chosen) <= set(groups), "chosen", list(chosen), f"among {', '.join(groups)}")
        self.tokenizer, self.groups, self.nearest, self.k = lm.tokenizer, groups, nearest, k
        self.weight = lm.model.embed_tokens.weight.detach().float().cpu()
        self.boxes = {kind: W.Checkbox(kind in chosen, description=kind, indent=False,
                                       layout=W.Layout(width="auto", margin="0 18px 0 0")) for kind in groups}
        self.word = W.Text(word, description="word", continuous_update=False, style=LABELLED,
                           layout=W.Layout(width="320px"))
        self.picture, self.message = Picture(), Message()
        self.update()
        first, neighbours = self.map(), self.neighbours()
        for knob in (*self.boxes.values(), self.word):
            knob.observe(self.on_change, "value")
        ringed = {text.removeprefix("␣"): first.place(row) for text, row in
                  [(word, self.weight[self.word_id()]), *((n.text, n.row) for n in neighbours)]}
        near = ", ".join(f"{n.text} {n.cosine:.2f}" for n in neighbours)
        super().__init__([W.HBox(list(self.boxes.values()), layout=W.Layout(flex_flow="row wrap")), self.word,
                          self.message, self.picture],
                          figure=lambda: map_view.map_figure(first, ringed), turn="the kinds or the word",
                         alt=f"Map of words of the kinds {', '.join(chosen)}; nearest to {word!r}: {near}.")
        self.add_class("course-mapper")

    def map(self) -> map_view.WordMap:
        """Of the kinds that are ticked."""
        return map_view.word_map(self.weight, self.groups, [kind for kind, box in self.boxes.items() if box.value])

    def word_id(self) -> int:
        """Of the word in the field.

        Raises:
            ValueError: it is not one token.
        """
        ids = self.tokenizer.encode_ordinary(f" {self.word.value.strip()}")
        pieces = " ".join(visible(self.tokenizer.decode_single_token_bytes(id)) for id in ids)
        require(len(ids) == 1, "word", self.word.value, f"one token; this is {len(ids)}: {pieces}")
        return ids[0]

    def neighbours(self) -> list[map_view.Neighbour]:
        """Of the word in the field."""
        found = self.nearest(self.weight, self.word_id(), self.k)
        return map_view.neighbours_of(self.weight, self.tokenizer, self.groups, found)

    def update(self) -> None:
        """Draw the map and list the neighbours."""
        self.picture.value = map_view.map_html(self.map(), self.word.value.strip(), self.weight[self.word_id()],
                                               self.neighbours())

    def on_change(self, change: Any) -> None:
        """Another word, or other kinds."""
        with self.message:
            self.update()
