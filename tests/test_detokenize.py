"""The stream against the batch decode, for every way to cut bytes into tokens."""

from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from course_lib.classroom.answers import nb13 as answers
from course_lib.classroom.checks import nb13 as finished
from course_lib.detokenize import DecodeStream, longest_overlap
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer

END = 256


class Cut:
    """A vocabulary of whatever byte strings a test cuts its text into, and one control token."""

    def __init__(self, pieces):
        self.pieces = pieces
        self.special_tokens = {"<|endoftext|>": len(pieces)}

    def decode_single_token_bytes(self, token):
        return dict(enumerate([*self.pieces, b"<|endoftext|>"]))[token]


@pytest.fixture(scope="module")
def tokenizer():
    """One token for each byte."""
    return Tokenizer("bytes", POCKET_PATTERN, {bytes([i]): i for i in range(256)}, {"<|endoftext|>": END})


def run(pieces, stop=()):
    """The deltas of all pieces and of the flush, and the stream."""
    stream = DecodeStream(Cut(pieces), stop)
    return [*map(stream.push, range(len(pieces))), stream.flush()], stream


def until_stop(text, stops):
    """The definition: read characters until a stop string ends here; drop the longest that does."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def all_cuts(data):
    """Every way to cut some bytes into tokens."""
    for n in range(len(data)):
        for borders in combinations(range(1, len(data)), n):
            yield [data[a:b] for a, b in zip((0, *borders), (*borders, len(data)))]


@st.composite
def cut_bytes(draw, contents):
    """Bytes, cut anywhere, empty tokens included."""
    data = draw(contents)
    borders = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)])]


texts = st.one_of(st.text(), st.text(alphabet="aé€👍\ufffd\u0301\u200d")).map(str.encode)
some_stops = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=3)


@given(cut_bytes(texts))
@example([b"\xf0", b"\x9f", b"\x91", b"\x8d"])
def test_joined_deltas_are_the_text_and_no_delta_shows_half_a_character(pieces):
    text = b"".join(pieces).decode()
    deltas, stream = run(pieces)
    assert "".join(deltas) == stream.text == text
    assert deltas[-1] == "", "whole text leaves nothing for the flush"
    sent = 0
    for n, delta in enumerate(deltas[:-1], 1):
        sent += len(delta)
        whole = b"".join(pieces[:n]).decode("utf-8", "ignore")  # an unfinished end is all there is to ignore
        assert text[:sent] == whole, "each character is shown as soon as its last byte is there"


@given(cut_bytes(st.one_of(st.binary(), st.binary().map(lambda b: "👍é".encode() + b + "€".encode()))))
@example([b"\xe2\x82"])
@example([b"\xff", b"\xe2", b"a", b"\xf0\x9f", b"\x91", b"\xc3"])
def test_bytes_that_are_no_text_decode_as_the_whole_does(pieces):
    deltas, stream = run(pieces)
    assert "".join(deltas) == stream.text == b"".join(pieces).decode("utf-8", "replace")


def test_a_literal_replacement_character_does_not_stall():
    deltas, _ = run(["\ufffd".encode(), b"a", "\ufffd\ufffd".encode(), b"\xef\xbf", b"\xbd"])
    assert deltas == ["\ufffd", "a", "\ufffd\ufffd", "", "\ufffd", ""]


def test_flush_shows_what_the_last_token_cut_off():
    deltas, stream = run([b"caf", b"\xc3"])
    assert deltas == ["caf", "", "\ufffd"] and stream.text == "caf\ufffd" and stream.flush() == ""


@given(st.text(), st.booleans())
def test_the_stream_equals_the_tokenizers_own_decode(tokenizer, text, with_end):
    ids = tokenizer.encode_ordinary(text)
    stream = DecodeStream(tokenizer)
    deltas = [stream.push(i) for i in ids + [END] * with_end]
    assert "".join(deltas) + stream.flush() == tokenizer.decode(ids)


# Stop strings


@given(cut_bytes(st.text(alphabet="abé", max_size=14).map(str.encode)), some_stops)
@example([b"ab", b"c"], ["abc", "b"])
@example([b"abc"], ["abc", "b"])
@example([b"aab"], ["ab", "b"])
@example([b"a", b"a", b"b"], ["aab", "ab"])
def test_stop_strings_end_the_text_however_it_is_cut(pieces, stops):
    text = b"".join(pieces).decode()
    before, found = until_stop(text, stops)
    deltas, stream = run(pieces, stops)
    assert ("".join(deltas), stream.text, stream.stopped) == (before, before, found)


@given(cut_bytes(st.text(alphabet="abé", max_size=14).map(str.encode)), some_stops)
def test_exactly_what_may_still_become_a_stop_string_is_held(pieces, stops):
    deltas, _ = run(pieces, stops)
    for n in range(1, len(pieces) + 1):
        so_far = b"".join(pieces[:n]).decode("utf-8", "ignore")
        before, found = until_stop(so_far, stops)
        if not found:
            held = next(k for k in range(len(so_far), -1, -1)
                        if k == 0 or any(s.startswith(so_far[len(so_far) - k :]) for s in stops))
            before = so_far[: len(so_far) - held]
        assert "".join(deltas[:n]) == before


@pytest.mark.parametrize("stop", ["STOP", "\n\n", "aab", "é!", "👍👍", "<|im_end|>"[:6], "\ufffd"])
def test_every_split_of_every_stop_string(stop):
    """With text before it that begins like it, and text after it in the same token."""
    data = (stop[0] + stop + "x").encode()
    for pieces in all_cuts(data) if len(data) <= 13 else ([data[:i], data[i:]] for i in range(1, len(data))):
        before, found = until_stop(data.decode(), [stop])
        deltas, stream = run([b"so ", *pieces, b" more", stop.encode()], [stop])
        assert ("".join(deltas), stream.stopped) == ("so " + before, stop) and found == stop
        assert deltas[len(pieces) + 1 :] == ["", "", ""], "nothing after the stop string"


def test_a_stop_string_inside_one_token():
    deltas, stream = run([b"one END two END"], ["END"])
    assert deltas == ["one ", ""] and stream.stopped == "END"


def test_a_broken_promise_is_released_at_once():
    deltas, stream = run([b"wait ST", b"O", b"RM", b" ST"], ["STOP"])
    assert deltas == ["wait ", "", "STORM", " ", "ST"] and stream.stopped is None


def test_no_stop_string_means_no_waiting():
    assert run([b"a", b"b"])[0] == ["a", "b", ""]


def test_the_flush_can_complete_a_stop_string():
    deltas, stream = run([b"a\xc3"], ["a\ufffd"])
    assert deltas == ["", ""] and stream.stopped == "a\ufffd" and stream.text == ""


def test_a_single_string_is_one_stop_string():
    assert run([b"a", b"b", b"c"], "bc")[1].stopped == "bc"


def test_a_stop_string_across_a_skipped_control_token():
    stream = DecodeStream(Cut([b"EN", b"D"]), ["END"])
    assert [stream.push(i) for i in (0, 2, 1)] == ["", "", ""] and stream.stopped == "END"


# The two functions of notebook 13 that a reader writes, one after the other


def told(parts, pieces, stops):
    """What a reader is shown, token by token, and the stop string that ended it; as the notebook composes them."""
    shown, data, held = [], b"", ""
    for piece in pieces:
        text, data = parts.decode_increment(data, piece)
        safe, held, stop = parts.release(held, text, stops)
        shown.append(safe)
        if stop:
            return shown, stop
    safe, held, stop = parts.release(held, data.decode(errors="replace"), stops)
    return [*shown, safe if stop else safe + held], stop


@st.composite
def cut_and_stops(draw):
    """Bytes, mostly of some text, cut anywhere, and stop strings: some of any characters, some that occur."""
    data = draw(st.one_of(texts, st.text(alphabet="abé♥").map(str.encode), st.binary(max_size=12)))
    text = data.decode("utf-8", "replace")
    places = st.integers(0, len(text))
    parts = draw(st.lists(st.tuples(places, st.integers(1, 4)).map(lambda cut: text[cut[0] : sum(cut)]), max_size=2))
    any_stops = draw(st.lists(st.text(alphabet="abé♥\ufffd", min_size=1, max_size=4), max_size=2))
    return draw(cut_bytes(st.just(data))), draw(st.permutations([*filter(None, parts), *any_stops]))


@pytest.mark.parametrize("parts", [answers, finished], ids=["answers", "finished"])
@given(cut_and_stops())
@example(([b"\xe2\x99", b"\xa5", b"U", b"ser", b": x"], ["User:", "s"]))
@example(([b"a", b"a\xc3"], ["a\ufffd"]))
@example(([b"\xed", b"\xa0", b"\x80a"], ["\ufffda"]))
def test_decoder_and_stop_matcher_together_are_the_text_until_its_stop_string(parts, case):
    pieces, stops = case
    before, found = until_stop(b"".join(pieces).decode("utf-8", "replace"), stops)
    shown, stop = told(parts, pieces, stops)
    assert ("".join(shown), stop) == (before, found)


# Control tokens, mistakes


def test_control_tokens_are_skipped_unless_asked_for(tokenizer):
    ids = [*b"a", END, *b"b", END]
    for skip, expected in ((True, "ab"), (False, "a<|endoftext|>b<|endoftext|>")):
        stream = DecodeStream(tokenizer, skip_special_tokens=skip)
        assert "".join(map(stream.push, ids)) + stream.flush() == stream.text == expected


def test_a_kept_control_token_can_stop_and_a_skipped_one_cannot(tokenizer):
    for skip, expected in ((True, None), (False, "<|endoftext|>")):
        stream = DecodeStream(tokenizer, "<|endoftext|>", skip_special_tokens=skip)
        assert stream.push(ord("a")) + stream.push(END) + stream.flush() == "a"
        assert stream.stopped == expected


def test_the_text_of_a_control_token_is_ordinary_text(tokenizer):
    stream = DecodeStream(tokenizer)
    deltas = [stream.push(i) for i in tokenizer.encode_ordinary("<|endoftext|>")]
    assert "".join(deltas) == "<|endoftext|>"


def test_streams_do_not_share_state(tokenizer):
    first, second = DecodeStream(tokenizer, "ab"), DecodeStream(tokenizer, "b")
    assert [first.push(ord("a")), second.push(ord("a"))] == ["", "a"]
    assert [first.push(0xC3), second.push(ord("b"))] == ["", ""]
    assert (first.stopped, second.stopped) == (None, "b") and first.flush() == "a\ufffd"


@pytest.mark.parametrize("token_id", [-1, 1.5, "a", None, True])
def test_what_cannot_be_an_id_is_refused(tokenizer, token_id):
    with pytest.raises(ValueError, match=f"token_id = {token_id!r} is not allowed"):
        DecodeStream(tokenizer).push(token_id)


def test_an_id_without_a_token_is_no_text(tokenizer):
    """As the vocabulary of a padded checkpoint has them; a character may go on after one."""
    stream = DecodeStream(tokenizer, "ab")
    assert [stream.push(id) for id in (0xC3, 257, 0xA9, ord("a"), 10**6, 2**70, ord("b"))] == ["", "", "é"] + [""] * 4
    assert stream.stopped == "ab"
    assert [DecodeStream(Cut([b"a"])).push(id) for id in (0, 1, 2, 3)] == ["a", "", "", ""], "where KeyError says so"


@pytest.mark.parametrize("stop", ["", ["a", ""]])
def test_an_empty_stop_string_is_refused(tokenizer, stop):
    with pytest.raises(ValueError, match=r"stop = .* non-empty"):
        DecodeStream(tokenizer, stop)


@given(st.text(alphabet="ab", max_size=8), some_stops)
def test_longest_overlap_by_its_definition(text, stops):
    stops = [s for s in stops if s not in text]
    lengths = [n for n in range(1, len(text) + 1) for s in stops if s[:n] == text[-n:]]
    assert longest_overlap(text, stops) == max(lengths, default=0)
