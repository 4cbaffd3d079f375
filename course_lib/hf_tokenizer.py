"""Hugging Face's `tokenizer.json`: byte-level BPE in and out, with the same ids on both sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tiktoken

from course_lib.added_tokens import AddedToken
from course_lib.config import is_int, require
from course_lib.hf_config import read_json
from course_lib.hf_pattern import read_pattern
from course_lib.merge_list import (
    BYTE,
    SINGLE_BYTES,
    UTF8_BYTES,
    BytePair,
    MergeListTokenizer,
    last_pair,
    ranks_say_it_all,
    to_bytes,
    to_text,
)
from course_lib.tokenizer import Tokenizer

FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")
TEMPLATE_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError)


def read_tokenizer(folder: Path, name: str | None = None) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json and what belongs to it.

    `name` is the tokenizer's, by default the folder's.

    Raises:
        ValueError: there is none, or it is no byte-level BPE of a known kind.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no tokenizer.json, the only tokenizer file that is read here")
    data = read_json(path)
    try:
        parts = parse_tokenizer(data)
        merges, ignore_merges = parts.pop("merges"), parts.pop("ignore_merges")
        by_rank = ranks_say_it_all(parts["mergeable_ranks"], merges, ignore_merges)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except MALFORMED as error:
        raise ValueError(f"{path} is no tokenizer that can be read: {type(error).__name__} {error}") from error
    parts |= read_options(folder) | {"name": name or folder.name}
    tokenizer = (Tokenizer(**parts) if by_rank
                 else MergeListTokenizer(**parts, merges=merges, ignore_merges=ignore_merges))
    try_out(tokenizer, path)
    return tokenizer


def try_out(tokenizer: Tokenizer, path: Path) -> None:
    """Encode and decode once, so that what the engines refuse is refused here and not at the first prompt."""
    try:
        tokenizer.decode(tokenizer.encode("a b"))
    except BaseException as error:  # a panic of tiktoken's Rust code is no Exception
        if not (isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime"):
            raise
        raise ValueError(f"{path}: tiktoken {tiktoken.__version__} refuses it: {error}") from error


def parse_tokenizer(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `MergeListTokenizer` that a tokenizer.json holds."""
    model = data.get("model") or {}
    require(model.get("type", "BPE") == "BPE" and "merges" in model, "model type", model.get("type"),
            "BPE, on bytes")
    require(not model.get("byte_fallback"), "byte_fallback", True, "false: only byte-level BPE is read")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        require(not model.get(name), name, model.get(name), "empty")
    require(isinstance(model.get("ignore_merges", False), bool), "ignore_merges", model.get("ignore_merges"),
            "true or false")
    vocab, normalizer = read_vocab(model.get("vocab")), read_normalizer(data.get("normalizer"))
    decoder = data.get("decoder") or {}
    require(decoder.get("type") == "ByteLevel", "decoder", decoder.get("type"), "ByteLevel")
    added = read_added_tokens(data.get("added_tokens") or [], vocab, normalizer)
    pat_str = read_pattern(data.get("pre_tokenizer") or {})
    special_tokens = {token.content: token.id for token in added if token.special}
    merges = read_merges(model["merges"], vocab)
    needed = {left + right for left, right in merges} | set(SINGLE_BYTES)
    texts = {token.content for token in added}
    ranks = {to_bytes(text): id for text, id in vocab.items()
             if text not in texts or (BYTE.keys() >= set(text) and to_bytes(text) in needed)}
    missing = [byte for byte in UTF8_BYTES if byte not in ranks]
    require(not (missing and model.get("unk_token")), "unk_token", model.get("unk_token"),
            f"null where bytes have no token: {missing}")
    return {"pat_str": pat_str, "mergeable_ranks": ranks, "special_tokens": special_tokens, "merges": merges,
            "added_tokens": [token for token in added if token != AddedToken(token.content, token.id)],
            "ignore_merges": model.get("ignore_merges", False), "normalizer": normalizer,
            "prefix": read_prefix(data.get("post_processor") or {}, special_tokens)}


def read_vocab(vocab: Any) -> dict[str, int]:
    """The texts of the ordinary tokens and their ids."""
    require(isinstance(vocab, dict) and vocab, "vocab", vocab, "an object that gives each token its id")
    for text, id in vocab.items():
        require(is_int(id) and 0 <= id < 2**31, f"id of token {text!r}", id, "an integer in [0, 2**31)")
    if len(set(vocab.values())) < len(vocab):
        seen: dict[int, str] = {}
        twice = next((id, text) for text, id in vocab.items() if seen.setdefault(id, text) != text)
        raise ValueError(f"id {twice[0]} belongs to two tokens, {seen[twice[0]]!r} and {twice[1]!r}")
    return vocab


def read_merges(merges: Any, vocab: Mapping[str, int]) -> list[BytePair]:
    """The pairs of tokens to be joined, as bytes, in their order."""
    require(isinstance(merges, list), "merges", merges, "a list of pairs")
    pairs = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    for pair in pairs:
        require(len(pair) == 2 and vocab.keys() >= {*pair, "".join(pair)}, "merge", pair,
                "two tokens that make a third")
    return [(to_bytes(left), to_bytes(right)) for left, right in pairs]


