"""Structured output: only tokens that can continue a valid text may be sampled.

The text is bytes to the automaton, whatever tokens it is cut into. A token is allowed if its bytes lead somewhere; an
end token, where the text is complete. The tokens are kept as a tree of their bytes, so that each beginning that several
share is read once. Source: Willard and Louf 2023, "Efficient guided generation for large language models".

The logits are masked before penalties, temperature and filters, as in vLLM. `Step.logprob` stays the model's own, from
before the mask, so that exp(logprob) says what the model would have done; vLLM reports it after the mask.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.added_tokens import find_tokens
from course_lib.automaton import DEAD, MAX_REMEMBERED, Automaton, Choice, Node, Symbols, literal, sequence
from course_lib.byte_regex import parse_regex
from course_lib.config import SamplingParams, StructuredOutputsParams, require
from course_lib.json_schema import schema_pattern
from course_lib.structural_tag import tag_pattern
from course_lib.tool_calls import CLOSE, OPEN

MAX_MASK_BYTES = 2**25  # of the masks that a grammar remembers
MAX_WORK = 2_000_000  # places of an automaton that are looked at for one request: half a second; most take a hundredth


class TokenTree:
    """A vocabulary as a tree: each node a symbol after its parent's, each token at the node where its symbols end.

    A control token is one symbol of its own, 256 and up; a token without bytes is nowhere.

    Args:
        tokenizer: as `lm.tokenizer`.

    Attributes:
        control: the symbol of each control token, by its text.
        n_symbols, n_ids: one more than the largest symbol, and than the largest id.
        levels: from the root down, for all nodes of one depth: the places of their parents one level up (N,) and
            their symbols (N,); and for the tokens that end there their ids and the places of their nodes.
    """

    def __init__(self, tokenizer: Any) -> None:
        controls = [token for token in tokenizer.all_added_tokens() if token.special or token.content in (OPEN, CLOSE)]
        self.added = {token.content: token for token in controls}
        self.control = {token.content: 256 + i for i, token in enumerate(controls)}
        self.symbols: dict[int, tuple[int, ...]] = {
            id: tuple(tokenizer.decode_single_token_bytes(id)) for id in tokenizer.ids}
        self.symbols |= {token.id: (self.control[token.content],) for token in controls}
        self.n_symbols, self.n_ids = 256 + len(controls), max(self.symbols) + 1
        self.levels = list(self.grow())

    def grow(self) -> Any:
        """Yields `levels`."""
        waiting = sorted((symbols, id) for id, symbols in self.symbols.items() if symbols)
        nodes: dict[tuple[int, ...], int] = {(): 0}
        depth = 0
        while waiting:
            depth += 1
            beginnings = sorted({symbols[:depth] for symbols, _ in waiting})
            parents = np.array([nodes[beginning[:-1]] for beginning in beginnings])
            nodes = {beginning: place for place, beginning in enumerate(beginnings)}
            ending = [(id, nodes[symbols]) for symbols, id in waiting if len(symbols) == depth]
            ids, places = np.array(ending, dtype=int).reshape(-1, 2).T
            yield parents, np.array([beginning[-1] for beginning in beginnings]), ids, places
            waiting = [(symbols, id) for symbols, id in waiting if len(symbols) > depth]

    def parse(self, text: str) -> Node:
        """This very text, where the text of a control token means the token."""
        parts = find_tokens(text, self.added, self.added.keys())
        return sequence(*(literal(part) if isinstance(part, str) else
                          Symbols(((self.control[part.content],) * 2,)) for part in parts))


@lru_cache(maxsize=4)
def token_tree(tokenizer: Any) -> TokenTree:
    """A tokenizer's tree, built once."""
    return TokenTree(tokenizer)


