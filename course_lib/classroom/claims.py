"""What a notebook says of its own run, said and tested in one line."""

from __future__ import annotations

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
