"""Checks of notebook 13, Detokenize and stream.

The oracles are Python's own incremental decoder, a reading character by character, and cases by hand. The cases by
hand name the usual mistakes. In 13.1 and 13.2 Hypothesis then looks for a call that is wrong for another reason.
"""

from __future__ import annotations

import codecs
import operator
import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from course_lib.classroom.broken_streamers import MISTAKES
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_diagnosis, expect_equal, show
from course_lib.classroom.checks.counterexample import cut_anywhere, expect_no_counterexample
from course_lib.detokenize import longest_overlap

# 13.1

SIGN = "\ufffd"
CHARACTERS = "a\x7f\x80é߿ࠀ水\ud7ff\ue000♥\ufffd\uffff\U00010000🙂\U0010ffff"
LEADS = range(0xC2, 0xF5)  # the first bytes of characters of two, three and four bytes
FOLLOWING = range(0x80, 0xC0)
SECONDS = {0xE0: range(0xA0, 0xC0), 0xED: range(0x80, 0xA0), 0xF0: range(0x90, 0xC0), 0xF4: range(0x80, 0x90)}
# What a decoder may take for something else: ends of lines, a mark of byte order, zeros, accents.
ODD_TEXTS = ["a", "\0", "\n", "\r", "\r\n", "\t", " ", "?", "\x1a", "\x85", "\xa0", "e\u0301", "\u200d", "\u2028",
             "\ufeff", SIGN]
# After ED A0, Python's strict decoder sees an error and its incremental one waits, which gives the same text later.
UNDECIDED = re.compile(rb"\xed[\xa0-\xbf]\Z")


def decode_increment(held: bytes, new: bytes) -> tuple[str, bytes]:
    """Bytes that wait and a token's bytes to the text that is safe to show and the bytes that wait now."""
    data = held + new
    text, used = codecs.utf_8_decode(data, "replace", False)
    return text, data[used:]


