"""Where each exercise's function goes in the engine that is made of them, one row for each.

A row says which exercise, in which stage, which of the proofs of `engine_proof` runs it, and when. What calls it,
as its card says, is in `own_model`, `own_text`, `own_sampling` and `own_paging`: there a part has the name of its
function. To give another exercise a place, add a row and call `parts.name(...)` where the engine does that work; where
nobody has answered the exercise, the part is its finished version.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from course_lib.analysis.machine_speed import now
from course_lib.classroom.checks import exercises_of, find, notebooks
from course_lib.classroom.checks.compare import cut
from course_lib.config import require

# When a part runs.
GENERATION = "in generation"  # in any answer, of one reader or of many
ABOVE_64 = "above 64 tokens"  # of prompt and answer: a tile of `own_model`
DRAFT, SERVING, BITS, REPORT, NEVER = "with a draft", "in serving", "with bits", "in the report", "never"


class Slot(NamedTuple):
    """A place in the engine.

    Attributes:
        exercise_id: whose function goes there.
        stage: of the pipeline.
        proof: the run that it takes part in, a key of `engine_proof.PROOFS`.
        runs: when it is called.
        inside: exercises that do its work where they are answered, since their functions contain it.
    """

    exercise_id: str
    stage: str
    proof: str
    runs: str = GENERATION
    inside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the function."""
        return find(self.exercise_id).finished.__name__

    @property
    def bits(self) -> bool:
        """Whether it is at work only where weights are quantized."""
        return self.runs == BITS


SLOTS = (
    Slot("01.3", "tokenizer", "ids"),
    Slot("01.4", "tokenizer", "ids"),
    Slot("02.1", "embedding", "greedy"),
    Slot("04.3", "block", "greedy"),
    Slot("04.1", "block", "greedy"),
    Slot("04.2", "block", "greedy"),
    Slot("02.4", "attention", "greedy"),
    Slot("03.3", "attention", "greedy"),
    Slot("03.4", "attention", "greedy"),
    Slot("03.2", "attention", "greedy"),
    Slot("03.1", "attention", "greedy"),
    Slot("10.4", "attention", "greedy"),
    Slot("10.1", "attention", "greedy", ABOVE_64),
    Slot("10.2", "attention", "greedy", ABOVE_64),
    Slot("08.2", "KV cache", "greedy"),
    Slot("08.1", "KV cache", "greedy", inside=("08.2",)),
    Slot("08.3", "KV cache", "greedy"),
    Slot("06.3", "LM head", "greedy"),
    Slot("07.5", "sampling", "choices", "with penalties"),
    Slot("07.1", "sampling", "choices"),
    Slot("07.2", "sampling", "choices", "with top_k"),
    Slot("07.3", "sampling", "choices", "with top_p"),
    Slot("07.4", "sampling", "choices", "with min_p"),
    Slot("06.1", "sampling", "choices", inside=("07.6",)),
    Slot("07.6", "sampling", "choices"),
    Slot("12.3", "speculative decoding", "draft", DRAFT),
    Slot("12.1", "speculative decoding", "draft", DRAFT, inside=("12.3",)),
    Slot("12.2", "speculative decoding", "draft", DRAFT, inside=("12.3",)),
    Slot("13.1", "text", "text"),
    Slot("13.2", "text", "text"),
    Slot("14.1", "pages", "paged", SERVING),
    Slot("14.2", "pages", "paged", SERVING),
    Slot("14.3", "pages", "paged", SERVING),
    Slot("11.4", "quantization", "weights", BITS),
    Slot("11.1", "quantization", "weights", BITS),
    Slot("11.5", "quantization", "weights", BITS),
    Slot("11.2", "quantization", "weights", BITS),
    Slot("11.6", "quantization", "weights", BITS),
    Slot("00.3", "report", "speed", REPORT),
)

# Why the others have none, where it is not that the answer is a number or a diagnosis.
NO_PLACE = {
    "00.2": "the engine's loop also samples, stops and streams",
    "01.1": "it trains a vocabulary, and the engine has one",
    "01.2": "it trains a vocabulary, and the engine has one",
    "01.5": "it measures a tokenizer",
    "02.2": "it looks at the embeddings",
    "02.5": "it tests RoPE",
    "03.5": "it looks at attention",
    "03.6": "it is an experiment on heads",
    "04.5": "it compares models",
    "06.2": "it measures a model",
    "06.4": "it measures a model",
    "08.6": "only a model with a sliding window needs a ring, and pocket has none",
    "08.7": "only a model with a sliding window needs this mask, and pocket has none",
    "13.3": "it reads what a server sends, on the client's side",
    "16.1": "the engine writes text, and what it wants done is the agent's to read",
    "16.2": "the loop calls an engine, and is no part of one",
    "16.3": "it reads every token at every step, which takes longer than a step of the model",
    "16.4": "it attacks programs, and not the engine",
    "17.1": "it compares engines",
    "17.2": "it chooses between engines",
}
# Where those run instead, if not in a notebook's analysis.
RUNS = {"00.2": NEVER, "01.1": "in training", "01.2": "in training", "08.6": NEVER, "08.7": NEVER,
        "13.3": "in a client", "16.1": "in an agent", "16.2": "in an agent", "16.3": "in an agent"}
TRAINING = "it is about training, and the engine's weights are trained"
ELSEWHERE = "came_from_elsewhere"  # an attribute of errors that a part only lets through
PLAIN_ANSWER = "its answer is a number or a diagnosis"


