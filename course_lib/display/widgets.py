"""What several widgets share: core ipywidgets, keyboard first, that show the pictures of the views.

An `x_widget` turns knobs into the arguments of its `x_view`, which makes the pictures. Beside its live form it carries
a still picture and a description, which a saved notebook shows where no kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from types import TracebackType
from typing import Any

import ipywidgets as W
from matplotlib.figure import Figure

from course_lib.config import require
from course_lib.display.show import Drawn, bundle
from course_lib.generate import Prompt

STILL = "A still of the widget. Run the cell, and change {}."
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
        turn: what a reader of the still can turn in the live one, such as "temperature and seed".
        shown: sentences about what the still shows and the picture does not say, such as the settings.
    """

    def __init__(self, children: Sequence[W.Widget], *, figure: Callable[[], Figure | Drawn], alt: str,
                 turn: str, shown: str = "") -> None:
        super().__init__(children)
        self.figure, self.alt, self.caption = figure, alt, f"{shown} {STILL.format(turn)}".lstrip()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        still = bundle(self.figure(), self.caption, self.alt)
        return super()._repr_mimebundle_(**kwargs) | still, {}


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


def slider(kind: type, value: float, low: float, high: float, step: float, label: str, *,
           live: bool = False) -> W.Widget:
    """A labelled slider whose range stretches to hold the value; `live`: it reports while it is dragged."""
    return kind(value, min=min(low, value), max=max(high, value), step=step, description=label,
                continuous_update=live, style=LABELLED, layout=W.Layout(width="auto"))


def seed_field(seed: int | None) -> W.Widget:
    """A labelled field for a seed."""
    return W.BoundedIntText(seed or 0, min=0, max=2**31 - 1, description="seed", style=LABELLED,
                            layout=W.Layout(width="200px"))
