"""The automaton that reads a pattern: which bytes may follow, and whether the text may end here.

A pattern becomes a nondeterministic automaton, whose places are in the pattern (Thompson 1968), and of that a
deterministic one, a state at a time as texts reach it: its states are sets of places. Every place lies on a way to the
end, so a set that is not empty is a beginning that can still be completed.

A repetition with counts is not written out. Its body is there once, and a place in it is a number that says two things:
where in the pattern, modulo `MAX_PLACES`, and above that how often each repetition around it has begun.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from course_lib.patterns import Choice, Concatenation, Node, Repeat, States, Symbols

MAX_PLACES = 2**16  # of one pattern
MAX_BUILD_WORK, MAX_WORK = 200_000, 1_000_000  # places looked at to build, and for a request: 0.06 and 0.3 s
WORK_BETWEEN_RESTS, REST_SECONDS = 5_000, 0.001
PLACE_BYTES, ITEM_BYTES = 300, 100  # memory for a place of the pattern, and for an item of a set
DEAD = 0  # the number of the empty set


@dataclass
class Work:
    """How many places may still be looked at. Where many are possible at once, each byte of a text takes many.

    Attributes:
        rest_at: when so much is left, other threads get a turn; the interpreter runs one at a time.
    """

    left: float = math.inf
    rest_at: float = -math.inf

    def spend(self, work: int) -> None:
        """Count some.

        Raises:
            ValueError: nothing is left.
        """
        self.left -= work
        if self.left < 0:
            raise ValueError("the pattern is too ambiguous: must have fewer optional or repeated parts side by side")
        if self.left < self.rest_at:
            self.rest_at = self.left - WORK_BETWEEN_RESTS
            time.sleep(REST_SECONDS)


def work_to_build() -> Work:
    """Enough for any sensible pattern, with rests."""
    return Work(MAX_BUILD_WORK, MAX_BUILD_WORK - WORK_BETWEEN_RESTS)


@dataclass(frozen=True)
class Counter:
    """Counts how often the body of a repetition has begun.

    Args:
        unit: what a place grows by when it has begun once more.
        least, most: of the repetition.
        outer: of the repetition around it.
    """

    unit: int
    least: int
    most: int | None
    outer: Counter | None

    @property
    def highest(self) -> int:
        """It counts no further: more is not allowed, or makes no difference."""
        return self.least if self.most is None else self.most

    def count(self, place: int) -> int:
        """Of a place in the body."""
        return place // self.unit % (self.highest + 1)

    def like(self, count: int, n: int) -> int:
        """A count after which the same n symbols may follow, the same one for as many as possible."""
        if count + n < self.least:
            return min(count, 1)
        if count >= self.least and (self.most is None or count + n < self.most):
            return max(self.least, min(count, 1))
        return count


class Automaton:
    """Reads symbols from a start; knows after each whether the pattern can still be completed, and whether it is.

    Args:
        pattern: the node.
        n_symbols: 256 bytes, and the control tokens if the pattern has any.

    Attributes:
        start: the set of places before the first symbol.
        table: (states, n_symbols), the number of the next state; `DEAD` where the pattern allows no such symbol. A row
            holds after `number` and `fill`.

    Raises:
        ValueError: the pattern is too large, or too ambiguous.
    """

    def __init__(self, pattern: Node, n_symbols: int = 256) -> None:
        self.n_symbols = n_symbols
        self.ranges: list[tuple[tuple[int, int], ...]] = [()]  # of each place, and where they lead
        self.targets: list[list[int]] = [[]]  # place 0 is the end
        self.counters: list[Counter | None] = [None]  # of the repetition around each place, or that begins there
        self.loops: set[int] = set()  # the places where a repetition begins once more, or ends
        self.around: Counter | None = None  # while building
        self.built: dict[tuple[object, int], int] = {}  # of a node, and where it leads: the place
        self.nearby: dict[int, tuple[list[int], list[int]]] = {}  # what `near` has found
        self.work = work_to_build()
        self.start = self.closure([self.build(pattern, 0)])
        self.work = Work()
        del self.built
        self.forget()

    def place(self, ranges: tuple[tuple[int, int], ...], targets: list[int]) -> int:
        """A new place: a symbol of these ranges leads to the target; without ranges, nothing is read on the way."""
        if len(self.targets) >= MAX_PLACES:
            raise ValueError(f"the pattern is too large: must have at most {MAX_PLACES} places")
        self.ranges.append(ranges)
        self.targets.append(targets)
        self.counters.append(self.around)
        return len(self.targets) - 1

    def build(self, node: Node, after: int) -> int:
        """The place from which `node` leads to the place `after`; the same one if this node has been built to it."""
        key = node.ranges if isinstance(node, Symbols) else id(node), after
        if key not in self.built:
            self.work.spend(1)
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
            case States(ways, ends):
                places = [self.place((), [after] if i in ends else []) for i in range(len(ways))]
                for place, leading in zip(places, ways):
                    self.targets[place] += [self.build(one, places[goal]) for one, goal in leading]
                return places[0]
            case Repeat(part, 0, 1):
                return self.place((), [self.build(part, after), after])
            case Repeat(part, least, None, between) if least < 2:
                again = self.place((), [after])
                first = self.build(part, again)
                self.targets[again].append(self.build(between, first))
                return first if least else self.place((), [first, after])
        return self.build_counted(node, after)

    def build_counted(self, node: Repeat, after: int) -> int:
        """A repetition with counts: a loop that leads out, or to its body for the first time, or for another one."""
        outer = self.around
        unit = outer.unit * (outer.highest + 1) if outer else MAX_PLACES
        self.around = Counter(unit, node.least, node.most, outer)
        loop = self.place((), [after])
        self.loops.add(loop)
        first = self.build(node.part, loop)
        self.targets[loop] += [first, self.build(node.between, first)]
        self.around = outer
        return loop

    def near(self, position: int) -> tuple[list[int], list[int]]:
        """What is reached without reading: the positions that read a symbol, or end; and the loops."""
        if position not in self.nearby:
            reads, loops, seen, stack = [], [], {position}, [position]
            while stack:
                one = stack.pop()
                if one in self.loops:
                    loops.append(one)
                elif self.ranges[one] or one == 0:
                    reads.append(one)
                else:
                    stack += {*self.targets[one]} - seen
                    seen.update(self.targets[one])
            self.work.spend(len(seen))
            self.nearby[position] = reads, loops
        return self.nearby[position]

    def follow(self, loop: int) -> list[int]:
        """Where a loop leads: out, or once more to its body."""
        position = loop % MAX_PLACES
        counter, (after, first, more) = self.counters[position], self.targets[position]
        count, counts = counter.count(loop), loop - position
        following = [counts - count * counter.unit + after] if count >= counter.least else []
        if count < counter.highest:
            following.append(counts + counter.unit + (more if count else first))
        elif counter.most is None:
            following.append(counts + more)
        return following

    def closure(self, places: Iterable[int]) -> frozenset[int]:
        """The places that read a symbol, or end, and are reached from these without reading."""
        found, seen, stack = set(), set(), list(places)
        self.work.spend(len(stack))
        while stack:
            place = stack.pop()
            position = place % MAX_PLACES
            if self.ranges[position]:
                found.add(place)
                continue
            counts, (reads, loops) = place - position, self.near(position)
            self.work.spend(len(reads))
            found.update([counts + read for read in reads] if counts else reads)
            for loop in loops:
                if counts + loop not in seen:
                    seen.add(counts + loop)
                    following = self.follow(counts + loop)
                    stack += following
                    self.work.spend(len(following))
        return frozenset(found)

    @contextmanager
    def limited(self, work: Work) -> Iterator[None]:
        """Within it, no more than this work is done.

        Raises:
            ValueError: it takes more. What was computed until then still holds.
        """
        self.work, before = work, self.work
        try:
            yield
        finally:
            self.work = before

    def forget(self) -> None:
        """Begin the deterministic automaton anew; sets of places stay valid, numbers do not."""
        self.numbers: dict[frozenset[int], int] = {frozenset(): DEAD}
        self.sets: list[frozenset[int]] = [frozenset()]
        self.table = np.zeros((64, self.n_symbols), dtype=np.int32)
        self.filled = np.zeros(64, dtype=bool)
        self.filled[DEAD] = True
        self.items = 0  # in all sets
        self.nearby.clear()

    @property
    def nbytes(self) -> int:
        """The memory that it takes, about."""
        return PLACE_BYTES * len(self.targets) + self.table.nbytes + ITEM_BYTES * self.items

    def number(self, places: frozenset[int]) -> int:
        """The state that is this set of places."""
        if places not in self.numbers:
            self.numbers[places] = len(self.sets)
            self.sets.append(places)
            self.items += len(places)
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
        edges = []
        for place in places:
            position = place % MAX_PLACES
            for first, last in self.ranges[position]:
                edges.append((first, last, place - position + self.targets[position][0]))
        borders = sorted({first for first, _, _ in edges} | {last + 1 for _, last, _ in edges})
        index = {border: i for i, border in enumerate(borders)}
        led: list[set[int]] = [set() for _ in borders]  # to which places, from each border to the next
        for first, last, target in edges:
            self.work.spend(index[last + 1] - index[first])
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

    def like(self, places: frozenset[int], n: int) -> frozenset[int]:
        """A set after which the same n symbols may follow, the same one for as many sets as possible.

        In the middle of a string of at most 1,000 characters, the next word does not depend on how many there were.
        """
        if not self.loops:
            return places
        return frozenset(self.like_place(place, n) if place >= MAX_PLACES else place for place in places)

    def like_place(self, place: int, n: int) -> int:
        """As `like`, of one place."""
        counter = self.counters[place % MAX_PLACES]
        while counter:
            count = counter.count(place)
            place += (counter.like(count, n) - count) * counter.unit
            counter = counter.outer
        return place
