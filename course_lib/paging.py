"""Which pages of the KV cache belong to whom: reference counts, copy-on-write, and prefixes found again by their hash.

A page has room for the keys and values of `block_size` tokens. This module moves no keys and knows no tensors: it
deals in the numbers of pages, as an operating system's page table does. Source: Kwon et al. 2023, PagedAttention.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from course_lib.config import is_int, require


def hash_block(parent_hash: int, token_ids: Sequence[int]) -> int:
    """A number for a full page that depends on its tokens and, through the hash of the page before, on all before them.

    Args:
        parent_hash: of the page before; 0 for the first.
        token_ids: all `block_size` of them.
    """
    return hash((parent_hash, *token_ids))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Prefix:
    """The tokens of a full page, and the pages before it: what keys and values depend on."""

    parent: Prefix | None
    token_ids: tuple[int, ...]
    hash: int

    @classmethod
    def after(cls, parent: Prefix | None, token_ids: Sequence[int]) -> Prefix:
        """The prefix one page longer."""
        return cls(parent, tuple(token_ids), hash_block(parent.hash if parent else 0, token_ids))

    def same_tokens(self, other: Prefix) -> bool:
        """Whether both are the same text from its first token on: hashes may collide, tokens decide."""
        a, b = self, other
        while a is not b:  # pages that were found in the index share their parents, so this ends at once
            if a is None or b is None or a.token_ids != b.token_ids:
                return False
            a, b = a.parent, b.parent
        return True


@dataclass(eq=False)
class BlockTable:
    """The pages of one sequence, in the order of its text.

    Attributes:
        block_ids: page i holds the positions from i * block_size on.
        num_tokens: positions that have a place; the last page may have room for more.
        num_cached_tokens: of them, found in the prefix index, or in the table that this one is a fork of, when it was
            made: computed already.
        prefix: of the full pages that `cache_full_blocks` has seen, `num_full_blocks` of them.
    """

    block_ids: list[int] = field(default_factory=list)
    num_tokens: int = 0
    num_cached_tokens: int = 0
    prefix: Prefix | None = None
    num_full_blocks: int = 0


class BlockManager:
    """Gives pages to sequences and takes them back.

    A page is *in use* while some table refers to it. One that nobody refers to any more is free, but if it is in the
    prefix index its contents stay, until the room is wanted; the least recently used of them goes first.

    Args:
        num_blocks: pages, >= 1.
        block_size: tokens in a page, >= 1.
        enable_prefix_caching: keep an index of full pages; without it each table starts from nothing.

    Attributes:
        prefix_queries, prefix_hits: tokens that were asked for, and that were found, over all calls of `allocate` and
            `fork`.
        evictions: pages that lost contents which could have been found.
    """

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True) -> None:
        require(is_int(num_blocks) and num_blocks >= 1, "num_blocks", num_blocks, "an integer >= 1")
        require(is_int(block_size) and block_size >= 1, "block_size", block_size, "an integer >= 1")
        self.num_blocks, self.block_size = num_blocks, block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.prefix_queries = self.prefix_hits = self.evictions = 0
        self.clear()

    def clear(self) -> None:
        """Take all pages back from their tables, and forget what they hold."""
        self.ref_counts = [0] * self.num_blocks
        self.prefixes: list[Prefix | None] = [None] * self.num_blocks  # of each page that is in the index
        self.index: dict[int, int] = {}  # hash of a prefix to its last page
        self.empty = list(range(self.num_blocks - 1, -1, -1))  # free, and not in the index; the last is taken first
        self.evictable: OrderedDict[int, None] = OrderedDict()  # free, in the index; least recently used first

    @property
    def num_free_blocks(self) -> int:
        """Pages that `allocate` and `append` can give away."""
        return len(self.empty) + len(self.evictable)

    @property
    def num_used_blocks(self) -> int:
        """Pages that some table refers to."""
        return self.num_blocks - self.num_free_blocks

    def blocks_for(self, num_tokens: int) -> int:
        """Pages that this many tokens need: the last one may be partly empty."""
        return -(-num_tokens // self.block_size)

    def find_prefix(self, token_ids: Sequence[int]) -> tuple[list[int], Prefix | None]:
        """The longest beginning of a text whose full pages are in the index: its pages, and what they hold.

        The last token is never one of them, since it has to go through the model for the next one to be known.
        """
        found, prefix, size = [], None, self.block_size
        for start in range(0, len(token_ids) - size, size):
            if not self.enable_prefix_caching:
                break
            longer = Prefix.after(prefix, token_ids[start : start + size])
            block_id = self.index.get(longer.hash)
            if block_id is None or not self.prefixes[block_id].same_tokens(longer):
                break
            found.append(block_id)
            prefix = self.prefixes[block_id]
        return found, prefix

    def can_allocate(self, token_ids: Sequence[int]) -> bool:
        """Whether `allocate` has the pages for a text."""
        found, _ = self.find_prefix(token_ids)
        revived = sum(self.ref_counts[block_id] == 0 for block_id in found)  # free now, but not for other contents
        return self.blocks_for(len(token_ids)) - len(found) <= self.num_free_blocks - revived

    def allocate(self, token_ids: Sequence[int]) -> BlockTable:
        """A table with a place for every token: pages of the index where its beginning is known, new ones after.

        Raises:
            ValueError: there are not enough free pages; nothing has changed then.
        """
        require(self.can_allocate(token_ids), "len(token_ids)", len(token_ids),
                f"few enough for the {self.num_free_blocks} free pages of {self.block_size} tokens")
        found, prefix = self.find_prefix(token_ids)
        for block_id in found:
            self.take(block_id)
        new = [self.new_block() for _ in range(self.blocks_for(len(token_ids)) - len(found))]
        cached = len(found) * self.block_size
        self.prefix_queries += len(token_ids)
        self.prefix_hits += cached
        return BlockTable(found + new, len(token_ids), cached, prefix, len(found))

    def can_append(self, table: BlockTable) -> bool:
        """Whether `append` has a page, if it needs one."""
        return self.num_free_blocks > 0 or not (self.is_full(table) or self.is_shared(table))

    def append(self, table: BlockTable) -> tuple[int, int] | None:
        """Make a place for one more token.

        Returns:
            None, or (source, target): the last page was shared with a fork, and this table has a page of its own from
            now on, into which the caller copies the keys and values of the source.

        Raises:
            ValueError: it takes a page and none is free; nothing has changed then.
        """
        require(self.can_append(table), "num_free_blocks", self.num_free_blocks, ">= 1, to append to a full page")
        copy = None
        if self.is_full(table):
            table.block_ids.append(self.new_block())
        elif self.is_shared(table):
            copy = (table.block_ids[-1], self.new_block())
            self.release(copy[0])
            table.block_ids[-1] = copy[1]
        table.num_tokens += 1
        return copy

    def is_full(self, table: BlockTable) -> bool:
        """Whether the next token begins a page."""
        return table.num_tokens == len(table.block_ids) * self.block_size

    def is_shared(self, table: BlockTable) -> bool:
        """Whether the last page is not this table's alone: another table has it too, or the index."""
        last = table.block_ids[-1] if table.block_ids else None
        return last is not None and (self.ref_counts[last] > 1 or self.prefixes[last] is not None)

    def fork(self, table: BlockTable, num_tokens: int | None = None) -> BlockTable:
        """A second table of the same text, whose pages both share until one of them writes to the last.

        Args:
            num_tokens: of the text's beginning, in [0, table.num_tokens]; None: of all.

        Raises:
            ValueError: the text is not that long.
        """
        n = table.num_tokens if num_tokens is None else num_tokens
        require(0 <= n <= table.num_tokens, "num_tokens", n, f"in [0, {table.num_tokens}]")
        shared, prefix = table.block_ids[: self.blocks_for(n)], table.prefix
        full = min(table.num_full_blocks, n // self.block_size)
        for _ in range(full, table.num_full_blocks):
            prefix = prefix.parent
        for block_id in shared:
            self.take(block_id)
        self.prefix_queries += n
        self.prefix_hits += n
        return BlockTable(list(shared), n, n, prefix, full)

    def cache_full_blocks(self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Enter the pages that are full by now into the index. Not before: nobody may find what nobody has computed.

        Args:
            table: of a sequence.
            token_ids: its text.
            num_computed_tokens: of them, those that have gone through the model, or will do so before anybody reads
                the pages.
        """
        size = self.block_size
        while self.enable_prefix_caching and num_computed_tokens >= (table.num_full_blocks + 1) * size:
            i = table.num_full_blocks
            block_id = table.block_ids[i]
            prefix = Prefix.after(table.prefix, token_ids[i * size : (i + 1) * size])
            holder = self.index.get(prefix.hash)
            if holder is None:
                self.index[prefix.hash], self.prefixes[block_id] = block_id, prefix
            elif self.prefixes[holder].same_tokens(prefix):  # computed twice at the same time: one of them is enough
                prefix = self.prefixes[holder]
            table.prefix, table.num_full_blocks = prefix, i + 1

    def reset_prefix_cache(self) -> None:
        """Forget what the pages hold, for when the weights that computed it have changed.

        Raises:
            ValueError: some are in use; nothing has changed then.
        """
        require(self.num_used_blocks == 0, "num_used_blocks", self.num_used_blocks, "0, to forget what pages hold")
        self.clear()

    def free(self, table: BlockTable) -> None:
        """Give up all pages of a table; it is empty afterwards. The end of a text is evicted before its beginning."""
        for block_id in reversed(table.block_ids):
            self.release(block_id)
        table.__init__()

    def new_block(self) -> int:
        """A page to write to: an empty one, else the one of the index that was not used for the longest time."""
        if self.empty:
            block_id = self.empty.pop()
        else:
            block_id, _ = self.evictable.popitem(last=False)
            del self.index[self.prefixes[block_id].hash]
            self.prefixes[block_id] = None
            self.evictions += 1
        self.ref_counts[block_id] = 1
        return block_id

    def take(self, block_id: int) -> None:
        """One more table refers to a page."""
        self.evictable.pop(block_id, None)
        self.ref_counts[block_id] += 1

    def release(self, block_id: int) -> None:
        """One table fewer does."""
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            if self.prefixes[block_id] is None:
                self.empty.append(block_id)
            else:
                self.evictable[block_id] = None
