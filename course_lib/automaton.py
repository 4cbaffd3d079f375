"""Patterns over bytes, and the automaton that reads them: which bytes may follow, and whether the text may end here.

A pattern is built of four kinds of node. It becomes a nondeterministic automaton with one state for each place in the
pattern (Thompson 1968), and of that a deterministic one, a state at a time as texts reach it: its states are sets of
places. Every place lies on a way to the end, so a set that is not empty is a beginning that can still be completed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

MAX_PLACES = 50_000  # of one pattern; what would need more is refused
MAX_REMEMBERED = 2_000_000  # numbers in all rows and sets; beyond, they are forgotten and computed again as needed
SURROGATES = (0xD800, 0xDFFF)
MAX_CODE_POINT = 0x10FFFF
DEAD = 0  # the number of the empty set


@dataclass(frozen=True)
class Symbols:
    """One symbol out of these ranges, ends included: a byte below 256, a control token above."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Concatenation:
    """One after another; none is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of these, at least one."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """From `least` to `most` times; None is without end."""

    part: Node
    least: int
    most: int | None


Node = Symbols | Concatenation | Choice | Repeat


def sequence(*parts: Node) -> Node:
    """One after another."""
    return Concatenation(parts)


def literal(text: str | bytes) -> Node:
    """This very text, in UTF-8."""
    data = text.encode() if isinstance(text, str) else text
    return Concatenation(tuple(Symbols(((byte, byte),)) for byte in data))


def code_points(ranges: Iterable[tuple[int, int]]) -> Node:
    """One character out of these ranges of code points, ends included, as its bytes in UTF-8.

    Surrogates are no characters and are left out; something must be left.
    """
    low, high = SURROGATES
    parts = []
    for first, last in ranges:
        for a, b in ((first, min(last, low - 1)), (max(first, high + 1), last)):
            if a <= b:
                parts += [Concatenation(tuple(Symbols((pair,)) for pair in pairs)) for pairs in utf8_ranges(a, b)]
    return Choice(tuple(parts))


def utf8_ranges(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The code points from first to last as sequences of byte ranges, each sequence a box of independent ranges.

    >>> list(utf8_ranges(0x41, 0xFF))
    [((65, 127),), ((194, 195), (128, 191))]
    """
    for border in (0x7F, 0x7FF, 0xFFFF):  # the last character of one, two and three bytes
        if first <= border < last:
            yield from utf8_ranges(first, border)
            yield from utf8_ranges(border + 1, last)
            return
    for low_bits in (0x3F, 0xFFF, 0x3FFFF):  # a continuation byte that is not full on either side cuts the range
        if first & ~low_bits != last & ~low_bits:
            if first & low_bits:
                yield from utf8_ranges(first, first | low_bits)
                yield from utf8_ranges((first | low_bits) + 1, last)
                return
            if ~last & low_bits:
                yield from utf8_ranges(first, (last & ~low_bits) - 1)
                yield from utf8_ranges(last & ~low_bits, last)
                return
    yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))


