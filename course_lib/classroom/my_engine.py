"""An engine made of the reader's own functions: those of the exercises that passed, and the finished ones elsewhere.

    engine = my_engine()
    for text in engine.stream("What is gravity?"):
        print(text, end="")
    engine.parts()  # which is whose

The kept answers (`kept_answers`) are code. They are the reader's own, from the reader's own file on this machine, and
run here with the rights that they had in the notebook. Each passes its check again before it is used, and then whole
runs with the finished engine beside it (`engine_proof`); what does not is named, and the finished part takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from course_lib.analysis.machine_speed import fastest, now
from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.checkpoint import LanguageModel, load
from course_lib.classroom.answer_source import CannotBeWritten
from course_lib.classroom.checks import find
from course_lib.classroom.engine_proof import QUESTION, prove
from course_lib.classroom.engine_slots import NEVER, SLOTS, Parts, all_ids, no_place, runs_elsewhere, slot_of
from course_lib.classroom.exercises import explain
from course_lib.classroom.kept_answers import KeptAnswer, load_answer, read_answers
from course_lib.classroom.own_model import MODEL, own_model, why_not
from course_lib.classroom.own_paging import own_engine
from course_lib.classroom.own_sampling import own_sample, own_verify, rounded_weights
from course_lib.classroom.own_speculation import draft_called
from course_lib.classroom.own_text import own_tokenizer
from course_lib.config import SamplingParams, require
from course_lib.engine import Engine
from course_lib.generate import Draft, Latency, Prompt, Stream, stream
from course_lib.rounding import check_bits
from course_lib.tokenizer import Tokenizer

YOURS, OURS = "yours", "course_lib"
Functions = Mapping[str, Callable[..., Any]]


class Row(NamedTuple):
    """One line of the table of parts.

    Attributes:
        stage: of the pipeline; "" for an exercise without a place in the engine.
        exercise: its id.
        title: what the reader made there.
        whose: "yours" or "course_lib"; "" without a place.
        why: why it is not yours, or what else there is to know.
        runs: when the function in this place is called, or where that of an exercise without a place is.
    """

    stage: str
    exercise: str
    title: str
    whose: str
    why: str
    runs: str


class Speed(NamedTuple):
    """Tokens per second at batch 1, and for each of the reader's parts its share of the time, the largest first."""

    tokens_per_s: float
    finished_tokens_per_s: float
    shares: dict[str, float]

    @property
    def ratio(self) -> float:
        """How many times as fast as the finished engine."""
        return self.tokens_per_s / self.finished_tokens_per_s


@dataclass(frozen=True, repr=False)
class OwnLanguageModel(LanguageModel):
    """What `stream`, `generate` and `Engine` take; it brings the reader's sampler and verifier along."""

    own: Parts = field(default_factory=Parts)

    def sample(self, logits: Tensor, *settings: Any, **ids: Any) -> Tensor:
        """As `course_lib.sampling.sample`."""
        return own_sample(self.own, logits, *settings, **ids)

    def verify(self, *rows: Any) -> list[int]:
        """As `course_lib.speculative.verify`."""
        return own_verify(self.own, *rows)


