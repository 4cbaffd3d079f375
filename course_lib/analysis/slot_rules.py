"""The real scheduler on two functions that somebody else wrote: how a block table grows, and who may begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.analysis.serving import POLICIES, Arrival, PassCost, Reader, Served, add_due, note, static_work, work_of
from course_lib.analysis.slots import Cell, Pass, Slots
from course_lib.config import is_int, require
from course_lib.paging import BlockManager, BlockTable
from course_lib.scheduler import Batch, Scheduler
from course_lib.scheduler import Sequence as Text

Grow = Callable[[list[int], int, list[int], int], tuple[list[int], list[int]] | None]
Admit = Callable[..., int]


class GrownBlocks(BlockManager):
    """Pages that are given out by `grow(table, num_tokens, free, block_size)`, which returns (table, free) or None."""

    def __init__(self, num_blocks: int, block_size: int, grow: Grow) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching=False)
        self.grow = grow

    def asked(self, table: BlockTable, num_tokens: int) -> tuple[list[int], list[int]] | None:
        """What `grow` makes of a table.

        Raises:
            ValueError: it changes its arguments, or its result cannot be.
        """
        ids, free = list(table.block_ids), list(self.empty)
        result = self.grow(ids, num_tokens, free, self.block_size)
        require((ids, free) == (table.block_ids, self.empty), "table, free", (ids, free), "unchanged by grow(…)")
        if result is not None:
            self.check(result, table.block_ids, num_tokens)
        return result

    def check(self, result: Any, before: list[int], num_tokens: int) -> None:
        """Whether a result of `grow` keeps all pages, and takes only free ones."""
        require(isinstance(result, tuple) and len(result) == 2 and all(type(part) is list for part in result)
                and all(map(is_int, result[0] + result[1])), "grow(…)", result, "two lists of pages, or None")
        table, free = result
        new = table[len(before):]
        require(table[: len(before)] == before, "table after grow(…)", table, f"one that begins with {before}")
        require(len(set(new)) == len(new) and set(new) <= set(self.empty), "new pages of grow(…)", new,
                f"different ones of the free {self.empty}")
        require(len(table) >= self.blocks_for(num_tokens), "table after grow(…)", table,
                f"{self.blocks_for(num_tokens)} pages long, for {num_tokens} tokens")
        require(sorted(free + new) == sorted(self.empty), "free after grow(…)", free,
                f"what is left of {self.empty} without {new}")

    def extend(self, table: BlockTable, num_tokens: int, result: tuple[list[int], list[int]]) -> None:
        """Take over a result of `grow`."""
        for block_id in result[0][len(table.block_ids):]:
            self.ref_counts[block_id] = 1
        table.block_ids, self.empty = list(result[0]), list(result[1])
        table.num_tokens = num_tokens

    def allocate(self, token_ids: Sequence[int]) -> BlockTable:
        """A table for a text.

        Raises:
            ValueError: `grow` finds no pages for a text that `admit` lets begin.
        """
        table, n = BlockTable(), len(token_ids)
        result = self.asked(table, n)
        require(result is not None, f"grow([], {n}, …)", result, f"pages for a request that admit(…) lets begin: "
                f"{self.blocks_for(n)} are needed, {self.num_free_blocks} free")
        self.extend(table, n, result)
        return table

    def can_append(self, table: BlockTable) -> bool:
        """Whether `grow` has a place for one more token."""
        return self.asked(table, table.num_tokens + 1) is not None

    def append(self, table: BlockTable) -> None:
        """A place for one more token."""
        self.extend(table, table.num_tokens + 1, self.asked(table, table.num_tokens + 1))


class AskingScheduler(Scheduler):
    """The scheduler, but `admit(waiting, num_running, num_free_blocks, token_budget, …)` says how many begin."""

    def __init__(self, blocks: GrownBlocks, rule: Admit, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        super().__init__(blocks, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        self.rule = rule

    def room(self, text: Text) -> int:
        """Tokens that have to have a place when it begins."""
        return len(text.token_ids)

    def admit(self, batch: Batch) -> None:
        """Let as many begin as the rule says.

        Raises:
            ValueError: the number is larger than those who wait or the free slots, or all would wait for ever.
        """
        if not self.waiting:
            return
        n = self.rule([self.room(text) for text in self.waiting], len(self.running), self.blocks.num_free_blocks,
                      self.max_num_batched_tokens - batch.num_tokens, max_num_seqs=self.max_num_seqs,
                      block_size=self.blocks.block_size)
        most = min(len(self.waiting), self.max_num_seqs - len(self.running))
        require(is_int(n) and 0 <= n <= most, "admit(…)", n, f"an integer in [0, {most}]: {len(self.waiting)} wait, "
                f"{self.max_num_seqs - len(self.running)} slots are free")
        require(n > 0 or bool(self.running), "admit(…)", n, ">= 1: nobody runs, and who waits would wait for ever")
        for _ in range(n):
            text = self.waiting.popleft()
            text.table = self.blocks.allocate([0] * self.room(text))
            self.running.append(text)
            self.add_chunk(text, batch)


class StaticScheduler(AskingScheduler):
    """Batches that begin and end together, with room reserved for the longest answer from the beginning.

    Args:
        longest: tokens of an answer at most.
    """

    def __init__(self, blocks: GrownBlocks, rule: Admit, *, longest: int, max_num_seqs: int,
                 max_num_batched_tokens: int) -> None:
        super().__init__(blocks, rule, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        self.longest = longest
        self.held: list[BlockTable] = []  # of those that have ended while their batch goes on

    def room(self, text: Text) -> int:
        """As much as it could need."""
        return text.num_prompt_tokens + self.longest - 1

    def admit(self, batch: Batch) -> None:
        """The next batch, once nobody runs."""
        if not self.running:
            while self.held:
                self.blocks.free(self.held.pop())
            super().admit(batch)

    def finish(self, sequence: Text) -> None:
        """It has ended; its row and its pages are its batch's until all have."""
        self.running.remove(sequence)
        self.held.append(sequence.table)
        sequence.table = None