def read_added_tokens(entries: Sequence[Mapping[str, Any]], vocab: Mapping[str, int],
                      normalizer: str | None) -> list[AddedToken]:
    """The added tokens, with the ids that `tokenizers` gives them: the vocabulary's, else the next that is free."""
    tokens: list[AddedToken] = []
    for entry in entries:
        flags = {name: entry.get(name, False) for name in FLAGS}
        token = AddedToken(entry["content"], entry["id"], **flags)
        what = f"added token {token.content!r}"
        require(isinstance(token.content, str) and token.content, what, token.content, "a text")
        require(all(isinstance(flag, bool) for flag in flags.values()), what, flags, "with flags true or false")
        require(token.content not in {other.content for other in tokens}, what, token.id, "listed once")
        free = max([len(vocab), *(other.id + 1 for other in tokens)])
        require(token.id == vocab.get(token.content, free), f"id of {what}", token.id,
                f"{vocab.get(token.content, free)}, which tokenizers gives it")
        require(not (token.special and token.normalized and normalizer), what, flags,
                "not normalized: a control token is matched as it is written")
        composed = unicodedata.is_normalized(normalizer, token.content) if normalizer and token.normalized else True
        require(composed, what, token.id, f"in the form {normalizer} of the normalizer")
        require(decodes_to_itself(token.content), what, token.id,
                "decoded to its own text, but its letters are those of byte-level BPE")
        tokens.append(token)
    return tokens


def decodes_to_itself(text: str) -> bool:
    """Whether a ByteLevel decoder, which takes letters of its alphabet for bytes, leaves an added token's text."""
    return text.isascii() or not BYTE.keys() >= set(text)


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
    for token in prefix:
        ids = steps[0]["special_tokens"][token]["ids"]
        require(ids == [special_tokens[token]], f"post_processor ids of {token!r}", ids, f"[{special_tokens[token]}]")
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


def read_options(folder: Path) -> dict[str, Any]:
    """The chat template and the special tokens it may name, from wherever this folder keeps them."""
    path, file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config, special = (read_json(path) if path.is_file() else {} for path in (path, folder / "special_tokens_map.json"))
    template = config.get("chat_template")
    if file.is_file():
        try:
            template = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ValueError(f"{file} cannot be read: {error}") from error
    elif isinstance(template, list):
        require(all(isinstance(entry, dict) for entry in template), f"{path}: chat_template", template, "objects")
        template = {str(entry.get("name")): entry.get("template") for entry in template}.get("default")
    require(template is None or isinstance(template, str), f"{path}: chat_template", template, "a text")
    named = {}
    for name in ("bos_token", "eos_token", *TEMPLATE_TOKENS):
        token = config.get(name, special.get(name))
        named[name] = token.get("content") if isinstance(token, dict) else token
        require(named[name] is None or isinstance(named[name], str), f"{path}: {name}", token, "the text of a token")
    template_tokens = {name: token for name in TEMPLATE_TOKENS if (token := named[name]) is not None}
    return {"chat_template": template, "bos_token": named["bos_token"], "eos_token": named["eos_token"],
            "template_tokens": template_tokens}


def in_vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    """The added tokens whose ids must stand in the vocabulary of tokenizer.json.

    Those that follow the vocabulary are numbered by their order, and stay out of it: there, one that is a word
    would also be found where its own rules forbid it.
    """
    ranks = tokenizer.mergeable_ranks
    added = {token.content: token.id for token in tokenizer.all_added_tokens()
             if ranks.get(token.content.encode()) != token.id}
    return {} if sorted(added.values()) == list(range(len(ranks), len(ranks) + len(added))) else added


def tokenizer_to_hf(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of tokenizer.json and tokenizer_config.json that give the same ids.

    Each token's merge is the one pair that merging by rank joins into it, so a list in the order of
    the ids gives what the ranks give. A token that is never reached has none and is matched whole.
    """
    if isinstance(tokenizer, MergeListTokenizer):
        merges, ignore_merges = list(tokenizer.merges), tokenizer.ignore_merges
    else:
        tokens = sorted(tokenizer.mergeable_ranks, key=tokenizer.mergeable_ranks.__getitem__)
        found = [last_pair(token, tokenizer.mergeable_ranks) for token in tokens if len(token) > 1]
        merges = [pair for pair in found if pair]
        # matched whole, an added word would be found inside other words too
        ignore_merges = None in found or not any(token.single_word for token in tokenizer.added_tokens)
    added = tokenizer.all_added_tokens()
    ids = {to_text(token): id for token, id in tokenizer.mergeable_ranks.items()} | in_vocabulary(tokenizer)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": ignore_merges, "vocab": dict(sorted(ids.items(), key=lambda item: item[1])),
             "merges": [[to_text(left), to_text(right)] for left, right in merges]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": tokenizer.pat_str}, "behavior": "Isolated",
             "invert": False}
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [asdict(token) for token in added],
            "normalizer": tokenizer.normalizer and {"type": tokenizer.normalizer},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": write_prefix(tokenizer), "decoder": byte_level | {"add_prefix_space": True},
            "model": model}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token,
              "chat_template": tokenizer.chat_template, **tokenizer.template_tokens}
    return data, {name: value for name, value in config.items() if value is not None}
