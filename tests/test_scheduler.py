"""The scheduler with a model in a few lines that reads every token through the pages: thousands of random workloads."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.paging import BlockManager
from course_lib.scheduler import Scheduler

VOCABULARY = 7
END = 6


def next_token(ids):
    """A token that depends on every one before it and on their order."""
    return hashlib.blake2b(bytes(ids), digest_size=1).digest()[0] % VOCABULARY


def alone(prompt, max_tokens, ends):
    """What a request gets without any batch, page or chunk."""
    ids = list(prompt)
    for _ in range(max_tokens):
        ids.append(next_token(ids))
        if ids[-1] in ends:
            break
    return ids[len(prompt) :]


class FakeModel:
    """Stores tokens in pages, as a cache stores keys, and knows nothing of a text but what its pages hold."""

    def __init__(self, num_blocks, block_size):
        self.pages = [[None] * block_size for _ in range(num_blocks)]
        self.size = block_size

    def __call__(self, batch):
        for source, target in batch.copies:
            self.pages[target] = list(self.pages[source])
        tokens = []
        for work in batch.work:
            sequence, start, n = work
            table = sequence.table.block_ids
            for i in range(start, start + n):
                self.pages[table[i // self.size]][i % self.size] = sequence.token_ids[i]
            read = [self.pages[table[i // self.size]][i % self.size] for i in range(start + n)]
            assert read == sequence.token_ids[: start + n], "the pages hold another text, or nothing"
            if work.gets_token:
                tokens.append(next_token(read))
        return tokens


def make(num_blocks=50, block_size=4, max_num_seqs=8, max_num_batched_tokens=16, caching=True):
    blocks = BlockManager(num_blocks, block_size, enable_prefix_caching=caching)
    scheduler = Scheduler(blocks, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    return scheduler, FakeModel(num_blocks, block_size)


def step(scheduler, model):
    batch = scheduler.schedule()
    return batch, scheduler.update(batch, model(batch))


def finish(scheduler, model, most=10_000):
    batches = []
    while scheduler.has_unfinished():
        batches.append(step(scheduler, model)[0])
        assert len(batches) < most, "it never ends"
    return batches


def ids_of(batch):
    return [(work.sequence.request_id, work.num_tokens) for work in batch.work]


def check(scheduler, batch):
    """What holds for every pass."""
    assert batch.num_tokens <= scheduler.max_num_batched_tokens
    assert len(scheduler.running) <= scheduler.max_num_seqs
    assert max(Counter(work.sequence.request_id for work in batch.work).values(), default=0) <= 1
    assert all(work.num_tokens >= 1 and work.sequence in scheduler.running for work in batch.work)
    arrivals = [int(sequence.request_id) for sequence in [*scheduler.running, *scheduler.waiting]]
    assert arrivals == sorted(arrivals), "somebody overtook"
    decoding = [s for s in scheduler.running if s.num_waiting_tokens == 1]
    assert {id(work.sequence) for work in batch.work} >= {id(s) for s in decoding}, "a stream stalls"
    held = [i for sequence in scheduler.running for i in sequence.table.block_ids]
    counts = Counter(held)
    assert [counts[i] for i in range(scheduler.blocks.num_blocks)] == scheduler.blocks.ref_counts
    assert all(sequence.table is None and sequence.num_computed_tokens == 0 for sequence in scheduler.waiting)


requests = st.lists(st.tuples(
    st.integers(0, 6),  # passes after the one before it
    st.lists(st.integers(0, 2), min_size=1, max_size=24),  # few different tokens: beginnings are shared
    st.integers(1, 12),  # max_tokens
    st.sampled_from([(), (END,), (END, 3)]),
    st.one_of(st.none(), st.none(), st.integers(0, 10)),  # passes until it is aborted
), min_size=1, max_size=12)


@settings(max_examples=2000)
@given(requests=requests, block_size=st.integers(1, 5), spare=st.integers(0, 12), max_num_seqs=st.integers(1, 6),
       tokens=st.integers(0, 20), caching=st.booleans())
def test_every_request_ends_with_what_it_gets_alone(requests, block_size, spare, max_num_seqs, tokens, caching):
    needed = max(-(-(len(prompt) + n - 1) // block_size) for _, prompt, n, _, _ in requests)
    scheduler, model = make(needed + spare, block_size, max_num_seqs, max_num_seqs + tokens, caching)
    due, time = [], 0
    for i, (gap, prompt, n, ends, _) in enumerate(requests):
        time += gap
        due.append((time, i, prompt, n, ends))
    sequences, passes = {}, 0
    while due or scheduler.has_unfinished():
        while due and due[0][0] <= passes:
            _, i, prompt, n, ends = due.pop(0)
            sequences[i] = scheduler.add(str(i), prompt, max_tokens=n, stop_token_ids=ends)
        for i in list(sequences):
            if requests[i][4] is not None and passes >= sum(r[0] for r in requests[: i + 1]) + requests[i][4]:
                scheduler.abort(str(i))
        batch = scheduler.schedule()
        check(scheduler, batch)
        assert batch.work or not scheduler.has_unfinished(), "a pass without work while somebody waits"
        scheduler.update(batch, model(batch))
        passes += 1
        assert passes < 3000, "it never ends"
    assert scheduler.blocks.num_used_blocks == 0
    for i, (_, prompt, n, ends, leaves) in enumerate(requests):
        expected, sequence = alone(prompt, n, ends), sequences[i]
        if sequence.finish_reason == "abort":
            assert leaves is not None and sequence.output_ids == expected[: len(sequence.output_ids)]
        else:
            assert sequence.output_ids == expected
            assert sequence.finish_reason == ("stop" if expected[-1] in ends else "length")


def test_decode_steps_come_first_and_prompts_get_the_rest_of_the_budget():
    scheduler, model = make(max_num_seqs=4, max_num_batched_tokens=8)
    scheduler.add("a", [1, 2, 3], max_tokens=9)
    scheduler.add("b", [0] * 12, max_tokens=9)
    assert ids_of(step(scheduler, model)[0]) == [("a", 3), ("b", 5)]
    assert ids_of(step(scheduler, model)[0]) == [("a", 1), ("b", 7)]
    scheduler.add("c", [1, 1], max_tokens=9)
    assert ids_of(step(scheduler, model)[0]) == [("a", 1), ("b", 1), ("c", 2)]


def test_a_prompt_in_pieces_gets_one_token_at_its_end():
    scheduler, model = make(max_num_batched_tokens=8)
    sequence = scheduler.add("a", [1] * 20, max_tokens=2)
    lengths = []
    for _ in range(4):
        step(scheduler, model)
        lengths.append(len(sequence.output_ids))
    assert lengths == [0, 0, 1, 2] and sequence.finish_reason == "length"


def test_the_slot_of_a_finished_request_is_taken_in_the_next_pass():
    scheduler, model = make(max_num_seqs=2)
    for name, n in (("a", 1), ("b", 5), ("c", 5)):
        scheduler.add(name, [1], max_tokens=n)
    assert ids_of(step(scheduler, model)[0]) == [("a", 1), ("b", 1)]
    assert ids_of(step(scheduler, model)[0]) == [("b", 1), ("c", 1)]


def test_who_does_not_fit_stops_those_behind():
    scheduler, model = make(num_blocks=4)
    scheduler.add("a", [1] * 12, max_tokens=1)
    large, small = scheduler.add("large", [2] * 16, max_tokens=1), scheduler.add("small", [3], max_tokens=1)
    batch, finished = step(scheduler, model)
    assert [s.request_id for s in finished] == ["a"] and ids_of(batch) == [("a", 12)]
    assert list(scheduler.waiting) == [large, small]
    assert ids_of(step(scheduler, model)[0]) == [("large", 16)]


def test_the_newest_gives_its_pages_to_the_oldest_and_computes_them_again():
    scheduler, model = make(num_blocks=4, block_size=2, caching=False)
    old, new = scheduler.add("old", [1] * 4, max_tokens=4), scheduler.add("new", [2] * 3, max_tokens=5)
    batch, _ = step(scheduler, model)
    assert ids_of(batch) == [("old", 4), ("new", 3)] and scheduler.blocks.num_free_blocks == 0
    batch, _ = step(scheduler, model)
    assert batch.preempted == [new] and ids_of(batch) == [("old", 1)]
    assert (new.num_computed_tokens, new.table, len(new.output_ids), list(scheduler.waiting)) == (0, None, 1, [new])
    later = finish(scheduler, model)
    again = next(batch for batch in later if any(work.sequence is new for work in batch.work))
    assert ids_of(again) == [("new", 4)], "its prompt and its first token, in one piece"
    assert new.output_ids == alone([2] * 3, 5, ()) and old.output_ids == alone([1] * 4, 4, ())
    assert scheduler.num_preemptions == 1


def test_a_second_answer_shares_full_pages_at_once_and_the_last_one_when_it_is_read():
    scheduler, model = make(block_size=4, max_num_batched_tokens=14)
    prompt = [1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    first, second, third = (scheduler.add(name, prompt, max_tokens=5) for name in ("first", "second", "third"))
    batch = scheduler.schedule()
    assert ids_of(batch) == [("first", 10), ("second", 2), ("third", 2)], "8 tokens lie in two full pages"
    assert first.table.block_ids[:2] == second.table.block_ids[:2] == third.table.block_ids[:2]
    scheduler.update(batch, model(batch))
    late = scheduler.add("late", prompt, max_tokens=5)
    batch = scheduler.schedule()
    assert ids_of(batch) == [("first", 1), ("second", 1), ("third", 1), ("late", 1)]
    assert batch.copies == [(first.table.block_ids[2], late.table.block_ids[2])]
    scheduler.update(batch, model(batch))
    finish(scheduler, model)
    assert all(one.output_ids == alone(prompt, 5, ()) for one in (first, second, third, late))
    assert scheduler.blocks.num_used_blocks == 0


@pytest.mark.parametrize("caching, passes", [(True, 2), (False, 4)])
def test_equal_prompts_do_not_wait_for_each_other(caching, passes):
    scheduler, model = make(num_blocks=999, max_num_seqs=32, max_num_batched_tokens=320, caching=caching)
    for i in range(32):
        scheduler.add(str(i), [*range(3)] * 12, max_tokens=1)
    other = scheduler.add("other", [4] * 5, max_tokens=1)
    assert len(finish(scheduler, model)) == passes
    assert other.output_ids == alone([4] * 5, 1, ())


def test_nobody_begins_in_a_pass_that_has_taken_pages_away():
    scheduler, model = make(num_blocks=5, block_size=2, caching=False)
    scheduler.add("old", [1] * 4, max_tokens=4)
    new = scheduler.add("new", [2] * 6, max_tokens=2)
    small = scheduler.add("small", [3], max_tokens=1)
    assert ids_of(step(scheduler, model)[0]) == [("old", 4), ("new", 6)]
    batch, _ = step(scheduler, model)
    assert batch.preempted == [new] and ids_of(batch) == [("old", 1)] and list(scheduler.waiting) == [new, small]


def test_what_a_preempted_request_had_computed_is_found_again_where_nobody_took_it():
    scheduler, model = make(num_blocks=5, block_size=2)
    scheduler.add("old", [1] * 4, max_tokens=2)
    new = scheduler.add("new", [2] * 6, max_tokens=2)
    step(scheduler, model)
    assert step(scheduler, model)[0].preempted == [new]
    batch = scheduler.schedule()
    assert batch.work[-1].sequence is new and batch.work[-1].start == 4, "two of its three pages are still there"


def test_a_beginning_that_was_read_before_is_not_read_again():
    scheduler, model = make()
    scheduler.add("a", [1, 2, 3, 4, 5, 6, 7, 0, 1], max_tokens=1)
    finish(scheduler, model)
    scheduler.add("b", [1, 2, 3, 4, 5, 6, 7, 0, 5, 5], max_tokens=1)
    assert ids_of(step(scheduler, model)[0]) == [("b", 2)]
    assert (scheduler.blocks.prefix_hits, scheduler.blocks.prefix_queries) == (8, 19)


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_an_abort_frees_pages_and_slot_at_once(passes):
    scheduler, model = make(num_blocks=8, max_num_seqs=1)
    gone, next_one = scheduler.add("gone", [1] * 20, max_tokens=5), scheduler.add("next", [2], max_tokens=1)
    for _ in range(passes):
        step(scheduler, model)
    scheduler.abort("gone")
    scheduler.abort("gone")
    scheduler.abort("never was")
    assert scheduler.blocks.num_used_blocks == 0 and gone.finish_reason == "abort"
    assert ids_of(step(scheduler, model)[0]) == [("next", 1)] and next_one.finish_reason == "length"


def test_an_abort_between_a_pass_and_its_result():
    scheduler, model = make()
    kept, gone = scheduler.add("kept", [1, 2], max_tokens=2), scheduler.add("gone", [3, 4], max_tokens=1)
    batch = scheduler.schedule()
    tokens = model(batch)
    scheduler.abort("gone")
    assert scheduler.update(batch, tokens) == []
    assert kept.output_ids == alone([1, 2], 1, ()) and gone.finish_reason == "abort"
    assert scheduler.blocks.num_used_blocks == 1


@pytest.mark.parametrize("arguments, message", [
    ({"prompt_ids": []}, "prompt_ids"), ({"max_tokens": 0}, "max_tokens = 0"),
    ({"prompt_ids": [1] * 30, "max_tokens": 12}, "= 41 is not allowed: must be at most 40"),
])
def test_what_can_never_run_is_refused(arguments, message):
    scheduler, _ = make(num_blocks=10)
    with pytest.raises(ValueError, match=message):
        scheduler.add("a", **{"prompt_ids": [1], "max_tokens": 4} | arguments)
    assert not scheduler.has_unfinished()


def test_the_largest_request_that_fits_runs():
    scheduler, model = make(num_blocks=10)
    sequence = scheduler.add("a", [1] * 30, max_tokens=11)
    finish(scheduler, model)
    assert sequence.output_ids == alone([1] * 30, 11, ()) and scheduler.num_preemptions == 0


@pytest.mark.parametrize("sizes, message", [({"max_num_seqs": 0}, "max_num_seqs = 0"),
                                            ({"max_num_batched_tokens": 7}, "max_num_batched_tokens = 7.*= 8")])
def test_sizes_that_are_none_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        make(**sizes)
