"""Batches and pages drawn: every square, bar and arrow is where the scheduler and the block manager put it."""

import pytest
from well_drawn import check, hatched, paths, rects, words

from course_lib.analysis.slots import Request, continuous
from course_lib.display.diagrams.batching import (
    APART,
    EDGE,
    END,
    RIGHT,
    START,
    TOP,
    mixed_pass,
    one_row,
    padding,
    slots,
    stretches,
)
from course_lib.display.diagrams.pages import block_tables, scattered
from course_lib.display.diagrams.sharing import END as TIME_END
from course_lib.display.diagrams.sharing import (
    SIZE,
    TIME,
    copy_on_write,
    pages_of,
    preemption,
    share,
    shared_prefix,
)
from course_lib.paging import BlockManager
from course_lib.scheduler import Scheduler

EIGHT = [Request(name, 9, answer) for name, answer in zip("ABCDEFGH", (3, 9, 2, 5, 8, 3, 4, 2))]
THREE = [Request("A", 6, 10), Request("B", 5, 7), Request("C", 6, 8)]


@pytest.mark.parametrize("lengths", [(5, 12, 3, 8), (1, 14, 1), (7, 7, 7, 2, 7, 7)])
def test_padding_is_hatched_and_counted(lengths):
    drawing = check(lambda: padding(lengths))
    real, pads = rects(drawing, "latency"), hatched(drawing)
    assert len(real) == sum(lengths) and len(pads) == max(lengths) * len(lengths) - sum(lengths)
    ends = {round(left + width, 1) for top in {top for _, top, *_ in real}
            for left, _, width, _ in [max(rect for rect in real if rect[1] == top)]}
    assert len(ends) == 1, "padded on the left: all end where the next token comes"
    total, lost = len(real) + len(pads), len(pads)
    assert f"{total} squares computed, {lost} for nothing: {round(100 * lost / total)} %" in words(drawing)
    assert f"{total} squares: {len(real)} tokens and {lost} of padding" in drawing.description


def by_row(drawing, top, num_slots):
    """(first, number) of the idle stretches of each slot, in passes; the time line begins at `top`."""
    pitch = (RIGHT - EDGE) / 17
    places = [(round((left - EDGE) / pitch), round((width + 2) / pitch), round((y - top) / APART))
              for left, y, width, height in hatched(drawing) if height > 30 and left > 70]
    return [[(first, n) for first, n, row in sorted(places) if row == slot] for slot in range(num_slots)]


def test_both_time_lines_are_those_by_hand():
    drawing = check(lambda: slots(EIGHT, 4))
    assert by_row(drawing, TOP, 4) == [[(3, 6)], [(12, 5)], [(2, 7), (13, 4)], [(5, 4), (11, 6)]]
    second = TOP + APART * 4 + 96
    assert by_row(drawing, second, 4) == [[(8, 2)], [(9, 1)], [], [(9, 1)]]
    written = words(drawing)
    assert "17 passes, 32 of 68 slots idle" in written and "10 passes, 4 of 40 slots idle" in written
    assert "7 passes earlier" in written and "next batch" in written
    passes = [int(word) for word in written if word.isdigit()]
    assert sorted(passes[:8]) == [2, 3, 5, 9, 11, 12, 13, 17], "static: in which pass each one ends"
    assert sorted(passes[8:16]) == [2, 3, 5, 6, 8, 9, 9, 10], "continuous"
    assert "E 8" in drawing.description and "17 passes, 32 of 68 slots idle" in drawing.description
    ends = [points[0][0] for points in paths(drawing, 4)]
    assert ends[0] - ends[1] == pytest.approx(7 * (RIGHT - EDGE) / 17, abs=0.2), "both ends on one scale"


def test_other_requests_have_another_picture():
    fewer = check(lambda: slots([Request(name, 3, n) for name, n in zip("PQRS", (6, 2, 5, 2))], 2))
    assert "11 passes, 7 of 22 slots idle" in words(fewer) and "8 passes, 1 of 16 slots idle" in words(fewer)


