"""The scheduler on two functions: right ones give what the real ones give, and wrong ones are found out."""

import random

import pytest

from course_lib.analysis.serving import POLICIES, Arrival, PassCost, arrivals, simulate
from course_lib.analysis.slot_rules import Pool, scheduler_for, serve_by
from course_lib.classroom.answers import answer
from course_lib.paging import BlockManager

COST = PassCost(2e-3, 2e-4, 1e-4)
POOL = Pool(4, 24, 16)
grow, admit = answer("14.1"), answer("14.2")


def run(policy, requests, pool=POOL, functions=(grow, admit), cost=COST):
    return serve_by(scheduler_for(policy, pool, *functions, requests), requests, cost)


def work(n=60, rate=60.0, seed=0):
    return arrivals(n, rate, prompt=(4, 60), answer=(2, 30), seed=seed)


@pytest.mark.parametrize("policy", ["continuous", "chunked"])
@pytest.mark.parametrize("pages", [7, 12, 24, 60])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_right_functions_make_the_real_scheduler(policy, pages, seed):
    requests, rng = work(seed=seed), random.Random(seed)
    slots, chunk = rng.choice((2, 4, 8)), rng.choice((8, 16, 40))
    mine = run(policy, requests, Pool(slots, pages, 16, chunk)).served
    blocks = BlockManager(pages, 16, enable_prefix_caching=False)
    assert mine == simulate(requests, policy, COST, slots=slots, blocks=blocks, chunk=chunk)
    assert mine.preemptions > 0 or pages > 7


def test_a_static_batch_by_hand():
    """Two slots; costs of a pass 1, of a row 10, of a prompt token 100."""
    requests = [Arrival(0.0, 3, 1), Arrival(0.0, 5, 3), Arrival(0.5, 2, 2)]
    made = run("static", requests, Pool(2, 8, 4), cost=PassCost(1, 10, 100))
    assert made.served.work == [(0, 10), (2, 0), (2, 0), (0, 2), (1, 0)], "padded to 5, and a row of padding goes on"
    assert [[cell and cell.kind for cell in one.cells] for one in made.passes] == [
        ["prefill", "prefill"], ["pad", "decode"], ["pad", "decode"], ["prefill", None], ["decode", None]]
    first, second, third = made.served.readers
    assert first.tokens == [1001] and second.tokens == [1001, 1022, 1043] and third.tokens == [1244, 1255]
    assert third.started == 1043 and made.served.computed == 10 + 4 + 2 + 1
    assert made.served.useful == 3 + 5 + 2 + 2 + 1
    assert [one.places for one in made.passes] == [16, 16, 16, 4, 4], "2 pages each, to the end of the batch"
    assert [one.stored for one in made.passes] == [8, 6, 7, 2, 3]


def test_a_static_batch_never_loses_its_pages():
    for pages in (7, 9, 24):
        made = run("static", work(), Pool(4, pages, 16))
        assert made.served.preemptions == 0 and all(len(r.tokens) == r.arrival.answer for r in made.served.readers)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_page_comes_back(policy):
    requests = work()
    scheduler = scheduler_for(policy, Pool(4, 12, 16), grow, admit, requests)
    serve_by(scheduler, requests, COST)
    for table in getattr(scheduler, "held", []):
        scheduler.blocks.free(table)
    assert sorted(scheduler.blocks.empty) == list(range(12)) and set(scheduler.blocks.ref_counts) == {0}


