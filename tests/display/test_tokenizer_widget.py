"""The tokenizer widget follows its knobs, cuts a long text, and is saved as a picture."""

import pytest
from saved_form import picture_of, still_of
from test_tokenizer_view import items
from tiny_lm import TOKENIZER, N

from course_lib.display.tokenizer_view import token_table, tokens_html
from course_lib.display.tokenizer_widget import MAX_CHARACTERS, tokenizer_widget
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe


def test_the_widget_follows_text_choice_and_box():
    only_bytes = Tokenizer("b", POCKET_PATTERN, train_bpe([], 256), {})
    live = tokenizer_widget({"ours": TOKENIZER, "bytes": only_bytes}, "The cat")
    box, row, message, picture = live.children
    choice, control = row.children
    assert items(picture.value) == items(tokens_html(token_table(TOKENIZER, "The cat")))
    box.value = "The mat<|im_end|>"
    assert items(picture.value) == items(tokens_html(token_table(TOKENIZER, box.value)))
    control.value = True
    assert items(picture.value)[-1][:2] == ("special", N + 2)
    choice.value = "bytes"
    assert 'data-tokens="17"' in picture.value
    assert box.continuous_update and message.value == ""
    assert all(knob.description for knob in (box, choice, control))


def test_a_long_text_is_cut_and_the_widget_says_so():
    live = tokenizer_widget({"tiny": TOKENIZER}, "a")
    most, picture = MAX_CHARACTERS, live.children[-1]
    live.children[0].value = "b " * most
    assert f"The first {most:,} of {2 * most:,} characters" in picture.value
    assert f'data-bytes="{most}"' in picture.value


def test_saved_form_is_a_picture_of_the_first_text():
    live = tokenizer_widget({"tiny": TOKENIZER}, "The cat\n日")
    first = picture_of(live)
    assert "'The cat\\n日'" in still_of(live)
    live.children[0].value = "The mat"
    assert picture_of(live) == first


def test_hooks_for_styles_and_browser_tests():
    assert "course-tokenizer" in tokenizer_widget({"tiny": TOKENIZER}, "")._dom_classes
    with pytest.raises(ValueError, match="tokenizers"):
        tokenizer_widget({}, "a")
