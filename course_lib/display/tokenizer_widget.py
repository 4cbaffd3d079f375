"""Type a text and see its tokens, as one tokenizer or another makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as W

from course_lib.config import require
from course_lib.display.tokenizer_view import TokenView, token_summary, token_table, tokens_figure, tokens_html
from course_lib.display.widgets import LABELLED, Live, Message, Picture

MAX_CHARACTERS = 5_000


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

    def tokens() -> list[TokenView]:
        allowed = "all" if control.value else ()
        return token_table(tokenizers[choice.value], box.value[:MAX_CHARACTERS], allowed_special=allowed)

    def update(change: Any = None) -> None:
        with message:
            too_long = len(box.value) > MAX_CHARACTERS
            notice = f"The first {MAX_CHARACTERS:,} of {len(box.value):,} characters are encoded." * too_long
            picture.value = tokens_html(tokens(), notice=notice)

    first = token_table(tokenizers[choice.value], text[:MAX_CHARACTERS])
    update()
    for knob in (box, choice, control):
        knob.observe(update, "value")
    live = Live([box, W.HBox([choice, control]), message, picture],
                figure=lambda: tokens_figure(first), turn="to your own text and vocabulary",
                alt=f"The text {text[:200]!r} in tokens of {choice.value}: {token_summary(first)}.")
    return live.add_class("course-tokenizer")
