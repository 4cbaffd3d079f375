"""The drawing of attention by hand: every number is that of the definition, and in its place."""

import math
from xml.etree import ElementTree

import pytest

from course_lib.display.diagrams.attention import Example, attention_by_hand, entry, steps_of

TIME_FLIES = Example(["Time", "flies", "fast"],
                     x=[[1, 0, 0, 2, 0], [0, 1, 0, 0, 2], [0, 0, 1, 0, 1]],
                     queries=[[0, 2, 0, 2], [2, 0, 2, 0], [0, 4, 1, 0]],
                     keys=[[1, 0, 2, 0], [0, 1, 0, 2], [0, 0, 0, 1]],
                     values=[[2, 0, 0, 1], [0, 0, 5, 0], [0, 1, 2, 0]])
TWO = Example(["Go", "on"], x=[[1, 0.5, 0], [0, 1, 2]], queries=[[1, 2], [3, 0]], keys=[[1, 0], [2, 1]],
              values=[[4, 0], [0, 7]])
EXAMPLES = pytest.mark.parametrize("example", [TIME_FLIES, TWO], ids=["three", "two"])


def elements(drawing, tag):
    return [e for e in ElementTree.fromstring(drawing.svg()).iter() if e.tag.endswith("}" + tag)]


def place(element):
    return tuple(float(element.get(name)) for name in ("x", "y", "width", "height"))


def middle(area):
    return (area.left + area.right) / 2, (area.top + area.bottom) / 2


@EXAMPLES
def test_every_text_is_on_the_paper_and_clear_of_the_others(example):
    drawing = attention_by_hand(example)
    areas = drawing.texts
    assert [(a, b) for i, (a, one) in enumerate(areas) for b, other in areas[i + 1:] if one.overlaps(other)] == []
    assert all(0 <= a.left and 0 <= a.top and a.right <= drawing.width and a.bottom <= drawing.height
               for _, a in areas)


@EXAMPLES
def test_the_file_is_the_same_each_time_and_can_be_parsed(example):
    svg = attention_by_hand(example).svg()
    assert svg == attention_by_hand(example).svg()
    ElementTree.fromstring(svg)


@EXAMPLES
def test_the_steps_are_the_definition(example):
    steps, T, size = steps_of(example), len(example.words), len(example.queries[0])
    for t in range(T):
        scores = [sum(a * b for a, b in zip(example.queries[t], k)) for k in example.keys]
        assert steps.scores[t] == pytest.approx(scores)
        assert steps.masked[t] == pytest.approx([scores[s] / size**0.5 if s <= t else -math.inf for s in range(T)])
        powers = [math.exp(scores[s] / size**0.5) if s <= t else 0 for s in range(T)]
        assert steps.weights[t] == pytest.approx([power / sum(powers) for power in powers])
        assert steps.outputs[t] == pytest.approx([sum(w * v[d] for w, v in zip(steps.weights[t], example.values))
                                                  for d in range(len(example.values[0]))])


def test_the_numbers_of_the_last_word_are_those_of_the_text():
    texts = [text for text, _ in attention_by_hand(TIME_FLIES).texts]
    assert "0.24 Time + 0.67 flies + 0.09 fast  =" in texts and "÷ √4" in texts
    end = texts.index("mix the values")
    assert texts[end - 4:end] == ["0.49", "0.09", "3.51", "0.24"]
    description = attention_by_hand(TIME_FLIES).description
    assert "gives scores 2, 4, 0;" in description and "makes attention weights 0.24, 0.67, 0.09." in description


@EXAMPLES
def test_exactly_the_future_is_hatched_and_is_minus_infinity(example):
    drawing, T = attention_by_hand(example), len(example.words)
    hatched = [place(e) for e in elements(drawing, "rect") if "hatch" in e.get("fill", "")]
    assert len(hatched) == T * (T - 1)  # in two tables
    infinite = [middle(area) for text, area in drawing.texts if text == "−∞"]
    assert len(infinite) == T * (T - 1) / 2
    inside = [any(x < a < x + w and y < b < y + h for x, y, w, h in hatched) for a, b in infinite]
    assert all(inside)
    scores = [place(e) for e in elements(drawing, "rect") if "s-line" in e.get("class", "") and place(e)[2] == 46]
    table = scores[T * T:2 * T * T]  # the masked ones come second
    assert [table[t * T + s] in hatched for t in range(T) for s in range(T)] == [s > t for t in range(T)
                                                                                for s in range(T)]


@EXAMPLES
def test_the_row_of_the_last_word_is_marked_but_not_among_keys_and_values_which_it_needs_all(example):
    rows = [e for e in elements(attention_by_hand(example), "rect")
            if e.get("class", "").startswith("f-") and "s-" not in e.get("class") and float(e.get("rx")) == 0]
    assert [e.get("class") for e in rows] == ["f-mark"] * 6  # x, q, scores, masked, attention weights, output
    drawn, T = [place(e) for e in elements(attention_by_hand(example), "rect")], len(example.words)
    for x, y, _, height in map(place, rows):
        above = [one for one in drawn if one[0] == x and one[3] == height and y - T * height < one[1] < y]
        assert len(above) == T - 1  # the first entries of the rows above it in its table


def test_a_number_has_two_decimals_unless_all_in_its_table_are_whole():
    assert [entry(x, [1, 2.0, -math.inf]) for x in (2.0, -1, -math.inf)] == ["2", "−1", "−∞"]
    assert [entry(x, [0.5, 1]) for x in (1, -0.001, -0.5)] == ["1.00", "0.00", "−0.50"]


@pytest.mark.parametrize("changed, message", [
    ({"words": ["one"]}, "words"), ({"words": ["Time", "flies", "wonderfully"]}, "wonderfully"),
    ({"x": [[1, 0], [0, 1]]}, "x ="), ({"keys": [[1, 0, 0]] * 3}, "keys"), ({"values": [[1], [2, 3], [4]]}, "values"),
    ({"values": [[1.5, 0, 0, 1000]] * 3}, "number"),
])
def test_what_does_not_fit_raises(changed, message):
    with pytest.raises(ValueError, match=message):
        attention_by_hand(TIME_FLIES._replace(**changed))
