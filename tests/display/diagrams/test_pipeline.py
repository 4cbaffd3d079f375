"""The map: its numbers are those of the run, each stage says its notebooks and levers, and the loop closes."""

import pytest
from well_drawn import check, hatched, paths, rects, words

from course_lib.display.colors import LEVERS
from course_lib.display.diagrams.pipeline import CHIP, CHIP_HEIGHT, Run, middle, pipeline

RUN = Run("Why is it?", [("Why", 440), (" is", 290), (" it", 2180), ("?", 63)], 192,
          [[0.5, -1.0, 0.25, 0.0]] * 4, [[0.5, -1.0, 0.25, 0.0]] * 4, 12,
          [(" So", 1184, 5.25, 0.6), (" It", 77, 4.0, 0.15)], 5000, 23)


def test_the_numbers_are_those_of_the_run():
    drawing = check(lambda: pipeline(RUN))
    said = words(drawing)
    assert {"“Why is it?”", "10 bytes", "␣it", "2180", "4 × 192", "12 layers, each:", "5,000 logits", "23 more times",
            "“ So”", "5.2", "60 %", "15 %"} <= set(said)
    assert said.count("1184") == 2 and said.count("4 × 192") == 1 and said.count("MLP") == 4 + 1
    assert "440, 290, 2180, 63" in drawing.description and "its id 1184 joins the others, 23 more times" \
        in drawing.description


def test_every_notebook_of_the_path_and_every_lever_is_on_it():
    said = words(pipeline(RUN))
    assert {"01", "02", "03", "04", "06", "07", "08", "09", "10", "11", "12", "13", "14"} <= set(said)
    assert set(LEVERS) <= set(said)
    for lever in LEVERS:  # a tag in the colour of its own lever for each time that it is named
        assert len(rects(pipeline(RUN), lever)) == said.count(lever)


def test_the_chosen_id_goes_to_the_place_after_the_others():
    drawing = pipeline(RUN)
    [loop] = [points for points in paths(drawing, 2.2) if len(points) == 4]
    assert loop[-1][0] == pytest.approx(middle(4) + CHIP / 2 + 5)
    slots = [(left, top) for left, top, width, height in rects(drawing, "mark")
             if (width, height) == (CHIP, CHIP_HEIGHT)]
    assert sorted(top + CHIP_HEIGHT / 2 for _, top in slots) == pytest.approx(sorted([loop[-1][1], loop[0][1]]))


def test_attention_looks_back_only_and_all_lines_of_the_last_token_are_in_ink():
    drawing = pipeline(RUN)
    faint = [points for points in paths(drawing, 1.4) if len(points) == 2]
    ink = [points for points in paths(drawing, 2.2) if len(points) == 2 and points[1][0] == middle(3)
           and points[0][1] == faint[0][0][1]]
    assert len(faint) == 6 and all(start[0] <= end[0] for start, end in faint)
    assert [start[0] for start, _ in ink] == [middle(i) for i in range(4)]


def test_only_the_last_vector_goes_on():
    assert [left for left, *_ in hatched(pipeline(RUN))] == pytest.approx([middle(i) - CHIP / 2 for i in range(3)])


def test_more_tokens_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="tokens"):
        pipeline(RUN._replace(tokens=RUN.tokens * 2))
