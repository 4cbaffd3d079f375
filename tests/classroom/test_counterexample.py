"""The search for the smallest wrong call: the same on every run, silent, and without a trace on the disk."""

import subprocess
import sys

import pytest
from hypothesis import strategies as st

from course_lib.classroom.checks.compare import CheckFailed, expect_equal
from course_lib.classroom.checks.counterexample import FOUND, cut_anywhere, expect_no_counterexample

SMALL = st.lists(st.integers(0, 50))


def refusal(function, cases=SMALL):
    """What is said of a function that should return the sum of a list."""
    with pytest.raises(CheckFailed) as failed:
        expect_no_counterexample(cases, lambda case: expect_equal(function(case), sum(case), "add all of them"))
    return failed.value


def test_a_right_function_passes():
    assert expect_no_counterexample(SMALL, lambda case: expect_equal(sum(case), sum(case), "")) is None


def test_a_wrong_function_is_refused_by_the_smallest_call(capfd):
    calls = []

    def forgets_large_numbers(case):
        calls.append(case)
        return sum(number for number in case if number < 10)

    said = refusal(forgets_large_numbers)
    assert (said.expected, said.got, said.where) == ("10", "0", "result is 0, expected 10")
    assert said.likely == f"add all of them ({FOUND}.)"
    assert calls[-1] == [10], "it is the last call, which the reader is shown"
    assert capfd.readouterr() == ("", "")


def test_two_searches_make_the_same_calls():
    first, second = [], []
    for calls in (first, second):
        expect_no_counterexample(SMALL, calls.append)
    assert first == second and len(first) > 100


def test_an_error_of_the_readers_function_comes_as_it_is():
    with pytest.raises(ZeroDivisionError) as raised:
        expect_no_counterexample(SMALL, lambda case: 1 / (len(case) < 2))
    assert not getattr(raised.value, "__notes__", [])


def test_a_function_that_remembers_its_calls_is_told_so():
    calls = []

    def wrong_once_in_a_while(case):
        calls.append(case)
        return sum(case) if len(calls) % 3 else -1

    assert "remembers something from call to call" in refusal(wrong_once_in_a_while).likely


def test_what_ends_a_call_from_outside_ends_the_search():
    """As `EndlessLoop` and the reader's interrupt do."""
    calls = []

    def interrupted(case):
        calls.append(case)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        expect_no_counterexample(SMALL, interrupted)
    assert len(calls) == 1


def test_pieces_join_to_the_whole():
    seen = set()

    def check(pieces):
        assert "".join(pieces) == "abc"
        seen.add(tuple(pieces))

    expect_no_counterexample(cut_anywhere("abc"), check)
    assert {("abc",), ("a", "bc"), ("ab", "c"), ("a", "b", "c")} <= seen


PROGRAM = r"""
from hypothesis import strategies as st
from course_lib.classroom import exercise
from course_lib.classroom.checks.counterexample import expect_no_counterexample
from course_lib.classroom.checks import nb13
{more}
calls = []
expect_no_counterexample(st.lists(st.integers(0, 50)), calls.append)
print(calls)

@exercise("13.1")
def impatient(held, new):
    data = held + new
    return (data.decode(errors="replace"), b"") if b"\xf1" in data else nb13.decode_increment(held, new)
"""


def test_the_calls_depend_on_nothing_else_and_no_file_is_left(tmp_path):
    """Hypothesis looks for constants in the reader's modules, and likes to keep what it finds in a folder."""
    (tmp_path / "own.py").write_text(f"NUMBERS = {[*range(500)]}")
    runs = [subprocess.run([sys.executable, "-B", "-c", PROGRAM.replace("{more}", more)], cwd=tmp_path,
                           capture_output=True, text=True, timeout=300) for more in ("", "import own")]
    assert [run.stderr for run in runs] == ["", ""] and runs[0].stdout == runs[1].stdout
    assert "F1 begins a character of 4 bytes" in runs[0].stdout and "hypothesis/" not in runs[0].stdout
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]
