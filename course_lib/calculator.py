"""Arithmetic on exact numbers by a small recursive-descent parser; nothing that a model writes is ever run as code.

    sum     = product (("+" | "-") product)*
    product = signed (("*" | "/") signed)*
    signed  = ("-" | "+") signed | power
    power   = atom ("**" signed)?
    atom    = number | "(" sum ")"
"""

from __future__ import annotations

import re
from fractions import Fraction

from course_lib.config import require

MAX_LENGTH = 200  # characters of an expression
MAX_DEPTH = 40  # of parentheses, signs and powers
MAX_BITS = 4096  # of a numerator or denominator, about 1,233 digits; 9**9**9 would have 369,693,100
MAX_VALUE = 1_000  # characters of the result
TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\*\*|[-+*/()])", re.ASCII)


def calculate(expression: str) -> str:
    """The value: an integer, a decimal fraction if that is exact, else a quotient in lowest terms.

    Raises:
        ValueError: the expression is malformed, too long or nested too deep; or divides by zero, has a number of
            `MAX_BITS` bits or more on the way, or a value of more than `MAX_VALUE` characters.

    >>> calculate("2 + 3 * 4"), calculate("1 / 8"), calculate("1 / 3"), calculate("2 ** -1 - 1")
    ('14', '0.125', '1/3', '-0.5')
    """
    require(len(expression) <= MAX_LENGTH, "expression", expression[:20] + "...", f"at most {MAX_LENGTH} characters")
    value = show(Parser(expression).value())
    require(len(value) <= MAX_VALUE, "expression", expression, f"of a value with at most {MAX_VALUE} characters")
    return value


class Parser:
    """One expression, read from left to right; `place` is the next token's."""

    def __init__(self, expression: str) -> None:
        self.expression, self.place, self.tokens = expression, 0, []
        start, text = 0, expression.rstrip()
        while start < len(text):
            match = TOKEN.match(text, start)
            require(match is not None, "expression", expression,
                    f"made of numbers, + - * / ** and parentheses; character {start} is not")
            self.tokens.append(match[1])
            start = match.end()

    def value(self) -> Fraction:
        """The value of the whole."""
        result = self.sum(0)
        require(self.place == len(self.tokens), "expression", self.expression, f"complete before {self.peek()!r}")
        return result

    def peek(self) -> str:
        """The next token, empty at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        """The next token, which is read."""
        self.place += 1
        return self.tokens[self.place - 1]

    def sum(self, depth: int) -> Fraction:
        """Products, added and subtracted from left to right."""
        left = self.product(depth)
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            left = self.bounded(left + sign * self.product(depth))
        return left

    def product(self, depth: int) -> Fraction:
        """Factors, multiplied and divided from left to right."""
        left = self.signed(depth)
        while self.peek() in ("*", "/"):
            times, right = self.take() == "*", self.signed(depth)
            require(times or right != 0, "expression", self.expression, "without a division by zero")
            left = self.bounded(left * right if times else left / right)
        return left

    def signed(self, depth: int) -> Fraction:
        """Signs, then a power."""
        require(depth <= MAX_DEPTH, "expression", self.expression, f"nested at most {MAX_DEPTH} deep")
        if self.peek() in ("+", "-"):
            return -self.signed(depth + 1) if self.take() == "-" else self.signed(depth + 1)
        return self.power(depth)

    def power(self, depth: int) -> Fraction:
        """A number to the power of another, which is found first; its size is known before it is computed."""
        base = self.atom(depth)
        if self.peek() != "**":
            return base
        self.take()
        exponent = self.signed(depth + 1)
        require(exponent.denominator == 1, "exponent", show(exponent), "an integer")
        require(base != 0 or exponent >= 0, "expression", self.expression, "without a division by zero")
        bits = max(abs(base.numerator), base.denominator).bit_length() - 1  # the least; 0 for 1 and -1
        require(bits * abs(exponent) < MAX_BITS, "expression", self.expression, f"below {MAX_BITS} bits on the way")
        if not bits:  # 0, 1 and -1 may have any exponent, of which only its being odd, even or 0 counts
            exponent = exponent % 2 or 2 * min(abs(exponent), 1)
        return self.bounded(base ** int(exponent))

    def atom(self, depth: int) -> Fraction:
        """A number, or a sum in parentheses."""
        token = self.peek()
        require(bool(token) and token not in "*/)**", "expression", self.expression,
                f"a number or ( where {token or 'its end'!r} is")
        self.take()
        if token != "(":
            return self.bounded(Fraction(token))
        value = self.sum(depth + 1)
        require(self.peek() == ")", "expression", self.expression, "with a ) for every (")
        self.take()
        return value

    def bounded(self, value: Fraction) -> Fraction:
        """The value, if it is not too large to go on with."""
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        require(bits < MAX_BITS, "expression", self.expression, f"below {MAX_BITS} bits on the way")
        return value


def show(value: Fraction) -> str:
    """An exact value as text.

    >>> [show(Fraction(*pair)) for pair in ((6, 3), (-1, 20), (2, 7))]
    ['2', '-0.05', '2/7']
    """
    rest, places = value.denominator, 0
    for factor in (2, 5):
        count = 0
        while rest % factor == 0:
            rest, count = rest // factor, count + 1
        places = max(places, count)
    if rest > 1:
        return f"{value.numerator}/{value.denominator}"
    if not places:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' * (value < 0)}{digits[:-places]}.{digits[-places:]}"