class Automaton:
    """Reads symbols from a start; knows after each whether the pattern can still be completed, and whether it is.

    Args:
        pattern: the node.
        n_symbols: 256 bytes, and the control tokens if the pattern has any.

    Attributes:
        start: the set of places before the first symbol.
        table: (states, n_symbols), the number of the next state; `DEAD` where the pattern allows no such symbol. A row
            holds after `number` and `fill`.
        work: places that were looked at so far. A pattern of many places that are possible at once takes many of them
            for each symbol, however short its text is.

    Raises:
        ValueError: the pattern is too large.
    """

    def __init__(self, pattern: Node, n_symbols: int = 256) -> None:
        self.n_symbols = n_symbols
        self.ranges: list[tuple[tuple[int, int], ...]] = [()]  # of each place, and where they lead
        self.targets: list[list[int]] = [[]]  # place 0 is the end
        self.work, self.most_work = 0, math.inf
        self.built: dict[tuple[int, int], int] = {}  # of a node, by its id, and where it leads: the place
        self.start = self.closure([self.build(pattern, 0)])
        del self.built
        self.forget()

    def place(self, ranges: tuple[tuple[int, int], ...], targets: list[int]) -> int:
        """A new place: a symbol of these ranges leads to the target; without ranges, nothing is read on the way."""
        if len(self.targets) >= MAX_PLACES:
            raise ValueError(f"the pattern is too large: must have at most {MAX_PLACES} places when repetitions are "
                             "written out")
        self.ranges.append(ranges)
        self.targets.append(targets)
        return len(self.targets) - 1

    def build(self, node: Node, after: int) -> int:
        """The place from which `node` leads to the place `after`; the same one if this node has been built to it."""
        key = id(node), after
        if key not in self.built:
            self.built[key] = self.build_anew(node, after)
        return self.built[key]

    def build_anew(self, node: Node, after: int) -> int:
        """As `build`, with new places."""
        match node:
            case Symbols(ranges):
                return self.place(ranges, [after])
            case Concatenation(parts):
                for part in reversed(parts):
                    after = self.build(part, after)
                return after
            case Choice(parts):
                return self.place((), [self.build(part, after) for part in parts])
        if node.most is None:
            begin = self.place((), [after])
            self.targets[begin].append(self.build(node.part, begin))
        else:
            begin = after
            for _ in range(node.most - node.least):
                begin = self.place((), [self.build(node.part, begin), after])
        for _ in range(node.least):
            following, begin = begin, self.build(node.part, begin)
            if begin == following:  # the part is the empty text, and would be ten thousand times more
                break
        return begin

    def closure(self, places: Iterable[int]) -> frozenset[int]:
        """The places that read a symbol, or end, and are reached from these without reading."""
        seen, stack = set(), list(places)
        self.spend(len(stack))
        while stack:
            place = stack.pop()
            if place not in seen:
                seen.add(place)
                if not self.ranges[place]:
                    stack += self.targets[place]
                    self.spend(len(self.targets[place]))
        return frozenset(place for place in seen if self.ranges[place] or place == 0)

    def spend(self, work: int) -> None:
        """Count work.

        Raises:
            ValueError: it is more than `limited` allows.
        """
        self.work += work
        if self.work > self.most_work:
            raise ValueError("the pattern is too ambiguous: must have fewer optional or repeated parts side by side")

    @contextmanager
    def limited(self, work: float) -> Iterator[None]:
        """Within it, no more than this much work is done.

        Raises:
            ValueError: it takes more. What was computed until then still holds.
        """
        self.most_work = self.work + work
        try:
            yield
        finally:
            self.most_work = math.inf

    def forget(self) -> None:
        """Begin the deterministic automaton anew; sets of places stay valid, numbers do not."""
        self.numbers: dict[frozenset[int], int] = {frozenset(): DEAD}
        self.sets: list[frozenset[int]] = [frozenset()]
        self.table = np.zeros((64, self.n_symbols), dtype=np.int32)
        self.filled = np.zeros(64, dtype=bool)
        self.filled[DEAD] = True
        self.remembered = 0

    def number(self, places: frozenset[int]) -> int:
        """The state that is this set of places."""
        if places not in self.numbers:
            self.numbers[places] = len(self.sets)
            self.sets.append(places)
            self.remembered += len(places) + self.n_symbols
            if len(self.sets) > len(self.table):
                self.table = np.concatenate([self.table, np.zeros_like(self.table)])
                self.filled = np.concatenate([self.filled, np.zeros_like(self.filled)])
        return self.numbers[places]

    def fill(self, states: Sequence[int] | np.ndarray) -> None:
        """Compute the rows of `table` for these states."""
        for state in states:
            if not self.filled[state]:
                for first, last, places in self.steps(self.sets[state]):
                    self.table[state, first : last + 1] = self.number(places)
                self.filled[state] = True

    def steps(self, places: frozenset[int]) -> Iterator[tuple[int, int, frozenset[int]]]:
        """Ranges of symbols that do not overlap, each with the set that it leads to."""
        edges = [(first, last, self.targets[place][0]) for place in places for first, last in self.ranges[place]]
        borders = sorted({first for first, _, _ in edges} | {last + 1 for _, last, _ in edges})
        index = {border: i for i, border in enumerate(borders)}
        led: list[set[int]] = [set() for _ in borders]  # to which places, from each border to the next
        for first, last, target in edges:
            self.spend(index[last + 1] - index[first])
            for i in range(index[first], index[last + 1]):
                led[i].add(target)
        closures: dict[frozenset[int], frozenset[int]] = {}
        for first, after, targets in zip(borders, borders[1:], map(frozenset, led)):
            if targets:
                if targets not in closures:
                    closures[targets] = self.closure(targets)
                yield first, after - 1, closures[targets]

    def read(self, places: frozenset[int], symbols: Iterable[int]) -> frozenset[int]:
        """The set of places after these symbols; empty if the pattern does not allow them."""
        state = self.number(places)
        for symbol in symbols:
            self.fill([state])
            state = int(self.table[state, symbol])
        return self.sets[state]

    def accepts(self, places: frozenset[int]) -> bool:
        """Whether the text may end here."""
        return 0 in places