class Stopwatch:
    """A call, and the seconds that all its runs have taken together."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.seconds = call, 0.0

    def __call__(self) -> None:
        """Run it."""
        started = now()
        self.call()
        self.seconds += now() - started


class MyEngine:
    """The reader's engine; `my_engine` makes one of the kept answers, `assemble` one of functions.

    Args:
        finished: as `load()` returns it.
        answers: functions by exercise.
        problems: by exercise, why an answer is not used.
        bits, group_size: move the matrices to a grid with the functions of notebook 11; None: leave them alone.

    Attributes:
        lm: for `stream`, `generate`, `Engine` and whatever else takes what `load()` returns.
    """

    def __init__(self, finished: LanguageModel, answers: Functions, problems: Mapping[str, str] | None = None, *,
                 bits: int | None = None, group_size: int | None = None) -> None:
        self.finished, self.bits, self.group_size = finished, bits, group_size
        self.problems = dict(problems or {})
        self.rounded: dict[tuple, dict[str, Tensor]] = {}  # weights, by the functions that rounded them
        self.lm = self.with_answers(answers)

    def with_answers(self, answers: Functions) -> OwnLanguageModel:
        """A language model that runs on these functions wherever one has a place; the weights are shared."""
        parts, lm = Parts(answers), self.finished
        return OwnLanguageModel(own_model(lm.model, parts, self.weights(parts)), own_tokenizer(lm.tokenizer, parts),
                                lm.config, lm.eos_token_ids, lm.name, parts)

    def weights(self, parts: Parts) -> dict[str, Tensor] | None:
        """Every weight after rounding; None where nothing is rounded."""
        if self.bits is None or why_not(self.finished.model):
            return None
        key = tuple(part.function for part in parts.by_id.values() if part.slot.bits)
        if key not in self.rounded:
            self.rounded[key] = rounded_weights(self.finished.model.state_dict(), parts, self.bits, self.group_size)
        return self.rounded[key]

    def prove(self, answers: Functions | None = None) -> dict[str, str]:
        """Compare whole runs with the finished engine's; what differs, by exercise, and its part is not used any more.

        Tokenizing, streamed text and tokens at temperature 0 are equal afterwards. A second or two on two cores, and
        a few more for each part that has to be found.

        Args:
            answers: functions that take the place of the engine's, by exercise; None: those that it has.
        """
        answers = self.lm.own.answers() if answers is None else answers

        def make(some: Functions) -> tuple[LanguageModel, Parts]:
            lm = self.with_answers(some)
            return lm, lm.own

        found = prove(make, answers, quantized=self.bits is not None)
        self.problems |= found
        self.lm = self.with_answers({key: answers[key] for key in answers if key not in found})
        return found

    def stream(self, prompt: Prompt | str, params: SamplingParams | None = None, *,
               draft: Draft | None = None) -> Stream:
        """As `course_lib.stream`; a plain text is a question to the model."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return stream(self.lm, messages, params, draft=draft)

    def draft(self, name: str) -> Draft:
        """What `stream` takes as `draft`; with one, exercises 12.1 to 12.3 choose the tokens, and not 06.1 and 07.

        Args:
            name: "pocket-draft" or "counts".

        Raises:
            ValueError: it is none of the two, or the model has another vocabulary than pocket.
        """
        return draft_called(name, self.finished)

    def engine(self, **options: Any) -> Engine:
        """An engine for many requests at once, with the options of `course_lib.engine.Engine`."""
        return own_engine(self.lm, self.lm.own, **options)

    def parts(self, everything: bool = False) -> list[Row]:
        """The table: for each place in the engine, whose function is there, and why.

        Args:
            everything: also the exercises that have no place.
        """
        rows = [self.row(slot.exercise_id) for slot in SLOTS]
        if everything:
            rows += [Row("", key, find(key).title, "", no_place(key), runs_elsewhere(key))
                     for key in all_ids() if slot_of(key) is None]
        return rows

    def row(self, exercise_id: str) -> Row:
        """A line of the table."""
        slot, title, idle = slot_of(exercise_id), find(exercise_id).title, self.idle(exercise_id)
        if not self.lm.own.by_id[exercise_id].own:
            problem = self.lm.own.problems.get(exercise_id) or self.problems.get(exercise_id)
            return Row(slot.stage, exercise_id, title, OURS, problem or "not answered, or not kept", slot.runs)
        waits = slot.bits and self.bits is None
        return Row(slot.stage, exercise_id, title, YOURS, idle, NEVER if idle and not waits else slot.runs)

    def idle(self, exercise_id: str) -> str:
        """Why a function of the reader's has nothing to do at the moment; "" if it has."""
        own, slot = self.lm.own, slot_of(exercise_id)
        does_it = [other for other in slot.inside if own.by_id[other].own]
        if does_it:
            return f"idle: your {find(does_it[0]).finished.__name__} ({does_it[0]}) does it"
        if slot.bits:
            unused = ("symmetric_scale",) if (self.bits or 8) <= 4 else ("asymmetric_scale", "pack_int4")
            return "idle: the weights are not quantized" if self.bits is None else \
                f"idle: {self.bits} bits do without" if slot.name in unused else ""
        if slot.name in MODEL and (reason := why_not(self.finished.model)):
            return f"idle: {reason}"
        if slot.proof in ("ids", "text") and type(self.finished.tokenizer) is not Tokenizer:
            return "idle: the model's tokenizer is of another kind"
        other_template = self.finished.tokenizer.chat_template != POCKET_CHAT_TEMPLATE
        return "idle: it writes pocket's turns, and this model has others" \
            if slot.name == "encode_chat_turn" and other_template else ""

    def speed(self, tokens: int = 32, rounds: int = 3) -> Speed:
        """How fast it is, the finished engine beside it: the best of some rounds, the two taking turns.

        Args:
            tokens: of an answer at temperature 0.
        """
        require(tokens >= 1, "tokens", tokens, ">= 1")
        params, own = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), self.lm.own
        own.reset()
        whole = Stopwatch(lambda: list(stream(self.lm, QUESTION, params)))
        seconds = fastest({YOURS: whole, OURS: lambda: list(stream(self.finished, QUESTION, params))}, rounds)
        spent = {key: part.seconds / whole.seconds for key, part in own.by_id.items() if part.own and part.calls}
        shares = {key: spent[key] for key in sorted(spent, key=lambda key: -spent[key])}
        return Speed(tokens / seconds[YOURS], tokens / seconds[OURS], shares)

    def latency(self, running: Stream) -> Latency:
        """The three numbers of a finished stream, by exercise 00.3."""
        return Latency(*self.lm.own.latency(running.steps))

    def __repr__(self) -> str:
        rows = self.parts()
        return f"MyEngine({self.finished.name!r}, {sum(row.whose == YOURS for row in rows)} of {len(rows)} parts yours)"


