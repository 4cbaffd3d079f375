"""Checks of notebook 17, Every lever.

The oracles are small tables of which the answer can be seen, and the faults that were built into three engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from course_lib.analysis.levers import BETTER, pareto
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_diagnosis, expect_equal, show
from course_lib.classroom.sick_engines import FAULTS

TWO = {"dollars_per_million": "less", "gap_s": "less"}


def names_of(got: Any) -> Any:
    """The names of rows, which are easier to compare; whatever else comes back stays the same.

    Raises:
        CheckFailed: there are names already, and no rows.
    """
    several = isinstance(got, list)
    if any(isinstance(one, str) for one in (got if several else [got])):
        raise CheckFailed("the rows", show(got), "result holds names",
                          f"return the row{'s themselves, not their names' if several else ' itself, not its name'}")
    return [getattr(row, "name", row) for row in got] if several else getattr(got, "name", got)


def table(columns: Sequence[str], values: Mapping[str, Sequence[float]]) -> list[SimpleNamespace]:
    """Rows with these columns, by their names."""
    return [SimpleNamespace(name=name, **dict(zip(columns, numbers, strict=True))) for name, numbers in values.items()]


# 17.1


def check_pareto(attempt: Callable) -> None:
    def expect_front(values: Mapping[str, Sequence[float]], front: Sequence[str], likely: str,
                     better: Mapping[str, str] = TWO, extra: Sequence[str] = ()) -> None:
        rows = table([*better, *extra], values)
        expect_equal(names_of(attempt(rows, dict(better))), list(front), likely)

    expect_front({"A": (3,), "B": (1,), "C": (2,)}, "B", "in a column of which less is better, the smallest beats all",
                 {"gap_s": "less"})
    expect_front({"A": (3,), "B": (7,), "C": (2,)}, "B", "where better says \"more\", the largest number is the best",
                 {"tokens_per_s": "more"})
    expect_front({"A": (1, 5), "B": (5, 1)}, "AB", "a row beats another only if it is at least as good in all columns: "
                 "to be better in one of them is not enough")
    expect_front({"A": (1, 6), "B": (2, 2), "C": (7, 1)}, "ABC", "one row alone must beat it: B is worse than A in one "
                 "column and worse than C in the other, and stays")
    expect_front({"A": (1, 5), "B": (3, 3), "C": (4, 4), "D": (5, 1)}, "ABD", "B is better than C in both columns, so "
                 "C is beaten; the others are not")
    expect_front({"C": (3, 3), "D": (1, 5), "A": (5, 1)}, "CDA", "return the rows in the order in which they came")
    expect_front({"A": (2, 4), "B": (2, 3), "C": (6, 2)}, "BC", "A is as good as B in one column and worse in the "
                 "other: B beats it, and need not be better in all columns")
    expect_front({"A": (2, 4), "B": (2, 4), "C": (9, 9)}, "AB", "two rows that are equal in all columns do not beat "
                 "each other: both stay")
    expect_front({"A": (1, 9), "B": (2, 8), "C": (3, 2), "D": (4, 6), "E": (5, 5)}, "ABC", "compare each row with "
                 "all others: E is beaten by C, and not by its neighbour")
    mixed = {"dollars_per_million": "less", "tokens_per_s": "more"}
    expect_front({"A": (4, 40), "B": (3, 50), "C": (2, 30)}, "BC", "better holds a direction for each column: here "
                 "less of the one and more of the other", mixed)
    expect_front({"A": (1, 1, 0), "B": (2, 2, 5)}, "A", "only the columns in better count: the rows have others, too",
                 TWO, extra=["tokens_per_s"])
    three = {"dollars_per_million": "less", "capitals": "more", "ttft_s": "less"}
    expect_front({"A": (1, 0.5, 3), "B": (2, 0.9, 2), "C": (2, 0.8, 2), "D": (3, 0.5, 1), "E": (1, 0.0, 3)}, "ABD",
                 "look at every column of better, however many there are; a share of 0 counts like any other", three)
    expect_front({}, "", "without rows there is no front: an empty list")


# 17.2


def choose(rows: Sequence[Any], limits: Mapping[str, float], objective: str) -> Any:
    """The row with the best objective of those that keep to all limits; None if there is none."""
    def keeps(row: Any, column: str) -> bool:
        value = getattr(row, column)
        return value <= limits[column] if BETTER[column] == "less" else value >= limits[column]

    allowed = [row for row in rows if all(keeps(row, column) for column in limits)]
    best = min if BETTER[objective] == "less" else max
    return best(allowed, key=lambda row: getattr(row, objective), default=None)


def check_choose(attempt: Callable) -> None:
    columns = ("dollars_per_million", "gap_s", "capitals", "tokens_per_s")
    rows = {"A": (4, 10, 0.5, 7), "B": (1, 90, 0.9, 9), "C": (3, 30, 0.75, 5), "D": (2, 60, 0.25, 8)}

    def expect_choice(limits: Mapping[str, float], objective: str, name: str | None, likely: str,
                      values: Mapping[str, Sequence[float]] = rows) -> None:
        got = names_of(attempt(table(columns, values), dict(limits), objective))
        where = f"the choice with limits {show(dict(limits))} and objective {objective!r}"
        if got is None and name is not None and limits:  # without limits, a `return` is missing
            raise CheckFailed(show(name), "None", f"{where} is None", likely)
        expect_equal(got, name, likely, where=where)

    expect_choice({}, "gap_s", "A", "without limits, the row with the smallest number is the best where BETTER says "
                                    "\"less\"")
    expect_choice({}, "tokens_per_s", "B", "where BETTER says \"more\" of the objective, the largest number is the "
                                           "best")
    expect_choice({"gap_s": 50}, "dollars_per_million", "C", "limits first: the cheapest row of all breaks this one, "
                  "and of those that keep to it C is the cheapest")
    expect_choice({"capitals": 0.6}, "gap_s", "C", "where BETTER says \"more\", a limit is the least that a row must "
                                                   "have")
    expect_choice({"gap_s": 30}, "tokens_per_s", "A", "a row that is exactly at a limit keeps to it, and the largest "
                  "objective of those wins")
    expect_choice({"gap_s": 30}, "dollars_per_million", "C", "a row that is exactly at a limit keeps to it: at most, "
                                                             "and not less than")
    expect_choice({"capitals": 0.75}, "gap_s", "C", "a row that is exactly at a limit keeps to it: at least, and not "
                                                    "more than")
    expect_choice({"gap_s": 70, "capitals": 0.4}, "dollars_per_million", "C", "a row has to keep to all limits, not "
                                                                              "to one of them")
    expect_choice({"dollars_per_million": 3}, "dollars_per_million", "B", "the objective may have a limit, too")
    expect_choice({"gap_s": 5}, "dollars_per_million", None, "if no row keeps to the limits, return None")
    equal = {"A": (2, 1, 0.5, 7), "B": (1, 3, 0.5, 7), "C": (1, 2, 0.5, 7)}
    expect_choice({}, "dollars_per_million", "B", "of equal rows take the first", equal)
    expect_choice({}, "tokens_per_s", "A", "of equal rows take the first, also where more is better", equal)
    expect_choice({"capitals": 0}, "dollars_per_million", "B", "a limit or a number of 0 counts like any other",
                  {"A": (1, 1, -1, 7), "B": (2, 1, 0, 7)})
    expect_choice({}, "gap_s", None, "without rows there is nothing to choose: None", {})


# 17.3


def diagnosis() -> dict[str, str]:
    """The fault of each engine, by its short name."""
    return {"A": "stale pages", "B": "wrong scale", "C": "time stamp"}


EVIDENCE = {
    "A": "which of its answers are wrong, and from which token on? Compare with `preempted_at`.",
    "B": "how far do its answers get before they go wrong, and do requests that never lost a page suffer, too? Does "
         "the paged engine draft at all?",
    "C": "its texts are right. How many prompt tokens did it find in the prefix index, and why might no two prompts "
         "begin alike?",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), FAULTS, EVIDENCE, noun="fault")


EXERCISES = (
    Exercise(
        "17.1", "settings that nobody beats", pareto, check_pareto, minutes=8, hints=(
            "Write a function beats(one, other) first. It looks at all columns of better, and needs all of one "
            "comparison and any of another.",
            "To have one direction only, put a minus in front of the numbers of which more is better. Then less is "
            "better everywhere.",
            "[row for row in rows if not any(beats(other, row) for other in rows)]. A row never beats itself, because "
            "it is better in no column.",
        )),
    Exercise(
        "17.2", "the best within limits", choose, check_choose, minutes=6, hints=(
            "Two steps: keep the rows that are allowed, then take the best of them. In the other order, the best row "
            "is often forbidden.",
            "For each column of limits, BETTER[column] says which comparison it is: <= for \"less\", >= for \"more\".",
            "min(allowed, key=lambda row: getattr(row, objective), default=None), or max if more is better.",
        )),
    Exercise(
        "17.3", "diagnose three engines", diagnosis, check_diagnosis, minutes=10, kind="find the bug",
        difficulty="stretch", hints=(
            "For each engine write down what differs from the healthy one: a counter, some of its texts, or nearly all "
            "of them.",
            "The healthy engine preempts, too. So a preemption is not the fault; but what happens after it may be.",
            "An engine that writes only right texts has computed the right numbers, but perhaps too many of them. One "
            "whose texts are nearly all wrong, from the first token on, has wrong weights, or takes tokens that the "
            "model would not have chosen. For that it would need a sampler or a draft, and these engines are greedy.",
        )),
)
