"""The library drawn: the rooms, arrows and levels are those of the real imports."""

from collections import defaultdict

import pytest
import test_setup
from well_drawn import check, paths, rects, words

from course_lib.display.diagrams.architecture import LEVELS, ROOMS, STAIRS, Room, architecture


def real_stairs():
    """(room, room) for every import from one room into another, outside the front's commands."""
    graph = test_setup.import_graph()
    return {(test_setup.room_of(name), test_setup.room_of(other)) for name, others in graph.items() for other in others
            if test_setup.room_of(name) != test_setup.room_of(other)}


def reachable(stairs):
    """All pairs that a way of arrows joins."""
    below = defaultdict(set)
    for _ in stairs:
        for upper, lower in stairs:
            below[upper] |= {lower} | below[lower]
    return {(upper, lower) for upper, all_below in below.items() for lower in all_below}


def test_the_rooms_are_those_of_the_library():
    assert {room.name for room in ROOMS} | {"pipeline"} == set(test_setup.ROOMS)


def test_every_arrow_is_an_import_and_every_import_follows_arrows():
    real = real_stairs()
    assert set(STAIRS) <= real
    assert real == reachable(STAIRS)


def test_the_levels_are_those_that_the_imports_are_held_to():
    assert {level: sorted(names.split()) for level, names in LEVELS.items()} == \
           {level: sorted(names.split()) for level, names in test_setup.LEVELS.items()}


def test_the_drawing_shows_them():
    drawing = check(lambda: architecture(ROOMS, STAIRS, LEVELS))
    said = words(drawing)
    assert [room.name for room in ROOMS] == [word for word in said if word in test_setup.ROOMS]
    *lines, _ = said[said.index("the pipeline, level by level") + 1:]
    names = " · ".join(line for line in lines if not line.isdigit()).split(" · ")
    assert sorted(names) == sorted(" ".join(LEVELS.values()).split())
    assert f"{len(names)} modules on 5 levels" in drawing.description


def test_arrows_go_down_from_room_to_room():
    drawing = architecture(ROOMS, STAIRS, LEVELS)
    rooms = dict(zip([room.name for room in ROOMS], rects(drawing, "plain")))
    [ground] = [rect for rect in rects(drawing, "paper") if rect[0] > 10]
    arrows = paths(drawing, 2.2)
    assert len(arrows) == len(STAIRS)
    for (upper, lower), ((x, start), (x_end, end)) in zip(STAIRS, arrows):
        left, top, width, height = rooms[upper]
        low_left, low_top, low_width, _ = rooms.get(lower, ground)
        assert x == x_end and top + height < start < end < low_top
        assert left < x < left + width and low_left < x < low_left + low_width


def test_a_floor_has_room_for_two():
    with pytest.raises(ValueError, match="1 or 2 on each floor"):
        architecture([Room(name, "x", 1) for name in "abc"], [], {0: "x"})
