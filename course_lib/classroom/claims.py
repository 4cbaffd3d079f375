"""What a notebook says of its own run, said and tested in one line, and whose numbers its text states."""

from __future__ import annotations

from IPython.display import Markdown, display

from course_lib.checkpoint import SHIPPED, LanguageModel


def claim(holds: bool, statement: str, lm: LanguageModel | None = None) -> None:
    """Print a finding and stop the notebook if it does not hold.

    Args:
        holds: the measured truth, a plain bool.
        statement: the finding, in words.
        lm: given where the finding is about the weights of `pocket`. With another model it is reported and
            not asserted.

    Raises:
        AssertionError: the finding does not hold.

    >>> claim(2 + 2 == 4, "two and two are four")
    Holds: two and two are four.
    """
    if not isinstance(holds, bool):
        raise TypeError(f"holds = {holds!r} is not allowed: must be a bool")
    elsewhere = lm is not None and lm.name != SHIPPED[0]
    if not holds and not elsewhere:
        raise AssertionError(f"does not hold: {statement}")
    note = " (reported, not asserted: these are not the weights of pocket)" if elsewhere else ""
    print(f"{'Holds' if holds else 'Does not hold'}: {statement}{note}.")


def whose_numbers(lm: LanguageModel) -> None:
    """Display a warning, once at the top, where the text around the cells is about another model than `lm`."""
    if lm.name != SHIPPED[0]:
        display(Markdown(f"> **This run uses `{lm.name}`.** The text and its numbers are about `{SHIPPED[0]}`, the "
                         "model that comes with the course. What the cells print and draw is about yours."))
