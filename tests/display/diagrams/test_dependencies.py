"""The drawing of what needs what: its lines say the same as the map, none is needless, none crosses a box."""

from itertools import combinations

import pytest
from display.diagrams.well_drawn import check, paths, rects, words

from course_lib.classroom.course_map import CHAPTERS
from course_lib.display.diagrams.dependencies import DOWN_FIRST, PLACES, dependencies, reduced

TITLES = {chapter.number: chapter.title for chapter in CHAPTERS}
NEEDS = {chapter.number: chapter.needs for chapter in CHAPTERS}


def reachable(pairs):
    """Every pair that a path along the pairs connects, found by following it."""
    found, more = set(), set(pairs)
    while more - found:
        found |= more
        more = {(a, d) for a, b in found for c, d in pairs if b == c}
    return found


def test_it_is_sound_and_names_every_notebook():
    drawing = check(lambda: dependencies(TITLES, NEEDS))
    assert set(TITLES) <= set(words(drawing))


def test_the_lines_reach_what_the_map_says_and_no_line_can_be_left_out():
    pairs = reduced(NEEDS)
    said = {(other, number) for number, needed in NEEDS.items() for other in needed}
    assert said <= reachable(pairs) == reachable(said)
    assert [pair for pair in pairs if pair in reachable(set(pairs) - {pair})] == []


def test_what_is_needed_is_above():
    assert all(PLACES[first][0] < PLACES[last][0] for first, last in reduced(NEEDS))
    assert set(DOWN_FIRST) <= set(reduced(NEEDS))


def test_no_line_crosses_a_box_and_no_box_another():
    drawing = dependencies(TITLES, NEEDS)
    boxes = [(x, y, x + w, y + h) for fill in ("plain", "mark") for x, y, w, h in rects(drawing, fill)]
    assert len(boxes) == len(CHAPTERS)
    assert not [1 for a, b in combinations(boxes, 2) if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]
    for points in paths(drawing, 2.2):
        for (x0, y0), (x1, y1) in zip(points, points[1:]):
            for i in range(1, 200):  # both ends touch a box
                x, y = x0 + (x1 - x0) * i / 200, y0 + (y1 - y0) * i / 200
                assert not [box for box in boxes if box[0] < x < box[2] and box[1] < y < box[3]]


def test_another_set_of_notebooks_is_refused():
    with pytest.raises(ValueError, match="notebooks"):
        dependencies({"00": "a"}, {"00": []})
