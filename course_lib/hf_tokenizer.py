"""Hugging Face's `tokenizer.json`: byte-level BPE in and out, with the same ids on both sides.

Two rules of merging meet here. tiktoken joins the neighbours whose *union* has the lowest rank; Hugging
Face joins the neighbours that come first in a *list of pairs*. They agree when the list holds, in the
order of the ids, the one pair through which each token is reached. Otherwise the list is obeyed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from course_lib.config import require
from course_lib.hf_config import read_json
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
SINGLE_BYTES = [bytes([byte]) for byte in range(256)]
UTF8_BYTES = SINGLE_BYTES[:0xC0] + SINGLE_BYTES[0xC2:0xF5]  # the others never occur in UTF-8

# One character or more of each kind that a pre-tokenizer's pattern might forget.
PROBES = ("aZéß日ｧー1½Ⅷ٣ \t\n\r\x0b\x85\xa0\u2028\u3000'’.,-_(«+^$£|~©"
          "\u0301\u20dd\u093e\u200d\ufeff\x00\x7f\ue000\U0001f44d\U0010ffff")


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


def read_tokenizer(folder: Path, name: str | None = None) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json and what belongs to it.

    `name` is the tokenizer's, by default the folder's.

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
    options = read_options(folder) | {"name": name or folder.name}
    if ranks_say_it_all(parts["mergeable_ranks"], parts["merges"], parts["ignore_merges"]):
        del parts["merges"], parts["ignore_merges"]
        return Tokenizer(**parts, **options)
    return MergeListTokenizer(**parts, **options)


def parse_tokenizer(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `MergeListTokenizer` that a tokenizer.json holds."""
    model, added = data.get("model") or {}, data.get("added_tokens") or []
    require(model.get("type", "BPE") == "BPE" and "merges" in model, "model type", model.get("type"),
            "BPE, on bytes")
    require(not model.get("byte_fallback"), "byte_fallback", True, "false: only byte-level BPE is read")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        require(not model.get(name), name, model.get(name), "empty")
    for token in added:
        flags = [name for name in ("lstrip", "rstrip", "single_word") if token.get(name)]
        require(not flags, f"added token {token['content']!r}", flags, "without such a flag")
    pat_str = read_pattern(data.get("pre_tokenizer") or {})
    special_tokens = {token["content"]: token["id"] for token in added}
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
    merges = [(to_bytes(left), to_bytes(right)) for left, right in pairs]
    needed = {left + right for left, right in merges} | set(SINGLE_BYTES)
    ranks = {to_bytes(text): id for text, id in model["vocab"].items()
             if text not in special_tokens or text.encode() in needed}
    missing = [byte for byte in UTF8_BYTES if byte not in ranks]
    require(not (missing and model.get("unk_token")), "unk_token", model.get("unk_token"),
            f"null where bytes have no token: {missing}")
    return {"pat_str": pat_str, "mergeable_ranks": ranks, "special_tokens": special_tokens, "merges": merges,
            "ignore_merges": bool(model.get("ignore_merges")),
            "normalizer": read_normalizer(data.get("normalizer")),
            "prefix": read_prefix(data.get("post_processor") or {}, special_tokens)}


def to_bytes(text: str) -> bytes:
    """The bytes behind GPT-2's printable characters.

    Raises:
        ValueError: a character stands for no byte.

    >>> to_bytes("Ġa")
    b' a'
    """
    require(BYTE.keys() >= set(text), "token", text, "in the characters of byte-level BPE")
    return bytes(BYTE[character] for character in text)


def read_normalizer(data: Mapping[str, Any] | None) -> str | None:
    """The Unicode form that text is brought to; None for no normalizer, or an empty sequence of them."""
    steps = data.get("normalizers", [data]) if data else []
    kinds = [step["type"] for step in steps]
    require(kinds in ([], ["NFC"]), "normalizer", kinds, "NFC or none")
    return "NFC" if kinds else None


def read_prefix(data: Mapping[str, Any], special_tokens: Mapping[str, int]) -> tuple[str, ...]:
    """The special tokens that the post-processor puts before a text, such as Llama 3's."""
    steps = [step for step in data.get("processors", [data]) if step.get("type") not in (None, "ByteLevel")]
    if not steps:
        return ()
    kinds = [step["type"] for step in steps]
    require(kinds == ["TemplateProcessing"], "post_processor", kinds, "TemplateProcessing, ByteLevel or none")
    *before, last = steps[0]["single"]
    prefix = tuple(part["SpecialToken"]["id"] for part in before if "SpecialToken" in part)
    require("Sequence" in last and len(prefix) == len(before) and special_tokens.keys() >= set(prefix),
            "post_processor template", steps[0]["single"], "known special tokens, then the text")
    return prefix


