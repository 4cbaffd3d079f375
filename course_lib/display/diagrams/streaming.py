"""Streaming: characters that tokens cut, and stop strings that tokens cut."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

from course_lib.config import require
from course_lib.detokenize import DecodeStream
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.views import visible

LABEL, RIGHT = 118, 706  # of a row of tokens: where its columns begin, and where they end
BYTE = 27  # high, of a byte that is held
CELL, LINE, TEXT = 23, 42, 116  # of a text that grows: a character, a line, and where it begins


class Moment(NamedTuple):
    """What has happened after a token.

    Attributes:
        piece: the token's bytes.
        alone: the text that it makes when it is decoded by itself.
        held: bytes that wait for the rest of their character.
        shown: text that the token has completed.
    """

    piece: bytes
    alone: str
    held: bytes
    shown: str


def moments(pieces: Sequence[bytes]) -> list[Moment]:
    """Decode token by token, and keep back what is not yet a character.

    >>> [one.shown for one in moments([b"a\\xe2", b"\\x82", b"\\xac"])]
    ['a', '', '€']
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    made = []
    for piece in pieces:
        shown = decoder.decode(piece)
        made.append(Moment(piece, piece.decode("utf-8", "replace"), decoder.getstate()[0], shown))
    return made


def borders(pieces: Sequence[bytes]) -> Drawing:
    """A text in characters and in tokens, and what can be shown after each token.

    Args:
        pieces: bytes of the tokens, four to eight; at least one character is cut by them.
    """
    require(4 <= len(pieces) <= 8, "len(pieces)", len(pieces), "4 to 8")
    seen = moments(pieces)
    require(any(one.held for one in seen), "pieces", list(pieces), "such that a character is cut")
    require(not seen[-1].held, "pieces", list(pieces), "a whole text")
    pitch, deep = (RIGHT - LABEL) / len(pieces), max(len(one.held) for one in seen)
    held, shown = 196, 196 + BYTE * deep + 22
    drawing = Drawing("Tokens that split a character", told_borders(seen), height=shown + 158)
    for y, words in ((58, "characters"), (124, "tokens"), (held + 22, "held"), (shown + 30, "shown"),
                     (shown + 102, "each token"), (shown + 122, "on its own")):
        drawing.text(14, y, words, size=SMALL, anchor="start", bold=words == "shown")
    first = 0  # column in which the next character begins
    for i, one in enumerate(seen):
        left, x = LABEL + pitch * i, LABEL + pitch * (i + 0.5)
        if one.shown:
            drawing.box(Area(LABEL + pitch * first + 3, 30, left + pitch - 3, 74), visible(one.shown), size=22)
            first = i + 1
        drawing.rect(Area(left + 3, 96, left + pitch - 3, 140), fill="plain", stroke="ink")
        drawing.text(x, 124, one.piece.hex(" ").upper(), size=SMALL, mono=True)
        held_bytes(drawing, x, held, one.held)
        drawing.arrow((x, 144), (x, 178 if one.held else shown - 4), stroke="faint")
        cell(drawing, Area(left + 3, shown, left + pitch - 3, shown + 46), visible(one.shown), good=True)
        cell(drawing, Area(left + 3, shown + 84, left + pitch - 3, shown + 130), visible(one.alone),
             good="\ufffd" not in one.alone)
    return drawing


def held_bytes(drawing: Drawing, x: float, top: float, held: bytes) -> None:
    """The bytes that wait, under each other."""
    for j, byte in enumerate(held):
        drawing.rect(Area(x - 24, top + BYTE * j, x + 24, top + BYTE * (j + 1) - 3), fill="cache", tint=0.35,
                     stroke="cache", thick=1.6, radius=3)
        drawing.text(x, top + BYTE * j + 18, f"{byte:02X}", size=SMALL, mono=True)


def cell(drawing: Drawing, area: Area, text: str, *, good: bool) -> None:
    """What a reader sees after a token: a text, nothing, or something broken."""
    drawing.rect(area, fill=("mark" if text else "paper") if good else "plain", stroke="ink" if text else "faint",
                 dashed=not text, hatched=not good)
    middle = (area.left + area.right) / 2
    if not good:  # a plate, so that the mark can be read on the hatching
        drawing.rect(Area(middle - 15, area.top + 7, middle + 15, area.bottom - 7), fill="paper", radius=3)
    drawing.text(middle, area.top + (30 if text else 29), text or "nothing", size=22 if text else SMALL,
                 role="ink" if text else "faint")


