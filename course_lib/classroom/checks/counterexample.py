"""Look with Hypothesis (MacIver et al. 2019) for a call that a function gets wrong, and show the smallest one found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hypothesis import Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky, NoSuchExample

from course_lib.classroom.checks.compare import CheckFailed

T = TypeVar("T")
Cut = TypeVar("Cut", str, bytes)
FOUND = "Hypothesis tried random inputs, and this is the smallest wrong call that it found"
# The same inputs on every run, and none of the phases that set a trace function.
SEARCH = settings(derandomize=True, database=None, deadline=None, max_examples=200, verbosity=Verbosity.quiet,
                  phases=(Phase.generate, Phase.shrink))


def expect_no_counterexample(cases: st.SearchStrategy[T], check: Callable[[T], None]) -> None:
    """Refuse an answer if one of some hundred random cases fails the check.

    Args:
        cases: what to draw the cases from. Its numbers are below 100 and its texts made of given letters: otherwise
            Hypothesis also tries constants of all modules that are loaded, and a check would depend on them.
        check: called with a case; it calls the reader's function, and returns or raises.

    Raises:
        CheckFailed: in the words of the check, for the smallest case found.
        Exception: what the reader's function raises on the smallest case, if it raises.
    """
    def fails(case: T) -> bool:
        try:
            check(case)
        except Exception:  # the reader's function may raise anything
            return True
        return False

    try:
        with nothing_kept():
            smallest = find(cases, fails, settings=SEARCH)
    except NoSuchExample:
        return
    except Flaky:
        raise unsteady() from None
    try:
        check(smallest)  # once more, outside of Hypothesis
    except CheckFailed as failed:
        raise CheckFailed(failed.expected, failed.got, failed.where, f"{failed.likely} ({FOUND}.)") from None
    raise unsteady()


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Hypothesis has a folder of its own, which it would keep beside the notebook; here it lasts as long as a block."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


def unsteady() -> CheckFailed:
    """The refusal of a function that is wrong and right on the same input."""
    return CheckFailed("the same result whenever the arguments are the same", "a wrong result, and later a right one",
                       "two equal calls differ", "your function remembers something from call to call: use only its "
                       "arguments")


@st.composite
def cut_anywhere(draw: st.DrawFn, whole: Cut) -> Sequence[Cut]:
    """Some bytes or a text in one piece or several, some of which may be empty."""
    borders = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    return [whole[a:b] for a, b in zip([0, *borders], [*borders, len(whole)])]
