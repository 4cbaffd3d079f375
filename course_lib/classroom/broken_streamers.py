"""Four streamers with one mistake each, to be told apart by what a client gets, and when.

Who reads on looks up the answer. Of the seven in `MISTAKES` four are in `STREAMERS`. A streamer is called with the
tokens of an answer, as bytes, and a stop string. It returns what the client has received at each tick: token i is made
at tick i, and the last tick of a right streamer is the flush.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from course_lib.detokenize import DecodeStream

MISTAKES = {
    "token alone": "decodes each token on its own",
    "holds the sign": "holds text as long as it ends in U+FFFD",
    "no flush": "forgets what is held when the tokens end",
    "shows the start": "shows text at once, though a stop string may begin in it",
    "stop in a token": "looks for the stop string in each token alone",
    "keeps the stop": "shows the stop string before it stops",
    "animation": "waits for the whole answer, and then types it",
}
Streamer = Callable[[Sequence[bytes], str], list[str]]


class Pieces:
    """A vocabulary of the tokens of one answer, each its own place in it."""

    special_tokens: dict[str, int] = {}

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of the token at this place."""
        return self.tokens[token]


def right(tokens: Sequence[bytes], stop: str) -> list[str]:
    """The library's stream.

    >>> right([b"a", b"b", b"EN", b"D", b"c"], "END")
    ['a', 'b', '', '', '', '']
    """
    stream = DecodeStream(Pieces(tokens), stop)
    return [*map(stream.push, range(len(tokens))), stream.flush()]


def holds_the_sign(tokens: Sequence[bytes], stop: str) -> list[str]:
    """Decodes all bytes again at each token, and waits while the text ends in U+FFFD."""
    shown, pieces = "", []
    for n in range(1, len(tokens) + 1):
        text = until(b"".join(tokens[:n]).decode(errors="replace"), stop)
        pieces.append("" if text.endswith("\ufffd") else safe(text, stop)[len(shown):])
        shown += pieces[-1]
    return [*pieces, until(b"".join(tokens).decode(errors="replace"), stop)[len(shown):]]


def no_flush(tokens: Sequence[bytes], stop: str) -> list[str]:
    """Right up to the last token."""
    return [*right(tokens, stop)[:-1], ""]


def shows_the_start(tokens: Sequence[bytes], stop: str) -> list[str]:
    """Finds the stop string in the whole text, when a part of it has been shown."""
    whole, shown, pieces = right(tokens, "\0"), "", []
    for piece in whole:
        so_far = until(shown + piece, stop) if stop not in shown else shown
        pieces.append(so_far[len(shown):])
        shown += piece
    return pieces


def animation(tokens: Sequence[bytes], stop: str) -> list[str]:
    """Sends nothing before the last token, and then the answer piece by piece, one at a tick."""
    pieces = [piece for piece in right(tokens, stop) if piece]
    return [""] * len(tokens) + pieces


def until(text: str, stop: str) -> str:
    """The text up to the stop string."""
    return text.partition(stop)[0]


def safe(text: str, stop: str) -> str:
    """The text without an end that the stop string may begin with."""
    held = next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if stop.startswith(text[-n:])), 0)
    return text[: len(text) - held]


STREAMERS: dict[str, Streamer] = {"A": holds_the_sign, "B": shows_the_start, "C": animation, "D": no_flush}
