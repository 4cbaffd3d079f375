"""The cache drawn: every square, line and slot is where the numbers say."""

import re

import pytest
import torch
from well_drawn import check, hatched, rects, words

from course_lib.classroom.cache_ladder import TopLeft
from course_lib.config import ModelConfig
from course_lib.display.diagrams.caching import CELL, PANELS, SLOT, corners, ledger, ring, triangles_of_work

CONFIG = ModelConfig(vocab_size=50, hidden_size=24, intermediate_size=20, num_hidden_layers=5, num_attention_heads=6,
                     num_key_value_heads=3)


@pytest.mark.parametrize("runs", [2, 5, 8])
def test_without_a_cache_a_triangle_and_with_one_a_diagonal(runs):
    drawing = check(lambda: triangles_of_work(runs))
    computed, read = rects(drawing, "cost"), rects(drawing, "cache")
    assert len(computed) == runs * (runs + 1) // 2 + runs + 1  # and one to explain the colour
    assert len(read) == runs * (runs - 1) // 2 + 1
    for y in {top for _, top, *_ in computed[:-1]}:
        row = sorted(left for left, top, *_ in computed if top == y)
        rest = [left for left, top, *_ in read if top == y]
        assert not rest or row[-1] > max(rest), "what is new comes last"
    assert f"{runs * (runs + 1) // 2} tokens computed" in words(drawing) and f"{runs} tokens computed" in words(drawing)


@pytest.mark.parametrize("n", [2, 5, 6])
def test_a_ledger_has_a_line_for_each_token_and_the_last_is_new(n):
    tokens = [" and"] * n
    drawing = check(lambda: ledger(tokens, " so", CONFIG))
    for role in ("key", "value"):
        assert len(rects(drawing, role, "0.2")) == n and len(rects(drawing, role, "0.8")) == 1
        [(_, y, *_)] = rects(drawing, role, "0.8")
        assert y > max(top for _, top, *_ in rects(drawing, role, "0.2"))
    assert "one run, one line on every page: 240 bytes" in words(drawing)
    assert "= 2 × 5 layers × 3 heads × 4 numbers × 2 bytes" in words(drawing) and "new: ␣so" in words(drawing)
    keys, values = rects(drawing, "key"), rects(drawing, "value")
    heads = [part for part in drawing.parts if "marker-end" in part]
    ends = [tuple(map(float, re.findall(r"[\d.]+", re.search(r' d="([^"]*)"', part)[1])[-2:])) for part in heads]
    assert len(ends) == n + 1
    for (x, y), (left, top, width, height) in zip(ends, keys):
        assert left + width < x < values[0][0] and top < y < top + height, "the query looks at keys"
    assert "240 bytes" in drawing.description and "12 numbers each" in drawing.description


@pytest.mark.parametrize("past, new", [(4, 3), (2, 4), (5, 2)])
def test_the_two_masks_are_those_of_the_rule_and_of_the_wrong_cache(past, new):
    drawing = check(lambda: corners(past, new))
    wrong = TopLeft()
    wrong.update(*[torch.zeros(1, 1, past, 1)] * 2, 0)
    right = torch.ones(new, past + new, dtype=torch.bool).tril(past)
    seen = [(left, top) for left, top, *_ in rects(drawing, "key")]
    halves = [sorted((top, left) for left, top in seen if (left < PANELS[1]) == first) for first in (True, False)]
    for drawn, mask, start in zip(halves, (right, wrong.mask(new)), PANELS):
        places = [(58 + CELL * row + 1.5, start + CELL * key + 1.5) for row, key in mask.nonzero().tolist()]
        assert drawn == places
    assert f"{past} cached" in words(drawing) and f"last row all {past + new}" in drawing.description


@pytest.mark.parametrize("window, sink, seen", [(4, 1, 10), (3, 0, 4), (6, 2, 11), (3, 2, 9), (5, 0, 11)])
def test_a_ring_keeps_the_last_positions_and_the_sink(window, sink, seen):
    drawing = check(lambda: ring(window, sink, seen))
    kept = [*range(sink), *range(seen - window, seen)]
    assert len(hatched(drawing)) == seen - window - sink
    shown = [int(word) for word in words(drawing) if word.isdigit()]
    assert sorted(shown) == sorted([*kept, seen, *kept])
    assert f"{seen} comes next and overwrites {seen - window}" in words(drawing)
    slots = [area for text, area in drawing.texts if text.isdigit() and area.top > 150]
    assert len({round(area.left + area.right) // SLOT for area in slots}) == len(slots) == window + sink
    by_place = [int(text) for text, area in sorted(drawing.texts, key=lambda item: item[1].left)
                if text.isdigit() and area.top > 150]
    assert [p if p < sink else (p - sink) % window + sink for p in by_place] == list(range(window + sink))


@pytest.mark.parametrize("call", [
    lambda: triangles_of_work(1), lambda: triangles_of_work(9), lambda: ledger(["a"], "b", CONFIG),
    lambda: ledger(["a"] * 7, "b", CONFIG), lambda: ring(2), lambda: ring(4, 3), lambda: ring(4, 1, 5),
    lambda: ring(4, 1, 12), lambda: corners(1), lambda: corners(6), lambda: corners(4, 1), lambda: corners(4, 5)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
