"""The row picked out of the table, and the product that is a lookup."""

import re

import pytest
from well_drawn import check, words

from course_lib.display.diagrams.tables import Picked, one_hot_product, table_lookup

TOKENS = [Picked("What", 440, (0.01, -0.29, -0.10)), Picked(" is", 290, (0.19, -0.19, 0.10)),
          Picked(" gravity", 2180, (-0.16, 0.25, 0.52)), Picked("?", 63, (-0.09, 0.25, -0.06))]
TABLE = [[1, 2, 3], [10, 20, 30], [4, 5, 6], [40, 50, 60], [7, 8, 9]]
DRAWINGS = {
    "gravity": lambda: table_lookup(TOKENS, rows=4096, width=256, here=2),
    "last row": lambda: table_lookup([Picked("a", 4095, (0.5,)), Picked("b", 0, (-0.5, 0.25))], rows=4096, width=256),
    "small product": lambda: one_hot_product(TABLE, [3, 1, 3]),
    "more ids than rows": lambda: one_hot_product([[1, -2], [10, 20], [4, 5], [40, 50]], [3, 1, 3, 0, 2], here=3),
}


def attributes(drawing, pattern):
    """The groups of a pattern in each part of a drawing that has it."""
    return [match.groups() for part in drawing.parts if (match := re.search(pattern, part))]


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_drawing_is_sound(draw):
    check(draw)


def test_lookup_puts_each_row_at_its_height_in_the_table():
    drawing = table_lookup(TOKENS, rows=4096, width=256, here=2)
    rows = {float(y) for _, y in attributes(drawing, r'd="M[\d.]+ [\d.]+ L(227) ([\d.]+)"')}
    top, high = 56 + 3, 4 * (58 + 14) - 14 - 6
    assert sorted(rows) == pytest.approx([top + high * (id + 0.5) / 4096 for id in (63, 290, 440, 2180)], abs=0.06)
    assert "row 2180" in words(drawing) and "4,096 × 256" in words(drawing)
    assert "−0.16 0.25 0.52 …" in words(drawing)


def test_lookup_draws_the_one_to_look_at_last_and_alone_with_arrow_heads():
    drawing = table_lookup(TOKENS, rows=4096, width=256, here=1)
    heads = [i for i, part in enumerate(drawing.parts) if "marker-end" in part]
    ways = [i for i, part in enumerate(drawing.parts) if part.startswith("<path")]
    assert heads == ways[-2:] and "row 290" in words(drawing)


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
    lookup = table_lookup(TOKENS, rows=4096, width=256, here=2).description
    assert "“gravity” 2180" in lookup and "2180 gets row 2180, which begins −0.16, 0.25, 0.52." in lookup
    assert "meets row 3 of the table, 40, 50, 60" in one_hot_product(TABLE, [3, 1, 3]).description


@pytest.mark.parametrize("call", [
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
