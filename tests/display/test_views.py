"""What all views share: nothing in a text stays unseen, and no text becomes markup."""

import html
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from tiny_lm import TOKENIZER

from course_lib.config import SamplingParams
from course_lib.display.sampling_view import completion_html, distribution_svg, distribution_view
from course_lib.display.tokenizer_view import token_table, tokens_html
from course_lib.display.views import visible
from course_lib.display.widgets import Message


def test_visible_leaves_nothing_unseen():
    assert visible(" a\t\r\n") == "␣a⇥⟨U+000D⟩↵"
    assert visible("\u00a0\u200d\u202e\ue000") == "⟨U+00A0⟩⟨U+200D⟩⟨U+202E⟩⟨U+E000⟩"
    assert visible("\u0301") == "◌\u0301"
    assert visible(b" " + "日".encode()[:2]) == "␣⟨E6⟩⟨97⟩"
    assert visible("é日👩".encode()) == "é日👩"


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"' onload='x'",
                                  "&lt;b&gt;"])
def test_markup_in_text_is_escaped_everywhere(text):
    assert "<script" not in tokens_html(token_table(TOKENIZER, text)) and "<img" not in tokens_html([], notice=text)
    output = SimpleNamespace(text=text, token_ids=(1, 2), finish_reason="stop")
    assert html.escape(text) in completion_html(output)
    message = Message()
    with message:
        raise ValueError(text)
    assert html.escape(text) in message.value
    shouting = SimpleNamespace(decode_single_token_bytes=lambda id: text.encode())
    ElementTree.fromstring(distribution_svg(distribution_view(torch.arange(5.0), SamplingParams()), shouting))
