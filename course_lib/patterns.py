"""Patterns over bytes: what a text may be, written with five kinds of node. `course_lib.automaton` reads texts by them.

Control tokens are symbols too, numbered from 256 on; what holds for bytes holds for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SURROGATES = (0xD800, 0xDFFF)
MAX_CODE_POINT = 0x10FFFF


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
    """From `least` to `most` times, with `between` between two of them; None is without end."""

    part: Node
    least: int
    most: int | None
    between: Node


@dataclass(frozen=True)
class States:
    """From state to state, beginning in the first.

    Args:
        ways: of each state, what leads to which others.
        ends: the states in which the text may end; every state lies on a way to one of them.
    """

    ways: tuple[tuple[tuple[Node, int], ...], ...]
    ends: frozenset[int]


Node = Symbols | Concatenation | Choice | Repeat | States
EMPTY = Concatenation(())


def sequence(*parts: Node) -> Node:
    """One after another."""
    parts = tuple(part for part in parts if part != EMPTY)
    return parts[0] if len(parts) == 1 else Concatenation(parts)


def repeat(part: Node, least: int, most: int | None, between: Node = EMPTY) -> Node:
    """From `least` to `most` times; the empty text is the empty text, however often."""
    if most == 0 or part == EMPTY:
        return EMPTY
    return part if least == most == 1 else Repeat(part, least, most, between)


def literal(text: str | bytes) -> Node:
    """This very text, in UTF-8."""
    data = text.encode() if isinstance(text, str) else text
    return sequence(*(Symbols(((byte, byte),)) for byte in data))


def code_points(ranges: Iterable[tuple[int, int]]) -> Node:
    """One character out of these ranges of code points, ends included, as its bytes in UTF-8.

    Surrogates are no characters and are left out; something must be left. First bytes that the same bytes follow are
    one set of symbols.
    """
    low, high = SURROGATES
    firsts: dict[tuple[tuple[int, int], ...], list[tuple[int, int]]] = {}  # by the bytes that follow
    for first, last in ranges:
        for a, b in ((first, min(last, low - 1)), (max(first, high + 1), last)):
            for begin, *rest in utf8_ranges(a, b) if a <= b else ():
                firsts.setdefault(tuple(rest), []).append(begin)
    return Choice(tuple(sequence(Symbols(tuple(begins)), *(Symbols((pair,)) for pair in rest))
                        for rest, begins in firsts.items()))


def without(text: str) -> Node:
    """Any text in which this one, which is not empty, does not occur (Knuth, Morris and Pratt 1977).

    There is a state for each number of characters with which `text` may have begun at the end of what was read.
    """
    leads: list[dict[str, int]] = []  # of each state, the characters that lead to a state after the first
    back = 0  # the state after all but the first character
    for n, character in enumerate(text):
        leads.append({**(leads[back] if n else {}), character: n + 1})
        back = leads[back].get(character, 0) if n else 0
    ways = (tuple((code_points(ranges), goal) for goal, ranges in classes(one).items() if goal < len(text))
            for one in leads)
    return States(tuple(ways), frozenset(range(len(text))))


def classes(leads: dict[str, int]) -> dict[int, list[tuple[int, int]]]:
    """The code points that lead to each state; those that are not named lead to the first."""
    by_state: dict[int, list[tuple[int, int]]] = {0: []}
    next_code = 0
    for character, goal in sorted(leads.items()):
        code = ord(character)
        by_state[0] += [(next_code, code - 1)] if next_code < code else []
        by_state.setdefault(goal, []).append((code, code))
        next_code = code + 1
    by_state[0].append((next_code, MAX_CODE_POINT))
    return by_state


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
