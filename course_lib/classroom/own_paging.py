"""Pages and admission with the reader's functions: an engine for many requests at once that asks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.classroom.engine_slots import Parts
from course_lib.config import is_int, require
from course_lib.engine import Engine
from course_lib.generate import LanguageModel
from course_lib.paging import BlockManager, BlockTable, Prefix
from course_lib.scheduler import Batch, Scheduler

PAGING = ("grow", "prefix_hashes")


def own_engine(lm: LanguageModel, parts: Parts, **options: Any) -> Engine:
    """An `Engine` with these options, in which the reader's functions give out pages, find them again and admit."""
    engine = Engine(lm, **options)
    if parts.own(*PAGING):
        blocks = engine.blocks
        engine.blocks = engine.scheduler.blocks = OwnBlocks(
            blocks.num_blocks, blocks.block_size, parts, enable_prefix_caching=blocks.enable_prefix_caching)
    if parts.own("admit"):
        scheduler = engine.scheduler
        engine.scheduler = OwnScheduler(scheduler.blocks, parts, max_num_seqs=scheduler.max_num_seqs,
                                        max_num_batched_tokens=scheduler.max_num_batched_tokens)
    return engine


class OwnBlocks(BlockManager):
    """A `BlockManager` whose tables grow as exercise 14.1 says, and whose pages are found again by 14.3."""

    def __init__(self, num_blocks: int, block_size: int, parts: Parts, *, enable_prefix_caching: bool = True) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching=enable_prefix_caching)
        self.parts = parts

    def grown(self, block_ids: Sequence[int], num_tokens: int) -> list[int]:
        """A table's pages, and the new ones that it takes for this many tokens in all.

        Raises:
            ValueError: what `grow` returns cannot be.
        """
        free = [*reversed(self.evictable), *self.empty]  # the last is taken first: empty pages, then the oldest
        result = self.parts.grow(list(block_ids), num_tokens, list(free), self.block_size)
        require(isinstance(result, tuple) and len(result) == 2, "grow(…)", result, "two lists: enough pages are free")
        table, left = map(list, result)
        new = table[len(block_ids):]
        require(table[: len(block_ids)] == list(block_ids) and sorted(new + left) == sorted(free)
                and len(table) == max(len(block_ids), self.blocks_for(num_tokens)),
                "grow(…)", result, f"{list(block_ids)} and {self.blocks_for(num_tokens)} pages in all, the new ones of "
                                   f"the free {free}")
        for block_id in new:
            self.claim(block_id)
        return table

    def claim(self, block_id: int) -> None:
        """Take a certain free page, and forget what it held."""
        if block_id in self.evictable:
            del self.evictable[block_id], self.index[self.prefixes[block_id].hash]
            self.prefixes[block_id] = None
            self.evictions += 1
        else:
            self.empty.remove(block_id)
        self.ref_counts[block_id] = 1

    def find_prefix(self, token_ids: Sequence[int]) -> tuple[list[int], Prefix | None]:
        """As `BlockManager.find_prefix`; that the tokens are the same is looked at here."""
        found, prefix, size = [], None, self.block_size
        hashes = self.hashes(token_ids) if self.enable_prefix_caching else []
        for i, number in enumerate(hashes[: (len(token_ids) - 1) // size]):
            longer = Prefix(prefix, tuple(token_ids[i * size : (i + 1) * size]), number)
            block_id = self.index.get(number)
            if block_id is None or not self.prefixes[block_id].same_tokens(longer):
                break
            found.append(block_id)
            prefix = self.prefixes[block_id]
        return found, prefix

    def hashes(self, token_ids: Sequence[int]) -> list[int]:
        """The numbers of all full pages of a text.

        Raises:
            ValueError: there are more or fewer.
        """
        numbers = self.parts.prefix_hashes(list(token_ids), self.block_size)
        require(isinstance(numbers, list) and len(numbers) == len(token_ids) // self.block_size
                and all(map(is_int, numbers)), "prefix_hashes(…)", numbers, "an integer for each full page")
        return numbers

    def allocate(self, token_ids: Sequence[int]) -> BlockTable:
        """As `BlockManager.allocate`."""
        require(self.can_allocate(token_ids), "len(token_ids)", len(token_ids),
                f"few enough for the {self.num_free_blocks} free pages of {self.block_size} tokens")
        found, prefix = self.find_prefix(token_ids)
        for block_id in found:
            self.take(block_id)
        cached = len(found) * self.block_size
        self.prefix_queries += len(token_ids)
        self.prefix_hits += cached
        return BlockTable(self.grown(found, len(token_ids)), len(token_ids), cached, prefix, len(found))

    def append(self, table: BlockTable) -> tuple[int, int] | None:
        """As `BlockManager.append`; a page that is shared is copied as there."""
        if not self.is_full(table):
            return super().append(table)
        require(self.can_append(table), "num_free_blocks", self.num_free_blocks, ">= 1, to append to a full page")
        table.block_ids = self.grown(table.block_ids, table.num_tokens + 1)
        table.num_tokens += 1
        return None

    def cache_full_blocks(self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """As `BlockManager.cache_full_blocks`."""
        size, full = self.block_size, num_computed_tokens // self.block_size
        if not self.enable_prefix_caching or full <= table.num_full_blocks:
            return
        for i, number in list(enumerate(self.hashes(token_ids[: full * size])))[table.num_full_blocks :]:
            prefix = Prefix(table.prefix, tuple(token_ids[i * size : (i + 1) * size]), number)
            holder = self.index.get(number)
            if holder is None:
                self.index[number], self.prefixes[table.block_ids[i]] = table.block_ids[i], prefix
            elif self.prefixes[holder].same_tokens(prefix):
                prefix = self.prefixes[holder]
            table.prefix, table.num_full_blocks = prefix, i + 1


class OwnScheduler(Scheduler):
    """A `Scheduler` that lets as many begin as exercise 14.2 says.

    The exercise knows of no pages that are there already. So of the first who waits it is told the tokens that are
    missing, and each time only the first begins: who comes next may find pages, too.
    """

    def __init__(self, blocks: BlockManager, parts: Parts, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        super().__init__(blocks, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        self.parts = parts

    def admit(self, batch: Batch) -> None:
        """As `Scheduler.admit`.

        Raises:
            ValueError: what `admit` returns cannot be.
        """
        while self.waiting:
            sequence = self.waiting[0]
            found, _ = self.blocks.find_prefix(sequence.token_ids)
            revived = sum(self.blocks.ref_counts[block_id] == 0 for block_id in found)
            known = len(sequence.token_ids) - 1 if self.twin(sequence) else len(found) * self.blocks.block_size
            missing = len(sequence.token_ids) - known
            waiting = [missing, *(len(other.token_ids) for other in list(self.waiting)[1:])]
            n = self.parts.admit(waiting, len(self.running), self.blocks.num_free_blocks - revived,
                                 self.max_num_batched_tokens - batch.num_tokens, max_num_seqs=self.max_num_seqs,
                                 block_size=self.blocks.block_size)
            require(is_int(n) and 0 <= n <= len(waiting), "admit(…)", n, f"an integer in [0, {len(waiting)}]")
            if n == 0:
                return
            require(self.take_pages(sequence, batch), "admit(…)", n, "0: there are too few free pages")
            self.waiting.popleft()
            self.running.append(sequence)
            self.add_chunk(sequence, batch)
