"""Slots over time: the recorder against workloads done by hand, and against what the scheduler says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.analysis.slots import Cell, Request, continuous, static
from course_lib.paging import BlockManager
from course_lib.scheduler import Scheduler

FOUR = [Request(name, prompt, answer) for name, prompt, answer in (("A", 5, 1), ("B", 2, 4), ("C", 9, 2), ("D", 1, 3))]


def make(slots=2, pages=50, budget=100):
    return Scheduler(BlockManager(pages, 4, enable_prefix_caching=False), max_num_seqs=slots,
                     max_num_batched_tokens=budget)


def short(run):
    """A pass as a line: the name, the first letter of the kind, and the tokens of each slot."""
    return [" ".join(f"{cell.request_id}{cell.kind[0]}{cell.num_tokens}" if cell else "-" for cell in one.cells)
            for one in run]


def test_who_ends_makes_room_for_the_next():
    run = continuous(make(), FOUR)
    assert short(run) == ["Ap5 Bp2", "Cp9 Bd1", "Cd1 Bd1", "Dp1 Bd1", "Dd1 -", "Dd1 -"]
    assert [one.waiting for one in run] == [("C", "D"), ("D",), ("D",), (), (), ()]
    assert [one.finished for one in run] == [("A",), (), ("C",), ("B",), (), ("D",)]
    assert [one.tokens for one in run] == [("A", "B"), ("B", "C"), ("B", "C"), ("B", "D"), ("D",), ("D",)]


def test_a_static_batch_waits_for_its_slowest():
    assert short(static(make(), FOUR)) == ["Ap5 Bp2", "- Bd1", "- Bd1", "- Bd1", "Cp9 Dp1", "Cd1 Dd1", "- Dd1"]


def test_a_prompt_is_read_in_chunks_beside_decoding():
    run = continuous(make(budget=4), FOUR[1:3])
    assert short(run) == ["Bp2 Cp2", "Bd1 Cp3", "Bd1 Cp3", "Bd1 Cp1", "- Cd1"]
    assert [one.tokens for one in run] == [("B",), ("B",), ("B",), ("B", "C"), ("C",)]


def test_who_has_no_part_in_a_pass_waits_in_its_slot():
    run = continuous(make(slots=3, budget=3), [Request("A", 1, 4), Request("B", 1, 4), Request("C", 4, 1)])
    assert short(run)[:2] == ["Ap1 Bp1 Cp1", "Ad1 Bd1 Cp1"]
    scheduler = make(slots=4, budget=4)
    waits = [cell for one in continuous(scheduler, [Request("L", 12, 1), *(Request(c, 1, 3) for c in "ABC")])
             for cell in one.cells if cell and cell.kind == "wait"]
    assert all(cell.num_tokens == 0 for cell in waits)


def test_lost_pages_are_seen_and_read_again():
    run = continuous(make(slots=3, pages=8), [Request("A", 6, 10), Request("B", 5, 7), Request("C", 6, 8)])
    assert [one.preempted for one in run] == [(), (), (), (), ("C",), (), (), (), (), (), ()]
    assert run[4].cells[2] is None and run[4].waiting == ("C",)
    assert run[7].cells[1] == Cell("C", "again", 10) and run[8].cells[1] == Cell("C", "decode", 1)
    assert [one.places // 4 for one in run] == [6, 6, 6, 8, 6, 6, 6, 7, 7, 7, 4]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 8)), min_size=1, max_size=9), st.integers(1, 4),
       st.integers(5, 14), st.integers(4, 20))
def test_every_token_is_in_one_cell(lengths, slots, pages, budget):
    requests = [Request(str(i), *each) for i, each in enumerate(lengths)]
    for drive in (continuous, static):
        run = drive(make(slots, pages, budget), requests)
        cells = [cell for one in run for cell in one.cells if cell]
        names = [[cell.request_id for cell in one.cells if cell] for one in run]
        assert all(len(set(each)) == len(each) for each in names), "nobody has two slots"
        for request in requests:
            mine = [cell for cell in cells if cell.request_id == request.request_id]
            got = sum(request.request_id in one.tokens for one in run)
            fresh = request.prompt + request.answer - 1
            assert got == request.answer and sum(cell.num_tokens for cell in mine) >= fresh
            if not any(cell.kind == "again" for cell in mine):
                assert sum(cell.num_tokens for cell in mine) == fresh
        assert sorted(name for one in run for name in one.finished) == sorted(r.request_id for r in requests)
        assert all(0 < one.stored <= one.places or not names[i] for i, one in enumerate(run))
        for before, after in zip(run, run[1:]):  # nobody changes slots
            for slot, cell in enumerate(before.cells):
                stays = cell and cell.request_id not in (*before.finished, *after.preempted)
                assert not stays or after.cells[slot].request_id == cell.request_id


def test_the_numbers_of_a_slot_are_those_of_its_scheduler():
    scheduler = make(slots=3, pages=8)
    run = continuous(scheduler, [Request("A", 6, 10), Request("B", 5, 7), Request("C", 6, 8)])
    assert scheduler.num_preemptions == sum(len(one.preempted) for one in run) == 1
    with pytest.raises(ValueError, match="is not allowed"):
        continuous(make(pages=2), [Request("A", 9, 1)])
