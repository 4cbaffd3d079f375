"""Every setting in multiples of the plain one: better is solid, worse is hatched, noise is neither."""

import re
from itertools import pairwise

import pytest
from diagrams.well_drawn import check, hatched, rects, words

from course_lib import SamplingParams
from course_lib.analysis.lever_settings import Setting
from course_lib.analysis.lever_stored import COMPILED, Stored
from course_lib.analysis.levers import SETTINGS, Row
from course_lib.display.levers_measured import (
    ANSWERS,
    CELL,
    COLUMNS,
    MIDDLES,
    measured_drawing,
    moved,
    multiple,
    right_moved,
)


def row(setting=None, cost=1.0, ttft=1.0, gap=1.0, memory=1.0, perplexity=1.0, right=(24, 21)):
    """A row in multiples of 100 tokens a second, 40 ms, 4 ms, 40 MB and 2.5; right answers of 24 each."""
    return Row(setting or Setting(), 100 / cost, 0.04 * ttft, 0.004 * gap, round(3e7 * memory), round(1e7 * memory),
               2.5 * perplexity, right[0] / 24, right[1] / 24, 0.2 * cost)


PLAIN = row()
INT4 = row(Setting("int4"), cost=0.9, gap=0.5, memory=0.25, perplexity=1.04)
BATCH = row(Setting(max_num_seqs=8), cost=0.3, ttft=12.4, gap=3.04, memory=2.5)
BOTH = row(Setting("int4", kv_cache_dtype="int8"), memory=0.9, perplexity=1.004)
ROWS = (PLAIN, INT4, BATCH, BOTH)


def test_better_is_solid_worse_is_hatched_and_noise_is_neither():
    drawing = check(lambda: measured_drawing(ROWS))
    solid = {role: [rect[0] + CELL[0] / 2 for rect in rects(drawing, role) if rect[2] == CELL[0]]
             for role in ("cost", "latency", "memory", "quality")}
    assert solid["cost"][0] == MIDDLES["dollars_per_million"] and len(solid["cost"]) == 2, "and the legend's"
    assert solid["latency"] == [MIDDLES["gap_s"]] and solid["quality"] == []
    assert solid["memory"] == [MIDDLES["nbytes"]] * 2, "a tenth fewer bytes are no noise"
    worse = [rect[0] + CELL[0] / 2 for rect in hatched(drawing)]
    assert worse[:-1] == [MIDDLES[name] for name in ("perplexity", "ttft_s", "gap_s", "nbytes")]
    assert {"0.25", "0.90", "1.04", "12", "3.0", "one lever", "several", "plain", "4 ms", "2.500"} <= {*words(drawing)}
    points = [part for part in drawing.parts if part.startswith("<circle")]
    assert len(points) == 2 + 2 + 5 + 1, "of int4, of the batch, of both, and the legend's"


def test_the_names_of_columns_share_a_line_and_do_not_touch():
    areas = {text: area for text, area in measured_drawing(ROWS).texts}
    heads = [areas[text] for text in ("cost", "token", "gap", "memory", "perpl.", "right")]
    assert len({area.bottom for area in heads}) == 1
    assert all(one.right + 3 < other.left for one, other in pairwise(heads))


def test_what_was_measured_elsewhere_is_last_and_says_so():
    """In multiples of its own plain setting; where this run has measured it, this run's numbers are shown."""
    compiled = Setting(compiled=True)
    stored = Stored(row(compiled, cost=0.25, gap=1.5), row(cost=0.5, gap=3.0), "a large machine", 52)
    drawing = check(lambda: measured_drawing(ROWS, [stored]))
    places = {text: area.top for text, area in drawing.texts}
    said = "not of this run, stored: a large machine"
    assert places["several"] < places[said] < places["compiled"]
    assert drawing.description.endswith("Not of this run, stored: a large machine. compiled: cost 0.50, gap 0.50.")
    assert drawing.height > measured_drawing(ROWS).height
    own = measured_drawing((*ROWS, row(compiled, cost=0.9)), [stored])
    assert said not in words(own) and "compiled" in words(own)


