"""Regular expressions, as far as an automaton can read them: text to the nodes of `course_lib.patterns`.

The whole text must match. There are literals, escapes, classes, ".", groups, "|" and the quantifiers *, +, ?, {m},
{m,}, {m,n}. What has no meaning for a text that is still being written (anchors, lazy quantifiers) or needs a memory
(back-references, look-around) is refused by name. Characters are Unicode's; \\d, \\w and \\s are the ASCII ones.
"""

from __future__ import annotations

from functools import lru_cache
from string import hexdigits

from course_lib.patterns import MAX_CODE_POINT, Choice, Node, code_points, repeat, sequence

Ranges = list[tuple[int, int]]

MAX_DEPTH = 60
NEAR = 40  # characters of a long pattern that a message shows on either side of the mistake
MAX_REPEAT = 10_000
CLASSES: dict[str, Ranges] = {"d": [(48, 57)], "w": [(48, 57), (65, 90), (95, 95), (97, 122)],
                              "s": [(9, 13), (32, 32)]}
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


def parse_regex(pattern: str) -> Node:
    """The pattern as a node.

    Raises:
        ValueError: it is malformed, or holds a construct that is not supported; the message names it and the place.
    """
    parser = Parser(pattern)
    node = parser.choice(0)
    if parser.place < len(pattern):
        raise parser.error("an unopened )")
    return node


