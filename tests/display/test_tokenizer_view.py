"""The tokens of a text and their boxes, against tiktoken; whatever is typed stays text."""

import html
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_lm import TOKENIZER, N

from course_lib.display.tokenizer_view import TokenView, token_summary, token_table, tokens_html
from course_lib.display.views import visible


def items(markup):
    """(kind, id, piece, bytes) of each box."""
    box = r'<li(?: class="(\w+)")? data-id="(\d+)"><bdi>(.*?)</bdi>.*?<span class="bytes">(.*?)</span></li>'
    found = re.findall(box, markup)
    plain = [[html.unescape(re.sub("<[^>]*>", "", part)) for part in row] for row in found]
    return [(kind, int(id), piece, hexes) for kind, id, piece, hexes in plain]


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.encoding], ids=["ours", "tiktoken"])
@pytest.mark.parametrize("text", ["", "What is gravity?", "日本\n\tx  ", "e\u0301👩‍🚀", "a\ud800b", "<|im_end|>"])
def test_token_table_agrees_with_tiktoken(tokenizer, text):
    tokens = token_table(tokenizer, text)
    assert [token.id for token in tokens] == TOKENIZER.encoding.encode_ordinary(text)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert b"".join(token.bytes for token in tokens) == whole.encode()
    assert not any(token.special for token in tokens), "the text of a special token is data"
    for token in tokens:
        assert token.text is None or token.text.encode() == token.bytes
        assert (token.text is None) == ("\ufffd" in token.bytes.decode(errors="replace")
                                        and b"\xef\xbf\xbd" not in token.bytes)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.encoding], ids=["ours", "tiktoken"])
def test_special_tokens_only_when_allowed(tokenizer):
    text = "a<|im_end|>b<|endoftext|>"
    everything = token_table(tokenizer, text, allowed_special="all")
    assert [(token.id, token.special, token.text) for token in everything] == [
        (97, False, "a"), (N + 2, True, "<|im_end|>"), (98, False, "b"), (N, True, "<|endoftext|>")]
    some = token_table(tokenizer, text, allowed_special=["<|endoftext|>"])
    assert [token.id for token in some if token.special] == [N]
    assert ("special", N + 2, "<|im_end|>", "special token") in items(tokens_html(everything))


def test_boxes_hold_piece_id_and_bytes():
    tokens = token_table(TOKENIZER, "What is\n日")
    expected = [("" if t.text is not None else "part", t.id, visible(t.bytes), t.bytes.hex(" ").upper())
                for t in tokens]
    markup = tokens_html(tokens)
    assert items(markup) == expected and len(expected) > 4
    assert f'data-tokens="{len(tokens)}" data-bytes="11"' in markup
    long = tokens_html([TokenView(0, "abcdefghi", b"abcdefghi", special=False)])
    assert "<span>61 62 63 64</span> <span>65 66 67 68</span> <span>69</span>" in long


def test_summary_counts():
    assert token_summary([]) == "0 tokens, 0 bytes"
    tokens = token_table(TOKENIZER, "日a")
    assert token_summary(tokens) == "4 tokens, 4 bytes, 1.00 bytes per token"
    assert token_summary(tokens[-1:]) == "1 token, 1 byte, 1.00 bytes per token"


@given(st.text(alphabet=st.sampled_from("<>&\"'/=a scriptonerror\x00\n日"), max_size=30))
def test_whatever_is_typed_stays_text(text):
    markup = tokens_html(token_table(TOKENIZER, text))
    root = ElementTree.fromstring(markup)
    assert {element.tag for element in root.iter()} <= {"div", "style", "p", "b", "ol", "li", "bdi", "i", "span"}
    names = {name for element in root.iter() for name in element.attrib}
    assert names <= {"class", "role", "tabindex", "aria-label", "data-id", "data-tokens", "data-bytes"}


def test_long_texts_are_cut_and_say_so():
    tokens = token_table(TOKENIZER, "日" * 200)
    markup = tokens_html(tokens, limit=30)
    assert len(items(markup)) == 30 and "The first 30 of 600 tokens are drawn." in markup
    assert 'data-tokens="600"' in markup and "600 tokens" in markup
