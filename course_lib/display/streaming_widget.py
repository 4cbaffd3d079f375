"""A stream to step through: a text, stop strings, and token after token what is shown and what is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as W

from course_lib.config import require
from course_lib.display.streaming_still import streaming_drawing
from course_lib.display.streaming_view import (
    ROWS,
    IncrementalDecoder,
    StopMatcher,
    StreamingView,
    streaming_html,
    streaming_summary,
    streaming_view,
)
from course_lib.display.widgets import LABELLED, Live, Message, Picture, slider

TEXT = "I ♥ مرحبا 🙂 水. Use salt.\nUser: Thanks!"
MAX_CHARACTERS = 1_000


def streaming_widget(tokenizer: Any, incremental_decoder: IncrementalDecoder, stop_matcher: StopMatcher, *,
                     text: str = TEXT, stop: Sequence[str] = ("User:",)) -> StreamingPanel:
    """Watch a text arrive token by token.

    Args:
        tokenizer: cuts the text, and gives each id its bytes.
        incremental_decoder: from (held, new) bytes the text that is complete, and the bytes that wait.
        stop_matcher: from (held, new, stops) what may be shown, what waits, and the stop string that was found.
        text, stop: at first.

    Raises:
        ValueError: the text is too long, or one of the two functions returns something of another form.
    """
    require(len(text) <= MAX_CHARACTERS, "len(text)", len(text), f"<= {MAX_CHARACTERS:,}")
    return StreamingPanel(tokenizer, incremental_decoder, stop_matcher, text, stop)


def stop_strings(field: str) -> list[str]:
    r"""The strings in a field, one a line; `\n` in it is a line break.

    >>> stop_strings("User:\n\n\\n\\n")
    ['User:', '\n\n']
    """
    return [line.replace("\\n", "\n") for line in field.split("\n") if line]


class StreamingPanel(Live):
    """What `streaming_widget` returns."""

    def __init__(self, tokenizer: Any, incremental_decoder: IncrementalDecoder, stop_matcher: StopMatcher, text: str,
                 stop: Sequence[str]) -> None:
        self.tokenizer, self.functions = tokenizer, (incremental_decoder, stop_matcher)
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.text = W.Textarea(text, description="text", rows=2, **wide)
        self.stop = W.Textarea("\n".join(one.replace("\n", "\\n") for one in stop), description="stop strings", rows=2,
                               placeholder=r"one on each line; \n for a line break", **wide)
        self.bytewise = W.Checkbox(False, description="every byte a token", indent=False,
                                   layout=W.Layout(width="auto", margin="2px 0 2px 24px"))
        self.shown = slider(W.IntSlider, 1, 1, 1, 1, "up to token", live=True)
        self.picture, self.message = Picture(), Message()
        self.notice = ""
        first = self.run()
        n = len(first.ticks)
        for knob in (self.text, self.stop, self.bytewise):
            knob.observe(self.on_text, "value")
        self.shown.observe(self.on_shown, "value")
        super().__init__([self.text, self.stop, self.bytewise, self.shown, self.message, self.picture],
                         figure=lambda: streaming_drawing(first), alt=streaming_summary(first, n),
                         shown=f"The last {ROWS} of {n} steps." if n > ROWS else f"All {n} steps.",
                         turn="text and stop strings, and step through the tokens")
        self.add_class("course-streaming")

    def pieces(self) -> list[bytes]:
        """The bytes of the text's tokens."""
        ids = self.tokenizer.encode_ordinary(self.text.value[:MAX_CHARACTERS])
        tokens = [self.tokenizer.decode_single_token_bytes(id) for id in ids]
        return [bytes([byte]) for token in tokens for byte in token] if self.bytewise.value else tokens

    def run(self) -> StreamingView:
        """Stream the text from its first token to its end, and show all of it.

        Raises:
            ValueError: one of the two functions returns something of another form.
        """
        self.view = streaming_view(self.pieces(), stop_strings(self.stop.value), *self.functions)
        n = len(self.text.value)
        self.notice = f"The first {MAX_CHARACTERS:,} of {n:,} characters are streamed." * (n > MAX_CHARACTERS)
        self.shown.max = len(self.view.ticks)
        self.shown.value = self.shown.max
        self.draw()
        return self.view

    def draw(self) -> None:
        """The stream up to the token that is chosen."""
        self.picture.value = streaming_html(self.view, self.shown.value, notice=self.notice)

    def on_text(self, change: Any) -> None:
        """Another text, other stop strings, or other tokens."""
        with self.message:
            self.run()

    def on_shown(self, change: Any) -> None:
        """Another place in the same stream."""
        with self.message:
            self.draw()
