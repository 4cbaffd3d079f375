"""The exercises that `@exercise` checks: one module per notebook, `nb01.py` for notebook 01.

How to add an exercise
1. `checks/nbXX.py`: write `check_name(attempt)` and add an `Exercise` to the module's `EXERCISES`.
   The finished version is `course_lib`'s own function; where the library has none, or does more than
   the card says, write it here.
   Each call to `expect_equal` or `expect_close` isolates one mechanism by its choice of input and
   names the mistake that fails it. Expected values are written by hand or come from somebody else's
   code, never from the finished version. An exercise with a plain answer ("predict") is a function of
   no arguments that returns the answer. A wrong kind, shape or dtype is named by the comparisons, a
   changed argument, an endless loop and an iterator by `attempt.Attempt`: a check need not look.
   Inputs differ in everything that an answer might lean on: ids above 255, unequal rows, the maximum in
   the middle, a long vocabulary, settings that no float is equal to, every dtype that the card allows.
2. `notebooks/XX_….ipynb`: a card headed by the words of `Exercise.heading`, then `@exercise("XX.n")`
   on a function whose body is a docstring and `...`.
3. `answers/nbXX.py`: the answer that `solution` prints; `answers/__init__.py` says what it may use.
4. `tests/mutants/nbXX.py`: at least four wrong answers, each with the words of its rejection, and a
   right answer written another way. `test_mutants.py` and `test_answers.py` in `tests/classroom` hold
   the four together.
5. `engine_slots.py`: the place that its function has in the engine of notebook 17, or why it has none.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.config import require

KINDS = ("build", "predict", "find the bug")
DIFFICULTIES = ("warm-up", "core", "stretch")


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        id: notebook and number, such as "07.2".
        title: what the reader makes, in a few words.
        finished: the finished version, on which the notebook runs where the exercise is not attempted.
        check: called with the reader's function; returns or raises `CheckFailed`.
        hints: three, from a nudge to nearly the answer.
        minutes: that a reader may need.
        kind: one of `KINDS`.
        difficulty: one of `DIFFICULTIES`.
    """

    id: str
    title: str
    finished: Callable[..., Any]
    check: Callable[[Callable[..., Any]], None]
    hints: tuple[str, str, str]
    minutes: int
    kind: str = "build"
    difficulty: str = "core"

    def __post_init__(self) -> None:
        require(len(self.hints) == 3 and all(self.hints), "hints", self.hints, "three texts")
        require(self.minutes > 0, "minutes", self.minutes, "positive")
        require(self.kind in KINDS, "kind", self.kind, f"one of {KINDS}")
        require(self.difficulty in DIFFICULTIES, "difficulty", self.difficulty, f"one of {DIFFICULTIES}")

    @property
    def notebook(self) -> str:
        """The two digits of the notebook."""
        return self.id.partition(".")[0]

    @property
    def heading(self) -> str:
        """The first words of the exercise's card, such as `Exercise 7.2 · build · 15 min · core`."""
        number = f"{int(self.notebook)}.{self.id.partition('.')[2]}"
        return f"Exercise {number} · {self.kind} · {self.minutes} min · {self.difficulty}"


def notebooks() -> list[str]:
    """The notebooks that have exercises, such as `["01", "07"]`."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name[2:] for name in names if name.startswith("nb"))


def exercises_of(notebook: str) -> tuple[Exercise, ...]:
    """The exercises of one notebook, in order.

    Raises:
        ValueError: there is no such notebook, or it has no exercises.
    """
    known = notebooks()
    require(notebook in known, "notebook", notebook, f"one of {', '.join(known)}")
    return importlib.import_module(f"{__name__}.nb{notebook}").EXERCISES


def find(exercise_id: str) -> Exercise:
    """The exercise of this id; its notebook's checks are imported on first use.

    Raises:
        ValueError: there is none; the message lists those that there are.

    >>> find("01.2").title
    'merge a pair'
    """
    known = {exercise.id: exercise for exercise in exercises_of(exercise_id.partition(".")[0])}
    require(exercise_id in known, "exercise_id", exercise_id, f"one of {', '.join(known)}")
    return known[exercise_id]
