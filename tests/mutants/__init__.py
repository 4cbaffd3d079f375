"""Answers to try the exercises' checks on, one module per notebook, named as the checks are.

`@mutant("01.2", "overlap")` marks a plausible wrong answer; what the reader is told about it must
contain the words. `@variant("01.2")` marks a right answer written in another way than the finished one.
"""

from collections.abc import Callable
from types import ModuleType


def mutant(exercise_id: str, words: str) -> Callable[[Callable], Callable]:
    def mark(function: Callable) -> Callable:
        function.exercise_id, function.words = exercise_id, words
        return function
    return mark


def variant(exercise_id: str) -> Callable[[Callable], Callable]:
    return mutant(exercise_id, "")


def marked(module: ModuleType) -> list[Callable]:
    """The answers of a module in the order in which they stand there, which no second `def` may hide."""
    return [value for value in vars(module).values() if hasattr(value, "exercise_id")]
