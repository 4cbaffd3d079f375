"""Type a text and see the surprisal of each token, and what the model expected there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as W
from torch import Tensor

from course_lib.analysis.surprisal import TokenScore, score_text
from course_lib.display import surprisal_view
from course_lib.display.widgets import LABELLED, Live, Message, Picture
from course_lib.generate import LanguageModel

MAX_CHARACTERS = 1_000


def surprisal_widget(lm: LanguageModel, text: str, *, softmax: Callable[[Tensor], Tensor] | None = None,
                     place: int | None = None) -> SurprisalPanel:
    """A text box, the text with the bits of each token, and a slider that picks the token to look into.

    Args:
        lm: as `load()` returns it.
        text: to begin with.
        softmax: makes the probabilities, of logits (1, V); None: PyTorch's.
        place: of the token that is looked into at first; None: the most surprising one.

    Raises:
        ValueError: the text is empty or does not fit into the context.
    """
    return SurprisalPanel(lm, text, softmax, place)


class SurprisalPanel(Live):
    """What `surprisal_widget` returns. The model runs once for each text, and not when the slider moves."""

    def __init__(self, lm: LanguageModel, text: str, softmax: Callable[[Tensor], Tensor] | None,
                 place: int | None) -> None:
        self.lm, self.softmax = lm, softmax
        self.box = W.Textarea(text, description="text", rows=3, continuous_update=False, style=LABELLED,
                              layout=W.Layout(width="auto"))
        self.scores = self.read()
        start = most_surprising(self.scores) if place is None else place
        self.place = W.IntSlider(start, min=0, max=len(self.scores) - 1, description="token", style=LABELLED,
                                 continuous_update=True, layout=W.Layout(width="auto"))
        self.picture, self.message = Picture(), Message()
        first = self.scores
        self.update()
        self.box.observe(self.on_text, "value")
        self.place.observe(self.on_place, "value")
        super().__init__([self.box, self.message, self.place, self.picture],
                         figure=lambda: surprisal_view.scores_figure(first), turn="the text, or move the slider",
                         alt=f"The text {text[:200]!r}: {surprisal_view.summary(first)}")
        self.add_class("course-surpriser")

    def read(self) -> list[TokenScore]:
        """One run of the model over the text in the box.

        Raises:
            ValueError: there is no text, or it does not fit.
        """
        return score_text(self.lm, self.box.value[:MAX_CHARACTERS], softmax=self.softmax)

    def update(self) -> None:
        """Draw what was read."""
        too_long = len(self.box.value) > MAX_CHARACTERS
        notice = f"The first {MAX_CHARACTERS:,} of {len(self.box.value):,} characters are read." * too_long
        self.picture.value = surprisal_view.surprisal_html(self.scores, self.place.value, notice=notice)

    def on_text(self, change: Any) -> None:
        """Another text: the most surprising token is looked into."""
        with self.message:
            self.scores = self.read()
            self.place.unobserve(self.on_place, "value")  # one drawing is enough
            self.place.max = len(self.scores) - 1
            self.place.value = most_surprising(self.scores)
            self.place.observe(self.on_place, "value")
            self.update()

    def on_place(self, change: Any) -> None:
        """Another token."""
        with self.message:
            self.update()


def most_surprising(scores: list[TokenScore]) -> int:
    """The place of the token with the most bits; 0 if none is predicted."""
    return max(range(len(scores)), key=lambda i: -1.0 if scores[i].bits is None else scores[i].bits)
