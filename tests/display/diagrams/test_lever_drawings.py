"""Levers drawn: needles as given, the front as it is, and faults where they show."""

import math

import pytest
from well_drawn import check, hatched, paths, rects, words

from course_lib.display.diagrams import pocket
from course_lib.display.diagrams.front import PLOT, Choice, Want, beater, pareto_front, place
from course_lib.display.diagrams.levers import BETTER, CELL, FIRST, LEVERS, NEEDLES, PITCH, Lever, levers
from course_lib.display.diagrams.sick import LONGEST, two_views

COLUMNS = [FIRST + PITCH * i for i in range(len(NEEDLES))]
SIX = [Choice("A", 5, 9), Choice("B", 12, 5), Choice("C", 40, 3), Choice("D", 160, 2), Choice("E", 25, 7),
       Choice("F", 120, 4.5)]
WANTS = [Want("voice", 8), Want("chat", 60), Want("night job", math.inf)]


# --- levers -------------------------------------------------------------------------------------

@pytest.mark.parametrize("line", [LEVERS, LEVERS[1:5], (LEVERS[0], Lever("x", "01", "y", True, {"quality": "up"}))])
def test_better_is_solid_and_worse_is_hatched(line):
    drawing = check(lambda: levers(line))
    worse = sorted(left + CELL / 2 for left, *_ in hatched(drawing))
    wanted = [COLUMNS[list(NEEDLES).index(name)] for lever in line for name, way in lever.moves.items()
              if way not in (BETTER[name], "either")]
    assert len(worse) == len(wanted) + 1, "and the legend's"
    assert all(worse.count(x) >= wanted.count(x) for x in wanted)
    for role in ("cost", "latency", "memory", "quality"):
        solid = [rect for rect in rects(drawing, role) if rect[2] == CELL]
        good = [name for lever in line for name, way in lever.moves.items() if way == BETTER[name]]
        assert len(solid) == sum(NEEDLES[name] == role for name in good) + (role == "cost"), "and the legend's"
    assert {lever.name for lever in line} | {lever.station for lever in line} <= set(words(drawing))


def test_every_needle_has_a_mark_and_levers_are_in_order():
    drawing = levers()
    moved = sum(len(lever.moves) for lever in LEVERS)
    untouched = [part for part in drawing.parts if part.startswith("<circle") and 'r="3.5"' in part]
    assert len(untouched) == len(LEVERS) * len(NEEDLES) - moved + 1
    heights = {text: area.top for text, area in drawing.texts}
    tops = [heights[lever.name] for lever in LEVERS]
    assert tops == sorted(tops) and heights["once for a question"] < tops[0]
    first_again = next(i for i, lever in enumerate(LEVERS) if lever.again)
    assert tops[first_again - 1] < heights["again for every token"] < tops[first_again]
    assert "batch: cost down; first token, gap, memory up." in drawing.description


# --- the front ----------------------------------------------------------------------------------

def test_who_beats_whom():
    names = {one.name: beater(one, SIX) for one in SIX}
    assert {name: other and other.name for name, other in names.items()} == {
        "A": None, "B": None, "C": None, "D": None, "E": "B", "F": "C"}
    same = [Choice("one", 5, 5), Choice("other", 5, 5)]
    assert [beater(one, same) for one in same] == [None, None], "equals stay"


@pytest.mark.parametrize("choices, wants, taken", [
    (SIX, WANTS, "ACD"), (SIX[::-1], WANTS, "ACD"), (SIX, [Want("quick", 12), Want("any", math.inf)], "BD")])
def test_the_front_is_joined_and_everybody_takes_the_cheapest_within_a_limit(choices, wants, taken):
    drawing = check(lambda: pareto_front(choices, wants))
    stairs = next(path for path in paths(drawing, 3) if len(path) > 2)
    corners = [tuple(round(value, 1) for value in place(one)) for one in sorted(choices, key=lambda one: one.gap)
               if one.name in "ABCD"]
    assert [corner for corner in stairs if corner in corners] == corners
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in zip(stairs, stairs[1:]))
    middles = {text: ((area.left + area.right) / 2, area.top) for text, area in drawing.texts}
    by_name = {one.name: one for one in choices}
    for want, name in zip(wants, taken):
        x, y = place(by_name[name])
        assert middles[want.name][0] == pytest.approx(x, abs=1) and 0 < middles[want.name][1] - y < 60
    assert {"B beats it", "C beats it"} <= set(words(drawing))
    bars = [rect for rect in rects(drawing, "mark") if rect[0] == PLOT.left]
    assert len(bars) == len(wants) and bars[0][2] == PLOT.right - PLOT.left


# --- sick engines -------------------------------------------------------------------------------

def test_bars_are_as_long_as_their_numbers_and_a_panel_that_shows_it_is_thick():
    drawing = check(lambda: two_views(pocket.SICK, pocket.SICK_SUBJECT))
    healthy, now = ([rect[2] for rect in rects(drawing, role)] for role in ("weights", "cost"))
    for i, (_, _, well, sick, *_) in enumerate(pocket.SICK):
        assert healthy[i] / now[i] == pytest.approx(well / sick, abs=0.01) and max(healthy[i], now[i]) == LONGEST
    said = [text for text in words(drawing) if text in ("shows it", "looks fine", "looks better")]
    assert said == ["shows it", "looks fine", "looks better", "shows it", "shows it", "shows it"]
    for _, _, _, _, _, right, wrong in pocket.SICK:
        assert set(f"{right} {wrong}".split()) <= set(words(drawing))


@pytest.mark.parametrize("call", [
    lambda: levers(LEVERS[:2]), lambda: levers(LEVERS[2:]), lambda: levers(LEVERS[::-1]),
    lambda: levers((LEVERS[0], LEVERS[2]._replace(moves={"speed": "up"}))),
    lambda: levers((LEVERS[0], LEVERS[2]._replace(moves={"gap": "left"}))),
    lambda: pareto_front(SIX, WANTS[:2]), lambda: pareto_front(SIX, [Want("a", 1), WANTS[2]]),
    lambda: pareto_front(SIX, [Want("a", 10), *WANTS]),
    lambda: two_views(pocket.SICK[1:], "x"), lambda: two_views(pocket.SICK[:1], "x"),
    lambda: two_views([("f", "s", 1, 1, "less", "", ""), *pocket.SICK], "x"),
    lambda: two_views([("f", "s", 1, 2, "fewer", "", ""), *pocket.SICK], "x")])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
