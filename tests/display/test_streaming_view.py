"""A stream to step through: what is shown and held after each token, in data, words and pictures, on any functions."""

import re
from xml.etree import ElementTree

import pytest
from diagrams.well_drawn import check, hatched, rects, words
from hypothesis import given
from hypothesis import strategies as st
from saved_form import picture_of, still_of
from tiny_lm import TOKENIZER

from course_lib import DecodeStream, load
from course_lib.classroom.answers import answer
from course_lib.display.streaming_still import short, streaming_drawing
from course_lib.display.streaming_view import ROWS, streaming_html, streaming_summary, streaming_view
from course_lib.display.streaming_widget import MAX_CHARACTERS, TEXT, stop_strings, streaming_widget

decode, match = answer("13.1"), answer("13.2")
SALT = [b"Hi", b" ", b"\xe2", b"\x99", b"\xa5", b" U", b"se", b" it", b"U", b"ser", b": x", b" y", b"z"]


def view_of(pieces=SALT, stops=("User:",)):
    return streaming_view(pieces, stops, decode, match)


@pytest.fixture(scope="module")
def tokenizer():
    return load("pocket", device="cpu").tokenizer


def test_each_token_is_shown_or_held():
    ticks = view_of().ticks
    assert [tick.shown for tick in ticks] == ["Hi", " ", "", "", "♥", " ", "", "Use it", "", "", ""]
    assert [tick.held for tick in ticks] == ["", "", "", "", "", "U", "Use", "", "U", "User", ""]
    assert [tick.held_bytes for tick in ticks][1:6] == [b"", b"\xe2", b"\xe2\x99", b"", b""]
    assert ticks[-1].stop == "User:" and ticks[-1].thrown == "User: x" and view_of().unread == 2
    assert view_of().naive(5) == "Hi ���" and view_of().text(11) == "Hi ♥ Use it"


def test_what_is_held_comes_out_at_the_end():
    view = view_of([b"a U", b"s", b"\xe2\x99"])
    assert [tick.piece for tick in view.ticks] == [b"a U", b"s", b"\xe2\x99", None] and view.unread == 0
    assert view.ticks[-1].shown == "Us\ufffd" and view.text(4) == "a Us\ufffd"
    assert view_of([]).ticks[0].piece is None and view_of([]).text(1) == ""
    assert view_of([b"\xff", b"\xf0"], ["��"]).ticks[-1].stop == "��", "a stop string may need the end"


@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=4), max_size=3), st.booleans())
def test_the_client_has_what_the_library_gives_it(text, stops, bytewise):
    ids = TOKENIZER.encode(text)
    stream = DecodeStream(TOKENIZER, stops)
    pieces = [TOKENIZER.decode_single_token_bytes(id) for id in ids]
    if bytewise:
        pieces = [bytes([byte]) for piece in pieces for byte in piece]
    view = view_of(pieces, stops)
    for id in ids:
        stream.push(id)
    stream.flush()
    assert view.text(len(view.ticks)) == stream.text and view.ticks[-1].stop == stream.stopped
    assert len(view.ticks) + view.unread == len(pieces) + (view.ticks[-1].piece is None)


@pytest.mark.parametrize("n, said", [
    (4, "4 tokens read. The client has “Hi␣”. Held: 2 bytes and no text. Each token on its own: U+FFFD 2 times."),
    (3, "3 tokens read. The client has “Hi␣”. Held: 1 byte and no text. Each token on its own: U+FFFD once."),
    (7, "7 tokens read. The client has “Hi␣♥␣”. Held: 0 bytes and “Use”. Each token on its own: U+FFFD 3 times."),
    (11, "11 tokens read. The client has “Hi␣♥␣Use␣it”. The stop string “User:” is complete: “User:␣x” is thrown "
         "away, and 2 tokens are never read. Each token on its own: U+FFFD 3 times.")])
def test_the_summary_says_it(n, said):
    assert streaming_summary(view_of(), n) == said
    assert said in streaming_html(view_of(), n)


