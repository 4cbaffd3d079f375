"""Streaming drawn: what is held and shown after each token is what the decoder and the stop string make of it."""


import pytest
from hypothesis import given
from hypothesis import strategies as st
from well_drawn import check, hatched, rects, words

from course_lib.display.diagrams.streaming import CELL, FATES, TEXT, borders, moments, stopping

PIECES = [b"Hi", b" ", b"\xe2", b"\x99", b"\xa5", b"!"]
SALT = [b"U", b"se", b" salt", b".", b"\n", b"U", b"s", b"er", b":"]


@given(st.text(max_size=12), st.lists(st.integers(0, 60)))
def test_moments_hold_and_show_every_byte_once(text, cuts):
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    seen = moments([data[a:b] for a, b in zip(edges, edges[1:])])
    assert "".join(one.shown for one in seen) == text and seen[-1].held == b""
    for i, (one, end) in enumerate(zip(seen, edges[1:]), 1):
        assert "".join(other.shown for other in seen[:i]).encode() + one.held == data[:end] and len(one.held) < 4


@pytest.mark.parametrize("pieces, shown, nothing, broken", [
    (PIECES, ["Hi", "␣", "♥", "!"], 2, 3), ([b"a\xc3", b"\xa9", b"b", b"c"], ["a", "é", "b", "c"], 0, 2),
    ([b"x", b"\xf0\x9f", b"\x99\x82", b"."], ["x", "\U0001F642", "."], 1, 2)])
def test_each_token_shows_characters_or_nothing(pieces, shown, nothing, broken):
    drawing = check(lambda: borders(pieces))
    written = words(drawing)
    assert all(written.count(text) >= 2 for text in shown) and written.count("nothing") == nothing
    assert len(hatched(drawing)) == broken == sum("\ufffd" in text for text in written)
    assert len(rects(drawing, "cache")) == sum(len(one.held) for one in moments(pieces))
    assert f"{broken} of them become the replacement character U+FFFD" in drawing.description
    assert f"in {len(pieces)} tokens" in drawing.description
    for one in moments(pieces):
        assert one.piece.hex(" ").upper() in written and f"{one.piece.hex(' ').upper()}: " in drawing.description


def test_what_grows_is_solid_dashed_or_hatched():
    drawing = check(lambda: stopping(SALT, "User:"))
    fates = ["held", "held", "released", "shown", "shown", "held", "held", "held", "stop"]
    assert [word for word in words(drawing) if word in FATES.values()] == [FATES[fate] for fate in fates]
    solid, held = rects(drawing, "mark"), rects(drawing, "cache")
    assert [round((width + 2) / CELL) for _, _, width, _ in solid] == [8, 9, 10, 10, 10, 10, 10]
    assert [round(width / CELL) for _, _, width, _ in held] == [1, 3, 1, 2, 4]
    assert [left for left, *_ in held] == [TEXT] * 2 + [TEXT + 10 * CELL] * 3
    [thrown] = hatched(drawing)
    assert thrown[0] == TEXT + 10 * CELL and round(thrown[2] / CELL) == len("User:")
    assert "the client gets “Use␣salt.↵”" in drawing.description and "␣salt released" in drawing.description


@pytest.mark.parametrize("pieces", [
    [b"G", b"o. ", b"E", b"n", b"d", b"!"], [b"Go", b". En", b"d", b"!"], [b"Go.", b" ", b"End", b"!"]])
def test_the_same_text_is_shown_however_it_is_cut(pieces):
    drawing = check(lambda: stopping(pieces, "End!"))
    assert "The client gets “Go.␣”, and nothing of the final “End!”." in words(drawing)


@pytest.mark.parametrize("call", [
    lambda: borders([b"a"] * 5), lambda: borders([b"\xe2", b"\x99", b"\xa5"]), lambda: borders(PIECES[:4]),
    lambda: borders(PIECES * 2), lambda: stopping(SALT, "Nope"), lambda: stopping(SALT[:3], "Use"),
    lambda: stopping(SALT, "Use"), lambda: stopping([b"a"] * 11, "aaa")])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
