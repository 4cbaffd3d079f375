"""Token ids to text while they arrive: whole characters only, and never a piece of a stop string.

A token is bytes, and its border may fall inside a character; a stop string may begin in one token and
end in another. So both wait: bytes until their character is complete, characters until no stop string
can begin there any more.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from course_lib.config import is_int, require, several


class Vocabulary(Protocol):
    """What a stream asks of a tokenizer; `course_lib.tokenizer.Tokenizer` is one."""

    special_tokens: Mapping[str, int]

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one id; KeyError if there is none."""


class DecodeStream:
    """Decode one request's ids one by one; what `push` returned is never taken back.

    Joined together, the results are `tokenizer.decode` of all the ids, up to the first stop string. First
    is the one that is complete first, and of several complete at once the longest, so that it does not
    matter how the text was cut into tokens.

    Args:
        tokenizer: gives each id its bytes.
        stop: a string, or several, that end the text; they are not part of it.
        skip_special_tokens: leave control tokens out of the text, so that no stop string matches them.

    Attributes:
        text: all that was returned so far.
        stopped: the stop string that ended the text, or None.
    """

    def __init__(self, tokenizer: Vocabulary, stop: str | Sequence[str] | None = (), *,
                 skip_special_tokens: bool = True) -> None:
        self.tokenizer = tokenizer
        self.stop = several("stop", stop, str)
        require(all(isinstance(s, str) and s for s in self.stop), "stop", self.stop, "made of non-empty strings")
        self.skipped = frozenset(tokenizer.special_tokens.values() if skip_special_tokens else ())
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.text = ""
        self.stopped: str | None = None
        self.held = ""  # the end of the decoded text, as long as a stop string may begin with it

    def push(self, token_id: int) -> str:
        """Take one id; return the text that has become safe to show, often empty.

        An id without a token is no text: a model's vocabulary is often padded beyond its tokenizer's.

        Raises:
            ValueError: it cannot be an id.
        """
        require(is_int(token_id) and token_id >= 0, "token_id", token_id, "an integer >= 0")
        if token_id in self.skipped:
            return ""
        try:
            data = self.tokenizer.decode_single_token_bytes(token_id)
        except (KeyError, OverflowError):
            return ""
        return self.release(self.decoder.decode(data))

    def flush(self) -> str:
        """No more ids will come: return what was held. A broken last character becomes U+FFFD."""
        return self.release(self.decoder.decode(b"", final=True), final=True)

    def release(self, new: str, final: bool = False) -> str:
        """Add decoded text after the held text; return all of it that no stop string needs."""
        if self.stopped is not None:
            return ""
        pending = self.held + new
        ends = [(pending.find(s) + len(s), pending.find(s), s) for s in self.stop if s in pending]
        if ends:
            _, safe, self.stopped = min(ends)
        else:
            safe = len(pending) if final else len(pending) - longest_overlap(pending, self.stop)
        self.held = pending[safe:]
        self.text += pending[:safe]
        return pending[:safe]


def decode_stream(tokenizer: Vocabulary, stop: str | Sequence[str] | None = ()) -> DecodeStream:
    """A `DecodeStream` for one request, of the tokenizer's own making where it has a method of this name."""
    return getattr(tokenizer, "decode_stream", partial(DecodeStream, tokenizer))(stop)


def longest_overlap(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text`, which holds no stop string, that one of `stop` begins with.

    >>> longest_overlap("wait: ST", ["STOP", "TO"])
    2
    """
    longest = max(map(len, stop), default=1) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        if any(s.startswith(text[start:]) for s in stop):
            return len(text) - start
    return 0
