"""The map: its numbers are those of the run, each stage has a tag, the query meets keys, the loop closes."""

from xml.etree import ElementTree

import pytest
from well_drawn import SVG, check, paths, rects, words

from course_lib.display.colors import LEVERS
from course_lib.display.diagrams.pipeline import CHIP, CHIP_HEIGHT, STRIP, Run, middle, pipeline

RUN = Run("Why is it so?", [("Why", 440), (" is", 290), (" it", 2180), (" so", 310), ("?", 63)],
          192, [[0.5, -1.0, 0.25, 0.0]] * 5, [[0.5, -1.0, 0.25, 0.0]] * 5, 12,
          [(" So", 1184, 5.25, 0.6), (" It", 77, 4.0, 0.15)], 5000, 23)


def test_the_numbers_are_those_of_the_run():
    drawing = check(lambda: pipeline(RUN))
    said = words(drawing)
    assert {"“Why is it so?”", "13 bytes", "␣it", "2180", "5 × 192", "1 × 192, the last vector", "12 layers, each:",
            "5,000 logits", "23 more times", "“ So”", "5.2", "60 %", "15 %"} <= set(said)
    assert said.count("1184") == 2 and said.count("5 × 192") == 1 and said.count("MLP") == 5 + 1
    assert "440, 290, 2180, 310, 63" in drawing.description and "Its id 1184 joins the others, 23 more times" \
        in drawing.description


def test_every_stage_has_one_tag_and_every_notebook_of_the_path_and_every_lever_is_on_one():
    said = words(pipeline(RUN))
    tags = [text.split(" · ") for text in said if " · " in text and text.split(" · ")[1] in LEVERS]
    *of_stages, sample = tags
    assert sample == ["01", "cost"] and len(of_stages) == 9  # eight stages and the way back
    built = sorted(number for numbers, _ in of_stages for number in numbers.split(", "))
    assert built == ["01", "02", "03", "04", "06", "07", "08", "09", "10", "11", "12", "13", "14"]
    for lever in LEVERS:  # a tag in the colour of its own lever
        assert len(rects(pipeline(RUN), lever)) == [its_lever for _, its_lever in tags].count(lever) > 0


def test_the_chosen_id_goes_to_the_place_after_the_others():
    drawing = pipeline(RUN)
    [loop] = [points for points in paths(drawing, 2.2) if len(points) == 4]
    assert loop[-1][0] == pytest.approx(middle(5) + CHIP / 2 + 5)
    slots = [(left, top) for left, top, width, height in rects(drawing, "mark")
             if (width, height) == (CHIP, CHIP_HEIGHT)]
    assert sorted(top + CHIP_HEIGHT / 2 for _, top in slots) == pytest.approx(sorted([loop[-1][1], loop[0][1]]))


def lines(drawing, role):
    """The start and the end of each straight line in the colour of a role."""
    root = ElementTree.fromstring(drawing.svg())
    found = [path.get("d").strip("M").split("L") for path in root.iter(f"{SVG}path")
             if f"s-{role}" in path.get("class", "").split()]
    return [tuple(tuple(map(float, point.split())) for point in pair) for pair in found]


def centres(drawing, role):
    """The middle of the bottom edge and of the top edge of each vector of a role, from left to right."""
    return sorted(((x + width / 2, y + height), (x + width / 2, y)) for x, y, width, height in rects(drawing, role))


def test_the_last_query_meets_every_key_and_every_value_comes_back_to_the_last_token():
    drawing = pipeline(RUN)
    [(asks, _)] = centres(drawing, "query")
    assert asks[0] == middle(4)
    keys, values = centres(drawing, "key"), centres(drawing, "value")
    assert len(keys) == len(values) == 5
    for (start, end), (_, top) in zip(sorted(lines(drawing, "query"), key=lambda line: line[1]), keys, strict=True):
        assert start == asks and end == pytest.approx(top, abs=3)
    back = sorted(lines(drawing, "value"))
    for (start, _), (bottom, _) in zip(back, values, strict=True):
        assert start == pytest.approx(bottom, abs=3)
    [end] = {end for _, end in back}
    assert end[0] == middle(4) and end[1] > values[0][0][1]
    [kept] = rects(drawing, "cache")
    assert all(kept[0] < x < kept[0] + kept[2] for (x, _), _ in (*keys, *values))


def test_only_the_last_vector_goes_on():
    drawing = pipeline(RUN)
    cells = [(left, top) for left, top, _, height in rects(drawing, "ink") if height == STRIP]
    entering, leaving = ([left for left, top in cells if top == y] for y in sorted({top for _, top in cells}))
    assert len(entering) == 5 * 4 and len(leaving) == 4  # four numbers in each vector of the example
    assert all(middle(4) - CHIP / 2 <= left < middle(4) + CHIP / 2 for left in leaving)


@pytest.mark.parametrize("tokens", [RUN.tokens[:4], RUN.tokens * 2])
def test_more_or_fewer_tokens_than_there_is_room_for_are_refused(tokens):
    with pytest.raises(ValueError, match="tokens"):
        pipeline(RUN._replace(tokens=tokens))
