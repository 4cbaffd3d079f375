"""Serving by a cost model and for real: cases that can be counted by hand, and what must hold for every workload."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.analysis import bench, serving_engines
from course_lib.analysis.serving import (
    POLICIES,
    Arrival,
    PassCost,
    arrivals,
    simulate,
)
from course_lib.checkpoint import load
from course_lib.paging import BlockManager

SECOND = PassCost(1.0, 0.0, 0.0)  # every pass takes one
TOKEN = PassCost(0.0, 1.0, 1.0)  # every token takes one


def test_a_static_batch_waits_for_its_longest_and_computes_padding():
    """Two slots, answers of 2 and 4 tokens, then a third request: the batch takes 4 passes, whoever comes waits."""
    requests = [Arrival(0, 3, 2), Arrival(0, 5, 4), Arrival(0, 1, 1)]
    served = simulate(requests, "static", SECOND, slots=2)
    assert [reader.tokens for reader in served.readers] == [[1, 2], [1, 2, 3, 4], [5]]
    assert [reader.waiting_s for reader in served.readers] == [0, 0, 4]
    assert served.computed == 2 * 5 + 2 * 3 + 1 and served.useful == 3 + 5 + 1 + 3 + 1
    assert served.waste == 1 - 13 / 17


def test_a_continuous_batch_gives_the_slot_to_the_next():
    requests = [Arrival(0, 3, 2), Arrival(0, 5, 4), Arrival(0, 1, 1)]
    served = simulate(requests, "continuous", SECOND, slots=2)
    assert [reader.tokens for reader in served.readers] == [[1, 2], [1, 2, 3, 4], [3]]
    assert served.waste == 0 and served.seconds == 4 and served.tokens_per_s == 7 / 4
    assert [(s.slot, s.request, s.kind, s.start, s.end) for s in served.spans] == [
        (0, 0, "prefill", 0, 1), (1, 1, "prefill", 0, 1), (0, 0, "decode", 1, 2), (1, 1, "decode", 1, 4),
        (0, 2, "prefill", 2, 3)]


def test_chunks_keep_the_gaps_of_the_others_short():
    requests = [Arrival(0, 1, 12), Arrival(2.5, 40, 1)]
    whole, chunked = (simulate(requests, policy, TOKEN, slots=2, chunk=9) for policy in ("continuous", "chunked"))
    assert max(whole.readers[0].gaps_s) == 41 and max(chunked.readers[0].gaps_s) == 9
    assert chunked.readers[1].ttft_s >= whole.readers[1].ttft_s


def test_nobody_is_served_before_it_comes():
    served = simulate([Arrival(0, 2, 2), Arrival(10, 2, 2)], "continuous", SECOND)
    assert [reader.tokens for reader in served.readers] == [[1, 2], [11, 12]]
    assert [reader.ttft_s for reader in served.readers] == [1, 1] and served.percentiles(99) == (0, 1, 1)


def test_what_is_computed_twice_is_waste():
    """Pages for one of two: the newer one loses its pages, and what it had read is read again."""
    requests = [Arrival(0, 4, 8), Arrival(0, 4, 8)]
    blocks = BlockManager(4, 4, enable_prefix_caching=False)
    served = simulate(requests, "continuous", SECOND, slots=2, blocks=blocks)
    assert served.preemptions >= 1 and served.waste > 0
    assert [len(reader.tokens) for reader in served.readers] == [8, 8]
    assert served.useful == 2 * (4 + 8 - 1), "each token of a text once, whatever was computed again beside it"


def test_pages_leave_little_unused():
    """On average half of a page of 16 for each text."""
    requests = arrivals(40, math.inf, seed=1)
    assert simulate(requests, "continuous", SECOND, slots=8).unused < 16 / 2 / 60


@settings(max_examples=150)
@given(lengths=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=12),
       policy=st.sampled_from(POLICIES), slots=st.integers(1, 4), pages=st.none() | st.integers(11, 30))
def test_every_request_gets_its_tokens_in_order(lengths, policy, slots, pages):
    requests = [Arrival(*one) for one in sorted(lengths)]
    scarce = BlockManager(pages, 4, enable_prefix_caching=False) if pages and policy != "static" else None
    served = simulate(requests, policy, PassCost(0.5, 0.1, 0.01), slots=slots, chunk=slots + 3, blocks=scarce)
    for reader in served.readers:
        assert len(reader.tokens) == reader.arrival.answer and sorted(set(reader.tokens)) == reader.tokens
        assert reader.arrival.at <= reader.started < reader.tokens[0]
    assert served.useful == sum(r.prompt + r.answer - 1 for r in requests) <= served.computed
    for slot in range(slots):
        spans = sorted((s.start, s.end) for s in served.spans if s.slot == slot)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "two in one slot"
    assert all(abs(served.work[i][0] * 0.1 + served.work[i][1] * 0.01 + 0.5 - (end - start)) < 1e-6
               for i, (start, end) in enumerate(served.passes))


def test_arrivals_come_as_often_as_they_should():
    """The mean of 4,000 exponential gaps is off by more than 4 standard deviations once in 16,000 seeds."""
    made = arrivals(4001, 5.0, prompt=(3, 7), answer=(2, 4), seed=2)
    assert made == arrivals(4001, 5.0, prompt=(3, 7), answer=(2, 4), seed=2) and made[0].at == 0
    assert abs(made[-1].at / 4000 - 0.2) < 4 * 0.2 / 4000**0.5
    assert {a.prompt for a in made} == {3, 4, 5, 6, 7} and {a.answer for a in made} == {2, 3, 4}
    assert {a.at for a in arrivals(5, math.inf)} == {0.0}


@pytest.mark.parametrize("call, message", [
    (lambda: simulate([Arrival(0, 1, 1)], "best", SECOND), "policy = 'best'"),
    (lambda: arrivals(0, 1), "n = 0"), (lambda: arrivals(1, 0), "per_second = 0"),
    (lambda: simulate([Arrival(0, 9, 9)], "continuous", SECOND, blocks=BlockManager(1, 4)), "at most 4"),
])
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- the table of the benchmark -------------------------------------------------------------------


def test_the_workload_is_ragged_and_the_same_each_time():
    lm = load("pocket", device="cpu")
    jobs = serving_engines.workload(lm, 64)
    assert jobs == serving_engines.workload(lm, 64) != serving_engines.workload(lm, 64, seed=1)
    assert min(len(job.prompt_ids) for job in jobs) >= 10 and max(len(job.prompt_ids) for job in jobs) <= 200
    assert min(job.new_tokens for job in jobs) >= 8 and max(job.new_tokens for job in jobs) <= 128


def test_a_long_tail_wastes_more_of_a_static_batch():
    lm = load("pocket", device="cpu")
    used = {}
    for answers in serving_engines.ANSWERS:
        lengths = [job.new_tokens for job in serving_engines.workload(lm, 1000, answers)]
        batches = [lengths[i : i + serving_engines.SLOTS] for i in range(0, 1000, serving_engines.SLOTS)]
        used[answers] = sum(lengths) / sum(len(batch) * max(batch) for batch in batches)
    assert used["even"] > 0.5 > 0.3 > used["long tail"]
    assert sorted(lengths)[500] in range(28, 37) and max(lengths) <= 512 and 0.01 < sum(n > 200 for n in lengths) / 1000


def test_engines_give_the_same_answers():
    """`transformers` in padded and in continuous batches, ours one by one and together, on a workload of small jobs."""
    lm = load("pocket-draft", device="cpu")
    jobs = [replace_tokens(job, 3 + i) for i, job in enumerate(serving_engines.workload(lm, 5))]
    answers = {name: serving_engines.ENGINES[name].build("pocket-draft")(jobs) for name in serving_engines.available()}
    assert len(answers) >= 4 and answers == dict.fromkeys(answers, answers["course_lib, one by one"])
    assert [len(ids) for ids in answers["course_lib, one by one"]] == [3, 4, 5, 6, 7]


def replace_tokens(job, n):
    return job._replace(new_tokens=n)


def test_the_table_compares_round_by_round_and_asks_the_slow_only_once(monkeypatch):
    class Told:
        def __init__(self, ids, seconds):
            self.ids, self.seconds = ids, iter(seconds)

        def __call__(self):
            return self.ids, next(self.seconds)

    told = {"fast": Told([[1, 2], [3]], [1.0, 2.0, 1.5]), "slow": Told([[1, 2], [4]], [100.0])}

    class Given:
        def __enter__(self):
            return told

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(serving_engines, "available", lambda: list(told))
    monkeypatch.setattr(bench, "processes", lambda *args, **sizes: Given())
    rows = list(bench.serving_rows("pocket-draft", "even", runs=3, requests=2, threads=1))
    assert rows == [("fast", "2", "1.00 (1.00 to 1.00)", "2 of 2"),
                    ("slow", "0", "100.00 (100.00 to 100.00)", "1 of 2")]


def test_readers_of_a_lonely_request():
    served = simulate([Arrival(0, 1, 1)], "continuous", SECOND)
    assert served.percentiles(50) == (0, 1, 0) and replace(served, computed=0).waste == 0
