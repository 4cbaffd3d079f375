"""What a grammar's mask costs a token, and how much of a text it decides without the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from course_lib.analysis.machine_speed import seconds_of
from course_lib.checkpoint import LanguageModel
from course_lib.config import SamplingParams, StructuredOutputsParams, require
from course_lib.generate import end_ids, generate
from course_lib.grammar import LogitsProcessor, build_grammar, grammar_for


@dataclass(frozen=True)
class Forced:
    """How much of a text had no alternative under its grammar.

    Attributes:
        tokens, forced_tokens: of the text, and those that were the only ones allowed.
        symbols, forced_symbols: its bytes and control tokens, and those that were the only ones possible.
    """

    tokens: int
    forced_tokens: int
    symbols: int
    forced_symbols: int


def forced(structured: StructuredOutputsParams, tokenizer: Any, token_ids: Sequence[int],
           end_ids: Sequence[int]) -> Forced:
    """Read a text again under its grammar, and count where there was no choice.

    Most forced bytes are not forced tokens: where only `{"name` can follow, `{` and `{"` may both begin it. A server
    that writes forced bytes without the model ("jump-forward") has to choose how to cut them into tokens.
    """
    processor, vocab_size = LogitsProcessor(build_grammar(structured, tokenizer), end_ids), max(tokenizer.ids) + 1
    automaton, tree = processor.grammar.automaton, processor.grammar.tree
    only_token, only_symbol = [], []
    for token_id in token_ids:
        only_token.append(int(processor.allowed(vocab_size).sum()) == 1)
        places = processor.places
        for symbol in tree.symbols[token_id] if token_id not in end_ids or processor.after(token_id) else ():
            state = automaton.number(places)
            automaton.fill([state])
            only_symbol.append(int((automaton.table[state] > 0).sum()) + automaton.accepts(places) == 1)
            places = automaton.read(places, [symbol])
        processor.advance(token_id)
    return Forced(len(only_token), sum(only_token), len(only_symbol), sum(only_symbol))


def places_along(structured: StructuredOutputsParams, tokenizer: Any, token_ids: Sequence[int],
                 end_ids: Sequence[int]) -> list[frozenset[int]]:
    """Where a text is in its grammar's automaton before each of its tokens."""
    processor, places = LogitsProcessor(grammar_for(structured, tokenizer), end_ids), []
    for token_id in token_ids:
        places.append(processor.places)
        processor.advance(token_id)
    return places


def mask_seconds(structured: StructuredOutputsParams, tokenizer: Any, token_ids: Sequence[int],
                 end_ids: Sequence[int]) -> tuple[list[float], list[float]]:
    """Seconds for each token's mask along a text, with an empty memory and with a full one."""
    grammar = build_grammar(structured, tokenizer)  # which knows the first mask
    cold, again = (walk_seconds(LogitsProcessor(grammar, end_ids), tokenizer, token_ids) for _ in range(2))
    return cold, again


def walk_seconds(processor: LogitsProcessor, tokenizer: Any, token_ids: Sequence[int]) -> list[float]:
    """Seconds for the mask before each token, and for the step after it."""
    vocab_size, seconds = max(tokenizer.ids) + 1, []
    for token_id in token_ids:
        started = time.perf_counter()
        processor.allowed(vocab_size)
        processor.advance(token_id)
        seconds.append(time.perf_counter() - started)
    return seconds


def mask_milliseconds(lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, allowed: Callable,
                      vocabulary: Sequence[bytes]) -> dict[str, float]:
    """What masks cost along the text that a model writes under its grammar: median milliseconds for a token.

    Args:
        prompt_ids, params: as for `generate`, with structured outputs.
        allowed: a mask of exercise 16.3, which reads the whole vocabulary each time.
        vocabulary: the bytes of every token.

    Returns:
        For `allowed`, for the library's tree in a state that is new to it and in one that it knows, and for the model
        with its mask.

    Raises:
        ValueError: without structured outputs.
    """
    structured = params.structured_outputs
    require(structured is not None, "params.structured_outputs", structured, "a grammar")
    written, ends = generate(lm, prompt_ids, params).token_ids, list(end_ids(lm, params))
    along = (structured, lm.tokenizer, written, ends)
    automaton = grammar_for(structured, lm.tokenizer).automaton
    new, known = mask_seconds(*along)
    seconds = {
        "your allowed": [seconds_of(partial(allowed, automaton, places, vocabulary))
                         for places in places_along(*along)],
        "tree, a new state": new,
        "tree, a known state": known,
        "model and mask": [seconds_of(partial(generate, lm, prompt_ids, params)) / len(written) for _ in range(3)],
    }
    return {name: 1000 * median(values) for name, values in seconds.items()}