class Grammar:
    """A pattern and a vocabulary: which tokens may follow each state; shared by all requests with this pattern.

    Args:
        pattern: what the whole text must be.
        tree: of the tokenizer.
    """

    def __init__(self, pattern: Node, tree: TokenTree) -> None:
        self.automaton, self.tree = Automaton(pattern, tree.n_symbols), tree
        self.masks: dict[tuple[frozenset[int], int], Tensor] = {}

    def mask(self, places: frozenset[int], vocab_size: int, *, most_work: float = math.inf) -> Tensor:
        """The tokens that may come next, computed once for each state: (V,), bool. End tokens are not looked at.

        Args:
            places: the state.
            vocab_size: V.
            most_work: that the automaton may do for it.

        Raises:
            ValueError: it takes more work.
        """
        key = places, vocab_size
        if key not in self.masks:
            if len(self.masks) * vocab_size > MAX_MASK_BYTES:
                self.masks.clear()
            with self.automaton.limited(most_work):
                self.masks[key] = torch.from_numpy(self.compute_mask(places, vocab_size))
        return self.masks[key]

    def compute_mask(self, places: frozenset[int], vocab_size: int) -> np.ndarray:
        """Walk the tree and the automaton together, all nodes of one depth at once."""
        automaton, mask = self.automaton, np.zeros(max(vocab_size, self.tree.n_ids), dtype=bool)
        if automaton.remembered > MAX_REMEMBERED:
            automaton.forget()
        states = np.array([automaton.number(places)])
        for parents, symbols, ids, nodes in self.tree.levels:
            automaton.fill(np.unique(states))
            states = automaton.table[states[parents], symbols]
            mask[ids] = states[nodes] != DEAD
        return mask[:vocab_size]


class LogitsProcessor:
    """One request's place in its grammar.

    Args:
        grammar: shared.
        end_ids: the ids that end the request.

    Attributes:
        places: the state of the automaton; after an end token it does not change any more.
        ended: whether there was one.
        work_left: what the automaton may still do for this request. A server has one thread for all requests, and a
            pattern of a few hundred letters can keep it busy for minutes.
    """

    def __init__(self, grammar: Grammar, end_ids: Collection[int]) -> None:
        self.grammar, self.end_ids = grammar, frozenset(end_ids)
        self.places, self.ended, self.work_left = grammar.automaton.start, False, MAX_WORK

    def copy(self) -> LogitsProcessor:
        """The same place, to go on from in another way."""
        twin = LogitsProcessor(self.grammar, self.end_ids)
        twin.places, twin.ended, twin.work_left = self.places, self.ended, self.work_left
        return twin

    def allowed(self, vocab_size: int) -> Tensor:
        """The ids that may come next: (V,), bool.

        An end id may where the text is complete, before it or with it: so </tool_call> can close a call and end it.

        Raises:
            ValueError: the pattern is so ambiguous that this takes too long.
        """
        before = self.grammar.automaton.work
        mask = self.grammar.mask(self.places, vocab_size, most_work=self.work_left).clone()
        self.work_left -= self.grammar.automaton.work - before
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
        self.work_left = twin.work_left
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
            self.places = places

    def after(self, token_id: int) -> frozenset[int]:
        """The state after a token; empty if there is none."""
        symbols = self.grammar.tree.symbols.get(token_id)
        return self.grammar.automaton.read(self.places, symbols) if symbols else frozenset()

    def accepts(self, places: frozenset[int]) -> bool:
        """Whether the text may end in this state."""
        return self.grammar.automaton.accepts(places)


def logits_processor_for(params: SamplingParams, tokenizer: Any, end_ids: Collection[int]) -> LogitsProcessor | None:
    """What masks this request's logits: `mask(logits)` before sampling, `advance(token_id)` after. None: nothing does.

    Args:
        end_ids: the ids that end the request.

    Raises:
        ValueError: the schema or the expression holds what is not supported, or is too large; or no token would end
            the text.
    """
    if params.structured_outputs is None:
        return None
    require(bool(end_ids), "end tokens of a request with structured_outputs", set(end_ids), "at least one")
    return LogitsProcessor(grammar_for(params.structured_outputs, tokenizer), end_ids)


@lru_cache(maxsize=64)
def grammar_for(structured: StructuredOutputsParams, tokenizer: Any) -> Grammar:
    """The grammar of a request, built once for all that ask for the same."""
    tree = token_tree(tokenizer)
    if structured.regex is not None:
        pattern = parse_regex(structured.regex)
    elif structured.choice is not None:
        pattern = Choice(tuple(map(literal, structured.choice)))
    elif structured.json is not None:
        pattern = schema_pattern(json.loads(structured.json))
    else:
        pattern = tag_pattern(json.loads(structured.structural_tag), tree.parse)
    return Grammar(pattern, tree)
