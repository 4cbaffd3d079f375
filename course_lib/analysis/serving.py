"""What readers wait for when many share one model: arrivals, slots and pages over time, by a cost model."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from course_lib.analysis.slots import Pass, Request, Slots
from course_lib.analysis.stalls import percentile
from course_lib.config import require
from course_lib.paging import BlockManager
from course_lib.scheduler import Scheduler

POLICIES = ("static", "continuous", "chunked")


class Arrival(NamedTuple):
    """A request: when it comes, in seconds, and its lengths, in tokens."""

    at: float
    prompt: int
    answer: int


def arrivals(n: int, per_second: float, *, prompt: tuple[int, int] = (10, 200), answer: tuple[int, int] = (8, 128),
             seed: int = 0) -> list[Arrival]:
    """Requests that know nothing of each other: a Poisson process, lengths drawn evenly.

    Args:
        n: requests.
        per_second: how many come on average, > 0; `math.inf`: all at once.
        prompt, answer: shortest and longest, in tokens.
    """
    require(n >= 1, "n", n, ">= 1")
    require(per_second > 0, "per_second", per_second, "> 0")
    draw, at, made = random.Random(seed), 0.0, []
    for _ in range(n):
        made.append(Arrival(at, draw.randint(*prompt), draw.randint(*answer)))
        at += draw.expovariate(1.0) / per_second
    return made


class PassCost(NamedTuple):
    """Seconds of a pass: `base` + `row` for each answer that gets a token + `token` for each prompt token read."""

    base: float
    row: float
    token: float

    def seconds(self, rows: int, tokens: int) -> float:
        """Of a pass with this work; 0 for none."""
        return self.base + self.row * rows + self.token * tokens if rows or tokens else 0.0


@dataclass
class Reader:
    """What one request felt; times in seconds since the beginning.

    Attributes:
        started: when the first pass with a part of its prompt began.
        tokens: when each token came.
    """

    arrival: Arrival
    started: float | None = None
    tokens: list[float] = field(default_factory=list)

    @property
    def waiting_s(self) -> float:
        """From its arrival until it had a slot."""
        return self.started - self.arrival.at

    @property
    def ttft_s(self) -> float:
        """From its arrival to its first token."""
        return self.tokens[0] - self.arrival.at

    @property
    def gaps_s(self) -> list[float]:
        """Between its tokens."""
        return [later - earlier for earlier, later in pairwise(self.tokens)]


class Span(NamedTuple):
    """A stretch of one slot's time line, in seconds; `kind` as in `slots.Cell`."""

    slot: int
    request: int
    kind: str
    start: float
    end: float


@dataclass
class Served:
    """A workload that has been served.

    Attributes:
        readers: one for each request, in the order of arrival.
        spans: what each slot did; neighbours of one kind are one.
        passes: seconds when each began and ended.
        work: decode rows and prompt tokens of each pass.
        computed, useful: tokens that went through the model, and those of them that were neither padding nor text
            that was computed a second time.
        reserved, stored: places in the pages in use, and those that hold a key, summed over the passes.
        preemptions: how often a request lost its pages.
    """

    readers: list[Reader]
    spans: list[Span] = field(default_factory=list)
    passes: list[tuple[float, float]] = field(default_factory=list)
    work: list[tuple[int, int]] = field(default_factory=list)
    computed: int = 0
    useful: int = 0
    reserved: int = 0
    stored: int = 0
    preemptions: int = 0

    @property
    def seconds(self) -> float:
        """Until the last token."""
        return max(reader.tokens[-1] for reader in self.readers)

    @property
    def tokens_per_s(self) -> float:
        """New tokens of all requests over the whole time."""
        return sum(len(reader.tokens) for reader in self.readers) / self.seconds

    @property
    def waste(self) -> float:
        """The share of the computed tokens that nobody needed."""
        return 1 - self.useful / self.computed if self.computed else 0.0

    @property
    def unused(self) -> float:
        """The share of the reserved places that held nothing: internal fragmentation."""
        return 1 - self.stored / self.reserved if self.reserved else 0.0

    def percentiles(self, p: float) -> tuple[float, float, float]:
        """Of waiting time, time to first token and gap over all gaps; p in (0, 100]."""
        gaps = [gap for reader in self.readers for gap in reader.gaps_s] or [0.0]
        return (percentile([reader.waiting_s for reader in self.readers], p),
                percentile([reader.ttft_s for reader in self.readers], p), percentile(gaps, p))


