"""The timeline of a generation: widths are times, the cache grows, and any run can be drawn."""

import pytest
from well_drawn import check, rects, words

from course_lib.display.diagrams.generation import LEFT, RIGHT, columns, generation

SHORT = [0.011, *[0.0076] * 19]


def test_widths_are_proportional_to_times():
    drawing = check(lambda: generation(4, [0.03, 0.01, 0.02, 0.04]))
    widths = [width for _, _, width, _ in rects(drawing, "plain")]
    assert sum(widths) == pytest.approx(RIGHT - LEFT, abs=0.3)
    assert [width / widths[1] for width in widths] == pytest.approx([3, 1, 2, 4], abs=0.02)


def test_the_cache_is_one_slice_longer_after_each_step():
    drawing = check(lambda: generation(4, SHORT[:6]))
    old, new = (rects(drawing, "cache", opacity) for opacity in ("0.3", "0.7"))
    columns_of_old = sorted({left for left, *_ in old})
    assert [sum(left == x for left, *_ in old) for x in columns_of_old] == [4, 5, 6, 7, 8]
    assert [sum(left == x for left, *_ in new) for x in sorted({left for left, *_ in new})] == [4, 1, 1, 1, 1, 1]
    ends = [top + height for _, top, _, height in new[3:]]
    assert len({round(b - a, 0) for a, b in zip(ends, ends[1:])}) == 1 and ends == sorted(ends)


def test_the_short_answer_says_its_numbers():
    drawing = check(lambda: generation(4, SHORT))
    said = words(drawing)
    assert "decode: 93 % of the time" in said and "1 run, 4 tokens, 11 ms" in said
    assert "19 runs, 1 token each, 144 ms" in said
    assert "KV cache: 4 tokens" in said and "23 tokens" in said
    assert said.count("1") == 19 and "4" in said
    assert "19 decode steps" in drawing.description and "93 % of the time" in drawing.description


@pytest.mark.parametrize("prompt, first, steps", [
    (1, 0.01, 1), (4, 0.011, 40), (300, 0.107, 29), (4, 0.011, 200), (100_000, 90.0, 200), (2000, 3.0, 1),
    (1, 0.0001, 200), (7, 0.02, 3), (3, 1000.0, 200)])
def test_any_run_can_be_drawn(prompt, first, steps):
    seconds = [first, *[0.008 + 0.001 * (i % 3) for i in range(steps)]]
    drawing = check(lambda: generation(prompt, seconds))
    assert len(rects(drawing, "plain")) <= 2 + 664 / 12
    assert f"{prompt + steps:,} tokens" in words(drawing)


def test_many_steps_share_boxes_and_none_is_lost():
    row = columns(4, [0.01] * 201)
    assert [column.held for column in row] == sorted({column.held for column in row})
    assert sum(column.runs for column in row) == 201 and row[-1].held == 204
    assert row[0].left == LEFT and row[-1].right == pytest.approx(RIGHT)
    assert all(a.right == b.left for a, b in zip(row, row[1:]))
    assert "up to 4 runs in a box" in words(generation(4, [0.01] * 201))


@pytest.mark.parametrize("prompt, seconds", [(0, [1.0, 1.0]), (4, [1.0]), (4, [1.0, 0.0])])
def test_what_cannot_be_drawn_is_refused(prompt, seconds):
    with pytest.raises(ValueError, match="must be"):
        generation(prompt, seconds)
