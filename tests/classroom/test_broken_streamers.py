"""Each broken streamer has the mistake that its name says, and no other; the right one is the definition."""

from itertools import combinations

import pytest

from course_lib.classroom.broken_streamers import MISTAKES, STREAMERS, animation, right
from course_lib.classroom.checks.nb13 import diagnosis

PLAIN = [b"It", b" is", b" here", b"."]
ACCENTED = [b"caf", b"\xc3", b"\xa9", b" ", b"\xe2\x82", b"\xac", b"!"]
SIGNED = [b"a", "\ufffd".encode(), b"b"]
CUT = [b"ab", b"\xf0\x9f"]
STOPPED = [b"Go", b" EN", b"D", b" on"]
TEMPTED = [b"E", b"N", b"O", b"UGH"]
ALL = {"plain": PLAIN, "accented": ACCENTED, "signed": SIGNED, "cut": CUT, "stopped": STOPPED, "tempted": TEMPTED}
WRONG = {"A": {"signed"}, "B": {"stopped", "tempted"}, "C": set(ALL), "D": {"cut"}}


def test_the_right_one_shows_everything_as_soon_as_it_may():
    assert right(ACCENTED, "END") == ["caf", "", "é", " ", "", "€", "!", ""]
    assert right(SIGNED, "END") == ["a", "\ufffd", "b", ""]
    assert right(CUT, "END") == ["ab", "", "\ufffd"]
    assert right(STOPPED, "END") == ["Go", " ", "", "", ""]
    assert right(TEMPTED, "END") == ["", "", "ENO", "UGH", ""]


@pytest.mark.parametrize("letter", STREAMERS)
def test_a_broken_one_differs_where_its_mistake_is_and_nowhere_else(letter):
    differs = {name for name, tokens in ALL.items() if STREAMERS[letter](tokens, "END") != right(tokens, "END")}
    assert differs == WRONG[letter]


def test_what_each_of_them_does_instead():
    assert STREAMERS["A"](SIGNED, "END") == ["a", "", "\ufffdb", ""], "late, and complete"
    assert STREAMERS["B"](STOPPED, "END") == ["Go", " EN", "", "", ""], "a part of the stop string"
    assert STREAMERS["C"](STOPPED, "END") == ["", "", "", "", "Go", " "]
    assert STREAMERS["D"](CUT, "END") == ["ab", "", ""]


@pytest.mark.parametrize("tokens", ALL.values(), ids=ALL)
def test_the_animation_has_the_right_text_and_begins_when_all_is_made(tokens):
    got = animation(tokens, "END")
    assert "".join(got) == "".join(right(tokens, "END"))
    assert not any(got[: len(tokens)]) and all(got[len(tokens) :])


def test_every_suspect_has_another_of_the_listed_mistakes():
    assert diagnosis().keys() == STREAMERS.keys() and set(diagnosis().values()) < set(MISTAKES)
    assert all(one != other for one, other in combinations(diagnosis().values(), 2))
