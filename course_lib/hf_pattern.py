"""The pre-tokenizers of `tokenizer.json`: one pattern that cuts text into the pieces that merges may not cross."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import regex

from course_lib.config import require
from course_lib.tokenizer import split_pieces

# The pieces of Hugging Face's ByteLevel pre-tokenizer (GPT-2's), and the same when Digits cuts first:
# a run of spaces then also ends where a digit begins.
BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGITS_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"

# One character or more of each kind that a pre-tokenizer's pattern might forget.
PROBES = ("aZéß日ｧー1½Ⅷ٣ \t\n\r\x0b\x85\xa0\u2028\u3000'’.,-_(«+^$£|~©"
          "\u0301\u20dd\u093e\u200d\ufeff\x00\x7f\ue000\U0001f44d\U0010ffff")

# What Oniguruma (of `tokenizers`), `regex` and Rust's engine (of tiktoken) all read, and read alike. Not among it: ^
# and $, \w and \b, classes inside classes, repeated groups, and (?i:...) around more than contractions.
COMMON_SYNTAX = regex.compile(r"""
    (?<all>(?:
        \|
      | \(\?i: (?<short>'?(?:[stmd]|\[[stmd]+\]|re|ve|ll)) (?:\|(?&short))* \) \??
      | \( (?:\?[:!=])? (?&all) \) \??
      | (?: (?<one> \\[pP]\{(?:[LMNPSZC][a-z]?|Han|Hiragana|Katakana|Hangul)\} | \\[sSrntdD] | \\[^\w\s]
                  | \\u[0-9a-fA-F]{4})
          | \[\^?(?!\]) (?: (?!--|&&|\|\||~~) (?:(?&one)|[^\\\[\]]) )+ \]
          | [^\\\[\](){}|?*+^$] )
        (?: [?*+][?+]? | \{\d{1,3}(?:,\d{0,3})?\}(?![?*+]) )?
    )*+)""", regex.VERBOSE)


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
    require(isinstance(pattern, str), "Split pattern", step["pattern"], "a Regex")
    require(how in (("Isolated", False), ("Removed", True)), "Split behavior, invert", how,
            "Isolated, false or Removed, true")
    require(len(pattern) < 4000 and COMMON_SYNTAX.fullmatch(pattern) is not None, "Split pattern", pattern[:4000],
            "in the syntax that tokenizers and tiktoken read alike")
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"Split pattern = {pattern!r} cannot be read: {error}") from error
    require(not compiled.fullmatch(""), "Split pattern", pattern, "one that matches no empty text")
    samples = ["".join(pair) for pair in product(PROBES, repeat=2)] if how[0] == "Isolated" else []
    lost = [text for text in samples if b"".join(split_pieces(text, pattern)) != text.encode()]
    require(not lost, "Split pattern", pattern, f"one that covers all text, but it drops parts of {lost[:3]}")
    return pattern
