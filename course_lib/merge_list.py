"""Byte-level BPE by a list of merges, as Hugging Face has it, beside the BPE by ranks of tiktoken.

Two rules of merging meet here. tiktoken joins the neighbours whose *union* has the lowest rank; Hugging
Face joins the neighbours that come first in a *list of pairs*. They agree when the list holds, in the
order of the ids, the one pair through which each token is reached. Otherwise the list is obeyed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from course_lib.config import require
from course_lib.tokenizer import Tokenizer, split_pieces

BytePair = tuple[bytes, bytes]


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte: itself where it has a shape, else one from U+0100 on.

    >>> "".join(byte_alphabet()[byte] for byte in b"a b")
    'aĠb'
    """
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}


CHARACTER = byte_alphabet()
BYTE = {character: byte for byte, character in CHARACTER.items()}
SINGLE_BYTES = [bytes([byte]) for byte in range(256)]
UTF8_BYTES = SINGLE_BYTES[:0xC0] + SINGLE_BYTES[0xC2:0xF5]  # the others never occur in UTF-8


def to_bytes(text: str) -> bytes:
    """The bytes that GPT-2 writes as these printable characters.

    Raises:
        ValueError: a character is not one of them.

    >>> to_bytes("Ġa")
    b' a'
    """
    require(BYTE.keys() >= set(text), "token", text, "in the characters of byte-level BPE")
    return bytes(BYTE[character] for character in text)


def to_text(token: bytes) -> str:
    """GPT-2's printable characters for the bytes; undoes `to_bytes`."""
    return "".join(CHARACTER[byte] for byte in token)


class MergeListTokenizer(Tokenizer):
    """A tokenizer that joins only the pairs of a list, in its order: exact, in Python, pieces cached.

    Args:
        merges: pairs of tokens, the first to be joined first.
        ignore_merges: a piece that is a token is taken whole, whatever the merges.
        others: as for `Tokenizer`. Bytes without a token leave no trace in the ids.
    """

    def __init__(self, *args: Any, merges: Iterable[BytePair], ignore_merges: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.merges = {pair: rank for rank, pair in enumerate(merges)}
        self.ignore_merges = ignore_merges
        self.encode_piece = lru_cache(maxsize=1 << 16)(self.encode_new_piece)

    def encode_text(self, text: str) -> list[int]:
        """Normalized text without added tokens to ids."""
        return [id for piece in split_pieces(text, self.pat_str) for id in self.encode_piece(piece)]

    encode_text_slowly = encode_text

    def encode_new_piece(self, piece: bytes) -> list[int]:
        """Join the neighbours that come first in the list until none is in it."""
        if self.ignore_merges and piece in self.mergeable_ranks:
            return [self.mergeable_ranks[piece]]
        parts = [SINGLE_BYTES[byte] for byte in piece if SINGLE_BYTES[byte] in self.mergeable_ranks]
        order = [self.merges.get(pair, math.inf) for pair in pairwise(parts)]
        while order and min(order) < math.inf:
            i = order.index(min(order))
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
            del order[i]
            for j in range(max(i - 1, 0), min(i + 1, len(order))):
                order[j] = self.merges.get((parts[j], parts[j + 1]), math.inf)
        return [self.mergeable_ranks[part] for part in parts]


def last_pair(token: bytes, mergeable_ranks: Mapping[bytes, int]) -> BytePair | None:
    """The two parts that merging by rank joins last on its way to `token`; None if it does not get there.

    Whatever surrounds a token, these are the only neighbours that are ever joined into it: up to that
    moment nothing has crossed the token's ends, so inside them all went as it does alone.

    >>> last_pair(b"abc", {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5})
    (b'a', b'bc')
    """
    get = mergeable_ranks.get
    parts = [token[i : i + 1] for i in range(len(token))]
    order = [get(left + right, math.inf) for left, right in pairwise(parts)]
    while len(parts) > 2 and (lowest := min(order)) < math.inf:
        i = order.index(lowest)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        del order[i]
        if i > 0:
            order[i - 1] = get(parts[i - 1] + parts[i], math.inf)
        if i < len(order):
            order[i] = get(parts[i] + parts[i + 1], math.inf)
    return tuple(parts) if len(parts) == 2 else None


def ranks_say_it_all(mergeable_ranks: Mapping[bytes, int], merges: Iterable[BytePair],
                     ignore_merges: bool) -> bool:
    """Whether merging by rank, as tiktoken does, gives on any text what this list of merges gives.

    It does when every byte of UTF-8 is a token, every pair by which a token is reached is in the list, and
    the list has those pairs in the order of the tokens' ids. A token that is never reached is used
    for a piece that equals it, by tiktoken always and by the list only with `ignore_merges`.
    """
    place = {pair: i for i, pair in enumerate(merges)}
    last = -1
    for token in sorted(mergeable_ranks, key=mergeable_ranks.__getitem__):
        pair = last_pair(token, mergeable_ranks) if len(token) > 1 else None
        if pair is not None:
            if place.get(pair, -1) <= last:
                return False
            last = place[pair]
        elif len(token) > 1 and not ignore_merges:
            return False
    return all(byte in mergeable_ranks for byte in UTF8_BYTES)
