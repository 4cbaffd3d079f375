"""A scheduler without a model: what each slot does in each pass, what the pages hold, and who waits.

Nothing is computed, so that a second of serving takes a millisecond to look at. The scheduler decides as it would with
a model; the tokens that a request gets are its own business, and here they are all the same. No two prompts are, so
that nobody finds what others have read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.scheduler import Batch, Scheduler, Work

TOKEN = 0  # that every request gets


class Request(NamedTuple):
    """One request.

    Attributes:
        request_id: its name, which is shown.
        prompt: tokens of its prompt.
        answer: tokens that it will get.
    """

    request_id: str
    prompt: int
    answer: int


class Cell(NamedTuple):
    """What a slot does in a pass.

    Attributes:
        request_id: whose slot it is.
        kind: "prefill" (reads its prompt), "again" (reads what it had read before it lost its pages), "decode", "wait"
            (has a slot, but no part in the pass) or "pad" (has ended, but its batch goes on, and computes its row).
        num_tokens: of its text that go through the model.
    """

    request_id: str
    kind: str
    num_tokens: int


@dataclass(frozen=True)
class Pass:
    """One pass.

    Attributes:
        cells: of each slot; None where it is empty.
        preempted: those that lost their pages before it.
        finished: those that got their last token in it.
        waiting: those that have arrived and have no slot in it, in the order of the queue.
        places: tokens that the pages in use have room for.
        stored: of them, those that have a key and a value after the pass.
        tokens: those that got a token in it.
        new: tokens that went through the model for the first time.
    """

    cells: tuple[Cell | None, ...]
    preempted: tuple[str, ...]
    finished: tuple[str, ...]
    waiting: tuple[str, ...]
    places: int
    stored: int
    tokens: tuple[str, ...] = ()
    new: int = 0


class Slots:
    """Takes a scheduler from pass to pass; who begins takes the first empty slot and keeps it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.slots: list[str | None] = [None] * scheduler.max_num_seqs
        self.decoding: set[str] = set()  # they have read all of their text
        self.read: dict[str, int] = {}  # tokens that each has read at most, before it lost its pages
        self.num_added = 0

    def add(self, request: Request) -> None:
        """Queue a request, whose prompt is one number of its own, again and again."""
        self.scheduler.add(request.request_id, [self.num_added] * request.prompt, max_tokens=request.answer)
        self.num_added += 1

    def step(self) -> Pass:
        """One pass."""
        scheduler = self.scheduler
        batch = scheduler.schedule()
        self.seat(batch)
        cells = {work.sequence.request_id: self.cell(work) for work in batch.work}
        named = tuple(name and cells.get(name, Cell(name, "wait", 0)) for name in self.slots)
        done = {work.sequence.request_id: work.start + work.num_tokens for work in batch.work}
        stored = sum(done.get(s.request_id, s.num_computed_tokens) for s in scheduler.running)
        places = scheduler.blocks.num_used_blocks * scheduler.blocks.block_size
        waiting = tuple(s.request_id for s in scheduler.waiting)
        tokens = tuple(work.sequence.request_id for work in batch.work if work.gets_token)
        self.decoding |= set(tokens)
        new = self.advance(batch)
        finished = scheduler.update(batch, [TOKEN] * len(tokens))
        for sequence in finished:
            self.slots[self.slots.index(sequence.request_id)] = None
        return Pass(named, tuple(s.request_id for s in batch.preempted), tuple(s.request_id for s in finished),
                    waiting, places, stored, tokens, new)

    def seat(self, batch: Batch) -> None:
        """Who lost its pages leaves its slot; who is new takes the first empty one."""
        for sequence in batch.preempted:
            self.slots[self.slots.index(sequence.request_id)] = None
            self.decoding.discard(sequence.request_id)
        for sequence in self.scheduler.running:
            if sequence.request_id not in self.slots:
                self.slots[self.slots.index(None)] = sequence.request_id

    def advance(self, batch: Batch) -> int:
        """Note how far each has read; returns the tokens that nobody had read before."""
        new = 0
        for sequence, start, num_tokens in batch.work:
            end, read = start + num_tokens, self.read.get(sequence.request_id, 0)
            new += max(0, end - max(start, read))
            self.read[sequence.request_id] = max(end, read)
        return new

    def cell(self, work: Work) -> Cell:
        """What a sequence does in a pass."""
        name = work.sequence.request_id
        kind = ("decode" if name in self.decoding else
                "again" if work.start < self.read.get(name, 0) else "prefill")
        return Cell(name, kind, work.num_tokens)


def continuous(scheduler: Scheduler, requests: Sequence[Request]) -> list[Pass]:
    """All requests wait from the beginning; who ends makes room for the next.

    Args:
        scheduler: with nobody in it.
        requests: in the order of arrival.
    """
    slots, made = Slots(scheduler), []
    for request in requests:
        slots.add(request)
    while scheduler.has_unfinished():
        made.append(slots.step())
    return made


def static(scheduler: Scheduler, requests: Sequence[Request]) -> list[Pass]:
    """As many requests as there are slots begin together, and the next ones only when the last of them has ended."""
    slots, made = Slots(scheduler), []
    for first in range(0, len(requests), scheduler.max_num_seqs):
        for request in requests[first : first + scheduler.max_num_seqs]:
            slots.add(request)
        while scheduler.has_unfinished():
            made.append(slots.step())
    return made