def test_no_number_lies_on_hatching():
    drawing = measured_drawing(ROWS)
    inner = [rect for rect in rects(drawing, "paper") if rect[2] < CELL[0]]
    areas = [area for text, area in drawing.texts if text in ("1.04", "12", "2.5", "2.0")]
    assert len(areas) == 4
    for area in areas:
        assert any(x <= area.left and area.right <= x + wide and y <= area.top and area.bottom <= y + high
                   for x, y, wide, high in inner)


def test_the_words_hold_what_is_drawn():
    told = measured_drawing(ROWS).description
    assert "plain: cost $0.20, first token 40 ms, gap 4 ms, memory 40 MB, perplexity 2.500." in told
    assert "int4: gap 0.50, memory 0.25, perplexity 1.04. batch 8: cost 0.30, first token 12, gap 3.0, memory" in told
    assert "24 tool calls. plain: 24 and 21. The others: the same, and up to 2 more" in told
    assert "nothing" in measured_drawing((PLAIN, row(Setting("int8")))).description


def test_right_answers_are_shown_where_they_differ():
    """One or two of 24 in grey, more in a frame; both kinds are in the cell, capitals first."""
    warm = row(Setting(params=SamplingParams(temperature=0.8)), right=(22, 22))
    lost, gained = row(Setting("int8"), right=(24, 18)), row(Setting("bfloat16"), right=(23, 24))
    drawing = check(lambda: measured_drawing((PLAIN, warm, lost, gained)))
    cells = {text: (area.left + area.right) / 2 for text, area in drawing.texts if re.fullmatch(r"\d+ · \d+", text)}
    assert cells == {text: pytest.approx(ANSWERS) for text in ("24 · 21", "22 · 22", "24 · 18", "23 · 24")}
    assert "24 · 21: right are 24 of 24 capitals, 21 of 24 tool calls" in words(drawing)
    worse, better = ([left + wide / 2 for left, _, wide, _ in some if left > MIDDLES["perplexity"]]
                     for some in (hatched(drawing), rects(drawing, "quality")))
    assert worse == better == [pytest.approx(ANSWERS)]
    told = drawing.description
    assert "plain: 24 and 21. temperature 0.8: 22 and 22. int8: 24 and 18, worse. bfloat16: 23 and 24, better." in told
    assert "All differ, and up to 2" in told


@pytest.mark.parametrize("right, way", [((24, 21), None), ((22, 23), None), ((21, 21), "worse"), ((24, 24), "better"),
                                        ((21, 24), "worse")])
def test_two_of_24_are_chance_and_three_are_not(right, way):
    assert right_moved(row(right=right), PLAIN) == way


def test_all_settings_of_the_course_have_room():
    rows = [row(setting, *[1 + 0.37 * (i + j) for j in range(5)], (20, 10)) for i, setting in enumerate(SETTINGS)]
    drawing = check(lambda: measured_drawing(rows, [COMPILED]))
    names = {text: area for text, area in drawing.texts if text in {one.name for one in rows}}
    assert len(names) == len(SETTINGS)
    assert max(area.right for area in names.values()) < MIDDLES["dollars_per_million"] - CELL[0] / 2


@pytest.mark.parametrize("column, times, way", [
    ("gap_s", 0.78, None), ("gap_s", 1.29, None), ("gap_s", 0.76, "better"), ("ttft_s", 1.31, "worse"),
    ("nbytes", 0.99, "better"), ("perplexity", 1.01, "worse"), ("perplexity", 1.004, None)])
def test_what_counts_as_moved(column, times, way):
    assert moved(column, times) == way and column in COLUMNS


def test_multiples_are_short():
    assert [multiple(times) for times in (0.999, 1.094, 9.94, 9.96, 35.4)] == ["1.00", "1.09", "9.9", "10", "35"]


@pytest.mark.parametrize("rows", [(), (PLAIN,), (INT4, BATCH)])
def test_without_plain_and_another_there_is_no_table(rows):
    with pytest.raises(ValueError, match="is not allowed"):
        measured_drawing(rows)
