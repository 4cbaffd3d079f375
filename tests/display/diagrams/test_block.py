"""The block: in one panel the stream is in one piece, in the other two norms cut it."""

import pytest
from well_drawn import check, paths, rects, words

from course_lib.display.diagrams.block import BOTTOM, PANELS, RAIL, STREAM, TOP, block


def streams(drawing):
    """For each panel, the pieces of the stream as (start, end)."""
    return [sorted((start[1], end[1]) for start, end in paths(drawing, STREAM) if start[0] == left + RAIL)
            for left in PANELS]


def test_pre_norm_leaves_the_stream_whole_and_post_norm_cuts_it_twice():
    whole, pieces = streams(check(lambda: block(256, 640, 8)))
    assert len(whole) == 1 and whole[0] == pytest.approx((TOP + 1, BOTTOM - 12))
    assert len(pieces) == 3
    assert all(end < start for (_, end), (start, _) in zip(pieces, pieces[1:]))


def test_norms_are_on_the_branches_or_fill_the_gaps_of_the_stream():
    drawing = block(256, 640, 8)
    middles = [(left + width / 2, top, top + height) for left, top, width, height in rects(drawing, "mark")]
    pre, post = ([m for m in middles if left <= m[0] < left + 320] for left in PANELS)
    assert len(pre) == len(post) == 2
    assert all(x > PANELS[0] + RAIL + 100 for x, *_ in pre)
    assert all(x == PANELS[1] + RAIL for x, *_ in post)
    _, pieces = streams(drawing)
    for (_, end), (start, _), (_, top, bottom) in zip(pieces, pieces[1:], post):
        assert end < top < bottom < start


@pytest.mark.parametrize("width, inner, heads", [(256, 640, 8), (4096, 14336, 32), (16384, 53248, 128)])
def test_the_sizes_are_written(width, inner, heads):
    said = words(check(lambda: block(width, inner, heads)))
    assert said.count(f"T × {width}") == 4
    assert said.count(f"{inner} wide") == said.count(f"{heads} heads") == 2
    assert said.count("norm") == 4


def test_sizes_are_positive():
    with pytest.raises(ValueError, match="inner"):
        block(256, 0, 8)
