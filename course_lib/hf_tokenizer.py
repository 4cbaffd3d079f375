"""Hugging Face's `tokenizer.json`: byte-level BPE in and out, with the same ids on both sides.

Two rules of merging meet here. tiktoken joins the neighbours whose *union* has the lowest rank; Hugging
Face joins the neighbours that come first in a *list of pairs*. They agree when the list holds, in the
order of the ids, the one pair through which each token is reached. Otherwise the list is obeyed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import regex

from course_lib.config import require
from course_lib.tokenizer import Tokenizer, split_pieces

BytePair = tuple[bytes, bytes]

# The pieces of Hugging Face's ByteLevel pre-tokenizer (GPT-2's), and the same when Digits cuts first:
# a run of spaces then also ends where a digit begins.
BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGITS_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"


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

    def encode_ordinary(self, text: str) -> list[int]:
        """Text to ids, with no special tokens whatever the text says."""
        return [id for piece in split_pieces(self.normalize(text), self.pat_str)
                for id in self.encode_piece(piece)]

    encode_slowly = encode_ordinary

    def encode_new_piece(self, piece: bytes) -> list[int]:
        """Join the neighbours that come first in the list until none is in it."""
        if self.ignore_merges and piece in self.mergeable_ranks:
            return [self.mergeable_ranks[piece]]
        parts = [bytes([byte]) for byte in piece if bytes([byte]) in self.mergeable_ranks]
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

    It does when every byte is a token, every pair by which a token is reached is in the list, and
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
    return all(bytes([byte]) in mergeable_ranks for byte in range(256))


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json and what belongs to it.

    Raises:
        ValueError: there is none, or it is no byte-level BPE of a known kind.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no tokenizer.json, the only tokenizer file that is read here")
    try:
        parts = parse_tokenizer(read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    options = read_options(folder)
    if ranks_say_it_all(parts["mergeable_ranks"], parts["merges"], parts["ignore_merges"]):
        del parts["merges"], parts["ignore_merges"]
        return Tokenizer(folder.name, **parts, **options)
    return MergeListTokenizer(folder.name, **parts, **options)


def parse_tokenizer(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `MergeListTokenizer` that a tokenizer.json holds."""
    model, added = data["model"], data.get("added_tokens") or []
    require(model.get("type", "BPE") == "BPE" and "merges" in model, "model type", model.get("type"),
            "BPE, on bytes")
    require(not model.get("byte_fallback"), "byte_fallback", True, "false: only byte-level BPE is read")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        require(not model.get(name), name, model.get(name), "empty")
    for token in added:
        flags = [name for name in ("lstrip", "rstrip", "single_word") if token.get(name)]
        require(not flags, f"added token {token['content']!r}", flags, "without such a flag")
    pat_str = read_pattern(data.get("pre_tokenizer"))
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = [(to_bytes(left), to_bytes(right)) for left, right in pairs]
    special_tokens = {token["content"]: token["id"] for token in added}
    joined = {left + right for left, right in merges}
    ranks = {token if text in special_tokens else to_bytes(text): id for text, id in model["vocab"].items()
             if text not in special_tokens or len(token := text_bytes(text)) == 1 or token in joined}
    require(model.get("unk_token") is None or len(missing_bytes(ranks)) == 0, "unk_token",
            model.get("unk_token"), f"null, since the bytes {missing_bytes(ranks)} have no token")
    return {"pat_str": pat_str, "mergeable_ranks": ranks, "special_tokens": special_tokens, "merges": merges,
            "ignore_merges": bool(model.get("ignore_merges")),
            "normalizer": read_normalizer(data.get("normalizer"))}