def told_borders(seen: Sequence[Moment]) -> str:
    """The description of the tokens."""
    text = "".join(one.shown for one in seen)
    said = "; ".join(f"{one.piece.hex(' ').upper()}: "
                     + (f"shows “{visible(one.shown)}”" if one.shown else f"nothing, holds {len(one.held)}")
                     for one in seen)
    broken = sum("\ufffd" in one.alone for one in seen)
    return (f"The text “{text}” in {len(seen)} tokens. After each token what is shown: {said}. Beneath, each token "
            f"decoded on its own: {broken} of them become the replacement character U+FFFD.")


def stopping(pieces: Sequence[bytes], stop: str) -> Drawing:
    """A text that grows token by token: what is shown, what is held as long as a stop string may begin there, and
    what is thrown away.

    Args:
        pieces: bytes of the tokens, four to ten; the last one completes the stop string.
        stop: where the text ends.
    """
    require(4 <= len(pieces) <= 10, "len(pieces)", len(pieces), "4 to 10")
    stream = DecodeStream(SimpleNamespace(special_tokens={}, decode_single_token_bytes=pieces.__getitem__), stop)
    lines = []
    for i, piece in enumerate(pieces):
        before = stream.held
        new = stream.push(i)
        fate = ("stop" if stream.stopped else "held" if stream.held else "released" if before and new else "shown")
        lines.append((visible(piece), visible(stream.text), visible(stop if stream.stopped else stream.held), fate))
    require([fate == "stop" for *_, fate in lines] == [False] * (len(lines) - 1) + [True], "stop", stop,
            "completed by the last token")
    drawing = Drawing("A stop string that tokens split", told_stopping(lines, stop), height=92 + LINE * len(lines))
    drawing.text(20, 34, "token", size=SMALL, role="faint", anchor="start")
    drawing.text(TEXT, 34, f"the text so far; stop at “{visible(stop)}”", size=SMALL, role="faint", anchor="start")
    for i, (piece, text, tail, fate) in enumerate(lines):
        growing(drawing, 52 + LINE * i, piece, text, tail, fate)
    y = 52 + LINE * len(lines) + 24
    drawing.text(20, y, f"The client gets “{lines[-1][1]}”, and nothing of the final “{visible(stop)}”.", size=SMALL,
                 anchor="start", bold=True)
    return drawing


FATES = {"shown": "shown at once", "held": "held: may be the stop", "released": "no match: released",
         "stop": "match: thrown away"}


def growing(drawing: Drawing, top: float, piece: str, text: str, tail: str, fate: str) -> None:
    """The text after a token: what is shown as a solid strip, what is held dashed, what is thrown away hatched."""
    drawing.text(20, top + 25, piece, mono=True, anchor="start", bold=True)
    middle = TEXT + CELL * len(text)
    if text:
        drawing.rect(Area(TEXT, top, middle - 2, top + LINE - 6), fill="mark", stroke="ink", thick=1.6)
    if tail:
        drawing.rect(Area(middle, top, middle + CELL * len(tail), top + LINE - 6),
                     fill="plain" if fate == "stop" else "cache", tint=1 if fate == "stop" else 0.35,
                     stroke="faint" if fate == "stop" else "cache", dashed=fate == "held", hatched=fate == "stop")
    if fate == "stop":  # a plate, so that it can be read on the hatching
        drawing.rect(Area(middle + 4, top + 7, middle + CELL * len(tail) - 4, top + LINE - 13), fill="paper", radius=3)
    for i, c in enumerate(text + tail):
        drawing.text(TEXT + CELL * (i + 0.5), top + 25, c, mono=True)
    drawing.text(RIGHT, top + 25, FATES[fate], size=SMALL, anchor="end", bold=fate in ("released", "stop"))


def told_stopping(lines: Sequence[tuple[str, str, str, str]], stop: str) -> str:
    """The description of the text that grows."""
    said = "; ".join(f"{piece} {'stop' if fate == 'stop' else fate}" for piece, *_, fate in lines)
    return (f"Tokens arrive one by one, the stop string is “{visible(stop)}”. {said}. Held text may be the beginning "
            f"of the stop string; the next token releases it or goes on with it. When the match is complete it is "
            f"thrown away: the client gets “{lines[-1][1]}”.")
