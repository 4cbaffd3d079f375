"""Three engines with one fault each, to be told apart by their counters and by what they write.

Who reads on looks up the answer. Of the seven in `FAULTS`, all met by people who run engines, three are in `ENGINES`.
Each is the engine of `course_lib` with one wrong part; all serve with the same pages and slots, in which a healthy one
preempts, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.analysis.quantization import changed
from course_lib.config import SamplingParams
from course_lib.engine import Engine
from course_lib.generate import LanguageModel
from course_lib.rounding import round_weights
from course_lib.scheduler import Batch, Scheduler
from course_lib.scheduler import Sequence as Running

FAULTS = {
    "time stamp": "the time of day is put in front of every prompt",
    "stale pages": "a request that comes back after a preemption treats its new pages as computed, whatever is in them",
    "wrong scale": "the integers of one matrix are multiplied by the wrong scale",
    "few pages": "there are far too few pages for the requests that run",
    "no end": "the end token is ignored",
    "one slot": "requests are served one after another",
    "careless draft": "every token that a draft proposes is accepted",
}
SLOTS, PAGES = 8, 34  # a few answers lose their pages on the way
WRONG = ("layers.6.self_attn.o_proj", 4.0)  # as if 8-bit codes were taken for 6-bit ones


class Stamped(Engine):
    """Tells the model what time it is, before anything else."""

    def __init__(self, lm: LanguageModel, **options: Any) -> None:
        super().__init__(lm, **options)
        self.seconds = 0  # since noon; a clock of its own, so that every run is the same

    def add_request(self, request_id: str, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        """Queue a request with the time in front of it."""
        stamp = f"12:{self.seconds // 60:02}:{self.seconds % 60:02}\n"
        self.seconds += 1
        super().add_request(request_id, [*self.lm.tokenizer.encode(stamp), *prompt_ids], params)


class Trusting(Scheduler):
    """Remembers how far a request was computed when it lost its pages, and goes on from there in its new ones."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.computed: dict[Running, int] = {}

    def preempt(self, sequence: Running, batch: Batch) -> None:
        """Take a sequence's pages away, but not its number of computed tokens."""
        self.computed[sequence] = sequence.num_computed_tokens
        super().preempt(sequence, batch)

    def add_chunk(self, sequence: Running, batch: Batch) -> None:
        """What is left to compute, as it believes."""
        known = self.computed.pop(sequence, 0)
        sequence.num_computed_tokens = max(sequence.num_computed_tokens, known)
        super().add_chunk(sequence, batch)


def healthy(lm: LanguageModel) -> Engine:
    """Nothing is wrong with it: eight slots, and pages for less than they want."""
    return Engine(lm, max_num_seqs=SLOTS, num_blocks=PAGES)


def stamped(lm: LanguageModel) -> Engine:
    """One with a clock."""
    return Stamped(lm, max_num_seqs=SLOTS, num_blocks=PAGES)


def trusting(lm: LanguageModel) -> Engine:
    """One with another scheduler."""
    engine = healthy(lm)
    engine.scheduler = Trusting(engine.blocks, max_num_seqs=SLOTS,
                                max_num_batched_tokens=engine.scheduler.max_num_batched_tokens)
    return engine


def misread(lm: LanguageModel) -> Engine:
    """One whose weights come from a file of 8-bit codes, of which one matrix was read wrongly."""
    name, factor = WRONG
    return healthy(changed(lm, [name], lambda _, weight: factor * round_weights(weight, 8, "channel")))


ENGINES = {"A": trusting, "B": misread, "C": stamped}