def test_the_summary_of_the_end():
    view = view_of([b"a"])
    assert streaming_summary(view, 2) == ("1 token read. The client has “a”. No more tokens: nothing is held any more. "
                                          "Each token on its own: U+FFFD 0 times.")
    assert "The client has no text" in streaming_summary(view_of([]), 1)
    assert "1 token is never read" in streaming_summary(view_of([b"x", b"y"], ["x"]), 1)


# --- pictures -----------------------------------------------------------------------------------

def rows_of(markup):
    """Of each row of the table the text of its cells."""
    body = ElementTree.fromstring(re.search(r"<tbody>.*</tbody>", markup, re.S)[0])
    return [["".join(cell.itertext()) for cell in row] for row in body]


def test_the_table_ends_with_the_token_that_was_read_last():
    view = view_of([b"a"] * 30, ["b"])
    for n in (1, ROWS, 20, 31):
        markup = streaming_html(view, n)
        rows = rows_of(markup)
        assert len(rows) == min(n, ROWS) and f'data-tick="{n}" data-ticks="31"' in markup
        assert rows[-1][0].startswith("the end" if n == 31 else f"{n} a")
        assert markup.count('aria-current="step"') == 1 == markup[markup.rindex("<tr"):].count('aria-current="step"')
    for n in (0, 32):
        with pytest.raises(ValueError, match="n = "):
            streaming_html(view, n)


def test_rows_say_in_words_and_marks_what_happens():
    rows = rows_of(streaming_html(view_of(), 11))
    assert rows[2] == ["3 ⟨E2⟩E2", "�", "nothing", "E2", "nothing", "nothing"]
    assert rows[4] == ["5 ⟨A5⟩A5", "�", "♥", "nothing", "♥", "nothing"]
    assert rows[6] == ["7 se73 65", "se", "se", "nothing", "nothing", "Use"]
    assert rows[10][-2:] == ["nothing", "User:␣x"]
    markup = streaming_html(view_of(), 11)
    assert markup.count('class="thrown"') == 1 and markup.count('<bdi class="broken">�') == 6
    assert 'data-broken="3" data-stop="User:"' in markup and 'role="status"' in markup
    assert 'and waits for <bdi class="held">Use</bdi>' in streaming_html(view_of(), 7)
    assert '<bdi class="held">E2</bdi><bdi class="held">99</bdi>' in streaming_html(view_of(), 4)


@given(st.text(alphabet=st.sampled_from("<>&\"'/=a scriptonerror\x00\n日"), min_size=1, max_size=30))
def test_whatever_is_typed_stays_text(text):
    view = view_of([text.encode()[i:i + 2] for i in range(0, len(text.encode()), 2)], [text[-3:]])
    for n in range(1, len(view.ticks) + 1):
        root = ElementTree.fromstring(streaming_html(view, n, notice="<b>&"))
        assert {element.tag for element in root.iter()} <= {
            "div", "style", "p", "bdi", "span", "small", "table", "thead", "tbody", "tr", "th", "td"}


def test_the_still_shows_the_last_rows():
    drawing = check(lambda: streaming_drawing(view_of()))
    assert len(hatched(drawing)) == 1 and len(rects(drawing, "mark")) == 5
    assert words(drawing).count("�") == 3 and "Use␣it" in words(drawing)
    assert drawing.description == streaming_summary(view_of(), 11)
    long = check(lambda: streaming_drawing(view_of([b"antidisestablish", b"x" * 9, b"\xf0\x9f\x99"] * 6, ["q"])))
    assert "the end" in words(long) and "61 6E 74 69 6…" in words(long) and "antidis…" in words(long)
    assert short("abc", 3) == "abc"


# --- the panel ----------------------------------------------------------------------------------