def slot_of(exercise_id: str) -> Slot | None:
    """The place of an exercise, if it has one."""
    return next((slot for slot in SLOTS if slot.exercise_id == exercise_id), None)


def no_place(exercise_id: str) -> str:
    """Why an exercise has no place in the engine."""
    return NO_PLACE.get(exercise_id) or (TRAINING if exercise_id.startswith(("05", "15")) else PLAIN_ANSWER)


def runs_elsewhere(exercise_id: str) -> str:
    """Where the function of an exercise without a place runs."""
    why = no_place(exercise_id)
    return RUNS.get(exercise_id) or {TRAINING: "in training", PLAIN_ANSWER: NEVER}.get(why, "in analysis")


def all_ids() -> list[str]:
    """Every exercise of the course, in order."""
    return [exercise.id for notebook in notebooks() for exercise in exercises_of(notebook)]


class PartFailedError(RuntimeError):
    """A function of the reader's raised an exception in the engine, or took too long; `slot` says which.

    Its place is taken by the finished version from then on.
    """

    def __init__(self, slot: Slot, why: str) -> None:
        super().__init__(f"your {slot.name} ({slot.exercise_id}) {why}; from now on course_lib's takes its place")
        self.slot, self.why = slot, why


class Clock(threading.local):
    """What the parts inside the one that runs have taken, in this thread."""

    inside = 0.0


class Part:
    """One function of the engine: the reader's or the finished one, and how long it has run.

    Attributes:
        own: whether it is the reader's.
        calls, seconds: since `Parts.reset`; seconds without those of the parts that it called.
    """

    def __init__(self, slot: Slot, function: Callable[..., Any] | None, parts: Parts) -> None:
        self.slot, self.parts, self.own = slot, parts, function is not None
        self.function = function or find(slot.exercise_id).finished
        self.calls, self.seconds = 0, 0.0

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """Call the function.

        Raises:
            PartFailedError: the reader's raised an exception, or the time that it had is over.
        """
        clock, outer, started = self.parts.clock, self.parts.clock.inside, now()
        clock.inside = 0.0
        try:
            return self.function(*args, **settings)
        except (Exception, SystemExit) as error:
            if not self.own or isinstance(error, PartFailedError) or getattr(error, ELSEWHERE, False):
                raise
            text = cut(" ".join(str(error).split()), 120)
            raise self.give_up(f"raised {type(error).__name__}: {text}") from error
        finally:
            seconds = now() - started
            self.calls, self.seconds = self.calls + 1, self.seconds + seconds - clock.inside
            clock.inside = outer + seconds
            if self.parts.deadline is not None and time.perf_counter() > self.parts.deadline:
                self.parts.slowest().out_of_time()

    def give_up(self, why: str) -> PartFailedError:
        """Let the finished version take this one's place; the error that says so."""
        self.function, self.own = find(self.slot.exercise_id).finished, False
        self.parts.problems[self.slot.exercise_id] = f"yours {why}"
        return PartFailedError(self.slot, why)

    def out_of_time(self) -> None:
        """Raise the error that says so."""
        seconds, self.parts.deadline = time.perf_counter() - self.parts.started, None
        raise self.give_up(f"is too slow: {self.calls:,} calls, and the engine was not done after {seconds:.0f} s")


class Parts:
    """The functions of an engine, each an attribute of its own name: the reader's, or the finished ones.

    Args:
        answers: functions by exercise; those without a place in the engine are not looked at.

    Attributes:
        problems: by exercise, why a function of the reader's is not used any more.
        deadline: of `time.perf_counter`, after which the slowest of the reader's is given up; None: they have time.
    """

    def __init__(self, answers: Mapping[str, Callable[..., Any]] | None = None) -> None:
        answers = answers or {}
        unknown = sorted(answers.keys() - set(all_ids()))
        require(not unknown, "answers", unknown, "functions by the ids of exercises")
        self.clock, self.problems = Clock(), {}
        self.deadline, self.started = None, 0.0
        self.by_id = {slot.exercise_id: Part(slot, answers.get(slot.exercise_id), self) for slot in SLOTS}
        self.__dict__ |= {part.slot.name: part for part in self.by_id.values()}

    def own(self, *names: str) -> bool:
        """Whether one of these parts is the reader's."""
        return any(getattr(self, name).own for name in names)

    def answers(self) -> dict[str, Callable[..., Any]]:
        """The reader's functions that are in use, by exercise."""
        return {key: part.function for key, part in self.by_id.items() if part.own}

    def reset(self) -> None:
        """Begin to count calls and seconds anew."""
        for part in self.by_id.values():
            part.calls, part.seconds = 0, 0.0

    def give_time(self, seconds: float | None) -> None:
        """Set the deadline this far from now; None: lift it."""
        self.started = time.perf_counter()
        self.deadline = None if seconds is None else self.started + seconds
        self.reset()

    def not_counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function to hand to a part, whose time and whose errors are not that part's."""
        def call(*args: Any) -> Any:
            outer, started = self.clock.inside, now()
            try:
                return function(*args)
            except Exception as error:
                setattr(error, ELSEWHERE, True)
                raise
            finally:
                self.clock.inside = outer + now() - started

        return call

    def slowest(self) -> Part:
        """Of the reader's parts the one that has taken the most time; of all where none is the reader's."""
        return max(self.by_id.values(), key=lambda part: (part.own, part.seconds))