def decoded(data: bytes) -> tuple[str, bytes]:
    """The text of some bytes and the unfinished character at their end, by Python's incremental decoder."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return decoder.decode(data), decoder.getstate()[0]


def check_decode_increment(attempt: Callable) -> None:
    def expect_text(held: bytes, new: bytes, text: str, left: bytes, likely: str) -> None:
        expect_equal(attempt(held, new), (text, left), likely)

    expect_text(b"", b"tea", "tea", b"", "whole characters are shown at once, and no bytes are left")
    expect_text(b"", b"\xc3", "", b"\xc3", "this byte begins a character of two bytes: hold it, and show nothing")
    expect_text(b"\xc3", b"\xa9", "é", b"", "the bytes that were held come first: decode held + new")
    expect_text(b"", SIGN.encode(), SIGN, b"", "U+FFFD may also be a character of the text, EF BF BD: look at the "
                                               "bytes, and not at what errors=\"replace\" makes of them")
    expect_text(b"", b"caf\xc3", "caf", b"\xc3", "hold the unfinished character only; what comes before it is shown")
    expect_text(b"\xe6", b"\xb0", "", b"\xe6\xb0", "two bytes of three are not a character yet: both are held")
    four = "the longest characters have four bytes, so up to three wait"
    expect_text(b"\xf0\x9f", b"\x99", "", b"\xf0\x9f\x99", four)
    expect_text(b"\xf0\x9f\x99", b"\x82!", "🙂!", b"", four)
    expect_text(b"", b"\xff", SIGN, b"", "no character begins with FF, so waiting does not help: U+FFFD at once")
    expect_text(b"", b"a\x80b", f"a{SIGN}b", b"", "bytes that are not text become U+FFFD; nothing is lost or raised")
    expect_text(b"\xe6", b"a", f"{SIGN}a", b"", "a character that goes on with a letter is broken: U+FFFD at once, "
                                                "and the letter after it")
    expect_text(b"", b"\xff caf\xc3", f"{SIGN} caf", b"\xc3",
                "a broken byte earlier on does not change the end: the unfinished character still waits")
    expect_text(b"\xe6\xb0", b"", "", b"\xe6\xb0", "an empty token changes nothing: what is held stays held")
    for bad in (b"\xc1", b"\xf5", b"\xf4\x90", b"\xe0\x80", b"\xf0\x8f"):
        expect_text(b"", bad, *decoded(bad), "not every beginning can become a character: Python's strict decoder "
                    "says \"unexpected end of data\" only where more bytes would help")
    for character in CHARACTERS:
        data = character.encode()
        for i in range(1, len(data)):
            expect_text(b"", data[:i], "", data[:i], "hold the beginning of every character, wherever it is cut")
            expect_text(data[:i], data[i:], character, b"", "a character is shown as soon as its last byte is there")

    def read(tokens: list[bytes]) -> None:
        held = b""
        for new in tokens:
            if UNDECIDED.search(held + new):
                return
            text, left = decoded(held + new)
            expect_text(held, new, text, left, words_for_bytes(held, left))
            held = left

    expect_no_counterexample(cut_bytes(), read)


def words_for_bytes(held: bytes, left: bytes) -> str:
    """What is likely where a small call is wrong that should leave these bytes."""
    if left:
        return f"{left[0]:02X} begins a character of {length(left[0])} bytes: hold it until all of them are there"
    if held:
        return "a character is shown as soon as its last byte is there, and U+FFFD as soon as it is broken"
    return "show what .decode(errors=\"replace\") makes of these bytes: no character is changed, added or left out"


def length(lead: int) -> int:
    """Bytes of a character that begins with this byte, one of `LEADS`."""
    return 2 + (lead >= 0xE0) + (lead >= 0xF0)


def characters(end: Callable[[Sequence[int]], int]) -> st.SearchStrategy[bytes]:
    """The lowest (`min`) or highest (`max`) character with each first byte."""
    return st.sampled_from([bytes([lead, end(SECONDS.get(lead, FOLLOWING)), end(FOLLOWING), end(FOLLOWING)])
                            [: length(lead)] for lead in LEADS])


@st.composite
def cut_bytes(draw: st.DrawFn) -> list[bytes]:
    """A text, with bytes among its characters that are none, cut anywhere."""
    odd = st.sampled_from(ODD_TEXTS).map(str.encode)
    lone = st.sampled_from([bytes([byte]) for byte in range(0x80, 0xC0)])
    broken = st.sampled_from([bytes([byte]) for byte in range(0xC0, 0x100)])
    parts = draw(st.lists(odd | characters(min) | characters(max) | odd | lone | broken, max_size=12))
    return draw(cut_anywhere(b"".join(parts)))


# 13.2


def release(held: str, new: str, stops: Sequence[str]) -> tuple[str, str, str | None]:
    """Text that waits and new text to what is safe to show, what waits now, and the stop string that ended it all."""
    text = held + new
    found = [(text.find(s) + len(s), text.find(s), s) for s in stops if s in text]
    if found:
        _, start, stop = min(found)
        return text[:start], "", stop
    safe = len(text) - longest_overlap(text, stops)
    return text[:safe], text[safe:], None


def read_on(text: str, stops: Sequence[str]) -> tuple[str, str, str | None]:
    """The definition: read characters until a stop string ends here; else hold the longest beginning of one."""
    for end in range(1, len(text) + 1):
        if found := [s for s in stops if text[:end].endswith(s)]:
            longest = max(found, key=len)
            return text[: end - len(longest)], "", longest
    for start in range(len(text)):
        if any(s.startswith(text[start:]) for s in stops):
            return text[:start], text[start:], None
    return text, "", None


def check_release(attempt: Callable) -> None:
    def expect_shown(held: str, new: str, stops: Sequence[str], shown: str, left: str, stop: str | None,
                     likely: str) -> None:
        got = attempt(held, new, stops)
        if stop is None and isinstance(got, tuple) and len(got) == 3 and isinstance(got[2], str):
            where = f"result[2] is {show(got[2])}, expected None"
            raise CheckFailed(show((shown, left, stop)), show(got), where, likely)
        expect_equal(got, (shown, left, stop), likely)

    user = ["User:"]
    expect_shown("", "Use", [], "Use", "", None, "without stop strings nothing waits")
    expect_shown("", "salt", user, "salt", "", None, "no end of this text begins a stop string: show all of it")
    expect_shown("", "salt. User: hi", user, "salt. ", "", "User:",
                 "show the text before the stop string; the stop string and what follows it are thrown away")
    expect_shown("", ".\nU", user, ".\n", "U", None, "the end of this text may become the stop string: hold that end, "
                                                     "and show the rest")
    expect_shown("Us", "er", user, "", "User", None, "what was held comes first: look at held + new")
    expect_shown("User", ": hi", user, "", "", "User:", "a stop string that spans two tokens counts, too")
    expect_shown("User", " name", user, "User name", "", None,
                 "when the text goes on in another way, all that was held is shown")
    expect_shown("aa", "a", ["aab"], "a", "aa", None,
                 "a new beginning may overlap the old one: hold the longest end that a stop string begins with, here "
                 "aa of aaa")
    expect_shown("", "one two", ["two three", "o!"], "one ", "two", None,
                 "with several beginnings, here two and o, hold the longest")
    expect_shown("", "ab", ["b?", "xab?"], "a", "b", None, "only an end of the text can become a stop string")
    expect_shown("", "abc", ["abc", "b"], "a", "", "b",
                 "the stop string that is complete first ends the text, even where another began before it")
    expect_shown("", "xaab", ["b", "aab", "ab"], "x", "", "aab",
                 "of several that are complete at the same place, the longest is the one")
    expect_shown("", "ab ab", ["ab"], "", "", "ab", "the first place counts, and not the last")
    expect_shown("x", "\n", ("\n",), "x", "", "\n", "stop strings may come in a tuple, and have one character")

    def read(case: tuple[list[str], list[str]]) -> None:
        stops, tokens = case
        held = ""
        for new in tokens:
            shown, left, stop = read_on(held + new, stops)
            expect_shown(held, new, [*stops], shown, left, stop, words_for_stops(left, stop))
            if stop:
                return
            held = left

    expect_no_counterexample(stops_and_text(), read)


def words_for_stops(left: str, stop: str | None) -> str:
    """What is likely where a small call is wrong that should hold this text or find this stop string."""
    if stop:
        return (f"{stop!r} is complete: a stop string may stand anywhere in the list, and have any length and any "
                "characters")
    if left:
        return f"{left!r} is the longest end that a stop string begins with: hold it, and show the rest"
    return "no stop string is in this text, and none begins at its end: show all of it, unchanged; a is not A"


# Small and capital letters, of one byte and more, spaces, and signs that mean something in a regular expression.
LETTERS = "abABéÉ水🙂\ufffd \n\0.*[\\"


@st.composite
def stops_and_text(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Stop strings of few letters, so that they overlap, and a text of them and their beginnings, cut anywhere."""
    letters = st.sampled_from(draw(st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4)))
    word = st.lists(letters, min_size=1, max_size=3).map("".join)
    stops = draw(st.lists(st.builds(operator.mul, word, st.sampled_from([1, 2, 4, 12])), max_size=5))
    words = st.sampled_from([*stops, *(stop.swapcase() for stop in stops)]) if stops else word
    parts = draw(st.lists(st.tuples(words | word, st.just(40) | st.integers(0, 40)), max_size=5))
    return stops, draw(cut_anywhere("".join(text[:length] for text, length in parts)[:80]))


