"""The tree of merges, the row picked out of the table, and the product that is a lookup."""

import re
from xml.etree import ElementTree

import pytest

from course_lib.display.diagrams.tokens import Picked, grow, merge_tree, one_hot_product, row_top, table_lookup

MERGES = [(97, 110), (256, 97), (98, 256)]
TOKENS = [Picked("What", 440, (0.01, -0.29, -0.10)), Picked(" is", 290, (0.19, -0.19, 0.10)),
          Picked(" gravity", 2180, (-0.16, 0.25, 0.52)), Picked("?", 63, (-0.09, 0.25, -0.06))]
TABLE = [[1, 2, 3], [10, 20, 30], [4, 5, 6], [40, 50, 60], [7, 8, 9]]
DRAWINGS = {
    "banana": lambda: merge_tree("banana bandana", MERGES),
    "five merges": lambda: merge_tree("low lower", [(108, 111), (256, 119), (32, 257), (258, 101), (259, 114)]),
    "no merges": lambda: merge_tree("a b", []),
    "bytes of an emoji": lambda: merge_tree("no, no \U0001F600", [(110, 111), (0xF0, 0x9F)]),
    "gravity": lambda: table_lookup(TOKENS, rows=4096, width=256, here=2),
    "last row": lambda: table_lookup([Picked("a", 4095, (0.5,)), Picked("b", 0, (-0.5, 0.25))], rows=4096, width=256),
    "small product": lambda: one_hot_product(TABLE, [3, 1, 3]),
    "more ids than rows": lambda: one_hot_product([[1, -2], [10, 20], [4, 5], [40, 50]], [3, 1, 3, 0, 2], here=3),
}


def texts(drawing):
    return [text for text, _ in drawing.texts]


def attributes(drawing, pattern):
    """The groups of a pattern in each part of a drawing that has it."""
    return [match.groups() for part in drawing.parts if (match := re.search(pattern, part))]


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_no_text_overlaps_another_or_leaves_the_paper(draw):
    drawing = draw()
    for i, (text, area) in enumerate(drawing.texts):
        assert [other for other, its_area in drawing.texts[i + 1:] if area.overlaps(its_area)] == [], text
        assert area.left >= 0 and area.top >= 0 and area.right <= drawing.width and area.bottom <= drawing.height


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_svg_is_xml_and_the_same_bytes_twice(draw):
    svg = draw().svg()
    ElementTree.fromstring(svg)
    assert svg == draw().svg()


def test_tree_makes_the_tokens_of_the_notebook():
    levels = grow(b"banana bandana", MERGES)
    assert [len(level) for level in levels] == [14, 10, 8, 6]
    assert [token.data for token in levels[-1]] == [b"ban", b"ana", b" ", b"ban", b"d", b"ana"]
    assert [token.id for token in levels[-1]] == [258, 257, 32, 258, 100, 257]


def test_tokens_lie_over_their_own_bytes_without_gap():
    for level in grow(b"banana bandana", MERGES):
        assert [token.last for token in level] == [token.first for token in level[1:]] + [14]
        assert all(b"banana bandana"[token.first:token.last] == token.data for token in level)


def test_tree_says_what_each_merge_joins_and_how_often():
    written = texts(merge_tree("banana bandana", MERGES))
    assert written[:8] == ["14 bytes", "a + n", "4 times", "an + a", "2 times", "b + an", "2 times", "6 tokens"]
    assert [written.count(id) for id in ("256", "257", "258", "110")] == [4, 4, 4, 4]  # 257, 258: row and result


def test_merged_token_stands_on_legs_from_both_its_parts():
    drawing = merge_tree("banana bandana", MERGES)
    legs = attributes(drawing, r'd="M([\d.]+) [\d.]+ L([\d.]+) ([\d.]+)".*s-ink')
    assert all(start == end for start, end, _ in legs)
    assert [sum(float(y) == row_top(row) for *_, y in legs) for row in (1, 2, 3)] == [8, 4, 4]


def test_lookup_puts_each_row_at_its_height_in_the_table():
    drawing = table_lookup(TOKENS, rows=4096, width=256, here=2)
    rows = {float(y) for _, y in attributes(drawing, r'd="M[\d.]+ [\d.]+ L(227) ([\d.]+)"')}
    top, high = 56 + 3, 4 * (58 + 14) - 14 - 6
    assert sorted(rows) == pytest.approx([top + high * (id + 0.5) / 4096 for id in (63, 290, 440, 2180)], abs=0.06)
    assert "row 2180" in texts(drawing) and "4,096 × 256" in texts(drawing)
    assert "−0.16 0.25 0.52 …" in texts(drawing)


def test_lookup_draws_the_one_to_look_at_last_and_alone_with_arrow_heads():
    drawing = table_lookup(TOKENS, rows=4096, width=256, here=1)
    heads = [i for i, part in enumerate(drawing.parts) if "marker-end" in part]
    ways = [i for i, part in enumerate(drawing.parts) if part.startswith("<path")]
    assert heads == ways[-2:] and "row 290" in texts(drawing)


@pytest.mark.parametrize("table, ids, here", [(TABLE, [3, 1, 3], 0), ([[1, 2], [3, 4]], [1, 0, 1, 1], 1)])
def test_product_holds_the_one_hot_rows_the_table_and_the_picked_rows(table, ids, here):
    drawing = one_hot_product(table, ids, here=here)
    cells = [text for part, text in attributes(drawing, r'(<text[^>]*ui-monospace[^>]*)>([^<]*)<')]
    V = len(table)
    one_hot = [str(int(column == id)) for id in ids for column in range(V)]
    assert cells == [str(id) for id in ids] + one_hot + [str(x) for row in table for x in row] \
        + [str(x) for id in ids for x in table[id]]
    assert sum("f-mark" in part for part in drawing.parts) == 1 + 1 + 2 * len(table[0])  # an id, a 1, two rows


def test_descriptions_say_the_numbers():
    assert "258, 257, 32, 258, 100, 257" in merge_tree("banana bandana", MERGES).description
    assert "“gravity” has id 2180 and gets row 2180" in table_lookup(TOKENS, rows=4096, width=256).description
    assert "meets row 3 of the table, 40, 50, 60" in one_hot_product(TABLE, [3, 1, 3]).description


@pytest.mark.parametrize("call", [
    lambda: merge_tree("", []),
    lambda: merge_tree("banana", [(97, 120)]),
    lambda: merge_tree("a text of far too many bytes", []),
    lambda: table_lookup([], rows=4096, width=256),
    lambda: table_lookup([Picked("a", 4096, (0.5,))], rows=4096, width=256),
    lambda: table_lookup(TOKENS, rows=4096, width=256, here=4),
    lambda: table_lookup([Picked("incomprehensible", 5, (0.5,))], rows=4096, width=256),
    lambda: table_lookup([Picked("a", 5, (0.5,) * 6)], rows=4096, width=256),
    lambda: one_hot_product([], [0]),
    lambda: one_hot_product([[1, 2], [3]], [0]),
    lambda: one_hot_product(TABLE, [5]),
    lambda: one_hot_product(TABLE, []),
    lambda: one_hot_product([[1] * 6] * 2, [0]),
    lambda: one_hot_product([[100]], [0]),
    lambda: one_hot_product(TABLE, [3, 1], here=2),
])
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
