"""The drawings of heads: how vectors are split into them, and what they share."""

import re
from xml.etree import ElementTree

import pytest
import torch
from well_drawn import check

from course_lib.config import ModelConfig
from course_lib.display.diagrams.heads import shared_heads, split_rows, splitting_heads, viewed_rows

POCKET = ModelConfig(vocab_size=4096, hidden_size=256, intermediate_size=640, num_hidden_layers=10,
                     num_attention_heads=8, num_key_value_heads=2)
SMALL = ModelConfig(vocab_size=100, hidden_size=48, intermediate_size=64, num_hidden_layers=3,
                    num_attention_heads=6, num_key_value_heads=3)
DRAWINGS = {
    "split": splitting_heads, "split two": lambda: splitting_heads(2), "split four": lambda: splitting_heads(4),
    "shared": lambda: shared_heads(POCKET, 1024), "shared small": lambda: shared_heads(SMALL, 500, bytes_per_element=4),
}
EACH = pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)


def elements(drawing, tag, role=""):
    return [e for e in ElementTree.fromstring(drawing.svg()).iter()
            if e.tag.endswith("}" + tag) and role in (e.get("class") or "").split() + [""]]


def place(element):
    x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def ends(path):
    numbers = [float(x) for x in re.findall(r"-?[\d.]+", path.get("d"))]
    return tuple(numbers[:2]), tuple(numbers[-2:])


def inside(box, area):
    x, y = (area.left + area.right) / 2, (area.top + area.bottom) / 2
    return box[0] < x < box[2] and box[1] < y < box[3]


@EACH
def test_drawing_is_sound(draw):
    check(draw)


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_both_ways_are_those_of_tensors(tokens):
    flat = torch.arange(4 * tokens).view(tokens, 4)
    assert split_rows(tokens) == flat.view(tokens, 2, 2).transpose(0, 1).tolist()
    assert viewed_rows(tokens) == flat.view(2, tokens, 2).tolist() != split_rows(tokens)


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_frames_hold_the_numbers_of_a_token_or_of_a_head(tokens):
    drawing = splitting_heads(tokens)
    frames = [place(e) for e in elements(drawing, "rect", "s-faint")]
    held = [[int(text) for text, area in drawing.texts if inside(frame, area)] for frame in frames]
    rows = [[4 * t, 4 * t + 1, 4 * t + 2, 4 * t + 3] for t in range(tokens)]
    assert held == rows + rows + [[x for row in head for x in row] for head in split_rows(tokens) + viewed_rows(tokens)]
    if tokens == 3:
        assert held[6] == [0, 1, 4, 5, 8, 9] and held[8] == [0, 1, 2, 3, 4, 5]


def test_a_tile_has_the_full_colour_if_its_number_belongs_to_head_0():
    drawing = splitting_heads()
    tiles = [(place(e), float(e.get("fill-opacity", 1))) for e in elements(drawing, "rect", "f-query")]
    assert len(tiles) == 4 * 12
    for box, opacity in tiles:
        [number] = [int(text) for text, area in drawing.texts if inside(box, area)]
        assert (opacity == 1) == (number % 4 < 2)


@pytest.mark.parametrize("config, heads, shared", [(POCKET, 8, 2), (SMALL, 6, 3)])
def test_each_query_head_has_a_line_to_the_key_value_head_that_it_reads(config, heads, shared):
    drawing = shared_heads(config, 100)
    queries = [place(e) for e in elements(drawing, "rect", "f-query")]
    keys = [place(e) for e in elements(drawing, "rect", "f-key")]
    lines = [ends(e) for e in elements(drawing, "path", "s-faint")]
    assert len(queries) == len(lines) == 3 * heads and len(keys) == heads + shared + 1
    first = 0
    for panel, count in enumerate((heads, shared, 1)):
        for h in range(heads):
            (x, _), (to, bottom) = lines[panel * heads + h]
            left, _, right, _ = queries[panel * heads + h]
            key = keys[first + h // (heads // count)]
            assert x == pytest.approx((left + right) / 2) and (to, bottom) == (key[2], key[1])
        first += count


@pytest.mark.parametrize("config, tokens, width, sizes", [(POCKET, 1024, 2, ["10.5 MB", "2.6 MB", "1.3 MB"]),
                                                          (SMALL, 50_000, 4, ["57.6 MB", "28.8 MB", "9.6 MB"])])
def test_bars_are_as_long_as_the_cache_is_large(config, tokens, width, sizes):
    drawing = shared_heads(config, tokens, bytes_per_element=width)
    slices = [place(e) for e in elements(drawing, "rect", "f-cache")][:-1]  # the last one is the legend
    lengths = {}
    for left, top, right, _ in slices:
        lengths[top] = lengths.get(top, 0) + right - left
    heads, own = config.num_attention_heads, config.num_key_value_heads
    longest = max(lengths.values())
    assert list(lengths.values()) == pytest.approx([longest, longest * own / heads, longest / heads])
    assert [text for text, _ in drawing.texts if text.endswith("MB")] == sizes
    assert all(size in drawing.description for size in sizes)
    assert any(f"{config.head_dim} numbers × {width} bytes × {tokens:,} tokens" in text for text, _ in drawing.texts)


@pytest.mark.parametrize("draw, message", [
    (lambda: splitting_heads(1), "tokens = 1"), (lambda: splitting_heads(5), "tokens = 5"),
    (lambda: shared_heads(POCKET, 0), "tokens = 0"),
    (lambda: shared_heads(POCKET, 10, bytes_per_element=0), "bytes_per_element"),
    (lambda: shared_heads(ModelConfig(vocab_size=10, hidden_size=96, intermediate_size=8, num_hidden_layers=1,
                                      num_attention_heads=12, num_key_value_heads=2), 10), "num_attention_heads = 12"),
    (lambda: shared_heads(ModelConfig(vocab_size=10, hidden_size=64, intermediate_size=8, num_hidden_layers=1,
                                      num_attention_heads=8), 10), "num_key_value_heads = 8"),
])
def test_what_there_is_no_room_for_raises(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
