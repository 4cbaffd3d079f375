"""Exact arithmetic on what a model writes, bounded in every direction; the oracle is Python's own arithmetic."""

import re
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.calculator import MAX_LENGTH, calculate, show

NUMBERS = st.integers(0, 99).map(str) | st.sampled_from(["0.5", "12.25", "00.10"])
EXPRESSIONS = st.recursive(NUMBERS, lambda inner: st.one_of(
    st.tuples(inner, st.sampled_from(["+", "-", "*", "/", " - ", " * "]), inner).map("".join),
    inner.map("({})".format), inner.map("-{}".format), inner.map("+ {}".format),
    st.tuples(inner.map("({})".format), st.sampled_from(["**2", "** -1", "**0"])).map("".join)), max_leaves=8)


@given(EXPRESSIONS)
def test_it_computes_what_python_computes(expression):
    exact = "".join(f"Fraction('{part}')" if part[0].isdigit() else part
                    for part in re.findall(r"[\d.]+|\*\*|\S", expression))
    exact = re.sub(r"\*\*(-?)Fraction\('(\d)'\)", r"**\1\2", exact)
    if len(expression) > MAX_LENGTH:
        return
    try:
        expected = eval(exact, {"Fraction": Fraction})  # of text that this test has made
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="without a division by zero"):
            calculate(expression)
    else:
        assert Fraction(calculate(expression)) == expected


@pytest.mark.parametrize("expression, value", {
    "12 + 345": "357", "9999 * 9999": "99980001", "7 - 12": "-5", "144 / 12": "12", "2 - 3 - 4": "-5", "8 / 4 / 2": "1",
    "-2 ** 2": "-4", "2 ** 3 ** 2": "512", "(1 + 2) * 3": "9", "0.1 + 0.2": "0.3", "1 / 3": "1/3", "-1 / 8": "-0.125",
    "0 ** 0": "1", "(-1) ** 999999999999": "-1", "1 ** -5": "1", "0 ** 999999999999": "0", "2 ** -3": "0.125",
    "12345678901234567890 * 98765432109876543210": "1219326311370217952237463801111263526900",
}.items())
def test_values(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize("expression, reason", {
    "9**9**9": "below 4096 bits on the way", "9" * 150 + "**99": "below 4096 bits", "2 ** 9999999999999999": "below",
    "(2 ** 4000) * (2 ** 4000)": "below 4096 bits", "1 / 2 ** 5000": "below 4096 bits", "(1/3) ** 5000": "below 4096",
    "1 / 0": "without a division by zero", "0 ** -1": "without a division by zero", "4 ** 0.5": "exponent = '0.5'",
    "1 +": "where 'its end' is", "": "where 'its end' is", "(1": "with a ) for every (", "1)": "complete before ')'",
    "1 2": "complete before '2'", "* 2": "where '*' is", "()": "where ')' is", "** 2": "where '**' is",
    "1e5": "character 1 is not", "__import__('os')": "character 0 is not", "1,5": "character 1 is not",
    "٣ + 1": "character 0 is not", "1 # 2": "character 1 is not", "2 & 1": "character 1 is", ".5": "character 0 is not",
    "(" * 60 + "1" + ")" * 60: "nested at most 40 deep", "-" * 100 + "1": "nested at most 40 deep",
    "1 / 2 ** 1000": "of a value with at most 1000 characters", "2 ** 3400": "of a value with at most 1000",
    "2**" * 60 + "1": "nested at most 40 deep", "1+" * 200 + "1": "at most 200 characters",
}.items(), ids=lambda text: text[:16])
def test_what_is_refused_is_refused_at_once(expression, reason):
    started = time.perf_counter()
    with pytest.raises(ValueError) as error:
        calculate(expression)
    assert reason in str(error.value) and time.perf_counter() - started < 1


@given(st.text(max_size=30))
def test_no_text_does_anything_but_fail(text):
    try:
        assert Fraction(calculate(text)) is not None
    except ValueError as error:
        assert "is not allowed" in str(error)


@given(st.fractions(max_denominator=10**6))
def test_a_value_is_shown_exactly(value):
    assert Fraction(show(value)) == value