def test_the_functions_are_asked_with_what_the_scheduler_knows():
    asked = []

    def watched(waiting, num_running, num_free_blocks, token_budget, **limits):
        asked.append((list(waiting), num_running, num_free_blocks, token_budget, limits))
        return admit(waiting, num_running, num_free_blocks, token_budget, **limits)

    requests = [Arrival(0.0, 20, 3), Arrival(0.0, 33, 3), Arrival(0.0, 8, 3)]
    run("chunked", requests, Pool(2, 8, 16, chunk=16), (grow, watched))
    limits = {"max_num_seqs": 2, "block_size": 16}
    assert asked[0] == ([20, 33, 8], 0, 8, 16, limits)
    assert asked[1] == ([33, 8], 1, 6, 16 - 4, limits), "a prompt of 20 is read: 16, then 4, and 12 are left"
    asked.clear()
    run("static", requests, Pool(2, 8, 16), (grow, watched))
    assert asked[0] == ([22, 35, 10], 0, 8, 2 * 36, limits), "static: room for the longest answer"


def takes_from_front(table, num_tokens, free, block_size):
    return (table + free[:1], free[1:]) if num_tokens > len(table) * block_size else (table, free)


def changes_its_arguments(table, num_tokens, free, block_size):
    while len(table) * block_size < num_tokens:
        table.append(free.pop())
    return table, free


WRONG = {
    "no tuple": (lambda *_: 3, r"grow\(…\) = 3 is not allowed: must be two lists"),
    "no lists": (lambda *_: ((1,), (2,)), "two lists of pages"),
    "no numbers": (lambda table, n, free, size: (["a"], free), "two lists of pages"),
    "page in use": (lambda table, n, free, size: (table + [99], free), "different ones of the free"),
    "page twice": (lambda table, n, free, size: (table + [free[-1]] * 2, free[:-1]), "different ones of the free"),
    "too short": (lambda table, n, free, size: (table, free), "pages long, for"),
    "lost page": (lambda table, n, free, size: (table + free[-4:], free[:-5]), "free after grow.* is not allowed"),
    "kept free": (lambda table, n, free, size: (table + free[-4:], free), "free after grow.* is not allowed"),
    "forgets": (lambda table, n, free, size: (free[-4:], free[:-4]), r"table after grow\(…\) = .*begins with"),
    "arguments": (changes_its_arguments, r"unchanged by grow"),
    "too few": (takes_from_front, "pages long, for"),
    "never": (lambda *_: None, r"grow\(\[\], \d+, …\) = None is not allowed: must be pages for a request that admit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_pages_that_cannot_be_are_refused(name):
    wrong, said = WRONG[name]
    with pytest.raises(ValueError, match=said):
        run("continuous", work(), functions=(wrong, admit))


@pytest.mark.parametrize("rule, said", [
    (lambda *_, **__: None, r"admit\(…\) = None is not allowed: must be an integer in \[0, 1\]: 1 wait, 4 slots"),
    (lambda *_, **__: -1, r"admit\(…\) = -1"), (lambda *_, **__: True, r"admit\(…\) = True"),
    (lambda *_, **__: 1.0, r"admit\(…\) = 1.0"), (lambda waiting, *_, **__: len(waiting) + 1, r"in \[0, 1\]"),
    (lambda *_, **__: 0, "nobody runs, and who waits would wait for ever"),
    (lambda waiting, *_, **__: len(waiting), r"slots are free")])
def test_admission_that_cannot_be_is_refused(rule, said):
    with pytest.raises(ValueError, match=said):
        run("continuous", work(rate=500.0), functions=(grow, rule))


def test_admission_without_regard_to_pages_is_found_out():
    def greedy(waiting, num_running, *_, max_num_seqs, **__):
        return min(len(waiting), max_num_seqs - num_running)

    with pytest.raises(ValueError, match=r"pages for a request that admit.*are needed, .* free"):
        run("continuous", work(rate=500.0), Pool(4, 8, 16), (grow, greedy))


def test_exceptions_of_the_functions_come_through():
    with pytest.raises(ZeroDivisionError):
        run("continuous", work(), functions=(lambda *_: 1 / 0, admit))
    with pytest.raises(ValueError, match="policy = 'mine' is not allowed"):
        scheduler_for("mine", Pool(1, 9, 16), grow, admit, work())
