"""The allocator against a model of it that keeps every text whole: what is shared, what is found, what is lost."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from course_lib import paging
from course_lib.paging import BlockManager, Prefix, hash_block

A, B = [1, 2, 3, 4], [5, 6, 7, 8]


def filled(blocks, ids):
    """A table whose tokens have all been computed."""
    table = blocks.allocate(ids)
    blocks.cache_full_blocks(table, ids, len(ids))
    return table


def test_a_text_gets_as_many_pages_as_it_fills_or_begins():
    blocks = BlockManager(10, 4)
    for n, pages in ((1, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        table = blocks.allocate(list(range(n)))
        assert (len(table.block_ids), table.num_tokens, blocks.num_used_blocks) == (pages, n, pages)
        blocks.free(table)
        assert blocks.num_free_blocks == 10 and table.block_ids == []


def test_a_page_is_added_when_the_last_is_full_and_not_before():
    blocks = BlockManager(3, 2)
    table = blocks.allocate([1])
    sizes = []
    for _ in range(5):
        assert blocks.append(table) is None
        sizes.append(len(table.block_ids))
    assert sizes == [1, 2, 2, 3, 3]
    assert not blocks.can_append(table)
    with pytest.raises(ValueError, match="num_free_blocks = 0"):
        blocks.append(table)
    assert (table.num_tokens, len(table.block_ids)) == (6, 3)


def test_what_does_not_fit_is_refused_and_nothing_is_lost():
    blocks = BlockManager(3, 4)
    held = filled(blocks, A + B)
    assert not blocks.can_allocate([9] * 5) and blocks.can_allocate([9] * 4)
    with pytest.raises(ValueError, match=r"len\(token_ids\) = 5.* 1 free pages of 4"):
        blocks.allocate([9] * 5)
    assert (blocks.num_free_blocks, blocks.prefix_queries, blocks.ref_counts.count(1)) == (1, 8, 2)
    blocks.free(held)
    assert blocks.num_free_blocks == 3


def test_pages_that_are_found_do_not_count_as_free_for_the_rest():
    """Two of three pages hold the beginning, unused: they cannot be evicted to make room for its own end."""
    blocks = BlockManager(3, 4)
    blocks.free(filled(blocks, A + B))
    assert blocks.num_free_blocks == 3
    assert blocks.can_allocate(A + B + [9] * 4) and not blocks.can_allocate(A + B + [9] * 5)


def test_a_prefix_is_found_up_to_its_last_full_page():
    blocks = BlockManager(20, 4)
    first = filled(blocks, A + B + [9, 9])
    same, other, short = blocks.allocate(A + B + [1, 1]), blocks.allocate(A + [9] * 5), blocks.allocate(A[:3])
    assert same.block_ids[:2] == first.block_ids[:2] and same.block_ids[2] != first.block_ids[2]
    assert other.block_ids[:1] == first.block_ids[:1] and other.block_ids[1] != first.block_ids[1]
    assert [t.num_cached_tokens for t in (first, same, other, short)] == [0, 8, 4, 0]
    assert (blocks.prefix_hits, blocks.prefix_queries) == (12, 10 + 10 + 9 + 3)
    assert [blocks.ref_counts[i] for i in first.block_ids] == [3, 2, 1]


def test_the_last_token_is_never_found():
    """It has to go through the model, or there would be no logits to choose the next one from."""
    blocks = BlockManager(20, 4)
    filled(blocks, A + B)
    assert blocks.allocate(A + B).num_cached_tokens == 4
    assert blocks.allocate([*A, *B, 1]).num_cached_tokens == 8


def test_equal_pages_after_different_beginnings_are_different():
    blocks = BlockManager(20, 4)
    filled(blocks, A + B + [1])
    assert blocks.allocate(B + B + [1]).num_cached_tokens == 0
    assert blocks.allocate(B + [1]).num_cached_tokens == 0


def test_nothing_is_found_before_it_is_computed():
    blocks = BlockManager(20, 4)
    table = blocks.allocate(A + B + A)
    assert blocks.allocate(A + B + A).num_cached_tokens == 0
    blocks.cache_full_blocks(table, A + B + A, 7)
    assert blocks.allocate(A + B + A).num_cached_tokens == 4
    blocks.cache_full_blocks(table, A + B + A, 12)
    assert blocks.allocate(A + B + A).num_cached_tokens == 8


def test_what_two_compute_at_the_same_time_is_entered_once():
    blocks = BlockManager(20, 4)
    first, second = blocks.allocate(A + B + [1]), blocks.allocate(A + B + [2])
    for table in (first, second):
        blocks.cache_full_blocks(table, A + B, 8)
    assert not set(first.block_ids) & set(second.block_ids)
    assert len(blocks.index) == 2 and second.prefix is first.prefix
    blocks.free(second)
    assert len(blocks.empty) == 20 - 3 and not blocks.evictable, "its pages hold nothing that is not elsewhere"


def test_without_prefix_caching_nothing_is_kept():
    blocks = BlockManager(5, 4, enable_prefix_caching=False)
    blocks.free(filled(blocks, A + B))
    assert blocks.allocate([*A, *B, 1]).num_cached_tokens == 0 and not blocks.index and blocks.evictions == 0


def test_the_least_recently_used_page_goes_first_and_an_end_before_its_beginning():
    blocks = BlockManager(4, 4)
    for ids in (A + B, B + A):
        blocks.free(filled(blocks, ids))
    blocks.free(blocks.allocate([*A, *B, 1]))
    assert blocks.evictions == 1  # one page for the ninth token: the end of the text that was used longest ago
    assert blocks.find_prefix([*B, *A, 1])[0] == blocks.find_prefix([*B, 1])[0] != []
    assert len(blocks.find_prefix([*A, *B, 1])[0]) == 2


def test_a_page_in_use_is_never_evicted():
    blocks = BlockManager(3, 4)
    held = filled(blocks, A + [1])
    again = blocks.allocate(A + [2])
    assert not blocks.can_allocate([7] * 5) and not blocks.can_allocate([7])
    blocks.free(held)
    assert blocks.can_allocate([7]) and not blocks.can_allocate([7] * 5)
    assert blocks.ref_counts[again.block_ids[0]] == 1


def test_a_fork_shares_pages_until_one_of_both_writes():
    blocks = BlockManager(5, 4)
    table = filled(blocks, [*A, 5, 6])
    twin = blocks.fork(table)
    assert twin.block_ids == table.block_ids and blocks.num_used_blocks == 2
    last = table.block_ids[-1]
    source, target = blocks.append(twin)
    assert (source, twin.block_ids[-1]) == (last, target) and target != last
    assert twin.block_ids[0] == table.block_ids[0] and table.block_ids[-1] == last
    assert blocks.append(table) is None, "it is alone with its page now, and writes there"
    blocks.free(table)
    assert twin.block_ids and [blocks.ref_counts[i] for i in twin.block_ids] == [1, 1]


def test_a_fork_of_a_beginning_writes_into_no_page_that_others_or_the_index_know():
    blocks = BlockManager(6, 4)
    table = filled(blocks, [*A, 5, 6, 7, 8])
    twin = blocks.fork(table, 6)
    assert twin.block_ids == table.block_ids[:2] and (twin.num_tokens, twin.num_full_blocks) == (6, 1)
    assert twin.prefix is table.prefix.parent
    blocks.free(table)
    source, target = blocks.append(twin)
    assert blocks.find_prefix([*A, 5, 6, 7, 8, 0])[0] == [twin.block_ids[0], source] and target == twin.block_ids[1]
    assert blocks.fork(twin, 0).block_ids == []
    with pytest.raises(ValueError, match=r"num_tokens = 8 .*\[0, 7\]"):
        blocks.fork(twin, 8)


def test_what_pages_hold_is_forgotten_when_nobody_uses_them():
    blocks = BlockManager(4, 2)
    table = blocks.allocate([1, 2, 3, 4])
    blocks.cache_full_blocks(table, [1, 2, 3, 4], 4)
    with pytest.raises(ValueError, match="num_used_blocks = 2"):
        blocks.reset_prefix_cache()
    assert blocks.find_prefix([1, 2, 3])[0], "nothing has changed"
    blocks.free(table)
    blocks.reset_prefix_cache()
    assert blocks.find_prefix([1, 2, 3]) == ([], None) and sorted(blocks.empty) == [0, 1, 2, 3]
    assert blocks.allocate([1, 2, 3, 4, 5, 6, 7, 8]).num_cached_tokens == 0 and blocks.evictions == 0


def test_a_fork_of_full_pages_copies_nothing():
    blocks = BlockManager(5, 4)
    table = filled(blocks, A)
    twin = blocks.fork(table)
    assert blocks.append(twin) is None and blocks.append(table) is None
    assert twin.block_ids[0] == table.block_ids[0] and twin.block_ids[1] != table.block_ids[1]


def test_a_copy_needs_a_page_and_is_refused_without_one():
    blocks = BlockManager(1, 4)
    table = filled(blocks, A[:2])
    twin = blocks.fork(table)
    assert not blocks.can_append(twin)
    with pytest.raises(ValueError, match="num_free_blocks"):
        blocks.append(twin)
    blocks.free(table)
    assert blocks.append(twin) is None


@pytest.mark.parametrize("sizes, message", [((0, 4), "num_blocks = 0"), ((4, 0), "block_size = 0"),
                                            ((True, 4), "num_blocks = True"), ((4, 2.0), "block_size = 2.0")])
def test_sizes_that_are_none_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        BlockManager(*sizes)


def test_the_hash_depends_on_order_and_on_what_came_before():
    ids = [3, 1, 4, 1]
    others = [hash_block(0, [1, 3, 4, 1]), hash_block(1, ids), hash_block(0, ids[:3]), hash_block(0, [*ids, 0]),
              hash_block(hash_block(0, ids), ids)]
    assert hash_block(0, ids) == hash_block(0, tuple(ids)) and hash_block(0, ids) not in others


@settings(max_examples=300)
@given(texts=st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=12), min_size=2, max_size=8))
def test_prefixes_are_equal_where_texts_are_whatever_the_hash_says(texts):
    def prefix_of(ids):
        prefix = None
        for start in range(0, len(ids) - 1, 2):
            prefix = Prefix(prefix, tuple(ids[start : start + 2]), 0)
        return prefix

    for a in texts:
        for b in texts:
            assert prefix_of(a).same_tokens(prefix_of(b)) == (a[: len(a) // 2 * 2] == b[: len(b) // 2 * 2])


class Paging(RuleBasedStateMachine):
    """Random work beside a model: `contents` says what each page really holds, page by page and slot by slot."""

    hash_block = staticmethod(hash_block)

    @initialize(num_blocks=st.integers(1, 12), block_size=st.integers(1, 4), caching=st.booleans())
    def start(self, num_blocks, block_size, caching):
        self.blocks = BlockManager(num_blocks, block_size, enable_prefix_caching=caching)
        self.contents = [[None] * block_size for _ in range(num_blocks)]  # the text up to each slot, as it was written
        self.live = []  # [table, its text]
        self.original, paging.hash_block = paging.hash_block, self.hash_block

    def teardown(self):
        if hasattr(self, "original"):
            paging.hash_block = self.original

    def write(self, table, text, start):
        """What a pass does: each position's keys depend on all tokens up to it."""
        size = self.blocks.block_size
        for i in range(start, len(text)):
            self.contents[table.block_ids[i // size]][i % size] = tuple(text[: i + 1])
        self.blocks.cache_full_blocks(table, text, len(text))

    @rule(text=st.lists(st.integers(0, 2), min_size=1, max_size=20))
    def allocate(self, text):
        free, size = self.blocks.num_free_blocks, self.blocks.block_size
        if not self.blocks.can_allocate(text):
            assert -(-len(text) // size) > free - sum(self.blocks.ref_counts[i] == 0
                                                      for i in self.blocks.find_prefix(text)[0])
            with pytest.raises(ValueError, match="free pages"):
                self.blocks.allocate(text)
            assert self.blocks.num_free_blocks == free
            return
        table = self.blocks.allocate(text)
        assert table.num_cached_tokens < len(text) and table.num_cached_tokens % size == 0
        self.write(table, text, table.num_cached_tokens)
        self.live.append([table, text])

    @precondition(lambda self: getattr(self, "live", None))
    @rule(data=st.data(), token=st.integers(0, 2))
    def append(self, data, token):
        row = data.draw(st.sampled_from(self.live))
        table, text = row
        if not self.blocks.can_append(table):
            assert self.blocks.num_free_blocks == 0
            return
        if copy := self.blocks.append(table):
            self.contents[copy[1]] = list(self.contents[copy[0]])
        row[1] = [*text, token]
        self.write(table, row[1], len(text))

    @precondition(lambda self: getattr(self, "live", None))
    @rule(data=st.data())
    def fork(self, data):
        table, text = data.draw(st.sampled_from(self.live))
        n = data.draw(st.integers(0, len(text)))
        self.live.append([self.blocks.fork(table, n), text[:n]])

    @precondition(lambda self: getattr(self, "live", None))
    @rule(data=st.data())
    def free(self, data):
        row = data.draw(st.sampled_from(self.live))
        self.live = [other for other in self.live if other is not row]
        self.blocks.free(row[0])

    @invariant()
    def every_text_reads_its_own_keys(self):
        for table, text in getattr(self, "live", ()):
            size = self.blocks.block_size
            assert len(table.block_ids) == -(-len(text) // size) and table.num_tokens == len(text)
            for i in range(len(text)):
                assert self.contents[table.block_ids[i // size]][i % size] == tuple(text[: i + 1])

    @invariant()
    def no_page_is_lost_or_used_twice(self):
        if not hasattr(self, "blocks"):
            return
        blocks = self.blocks
        counts = [sum(i in table.block_ids for table, _ in self.live) for i in range(blocks.num_blocks)]
        assert counts == blocks.ref_counts
        free = sorted([*blocks.empty, *blocks.evictable])
        assert free == [i for i, count in enumerate(counts) if count == 0]
        assert set(blocks.index.values()) == {i for i, prefix in enumerate(blocks.prefixes) if prefix}
        assert all(blocks.prefixes[i] for i in blocks.evictable) and not any(blocks.prefixes[i] for i in blocks.empty)
        assert all(blocks.prefixes[i].hash == key for key, i in blocks.index.items())


class PagingWhereHashesCollide(Paging):
    """The same with a hash of three values: a hit must never be a text that only looks alike."""

    hash_block = staticmethod(lambda parent, ids: (parent + sum(ids)) % 3)


TestPaging = Paging.TestCase
TestPaging.settings = settings(max_examples=700, stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestCollisions = PagingWhereHashesCollide.TestCase
TestCollisions.settings = settings(max_examples=400, stateful_step_count=25, suppress_health_check=list(HealthCheck))