def assemble(lm: LanguageModel, answers: Functions, **options: int | None) -> MyEngine:
    """An engine made of some functions, which are neither checked nor proved.

    Args:
        lm: as `load()` returns it.
        answers: functions by exercise.
        options: `bits` and `group_size` of `MyEngine`.
    """
    return MyEngine(lm, answers, **options)


def load_answers(kept: Mapping[str, KeptAnswer] | None = None) -> tuple[dict[str, Callable[..., Any]], dict[str, str]]:
    """Those kept answers that have a place in the engine and pass their checks, and why others do not.

    Args:
        kept: None: those in the file.

    Raises:
        OSError: the file cannot be read.
    """
    functions, problems = {}, {}
    for key, answer in (read_answers() if kept is None else kept).items():
        if slot_of(key) is None:
            continue
        try:
            functions[key] = load_answer(find(key), answer, explain)
        except CannotBeWritten as why:
            problems[key] = f"your answer is not used: {why}"
    return functions, problems


def my_engine(lm: LanguageModel | None = None, *, bits: int | None = None, group_size: int | None = None,
              proved: bool = True) -> MyEngine:
    """An engine of the kept answers: checked once more, put together, and compared with the finished engine.

    Args:
        lm: as `load()` returns it; None: `load()`.
        bits: move the matrices to a grid of this many bits, in [2, 8], with the functions of notebook 11; None: do not.
        group_size: weights that share a scale; None: all of an output.
        proved: compare whole runs with the finished engine's, and leave out the parts with which they differ.

    Raises:
        ValueError: `bits` is out of range, or the groups do not divide a matrix.
        OSError: the file of answers cannot be read.
    """
    if bits is not None:
        check_bits(bits)
    functions, problems = load_answers()
    engine = MyEngine(lm or load(), {} if proved else functions, problems, bits=bits, group_size=group_size)
    if proved:
        engine.prove(functions)
    return engine