def simulate(requests: Sequence[Arrival], policy: str, cost: PassCost, *, slots: int = 8,
             blocks: BlockManager | None = None, chunk: int = 64) -> Served:
    """Serve a workload by the cost model: the scheduler is the real one, only the passes are not computed.

    Args:
        requests: in the order of arrival.
        policy: "static": those who wait begin together, padded to the longest prompt, and the next batch begins when
            the last of them has ended. "continuous": a new request takes the next free slot, its prompt in one pass.
            "chunked": the same, with at most `chunk` tokens in a pass.
        slots: requests that run at the same time.
        blocks: the pages; None: enough for all. A static batch needs them for all its requests.
        chunk: >= slots.

    Raises:
        ValueError: there is no such policy, or a request does not fit the pages.
    """
    require(policy in POLICIES, "policy", policy, f"one of {POLICIES}")
    longest = max(request.prompt + request.answer for request in requests)
    blocks = blocks or BlockManager(slots * -(-longest // 16), 16, enable_prefix_caching=False)
    scheduler = Scheduler(blocks, max_num_seqs=slots,
                          max_num_batched_tokens=chunk if policy == "chunked" else slots * longest)
    table, served, now, batch = Slots(scheduler), Served([Reader(request) for request in requests]), 0.0, 0
    due = deque(enumerate(requests))
    while due or scheduler.has_unfinished():
        if not scheduler.has_unfinished():
            now = max(now, due[0][1].at)
            batch = add_due(table, due, now, slots if policy == "static" else len(due))
        elif policy != "static":
            add_due(table, due, now, len(due))
        one = table.step()
        rows, tokens = static_work(one, batch) if policy == "static" else work_of(one)
        served.passes.append((now, now := now + cost.seconds(rows, tokens)))
        served.work.append((rows, tokens))
        served.computed += rows + tokens
        note(served, one)
    served.preemptions = scheduler.num_preemptions
    return served


def add_due(table: Slots, due: deque[tuple[int, Arrival]], now: float, most: int) -> int:
    """Queue those that have arrived; how many they are."""
    added = 0
    while due and due[0][1].at <= now and added < most:
        i, request = due.popleft()
        table.add(Request(str(i), request.prompt, request.answer))
        added += 1
    return added


def work_of(one: Pass) -> tuple[int, int]:
    """Decode rows and prompt tokens of a pass."""
    cells = [cell for cell in one.cells if cell]
    return sum(cell.kind == "decode" for cell in cells), sum(cell.num_tokens for cell in cells if cell.kind != "decode")


def static_work(one: Pass, batch: int) -> tuple[int, int]:
    """The same of a padded batch: all prompts as long as the longest, and a row for each until the last has ended."""
    prompts = [cell.num_tokens for cell in one.cells if cell and cell.kind == "prefill"]
    return (0, batch * max(prompts)) if prompts else (batch, 0)


def note(served: Served, one: Pass) -> None:
    """Enter the last pass into the records."""
    start, end = served.passes[-1]
    served.reserved += one.places
    served.stored += one.stored
    served.useful += one.new
    for slot, cell in enumerate(one.cells):
        if cell is None:
            continue
        reader = served.readers[int(cell.request_id)]
        reader.started = start if reader.started is None else reader.started
        extend(served.spans, Span(slot, int(cell.request_id), cell.kind, start, end))
    for name in one.tokens:
        served.readers[int(name)].tokens.append(end)


def extend(spans: list[Span], new: Span) -> None:
    """Append a span, or lengthen the one of its slot that it continues."""
    for i in range(len(spans) - 1, -1, -1):
        if spans[i].slot == new.slot:
            if spans[i][:3] == new[:3] and spans[i].end == new.start:
                spans[i] = spans[i]._replace(end=new.end)
                return
            break
    spans.append(new)