class Parser:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.place = pattern, 0

    def error(self, what: str) -> ValueError:
        """What is wrong at the current place."""
        near = self.pattern if len(self.pattern) <= 2 * NEAR else self.pattern[max(0, self.place - NEAR):][: 2 * NEAR]
        return ValueError(f"regex {near!r}, character {self.place}: {what} is not allowed")

    def peek(self, n: int = 1) -> str:
        """The next n characters, or fewer at the end."""
        return self.pattern[self.place : self.place + n]

    def take(self, what: str = "an end that comes too early") -> str:
        """The next character."""
        if not (character := self.peek()):
            raise self.error(what)
        self.place += 1
        return character

    def choice(self, depth: int) -> Node:
        """Alternatives, up to a closing parenthesis or the end."""
        if depth > MAX_DEPTH:
            raise self.error(f"nesting deeper than {MAX_DEPTH}")
        parts = [self.concatenation(depth)]
        while self.peek() == "|":
            self.take()
            parts.append(self.concatenation(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def concatenation(self, depth: int) -> Node:
        """Pieces with their quantifiers."""
        parts = []
        while self.peek() and self.peek() not in "|)":
            parts.append(self.quantified(self.atom(depth)))
        return sequence(*parts)

    def atom(self, depth: int) -> Node:
        """One character, class or group."""
        character = self.peek()
        if character == "(":
            return self.group(depth)
        if character == "[":
            return self.node(self.bracket())
        if character == ".":
            self.take()
            return self.node(complement([(10, 10)]))
        if character in "^$":
            raise self.error(f"the anchor {character} (the whole text always matches)")
        if character in "*+?{":
            raise self.error(f"{character} with nothing to repeat (write \\{character} for the character)")
        return self.node(self.escape() if character == "\\" else [(ord(self.take()),) * 2])

    def group(self, depth: int) -> Node:
        """( ... ) or (?: ... )."""
        if self.peek(3) == "(?:":
            self.place += 3
        elif self.peek(2) == "(?":
            raise self.error(f"the group {self.peek(3)}")
        else:
            self.take()
        node = self.choice(depth + 1)
        if self.peek() != ")":
            raise self.error("a missing )")
        self.take()
        return node

    def quantified(self, node: Node) -> Node:
        """The node with the quantifier that follows, if one does."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            least, most = simple[self.take()]
        elif self.peek() == "{":
            least, most = self.counts()
        else:
            return node
        if self.peek() and self.peek() in "?+*{":
            raise self.error(f"the quantifier {self.peek()} after a quantifier")
        return repeat(node, least, most)

    def counts(self) -> tuple[int, int | None]:
        """{m}, {m,} or {m,n}."""
        end = self.pattern.find("}", self.place)
        least, comma, most = self.pattern[self.place + 1 : end].partition(",") if end > 0 else ("", "", "")
        numbers = [least, most] if comma and most else [least]
        if not all(n.isascii() and n.isdigit() and len(n) <= len(f"{MAX_REPEAT}") and int(n) <= MAX_REPEAT
                   for n in numbers):
            raise self.error(f"the quantifier {self.peek(12)!r} (counts up to {MAX_REPEAT})")
        if comma and most and int(most) < int(least):
            raise self.error(f"the quantifier {self.peek(12)!r}, whose counts are not in order")
        self.place = end + 1
        return int(least), (int(most) if most else None) if comma else int(least)

    def escape(self) -> Ranges:
        """What stands after a backslash, as ranges of code points."""
        start = self.place
        self.take()
        character = self.take("a lone backslash")
        if character in CLASSES:
            return CLASSES[character]
        if character.lower() in CLASSES:
            return complement(CLASSES[character.lower()])
        if character == "0" and self.peek() and self.peek() in "0123456789":
            raise self.error(f"the octal escape \\0{self.peek()} (write \\x with two digits)")
        if character in CONTROLS:
            return [(ord(CONTROLS[character]),) * 2]
        if character in HEX_DIGITS:
            digits = self.peek(HEX_DIGITS[character])
            if len(digits) == HEX_DIGITS[character] and {*digits} <= {*hexdigits} and int(digits, 16) <= MAX_CODE_POINT:
                self.place += len(digits)
                return [(int(digits, 16),) * 2]
        if character.isalnum() or not character.isascii():
            self.place = start
            raise self.error(f"the escape \\{character}")
        return [(ord(character),) * 2]

    def bracket(self) -> Ranges:
        """[...] or [^...]."""
        self.take()
        negated = self.peek() == "^" and bool(self.take())
        ranges: Ranges = []
        while self.peek() != "]" or not ranges:
            if self.peek(2) in ("[:", "&&", "--", "~~") or self.peek() == "[" or (self.peek() == "]" and not ranges):
                raise self.error(f"{self.peek(2)} in a class (write \\{self.peek()} for the character)")
            item = self.escape() if self.peek() == "\\" else [(ord(self.take("a missing ]")),) * 2]
            if self.peek() == "-" and self.peek(2) != "-]":
                self.take()
                last = self.escape() if self.peek() == "\\" else [(ord(self.take("a missing ]")),) * 2]
                (first, single), (final, same) = item[0], last[0]
                if len(item) + len(last) > 2 or first != single or final != same or final < first:
                    raise self.error("a range that is not from one character up to another")
                item = [(first, final)]
            ranges += item
        self.take()
        return complement(ranges) if negated else ranges

    def node(self, ranges: Ranges) -> Node:
        """One character of these ranges; never none, or there would be texts that cannot be completed."""
        node = class_of(tuple(merged(ranges)))
        if not node.parts:
            raise self.error("a class of no character")
        return node


@lru_cache(maxsize=256)
def class_of(ranges: tuple[tuple[int, int], ...]) -> Node:
    """One character of these ranges; the same node each time, so that it is built once where it leads to one place."""
    return code_points(ranges)


def merged(ranges: Ranges) -> Ranges:
    """The same code points in ascending ranges that neither overlap nor touch.

    >>> merged([(5, 9), (1, 2), (3, 6)])
    [(1, 9)]
    """
    result: Ranges = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(last, result[-1][1])
        else:
            result.append((first, last))
    return result


def complement(ranges: Ranges) -> Ranges:
    """All other code points."""
    borders = [-1, *(border for pair in merged(ranges) for border in pair), MAX_CODE_POINT + 1]
    return [(low + 1, high - 1) for low, high in zip(borders[::2], borders[1::2]) if low + 1 < high]
