"""Answers that passed, kept on this machine: the text of each, for the engine that notebook 17 makes of them.

One file beside the progress file, for all notebooks and kernels; of several right answers to an exercise the last one.
Nothing leaves the machine. `COURSE_KEEP_ANSWERS=0` in the environment or `keep_answers(False)` turns it off, and
deleting the file forgets everything.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from course_lib.classroom.answer_source import CannotBeWritten, Written, load_written, write_down
from course_lib.classroom.attempt import Attempt, usual_settings
from course_lib.classroom.checks import Exercise
from course_lib.classroom.engine_slots import slot_of
from course_lib.classroom.progress_file import locked, progress_path, read_json, reason, write_json

DISTRIBUTION = "course-lib"
TEXTS = ("name", "source", "problem", "kept_at", "course_version")
Explain = Callable[[Callable[..., Any], Attempt], list[str] | None]  # `course_lib.classroom.exercises.explain`

_switch: dict[str, bool] = {}  # what `keep_answers` was told in this kernel; it outweighs the environment


@dataclass(frozen=True)
class KeptAnswer:
    """An answer as it lies in the file.

    Attributes:
        name: of the function.
        source: its definition, without `@exercise`.
        needs: code that runs before it, for each global name that it reads; in order.
        problem: why it cannot be run elsewhere, "" where it can; then there is no source.
        kept_at: when it passed, in UTC.
        course_version: of the library whose check it passed.
    """

    name: str
    source: str
    needs: dict[str, str]
    problem: str
    kept_at: str
    course_version: str

    @property
    def written(self) -> Written:
        """The text, ready to be loaded."""
        return Written(self.name, self.source, self.needs)

    def same_text(self, other: KeptAnswer | None) -> bool:
        """Whether both say the same, whenever they were kept."""
        return other is not None and (self.written, self.problem) == (other.written, other.problem)


def keep_answers(on: bool = True) -> None:
    """Keep the answers of this kernel from now on, or no longer; what is in the file stays."""
    _switch["on"] = bool(on)


def is_kept() -> bool:
    """Whether answers are kept."""
    told = os.environ.get("COURSE_KEEP_ANSWERS", "").strip().lower()
    return _switch.get("on", told not in ("0", "no", "off", "false"))


def answers_path() -> Path:
    """`progress.answers.json` beside `progress.json`, and so on for other names of the progress file."""
    path = progress_path()
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file")  # as /dev/null, beside which nothing is to be written
    return path.with_name(f"{path.stem}.answers.json")


def keep(exercise: Exercise, function: Callable[..., Any], explain: Explain) -> None:
    """Keep the text of a right answer; where that cannot be done, say so in one line and go on.

    An answer whose text cannot be had does not take the place of one whose text is kept.
    """
    if not is_kept():
        return
    answer = describe(exercise, function, explain)
    if answer.problem and slot_of(exercise.id) is not None:  # others are not asked for
        print(f"  It works here, but cannot be kept for your engine of notebook 17: {answer.problem}.")
    try:
        path = answers_path()
        held = read_answers(path)
        if answer.same_text(held.get(exercise.id)) or (answer.problem and exercise.id in held):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path):  # what another kernel wrote in the meantime is read again
            answers = {**read_answers(path), exercise.id: answer}
            write_json(path, {"answers": {key: asdict(answers[key]) for key in sorted(answers)}})
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        print(f"Your answer is not kept ({reason(error)}); COURSE_PROGRESS can name another place.")


def describe(exercise: Exercise, function: Callable[..., Any], explain: Explain) -> KeptAnswer:
    """What is kept of an answer now."""
    kept_at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        written = write_down(function, also=exercise.finished.__name__)
        answer = KeptAnswer(written.name, written.source, written.needs, "", kept_at, course_version())
        if written.again:
            try_again(exercise, answer, written.again, explain)
        return answer
    except CannotBeWritten as error:
        why = str(error)
    except Exception as error:  # a global may be anything of the reader's, and do anything when it is looked at
        why = f"its text cannot be had: {type(error).__name__}"
    return KeptAnswer(getattr(function, "__name__", exercise.finished.__name__), "", {}, why, kept_at,
                      course_version())


def try_again(exercise: Exercise, answer: KeptAnswer, names: Sequence[str], explain: Explain) -> None:
    """Run the statements that made these names once more, and the check.

    Raises:
        CannotBeWritten: what comes of them is not what the names are now.
    """
    try:
        load_answer(exercise, answer, explain)
    except CannotBeWritten as error:
        raise CannotBeWritten(f"it uses {' and '.join(names)}, and the statements of your cells, run once more, make "
                              "something else of it: make it inside the function") from error


def course_version() -> str:
    """The installed library's version; "unknown" in a folder of the repository that Python only finds."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def read_answers(path: Path | None = None) -> dict[str, KeptAnswer]:
    """All that is kept, by exercise; a file that makes no sense is set aside.

    Args:
        path: of the file; None: `answers_path()`.

    Raises:
        OSError: it cannot be read.
    """
    data = read_json(path or answers_path(), {"answers": {}}, makes_sense, "The file of your kept answers")
    return {key: KeptAnswer(**{name: answer[name] for name in (*TEXTS, "needs")})
            for key, answer in data["answers"].items()}


def makes_sense(data: Any) -> bool:
    """Whether a file's content is that of a file of answers."""
    if not (isinstance(data, dict) and isinstance(data.get("answers"), dict)):
        return False
    return all(isinstance(answer, dict) and all(isinstance(answer.get(name), str) for name in TEXTS)
               and isinstance(answer.get("needs"), dict) and all(isinstance(x, str) for x in answer["needs"].values())
               for answer in data["answers"].values())


def load_answer(exercise: Exercise, answer: KeptAnswer, explain: Explain) -> Callable[..., Any]:
    """The function of a kept answer, if it passes its check once more.

    The check is run again because the library, PyTorch or Python may have changed since, and because it shows that the
    text alone is enough. A tenth of a second for most exercises; notebook 10's second takes two or three.

    Raises:
        CannotBeWritten: it is not to be used; the message says why.
    """
    if answer.problem:
        raise CannotBeWritten(answer.problem)
    name = exercise.finished.__name__
    try:
        function = load_written(answer.written, f"<your answer to {exercise.id}>", also=name)
    except (Exception, SystemExit) as error:  # the reader's own code, and perhaps edited since
        raise CannotBeWritten(f"it cannot be loaded: {type(error).__name__}: {error}") from error
    with usual_settings():
        complaint = explain(exercise.check, Attempt(function, exercise.finished))
    if complaint:
        raise CannotBeWritten("it no longer passes its check: " + "; ".join(complaint[-2:]))
    return function
