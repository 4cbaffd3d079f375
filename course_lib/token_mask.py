"""Which tokens may follow a state of an automaton: all are read from it, and each beginning that several share once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.added_tokens import find_tokens
from course_lib.automaton import DEAD, Automaton, Work
from course_lib.patterns import Node, Symbols, literal, sequence
from course_lib.tool_calls import CLOSE, OPEN

MAX_GRAMMAR_BYTES = 2**26  # of what a grammar remembers


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

    def grow(self) -> Iterator[tuple[np.ndarray, ...]]:
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

    Threads may share it: what it remembers is computed under a lock.

    Args:
        pattern: what the whole text must be.
        tree: of the tokenizer.

    Attributes:
        masks: the tokens that may come next, by the state, or by one that is like it.
    """

    def __init__(self, pattern: Node, tree: TokenTree) -> None:
        self.automaton, self.tree, self.lock = Automaton(pattern, tree.n_symbols), tree, Lock()
        self.masks: dict[frozenset[int], Tensor] = {}

    @property
    def nbytes(self) -> int:
        """The memory that it takes, about."""
        return self.automaton.nbytes + len(self.masks) * self.tree.n_ids

    def mask(self, places: frozenset[int], work: Work | None = None) -> Tensor:
        """The tokens that may come next, computed once for states that are alike: (ids,), bool. Not to be changed.

        Args:
            places: the state. End tokens are not looked at.
            work: that the automaton may do for it; None: any.

        Raises:
            ValueError: it takes more work.
        """
        with self.lock:
            self.stay_small()
            if places not in self.masks:
                places = self.automaton.like(places, len(self.tree.levels))
            if places not in self.masks:
                with self.automaton.limited(work or Work()):
                    self.masks[places] = torch.from_numpy(self.compute_mask(places))
            return self.masks[places]

    def compute_mask(self, places: frozenset[int]) -> np.ndarray:
        """Walk the tree and the automaton together, all nodes of one depth at once."""
        automaton, mask = self.automaton, np.zeros(self.tree.n_ids, dtype=bool)
        states = np.array([automaton.number(places)])
        for parents, symbols, ids, nodes in self.tree.levels:
            automaton.fill(np.unique(states))
            states = automaton.table[states[parents], symbols]
            mask[ids] = states[nodes] != DEAD
        return mask

    def read(self, places: frozenset[int], symbols: Iterable[int]) -> frozenset[int]:
        """The state after these symbols; empty if there is none."""
        with self.lock:
            self.stay_small()
            return self.automaton.read(places, symbols)

    def stay_small(self) -> None:
        """Forget all if that is too much; it is computed again as needed."""
        if self.nbytes > MAX_GRAMMAR_BYTES:
            self.masks.clear()
            self.automaton.forget()
