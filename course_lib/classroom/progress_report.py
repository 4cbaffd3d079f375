"""How far the reader is: what is done, what comes next, and the minutes that are left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from course_lib.classroom.checks import Exercise, exercises_of, notebooks
from course_lib.classroom.course_map import CHAPTERS, Chapter
from course_lib.classroom.progress_file import progress_path, read_progress, reason


class Standing(NamedTuple):
    """A notebook and the reader's place in it."""

    chapter: Chapter
    done: tuple[Exercise, ...]
    left: tuple[Exercise, ...]

    @property
    def minutes(self) -> int:
        """What is left: of a notebook that is not begun its core path, of another one its open exercises."""
        return sum(e.minutes for e in self.left) if self.done else self.chapter.core_minutes


def standings(passed: Set[str], chosen: Sequence[str]) -> list[Standing]:
    """Some notebooks in order, given the ids of the exercises that are done; the checks of others are not loaded."""
    return [Standing(chapter, *(tuple(e for e in exercises_of(chapter.number) if (e.id in passed) is done)
                                for done in (True, False)))
            for chapter in CHAPTERS if chapter.number in chosen]


def next_exercise(places: Sequence[Standing]) -> Exercise | None:
    """The first open exercise of the last notebook that was begun, else of the first with one; None at the end.

    A notebook left unfinished early in the course does not call the reader back from a later one.
    """
    begun = [place for place in places if place.done]
    return next((place.left[0] for place in [*begun[-1:], *places] if place.left), None)


def hours(minutes: int) -> str:
    """Minutes in words.

    >>> hours(39), hours(60), hours(135)
    ('39 min', '1 h', '2 h 15 min')
    """
    whole, rest = divmod(minutes, 60)
    return " ".join([f"{whole} h"] * (whole > 0) + [f"{rest} min"] * (rest > 0 or whole == 0))


def lines_of(place: Standing) -> list[str]:
    """A notebook's exercises, a line each."""
    done = {e.id for e in place.done}
    every = exercises_of(place.chapter.number)
    return [f"Notebook {place.chapter.number}: {len(done)} of {len(every)} done",
            *(f"  {'done' if e.id in done else 'open'}  {e.id}  {e.title} ({e.kind}, {e.minutes} min)" for e in every)]


def report(passed: Iterable[str], chosen: Sequence[str]) -> list[str]:
    """What is done and open in some notebooks, what comes next, and how long the rest of them takes."""
    places = standings(frozenset(passed), chosen)
    lines = [line for place in places for line in lines_of(place)]
    exercise = next_exercise(places)
    if exercise is None:
        return [*lines, *(f"Next: notebook {after.number}, {after.title}."
                          for before, after in zip(CHAPTERS, CHAPTERS[1:]) if before.number == chosen[-1])]
    return [*lines, f"Next: {exercise.id}, {exercise.title}.",
            f"Left: about {hours(sum(place.minutes for place in places))}."]


def progress(notebook: str | None = None) -> None:
    """Print which exercises are done, in one notebook or in all, what is next, and the minutes that are left.

    It is read from a file on this machine. `python -m course_lib progress` takes it to another one.

    Raises:
        ValueError: there is no such notebook.
    """
    if notebook is not None:
        exercises_of(notebook)  # refuses what there is not
    chosen = notebooks() if notebook is None else [notebook]
    try:
        passed = read_progress(progress_path())["passed"]
    except (OSError, RuntimeError) as error:
        print(f"Progress cannot be read ({reason(error)}).")
        passed = []
    print(*report(passed, chosen), sep="\n")