def test_the_panel_streams_what_is_typed(tokenizer):
    panel = streaming_widget(tokenizer, decode, match)
    assert panel.text.value == TEXT and panel.stop.value == "User:" and "course-streaming" in panel._dom_classes
    assert 'data-stop="User:"' in panel.picture.value and panel.shown.value == panel.shown.max == len(panel.view.ticks)
    panel.shown.value = 4
    assert 'data-tick="4"' in panel.picture.value and 'data-broken="2"' in panel.picture.value
    panel.stop.value = "♥\n\\n"
    assert panel.view.ticks[-1].stop == "♥" and panel.view.text(9) == "I "
    panel.stop.value = "\\nUser"
    assert panel.view.ticks[-1].stop == "\nUser"
    panel.stop.value = ""
    assert panel.view.ticks[-1].piece is None and panel.view.text(99) == TEXT
    panel.bytewise.value = True
    assert len(panel.view.ticks) == len(TEXT.encode()) + 1 == panel.shown.max
    panel.text.value = ""
    assert panel.shown.max == panel.shown.min == 1 and "0 tokens read" in panel.picture.value
    panel.text.value = "b" * (MAX_CHARACTERS + 7)
    assert f"The first {MAX_CHARACTERS:,} of {MAX_CHARACTERS + 7:,} characters" in panel.picture.value


def test_stop_strings_are_lines():
    assert stop_strings("a\n\nb c \n\\n\\n") == ["a", "b c ", "\n\n"] and stop_strings("") == []


def test_knobs_have_labels(tokenizer):
    panel = streaming_widget(tokenizer, decode, match, text="x", stop=("\n", "b"))
    assert [knob.description for knob in panel.children[:4]] == ["text", "stop strings", "every byte a token",
                                                                 "up to token"]
    assert panel.shown.continuous_update and panel.stop.value == "\\n\nb"


def test_it_runs_on_the_functions_it_is_given(tokenizer):
    panel = streaming_widget(tokenizer, lambda held, new: (new.decode("latin-1"), b""),
                             lambda held, new, stops: (held + new.upper(), "", None), text="né")
    assert panel.view.text(9) == "NÃ©".upper() and panel.view.naive(3) == "n��"


@pytest.mark.parametrize("wrong", [None, ("a",), ("a", "b"), (b"a", b""), "ab", ("a", b"", 1)])
def test_a_decoder_has_to_return_text_and_bytes(wrong):
    with pytest.raises(ValueError, match=r"incremental_decoder\(…\) = .* must be \(text, held\)"):
        streaming_view([b"a"], [], lambda held, new: wrong, match)


@pytest.mark.parametrize("wrong", [None, ("a", ""), ("a", b"", None), ("a", "", False), ("a", "", None, 1)])
def test_a_matcher_has_to_return_two_texts_and_a_stop_string(wrong):
    with pytest.raises(ValueError, match=r"stop_matcher\(…\) = .* must be \(show, hold, stop\)"):
        streaming_view([b"a"], [], decode, lambda held, new, stops: wrong)


def test_an_error_of_a_readers_function_is_shown(tokenizer):
    def strict(held, new):
        return (held + new).decode(), b""

    panel = streaming_widget(tokenizer, strict, match, text="plain")
    before = panel.picture.value
    panel.text.value = "♥"
    assert "Not updated." in panel.message.value and "UnicodeDecodeError: " in panel.message.value
    assert panel.picture.value == before
    panel.text.value = "fine"
    assert panel.message.value == "" and panel.view.text(9) == "fine"
    panel.functions = (decode, lambda held, new, stops: new / 2)
    with pytest.raises(TypeError):  # to the log, with its traceback
        panel.text.value = "again"
    assert "TypeError: " in panel.message.value
    panel.functions = (lambda held, new: None, match)
    panel.text.value = "once more"
    assert "incremental_decoder(…) = None is not allowed" in panel.message.value


def test_what_is_saved_is_a_picture_of_the_first_text(tokenizer):
    panel = streaming_widget(tokenizer, decode, match)
    first = picture_of(panel)
    assert still_of(panel).endswith("U+FFFD 20 times.") and f"The last {ROWS} of " in first
    panel.text.value = "other"
    assert picture_of(panel) == first


def test_a_text_that_is_too_long_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"len\(text\)"):
        streaming_widget(tokenizer, decode, match, text="a" * (MAX_CHARACTERS + 1))
