"""The scheme of a generation: what is made goes in next, and the cache holds what went in."""

import pytest
from well_drawn import check, rects, words

from course_lib.display.diagrams.timeline import DEEPEST, NARROW, TOKEN, timeline

PROMPT, ANSWER = ["Why", " is", " it", "?"], [" So", " that", " it", " is"]


def draw(runs=20):
    return timeline(PROMPT, ANSWER, ".", runs=runs)


def test_prefill_is_as_wide_as_its_tokens_and_decode_runs_are_alike():
    drawing = check(draw)
    widths = [width for _, _, width, _ in rects(drawing, "plain")]
    assert widths == [TOKEN * 4] + [NARROW] * 4


def test_each_run_reads_what_the_run_before_it_made():
    said = [word for word in words(draw()) if word in {"␣So", "␣that", "␣it", "␣is", ".", "end"}]
    made, read = ["␣So", "␣that", "␣it", "␣is"], ["␣is", "␣it"]
    assert said == [*read, made[0], made[0], made[1], made[1], made[2], made[2], made[3], ".", "end"]


def test_the_cache_grows_by_a_slice_and_ends_with_all_that_was_read():
    drawing = draw()
    new, old = (rects(drawing, "cache", opacity) for opacity in ("0.8", "0.3"))
    lefts = sorted({left for left, *_ in new})
    assert [sum(left == x for left, *_ in new) for x in lefts] == [4, 1, 1, 1, 1]
    assert [sum(left == x for left, *_ in old) for x in lefts] == [0, 4, 5, 6, DEEPEST - 2]  # the last is shortened
    assert [word for word in words(drawing) if word.isdigit()] == ["4", "5", "6", "7", "23"]
    assert "1 run reads 4 tokens" in words(drawing) and "19 runs read 1 token each" in words(drawing)
    assert "4 slices after prefill, one more after each run, 23 at the end" in drawing.description


@pytest.mark.parametrize("call", [
    lambda: timeline([], ANSWER, ".", runs=20), lambda: timeline(PROMPT * 2, ANSWER, ".", runs=20),
    lambda: timeline(PROMPT, ANSWER[:2], ".", runs=20), lambda: draw(runs=5),
    lambda: timeline(PROMPT, ANSWER, "incomprehensible", runs=20)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
