"""Who goes through the model in the next pass, and with how many tokens: continuous batching in plain Python.

A sequence has tokens, of which the model has seen the first `num_computed_tokens`. A pass takes each running sequence
some tokens further. One that has caught up with its own text gets its next token, so that a decode step is a pass
with one token, and reading a prompt is a pass, or several, with many. Nothing in here knows a model or a tensor.

Source: Yu et al. 2022, Orca (batches that change at every pass); Agrawal et al. 2024, Sarathi-Serve (prompts in
chunks beside decoding); Kwon et al. 2023, PagedAttention (memory in pages, preemption by recomputation).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import NamedTuple

from course_lib.config import is_int, require
from course_lib.paging import BlockManager, BlockTable


@dataclass(eq=False)
class Sequence:
    """One request: its text so far and how far the model has read it.

    Attributes:
        token_ids: the prompt and what was generated.
        num_prompt_tokens: how many of them are the prompt.
        max_tokens: new tokens at most.
        stop_token_ids: any of these ends it.
        num_computed_tokens: of `token_ids`, how many have keys and values in the pages.
        table: the pages; None while it waits.
        finish_reason: "stop", "length" or "abort"; None before.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    max_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    num_computed_tokens: int = 0
    table: BlockTable | None = None
    finish_reason: str | None = None

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens that have yet to go through the model: 1 while it decodes."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def output_ids(self) -> list[int]:
        """What was generated."""
        return self.token_ids[self.num_prompt_tokens :]


class Work(NamedTuple):
    """A sequence's part in a pass: its next `num_tokens` tokens, from `start` on."""

    sequence: Sequence
    start: int
    num_tokens: int

    @property
    def gets_token(self) -> bool:
        """Whether the pass reaches the end of the text so far, and thus the next token."""
        return self.start + self.num_tokens == len(self.sequence.token_ids)