@dataclass(frozen=True)
class Run:
    """A workload that was served: what its readers felt, and its passes; `served.passes` says when each was."""

    served: Served
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class Pool:
    """What there is to serve with.

    Attributes:
        slots: requests at the same time.
        pages, block_size: of the cache.
        chunk: tokens of a pass where prompts are read in chunks, >= slots.
    """

    slots: int
    pages: int
    block_size: int
    chunk: int = 16


def scheduler_for(policy: str, pool: Pool, grow: Grow, admit: Admit, requests: Sequence[Arrival]) -> AskingScheduler:
    """The scheduler of a policy, as in `course_lib.analysis.serving.simulate`."""
    require(policy in POLICIES, "policy", policy, f"one of {', '.join(POLICIES)}")
    blocks = GrownBlocks(pool.pages, pool.block_size, grow)
    longest = max(request.prompt + request.answer for request in requests)
    budget = pool.chunk if policy == "chunked" else pool.slots * longest
    if policy == "static":
        return StaticScheduler(blocks, admit, longest=max(request.answer for request in requests),
                               max_num_seqs=pool.slots, max_num_batched_tokens=budget)
    return AskingScheduler(blocks, admit, max_num_seqs=pool.slots, max_num_batched_tokens=budget)


def serve_by(scheduler: AskingScheduler, requests: Sequence[Arrival], cost: PassCost) -> Run:
    """Serve a workload without a model.

    Raises:
        ValueError: one of the two functions returns what cannot be, or a request does not fit the pages.
    """
    padded = isinstance(scheduler, StaticScheduler)
    table, served, now, begun = Slots(scheduler), Served([Reader(request) for request in requests]), 0.0, ()
    due, passes = deque(enumerate(requests)), []
    while due or scheduler.has_unfinished():
        if not scheduler.has_unfinished():
            now = max(now, due[0][1].at)
        add_due(table, due, now, len(due))
        one = table.step()
        if padded:
            begun = one.cells if any(cell and cell.kind == "prefill" for cell in one.cells) else begun
            one = with_padding(one, begun)
        rows, tokens = static_work(one, sum(map(bool, begun))) if padded else work_of(one)
        served.passes.append((now, now := now + cost.seconds(rows, tokens)))
        served.work.append((rows, tokens))
        served.computed += rows + tokens
        note(served, one)
        passes.append(one)
    served.preemptions = scheduler.num_preemptions
    return Run(served, tuple(passes))


def with_padding(one: Pass, begun: Sequence[Cell | None]) -> Pass:
    """A pass of a static batch, in which the rows of those that have ended are computed, too."""
    return replace(one, cells=tuple(cell or (first and Cell(first.request_id, "pad", 0))
                                    for cell, first in zip(one.cells, begun)))
