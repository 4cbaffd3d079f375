"""Structured output: only tokens that can continue a valid text may be sampled.

The text is bytes to the automaton, whatever tokens it is cut into. A token is allowed if its bytes lead somewhere; an
end token, where the text is complete. Source: Willard and Louf 2023, "Efficient guided generation for large language
models".

The logits are masked before penalties, temperature and filters, as in vLLM. `Step.logprob` stays the model's own, from
before the mask, so that exp(logprob) says what the model would have done; vLLM reports it after the mask.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.automaton import MAX_WORK, Automaton, Work, work_to_build
from course_lib.byte_regex import parse_regex
from course_lib.config import SamplingParams, StructuredOutputsParams, require
from course_lib.json_schema import object_pattern, schema_pattern
from course_lib.patterns import Choice, literal
from course_lib.structural_tag import tag_pattern
from course_lib.token_mask import Grammar, token_tree

MAX_GRAMMARS, MAX_CACHE_BYTES = 64, 2**28  # that are kept
WORK_PER_TOKEN = 1_000  # places: a quarter of a millisecond


class LogitsProcessor:
    """One request's place in its grammar.

    Args:
        grammar: shared.
        end_ids: the ids that end the request.

    Attributes:
        places: the state of the automaton; after an end token it does not change any more.
        ended: whether there was one.
        work: what the automaton may still do for this request. A server has one thread for all requests, and a pattern
            of a few hundred letters can keep it busy for minutes.
    """

    def __init__(self, grammar: Grammar, end_ids: Collection[int]) -> None:
        self.grammar, self.end_ids = grammar, frozenset(end_ids)
        self.places, self.ended, self.work = grammar.automaton.start, False, Work(MAX_WORK)

    def copy(self) -> LogitsProcessor:
        """The same place, to go on from in another way."""
        twin = LogitsProcessor(self.grammar, self.end_ids)
        twin.places, twin.ended, twin.work = self.places, self.ended, self.work
        return twin

    def allowed(self, vocab_size: int) -> Tensor:
        """The ids that may come next: (V,), bool.

        An end id may where the text is complete, before it or with it: so </tool_call> can close a call and end it.

        Raises:
            ValueError: the pattern is so ambiguous that this takes too long.
        """
        known = self.grammar.mask(self.places, self.work)
        mask = F.pad(known, (0, vocab_size - len(known)))  # a new one, also where it is cut or stays as long
        complete = self.accepts(self.places)
        for token_id in self.end_ids:
            if token_id < vocab_size:
                mask[token_id] = complete or (bool(mask[token_id]) and self.accepts(self.after(token_id)))
        return mask

    def mask(self, logits: Tensor) -> Tensor:
        """Logits (V,) or (1, V) with -inf for every token that may not come next; a new tensor.

        Raises:
            ValueError: there is none left: the vocabulary lacks the bytes, or nothing can end the text. Or the pattern
                is so ambiguous that to find out takes too long.
        """
        allowed = self.allowed(logits.shape[-1])
        if not allowed.any():
            raise ValueError("no token can continue or end the structured output: the vocabulary lacks a byte, or the "
                             "request an end token")
        return logits.masked_fill(~allowed.to(logits.device), -torch.inf)

    def mask_rows(self, logits: Tensor, proposal: Sequence[int]) -> Tensor:
        """Logits (n, V), one row after each beginning of a proposal, each masked; for speculative decoding.

        Rows after a token that is not allowed, or after an end token, stay: nobody will draw from them.
        """
        twin, rows = self.copy(), list(logits)
        for i, row in enumerate(rows):
            allowed = twin.allowed(len(row))
            rows[i] = twin.mask(row)
            if i == len(proposal) or not allowed[proposal[i]]:
                break
            twin.advance(proposal[i])
            if twin.ended:
                break
        return torch.stack(rows)

    def advance(self, token_id: int) -> None:
        """The token was chosen.

        Raises:
            ValueError: it was not allowed.
        """
        if self.ended:
            return
        places = self.after(token_id)
        if token_id in self.end_ids and (self.accepts(self.places) or self.accepts(places)):
            self.ended = True
        else:
            require(bool(places), "token_id", token_id, "one that the structured output allows here")
            self.places, self.work.left = places, self.work.left + WORK_PER_TOKEN

    def after(self, token_id: int) -> frozenset[int]:
        """The state after a token; empty if there is none."""
        symbols = self.grammar.tree.symbols.get(token_id)
        return self.grammar.read(self.places, symbols) if symbols else frozenset()

    def accepts(self, places: frozenset[int]) -> bool:
        """Whether the text may end in this state."""
        return self.grammar.automaton.accepts(places)


def logits_processor_for(params: SamplingParams, tokenizer: Any, end_ids: Collection[int]) -> LogitsProcessor | None:
    """What masks this request's logits: `mask(logits)` before sampling, `advance(token_id)` after. None: nothing does.

    Args:
        end_ids: the ids that end the request.

    Raises:
        ValueError: the schema or the expression holds what is not supported, or is too large or too ambiguous; or no
            token would end the text.
    """
    if params.structured_outputs is None:
        return None
    require(bool(end_ids), "end tokens of a request with structured_outputs", set(end_ids), "at least one")
    return LogitsProcessor(grammar_for(params.structured_outputs, tokenizer), end_ids)


def build_grammar(structured: StructuredOutputsParams, tokenizer: Any) -> Grammar:
    """The grammar of a request, with the mask of its first token.

    Raises:
        ValueError: as `logits_processor_for`.
    """
    tree = token_tree(tokenizer)
    space = structured.whitespace_pattern
    require(space is None or all(accepts(space, text) for text in ("", " ")), "whitespace_pattern", space,
            "one that matches one space and no space, for JSON is written with both")
    if structured.regex is not None:
        pattern = parse_regex(structured.regex)
    elif structured.choice is not None:
        pattern = Choice(tuple(map(literal, structured.choice)))
    elif structured.json is not None:
        pattern = schema_pattern(json.loads(structured.json))
    elif structured.json_object:
        pattern = object_pattern()
    else:
        pattern = tag_pattern(json.loads(structured.structural_tag), tree.parse)
    grammar = Grammar(pattern, tree)
    grammar.mask(grammar.automaton.start, work_to_build())
    return grammar


def accepts(regex: str, text: str) -> bool:
    """Whether the whole text matches."""
    automaton = Automaton(parse_regex(regex))
    return automaton.accepts(automaton.read(automaton.start, text.encode()))


class GrammarCache:
    """The grammars of the latest requests, and why others were refused; both are found again, and not built again.

    One grammar is built at a time, so that many that take long do not keep all cores from those that do not. What is
    known is found while another is built.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[StructuredOutputsParams, Any], Grammar | str] = {}  # the latest last
        self.lock, self.building = Lock(), Lock()

    def get(self, structured: StructuredOutputsParams, tokenizer: Any) -> Grammar:
        """The grammar of a request.

        Raises:
            ValueError: as `logits_processor_for`.
        """
        key = structured, tokenizer
        known = self.find(key)
        if known is None:
            with self.building:
                known = self.find(key) or self.build(*key)
                self.keep(key, known)
        if isinstance(known, str):
            raise ValueError(known)
        return known

    def find(self, key: tuple[StructuredOutputsParams, Any]) -> Grammar | str | None:
        """What is known of a request, which becomes the latest."""
        with self.lock:
            if (known := self.known.pop(key, None)) is not None:
                self.known[key] = known
            return known

    def build(self, structured: StructuredOutputsParams, tokenizer: Any) -> Grammar | str:
        """A grammar, or why there is none."""
        try:
            return build_grammar(structured, tokenizer)
        except ValueError as error:
            return str(error)

    def keep(self, key: tuple[StructuredOutputsParams, Any], known: Grammar | str) -> None:
        """Remember it, and forget the oldest until the others are few and small enough."""
        with self.lock:
            self.known[key] = known
            grammars = [one for one in self.known.values() if isinstance(one, Grammar)]
            nbytes = sum(grammar.nbytes for grammar in grammars)
            while len(self.known) > 1 and (len(self.known) > MAX_GRAMMARS or nbytes > MAX_CACHE_BYTES):
                oldest = self.known.pop(next(iter(self.known)))
                nbytes -= oldest.nbytes if isinstance(oldest, Grammar) else 0


CACHE = GrammarCache()


def grammar_for(structured: StructuredOutputsParams, tokenizer: Any) -> Grammar:
    """The grammar of a request, built once for all that ask for the same.

    Raises:
        ValueError: as `logits_processor_for`.
    """
    return CACHE.get(structured, tokenizer)