@pytest.mark.parametrize("lengths, prompt", [((10, 6, 3), 6), ((2, 12), 8), ((4, 5, 8, 9), 2)])
def test_a_pass_is_one_row_and_each_text_has_its_pages(lengths, prompt):
    batch = mixed_pass(lengths, prompt)
    assert [(one.start, one.num_tokens) for one in batch.work] == [*((n - 1, 1) for n in lengths), (0, prompt)]
    drawing = check(lambda: one_row(lengths, prompt))
    n, names = len(lengths) + prompt, "ABCDE"[: len(lengths) + 1]
    row = [text for text, area in drawing.texts if text in names and area.bottom < 94]
    assert row == [*names[:-1], *names[-1] * prompt]
    writes, reads = rects(drawing, "latency"), rects(drawing, "cost")
    assert (len(writes), len(reads)) == (len(lengths) + 1, prompt + 1), "the tokens, and one each in the legend"
    pitch = (END - START) / n
    assert [round((left - 2 - START) / pitch, 2) for left, *_ in writes[:-1] + reads[:-1]] == list(range(n))
    pages = [-(-length // SIZE) for length in (*lengths, prompt)]
    sheets = [rect for rect in rects(drawing, "paper") if rect[3] == 28]
    assert len(sheets) == sum(pages) and len({left for left, *_ in sheets}) == len(pages)
    assert len(rects(drawing, "cache")) == sum(lengths) + prompt, "a square for each token of every text"
    assert len(hatched(drawing)) == SIZE * sum(pages) - sum(lengths) - prompt
    [(_, _, width, _)] = [rect for rect in rects(drawing, "weights")]
    assert width == END - START, "products take the whole row"
    assert f"one pass, one row: {n} new tokens, no padding" in words(drawing)
    assert f"{names[0]} {pages[0]}, " in drawing.description and f"{names[-1]} {pages[-1]}." in drawing.description


def test_stretches_cover_every_pass():
    names = ["A", "A", None, "B", None, None]
    assert [name for name, first, last in stretches(names) for _ in range(first, last)] == names


@pytest.mark.parametrize("lengths, tables", [((10, 6), [[2, 5, 1], [4, 0]]), ((12, 12), [[2, 5, 3], [4, 0, 1]])])
def test_arrows_lead_from_a_table_to_its_pages(lengths, tables):
    blocks, made = scattered(lengths, 10, 4)
    taken = sum(map(len, (table.block_ids for table in made)))
    assert blocks.num_used_blocks == taken and [table.num_tokens for table in made] == list(lengths)
    if lengths == (10, 6):
        assert [table.block_ids for table in made] == tables
    drawing = check(lambda: block_tables(lengths))
    assert len(rects(drawing, "cache")) == 2 * sum(lengths) + taken, "tokens above and below, and entries of tables"
    assert len(hatched(drawing)) == 48 - sum(lengths) + 4 * taken - sum(lengths)
    numbers = {text: area for text, area in drawing.texts if text.isdigit() and area.top > 480}
    places = [numbers[str(block_id)] for table in made for block_id in table.block_ids]
    aims = [(area.left + area.right) / 2 for area in places]
    arrows = [points for points in paths(drawing, 2.2) if len(points) == 2 and points[1][1] == 407]
    assert [end[0] for _, end in arrows] == pytest.approx(aims, abs=0.2)
    assert f"48 places taken, {48 - sum(lengths)} empty" in words(drawing)
    assert f"{4 * taken} places taken, {4 * taken - sum(lengths)} empty" in words(drawing)
    assert words(drawing).count("free") == 10 - taken


@pytest.mark.parametrize("questions, used, alone", [((3, 6, 2), 6, 10), ((4, 1, 3), 5, 9), ((8, 8, 1), 7, 11)])
def test_the_prefix_is_stored_once(questions, used, alone):
    made = share(8, questions)
    tables = [table.block_ids for table in made.tables]
    assert all(table[:2] == tables[0][:2] for table in tables) and len({page for one in tables for page in one}) == used
    assert {made.blocks.ref_counts[page] for page in tables[0][:2]} == {3}
    assert {made.blocks.ref_counts[page] for table in tables for page in table[2:]} == {1}
    assert (made.blocks.num_used_blocks, made.alone) == (used, alone)
    drawing = check(lambda: shared_prefix(questions=questions))
    assert f"{used} pages instead of {alone}" in words(drawing) and words(drawing).count("in 3 tables") == 2
    assert f"{used} pages instead of {alone}." in drawing.description
    tall = [rect for rect in rects(drawing, "cache") if rect[3] > 100]
    filled = [rect for rect in rects(drawing, "cache") if rect[3] < 60]
    assert len(tall) == 2 and len(filled) == sum(questions)


@pytest.mark.parametrize("tokens", [5, 6, 7])
def test_the_fork_shares_until_it_writes(tokens):
    drawing = check(lambda: copy_on_write(tokens))
    assert words(drawing) == ["page 0", "in 2 tables", "first", "page 1", "second", "page 2, a copy"]
    filled = [rect for rect in rects(drawing, "cache") if rect[3] < 60]
    assert len(filled) == (tokens - SIZE) + (tokens + 1 - SIZE)
    [(left, top, *_)] = rects(drawing, "mark")
    assert (left, top) == max((rect[:2] for rect in filled), key=lambda place: (place[1], place[0])), "the newest token"
    assert "They shared page 1 as well" in drawing.description and "a copy, page 2" in drawing.description


def test_the_newest_request_waits_and_reads_again():
    drawing = check(lambda: preemption(THREE, 8))
    pitch = (TIME_END - TIME) / 11
    [(left, _, width, _)] = hatched(drawing)
    assert (round((left - TIME) / pitch), round((width + 2) / pitch)) == (4, 3), "passes 5 to 7"
    again = [rect for rect in rects(drawing, "cost") if rect[0] > 100]
    assert [round((left - TIME) / pitch) + 1 for left, *_ in again] == [1, 1, 1, 8]
    assert len(rects(drawing, "latency")) == 9 + 6 + 7 - 1 + 1, "a box for each pass but those that read; the legend"
    written = words(drawing)
    bracket = [points for points in paths(drawing, 2.2) if len(points) == 4]
    assert [(round((p[0][0] - TIME) / pitch), round((p[-1][0] - TIME) / pitch)) for p in bracket] == [(4, 7)]
    assert "8 pages of 4 tokens for 3 requests" in written and "all 8" in written and written.count("full") == 1
    assert "C ends 3 passes later," in written and "and reads 9 tokens a second time" in written
    levels = [int(text) for text, area in drawing.texts if text.isdigit() and area.top > 480]
    assert levels == [6, 6, 6, 8, 6, 6, 6, 7, 7, 7, 4]
    own = [rect for rect in rects(drawing, "mark") if rect[0] > 100]
    assert len(rects(drawing, "cache")) + len(own) == sum(levels), "a slip for each page in use"
    columns = [round((left - TIME) / pitch) + 1 for left, *_ in own]
    assert [columns.count(i + 1) for i in range(11)] == [2, 2, 2, 3, 0, 0, 0, 3, 3, 3, 4], "C's pages"
    assert "9 of them for the second time" in drawing.description and "waits for 3 passes" in drawing.description
    assert "gives up its 3 pages" in drawing.description


def test_pages_of_each_request_are_those_of_the_manager():
    run = continuous(Scheduler(BlockManager(8, SIZE, enable_prefix_caching=False), max_num_seqs=3), THREE)
    assert [sum(pages) * SIZE for pages in pages_of(run, "ABC")] == [one.places for one in run]


@pytest.mark.parametrize("call", [
    lambda: padding((1, 2)), lambda: padding((1, 2, 15)), lambda: padding((0, 2, 3)),
    lambda: slots(EIGHT[:4], 4), lambda: slots(EIGHT * 3, 4),
    lambda: one_row((9,), 6), lambda: one_row((9, 13), 6), lambda: one_row((9, 1), 6), lambda: one_row((9, 2), 9),
    lambda: block_tables((4, 6)), lambda: block_tables((10, 13)),
    lambda: shared_prefix(6), lambda: shared_prefix(questions=(3, 6, 9)),
    lambda: copy_on_write(4), lambda: copy_on_write(8),
    lambda: preemption(THREE, 20), lambda: preemption([*THREE, Request("D", 6, 6)], 8)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()


def test_a_page_has_the_same_size_in_every_drawing():
    assert SIZE == 4 and "pages of 4, taken when they are needed" in words(block_tables((10, 6)))