@dataclass
class Batch:
    """One pass.

    Attributes:
        work: decode steps first, then pieces of prompts; each sequence at most once.
        copies: (source, target) pages whose contents have to be copied before it.
        preempted: sequences that lost their pages for it.
    """

    work: list[Work] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens that go through the model."""
        return sum(work.num_tokens for work in self.work)


class Scheduler:
    """First come, first served: every sequence that runs has come before every one that waits.

    Args:
        blocks: the pages that all sequences share.
        max_num_seqs: sequences that run at the same time, >= 1.
        max_num_batched_tokens: tokens in a pass, >= max_num_seqs, so that nobody's decode step has to wait.
    """

    def __init__(self, blocks: BlockManager, *, max_num_seqs: int = 32, max_num_batched_tokens: int = 512) -> None:
        require(is_int(max_num_seqs) and max_num_seqs >= 1, "max_num_seqs", max_num_seqs, "an integer >= 1")
        require(is_int(max_num_batched_tokens) and max_num_batched_tokens >= max_num_seqs, "max_num_batched_tokens",
                max_num_batched_tokens, f"an integer >= max_num_seqs = {max_num_seqs}")
        self.blocks, self.max_num_seqs, self.max_num_batched_tokens = blocks, max_num_seqs, max_num_batched_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_preemptions = 0

    def add(self, request_id: str, prompt_ids: Items[int], *, max_tokens: int,
            stop_token_ids: Items[int] | frozenset[int] = ()) -> Sequence:
        """Queue a request.

        Raises:
            ValueError: the prompt is empty, or the request could not run even alone.
        """
        require(len(prompt_ids) >= 1, "prompt_ids", list(prompt_ids), "at least one token")
        require(max_tokens >= 1, "max_tokens", max_tokens, ">= 1")
        places = len(prompt_ids) + max_tokens - 1  # the last token is never read
        require(self.blocks.blocks_for(places) <= self.blocks.num_blocks, "prompt tokens + max_tokens - 1", places,
                f"at most {self.blocks.num_blocks * self.blocks.block_size}, what all pages hold")
        sequence = Sequence(request_id, list(prompt_ids), len(prompt_ids), max_tokens, frozenset(stop_token_ids))
        self.waiting.append(sequence)
        return sequence

    def has_unfinished(self) -> bool:
        """Whether anybody runs or waits."""
        return bool(self.waiting or self.running)

    def schedule(self) -> Batch:
        """The next pass: a token for everybody who decodes, then prompts, oldest first, with what is left over.

        A sequence may begin with pages that one before it in the pass fills, so the pass has to be computed, all keys
        and values of a layer before its attention, or to be followed by `abort_all`.
        """
        batch = Batch()
        for sequence in [s for s in self.running if s.num_waiting_tokens == 1]:
            if self.make_place(sequence, batch):
                batch.work.append(Work(sequence, sequence.num_computed_tokens, 1))
        for sequence in [s for s in self.running if s.num_waiting_tokens > 1]:
            self.add_chunk(sequence, batch)
        if not batch.preempted:  # else memory is short, and who begins now would soon lose its pages again
            self.admit(batch)
        return batch

    def make_place(self, sequence: Sequence, batch: Batch) -> bool:
        """A place for the token of a decode step, if need be at the expense of the newest; False if that is itself."""
        if sequence.table is None:  # lost its pages to an older one in this very pass
            return False
        while sequence.table.num_tokens < len(sequence.token_ids):
            if self.blocks.can_append(sequence.table):
                if copy := self.blocks.append(sequence.table):
                    batch.copies.append(copy)
            else:
                newest = self.running[-1]
                self.preempt(newest, batch)
                if newest is sequence:
                    return False
        return True

    def preempt(self, sequence: Sequence, batch: Batch) -> None:
        """Take a sequence's pages away. It waits in front, and computes its keys and values again when it is back."""
        self.running.remove(sequence)
        self.release(sequence)
        sequence.num_computed_tokens = 0
        self.num_preemptions += 1
        self.waiting.appendleft(sequence)
        batch.preempted.append(sequence)

    def admit(self, batch: Batch) -> None:
        """Let those who wait begin, in their order, while there is a slot, a token in the budget, and memory.

        The first that does not fit stops the others: small requests must not overtake a large one for ever.
        """
        while (self.waiting and len(self.running) < self.max_num_seqs
               and batch.num_tokens < self.max_num_batched_tokens
               and self.take_pages(self.waiting[0], batch)):
            sequence = self.waiting.popleft()
            self.running.append(sequence)
            self.add_chunk(sequence, batch)

    def take_pages(self, sequence: Sequence, batch: Batch) -> bool:
        """Give a sequence its pages, those of its beginning that others have already; False if it waits for memory."""
        if (twin := self.twin(sequence)) and self.blocks.num_free_blocks > 0:
            known = len(sequence.token_ids) - 1  # the last token goes through the model again, for the one after it
            sequence.table = self.blocks.fork(twin.table, known)
            if copy := self.blocks.append(sequence.table):
                batch.copies.append(copy)
        elif self.blocks.can_allocate(sequence.token_ids):
            sequence.table = self.blocks.allocate(sequence.token_ids)
        else:
            return False
        sequence.num_computed_tokens = sequence.table.num_cached_tokens
        return True

    def twin(self, sequence: Sequence) -> Sequence | None:
        """One that runs, and has read this text as its prompt: it writes another answer to the same question."""
        text = sequence.token_ids
        return next((one for one in self.running if self.blocks.enable_prefix_caching
                     and one.num_prompt_tokens == len(text) and one.num_computed_tokens >= len(text) - 1
                     and one.token_ids[: len(text)] == text), None)

    def add_chunk(self, sequence: Sequence, batch: Batch) -> None:
        """As much of a prompt as the budget still holds; what follows in this pass finds the pages that it fills."""
        room, start = self.max_num_batched_tokens - batch.num_tokens, sequence.num_computed_tokens
        if num_tokens := min(sequence.num_waiting_tokens, room):
            batch.work.append(Work(sequence, start, num_tokens))
            self.blocks.cache_full_blocks(sequence.table, sequence.token_ids, start + num_tokens)

    def update(self, batch: Batch, token_ids: Items[int]) -> list[Sequence]:
        """Take note of a pass that has been computed.

        Args:
            batch: as `schedule` made it.
            token_ids: the next token of each work that `gets_token`, in their order.

        Returns:
            The sequences that are finished now; their pages are free.
        """
        new, finished = iter(token_ids), []
        for sequence, start, num_tokens in batch.work:
            sequence.num_computed_tokens = start + num_tokens
            if sequence.table is not None:
                self.blocks.cache_full_blocks(sequence.table, sequence.token_ids, start + num_tokens)
            if sequence.num_waiting_tokens == 0:
                sequence.token_ids.append(next(new))
                if sequence.finish_reason is None and self.is_finished(sequence):
                    self.finish(sequence)
                    finished.append(sequence)
        return finished

    def is_finished(self, sequence: Sequence) -> bool:
        """Whether its newest token is its last one; the reason is then noted."""
        if sequence.token_ids[-1] in sequence.stop_token_ids:
            sequence.finish_reason = "stop"
        elif len(sequence.token_ids) == sequence.num_prompt_tokens + sequence.max_tokens:
            sequence.finish_reason = "length"
        return sequence.finish_reason is not None

    def finish(self, sequence: Sequence) -> None:
        """Its slot and its pages are free from now on."""
        self.running.remove(sequence)
        self.release(sequence)

    def abort(self, request_id: str) -> None:
        """End a request wherever it is; one that is unknown or finished already is no error."""
        for sequence in [*self.running, *self.waiting]:
            if sequence.request_id == request_id:
                sequence.finish_reason = "abort"
                (self.running if sequence.table else self.waiting).remove(sequence)
                self.release(sequence)

    def abort_all(self) -> None:
        """End every request and take all pages back, also where an interrupt came between two steps of the books."""
        for sequence in [*self.running, *self.waiting]:
            sequence.finish_reason, sequence.table = "abort", None
        self.running.clear()
        self.waiting.clear()
        self.blocks.clear()

    def release(self, sequence: Sequence) -> None:
        """Give up the pages, if there are any."""
        if sequence.table is not None:
            self.blocks.free(sequence.table)
            sequence.table = None