def write_prefix(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The post-processor that puts the tokenizer's prefix before a text, or a pair's first; None for none."""
    if not tokenizer.prefix:
        return None
    before = [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokenizer.prefix]
    first, second = ({"Sequence": {"id": id, "type_id": 0}} for id in "AB")
    tokens = {token: {"id": token, "ids": [tokenizer.special_tokens[token]], "tokens": [token]}
              for token in tokenizer.prefix}
    return {"type": "TemplateProcessing", "single": [*before, first], "pair": [*before, first, second],
            "special_tokens": tokens}


def read_pattern(data: Mapping[str, Any]) -> str:
    """One pattern that cuts text as the pre-tokenizers of GPT-2, Llama 3, Qwen or SmolLM do."""
    steps = data.get("pretokenizers", [data])
    kinds = [step.get("type") for step in steps]
    require(kinds[-1:] == ["ByteLevel"] and len(kinds) <= 2, "pre_tokenizer", kinds,
            "ByteLevel, alone or after one Split or Digits")
    require(not steps[-1].get("add_prefix_space", True), "add_prefix_space", True, "false")
    cut_again = steps[-1].get("use_regex", True)
    if kinds == ["Split", "ByteLevel"] and not cut_again:
        return read_split(steps[0])
    digits = kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits")
    require(cut_again and (digits or kinds == ["ByteLevel"]), "pre_tokenizer", data,
            "ByteLevel with use_regex, alone or after Digits(individual_digits), or without, after Split")
    return DIGITS_PATTERN if digits else BYTE_LEVEL_PATTERN


def read_split(step: Mapping[str, Any]) -> str:
    """The pattern of a Split whose matches are the pieces."""
    pattern, how = step["pattern"].get("Regex"), (step.get("behavior"), bool(step.get("invert")))
    require(pattern is not None, "Split pattern", step["pattern"], "a Regex")
    require(how in (("Isolated", False), ("Removed", True)), "Split behavior, invert", how,
            "Isolated, false or Removed, true")
    samples = ["".join(pair) for pair in product(PROBES, repeat=2)] if how[0] == "Isolated" else []
    lost = [text for text in samples if b"".join(split_pieces(text, pattern)) != text.encode()]
    require(not lost, "Split pattern", pattern, f"one that covers all text, but it drops parts of {lost[:3]}")
    return pattern


def read_options(folder: Path) -> dict[str, str | None]:
    """The chat template and the special tokens it may name, from wherever this folder keeps them."""
    config, special = (read_json(path) if (path := folder / name).is_file() else {}
                       for name in ("tokenizer_config.json", "special_tokens_map.json"))
    template, file = config.get("chat_template"), folder / "chat_template.jinja"
    if file.is_file():
        template = file.read_text(encoding="utf-8")
    elif isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    options = {"chat_template": template}
    for name in ("bos_token", "eos_token"):
        token = config.get(name, special.get(name))
        options[name] = token["content"] if isinstance(token, dict) else token
    return options


def tokenizer_to_hf(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of tokenizer.json and tokenizer_config.json that give the same ids.

    Each token's merge is the one pair that merging by rank joins into it, so a list in the order of
    the ids gives what the ranks give. A token that is never reached has none and is matched whole.
    """
    if isinstance(tokenizer, MergeListTokenizer):
        merges, ignore_merges = list(tokenizer.merges), tokenizer.ignore_merges
    else:
        tokens = sorted(tokenizer.mergeable_ranks, key=tokenizer.mergeable_ranks.__getitem__)
        found = (last_pair(token, tokenizer.mergeable_ranks) for token in tokens if len(token) > 1)
        merges, ignore_merges = [pair for pair in found if pair], True
    ids = {to_text(token): id for token, id in tokenizer.mergeable_ranks.items()} | tokenizer.special_tokens
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": ignore_merges, "vocab": dict(sorted(ids.items(), key=lambda item: item[1])),
             "merges": [[to_text(left), to_text(right)] for left, right in merges]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": tokenizer.pat_str}, "behavior": "Isolated",
             "invert": False}
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(tokenizer),
            "normalizer": tokenizer.normalizer and {"type": tokenizer.normalizer},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": write_prefix(tokenizer), "decoder": byte_level | {"add_prefix_space": True},
            "model": model}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token,
              "chat_template": tokenizer.chat_template}
    return data, {name: value for name, value in config.items() if value is not None}


def to_text(token: bytes) -> str:
    """GPT-2's printable characters for the bytes; undoes `to_bytes`."""
    return "".join(CHARACTER[byte] for byte in token)


def added_tokens(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The control tokens, as tokenizer.json lists them."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": id, "content": text, **flags}
            for text, id in sorted(tokenizer.special_tokens.items(), key=lambda item: item[1])]
