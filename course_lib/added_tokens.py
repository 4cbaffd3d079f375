"""Tokens that were added to a vocabulary by their text: control tokens, and words that are text like any other.

They are looked for before the text is cut into pieces, as the `tokenizers` library does: from left to right, the
longest first, those that are matched as written before those that are matched in the normalized text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import regex

from course_lib.chat_template import any_of

WORD = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]")
SPACES_BEFORE, SPACES_AFTER = regex.compile(r"(?r)\p{White_Space}*"), regex.compile(r"\p{White_Space}*")


@dataclass(frozen=True)
class AddedToken:
    """A token with a text of its own, in the names of `tokenizers`.

    Attributes:
        special: a control token, which is no part of the text; otherwise it is text.
        lstrip, rstrip: the token swallows the white space before or after it.
        single_word: it counts only where no letter, digit or underscore touches it.
        normalized: it is looked for in the normalized text.
    """

    content: str
    id: int
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


class AddedVocabulary:
    """Finds added tokens in a text.

    Args:
        tokens: with texts that are not empty.
        normalize: brings a text to the form in which normalized tokens are looked for.
    """

    def __init__(self, tokens: Iterable[AddedToken], normalize: Callable[[str], str]) -> None:
        tokens = list(tokens)
        self.normalize = normalize
        self.has_text = not all(token.special for token in tokens)
        # A control token is looked for as it is written, whatever it says: data is told apart only there.
        self.raw = {token.content: token for token in tokens if token.special or not token.normalized}
        self.late = {normalize(token.content): token for token in tokens if token.normalized and not token.special}

    def cut(self, text: str, allowed: Collection[str], show: Callable[[str], str]) -> Iterator[str | AddedToken]:
        """The added tokens of a text and the normalized texts between them, in order.

        Args:
            allowed: the control tokens that count; the text of another one is data.
            show: applied to a text once its control tokens are found.
        """
        if not allowed and not self.has_text:
            yield self.normalize(show(text))
            return
        for part in find_tokens(text, self.raw, allowed):
            if isinstance(part, AddedToken):
                yield part
            else:
                yield from find_tokens(self.normalize(show(part)), self.late, allowed)


def find_tokens(text: str, tokens: Mapping[str, AddedToken], allowed: Collection[str]) -> Iterator[str | AddedToken]:
    """The tokens that occur in `text`, and the texts between them that are not empty.

    >>> tokens = {"<b>": AddedToken("<b>", 7), " ": AddedToken(" ", 8, special=False)}
    >>> [part if isinstance(part, str) else part.id for part in find_tokens("a<b> c<b>", tokens, ["<b>"])]
    ['a', 7, 8, 'c', 7]
    >>> [part if isinstance(part, str) else part.id for part in find_tokens("a<b> c<b>", tokens, [])]
    ['a<b>', 8, 'c<b>']
    """
    done = 0
    for match in regex.finditer(any_of(tokens), text):
        token, (start, end) = tokens[match[0]], match.span()
        if token.special and token.content not in allowed:
            continue
        if token.single_word and (WORD.match(text[start - 1 : start]) or WORD.match(text[end : end + 1])):
            continue
        if token.lstrip:
            start = SPACES_BEFORE.match(text, 0, start).start()
        if token.rstrip:
            end = SPACES_AFTER.match(text, end).end()
        if done < start:
            yield text[done:start]
        yield token
        done = end
    if done < len(text):
        yield text[done:]