# 13.3


def read_events(held: bytes, new: bytes) -> tuple[list[str], bytes]:
    """Bytes that wait and a packet's bytes to the data of all complete events and the bytes that wait now."""
    *events, rest = (held + new).split(b"\n\n")
    lines = [line for event in events for line in event.decode().split("\n")]
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")], rest


def check_read_events(attempt: Callable) -> None:
    def expect_events(held: bytes, new: bytes, events: list[str], left: bytes, likely: str) -> None:
        try:
            got = attempt(held, new)
        except UnicodeDecodeError as error:
            raise CheckFailed(show((events, left)), f"UnicodeDecodeError: {error}", f"with new = {show(new)}",
                              "a packet may end inside a character: cut the bytes into events first, and decode an "
                              "event when it is complete") from error
        expect_equal(got, (events, left), likely)

    expect_events(b"", b'data: {"a": 1}\n\n', ['{"a": 1}'], b"", "an event's text is what follows `data: `, without "
                                                                "the empty line, and nothing is left")
    expect_events(b"", b"data: one\n\ndata: two\n\n", ["one", "two"], b"", "a packet may bring several events")
    expect_events(b"", b"data: on", [], b"data: on", "an event without its empty line has not arrived: hold all of it")
    expect_events(b"data: on", b"e\n\ndata: t", ["one"], b"data: t", "what was held comes first: look at held + new")
    expect_events(b"data: one\n", b"\n", ["one"], b"", "the empty line may be cut, too")
    expect_events(b"", b"data: caf\xc3", [], b"data: caf\xc3",
                  "a packet may end inside a character: cut the bytes into events first, and decode an event when it "
                  "is complete")
    expect_events(b"", b": still here\n\n", [], b"", "a line that begins with a colon is a comment, and no event")
    expect_events(b"", b"event: chat\ndata: one\n\n", ["one"], b"", "an event may have other lines: take the one that "
                                                                    "begins with `data: `")
    expect_events(b"", b'data: say "data: x"\n\n', ['say "data: x"'], b"",
                  "only at the beginning of a line is `data: ` a mark; in the text it is text")
    expect_events(b"", b"data:  two \n\n", [" two "], b"", "spaces are part of the text: take away `data: ` alone, "
                                                           "and strip nothing")
    expect_events(b"", b"data: [DONE]\n\n", ["[DONE]"], b"", "[DONE] is an event like any other")
    whole, ends = ": ping\n\ndata: 水\n\ndata: [DONE]\n\n".encode(), {19: "水", 33: "[DONE]"}
    for i in range(len(whole) + 1):
        start = max(end for end in (0, 8, *ends) if end <= i)
        likely = "every event that is complete, and the bytes after it, wherever the stream is cut"
        expect_events(b"", whole[:i], [text for end, text in ends.items() if end <= i], whole[start:i], likely)
        expect_events(whole[start:i], whole[i:], [text for end, text in ends.items() if end > i], b"", likely)


# 13.4


def diagnosis() -> dict[str, str]:
    """The mistake of each streamer, by its short name."""
    return {"A": "holds the sign", "B": "shows the start", "C": "animation", "D": "no flush"}


EVIDENCE = {
    "A": "in the end all of its text is right, and nothing is shown in halves. Which tokens does it show too late, and "
         "what do they have in common?",
    "B": "how does its second text end? And does it show anything after that?",
    "C": "when does its first piece come? How many tokens have been made by then?",
    "D": "compare its texts with the right ones, character by character, from the end.",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), MISTAKES, EVIDENCE)


EXERCISES = (
    Exercise(
        "13.1", "decode bytes as they come", decode_increment, check_decode_increment, minutes=6, hints=(
            "Join held and new. Only the last one, two or three bytes can be an unfinished character. Try each of "
            "these three ends.",
            "An end is an unfinished character if its strict .decode() raises a UnicodeDecodeError whose start is 0 "
            "and whose reason is \"unexpected end of data\".",
            "If there is such an end, return all before it, decoded with errors=\"replace\", and the end itself. If "
            "there is none, decode everything that way and hold b\"\".",
        )),
    Exercise(
        "13.2", "hold what may be a stop string", release, check_release, minutes=10, hints=(
            "There are two questions. Is a stop string in the text? If not: which end of the text may become one?",
            "For the first: text.find(s) + len(s) is where s is complete. The smallest of these wins, and of equal "
            "ones the smallest text.find(s); min of tuples does both.",
            "For the second: go through start = 0, 1, 2, ... The first text[start:] that some stop string starts "
            "with is the longest end to hold.",
        )),
    Exercise(
        "13.3", "read server-sent events", read_events, check_read_events, minutes=5, hints=(
            "It is the idea of the first two exercises: join, take what is complete, hold the rest.",
            "(held + new).split(b\"\\n\\n\") gives the complete events, and as its last item what is not complete.",
            "Decode each complete event, cut it into lines, and keep line[6:] of those that start with \"data: \".",
        )),
    Exercise(
        "13.4", "diagnose four streamers", diagnosis, check_diagnosis, minutes=8, kind="find the bug",
        difficulty="stretch", hints=(
            "Go through the right row tick by tick, and mark where each of the others first differs from it.",
            "One shows something that it should have held. One shows everything too late. One loses something.",
            "The one that is left differs in the first text only, around the characters that look like mistakes and "
            "are none.",
        )),
)
