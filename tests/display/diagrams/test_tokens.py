"""The tree of merges: its tokens, their places, and what it says."""

import re

import pytest
from well_drawn import check, words

from course_lib.display.diagrams.tokens import grow, merge_tree, row_top

MERGES = [(97, 110), (256, 97), (98, 256)]
DRAWINGS = {
    "banana": lambda: merge_tree("banana bandana", MERGES),
    "five merges": lambda: merge_tree("low lower", [(108, 111), (256, 119), (32, 257), (258, 101), (259, 114)]),
    "no merges": lambda: merge_tree("a b", []),
    "bytes of an emoji": lambda: merge_tree("no, no \U0001F600", [(110, 111), (0xF0, 0x9F)]),
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_drawing_is_sound(draw):
    check(draw)


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
    written = words(merge_tree("banana bandana", MERGES))
    assert written[:8] == ["14 bytes", "a + n", "4 times", "an + a", "2 times", "b + an", "2 times", "6 tokens"]
    assert [written.count(id) for id in ("256", "257", "258", "110")] == [4, 4, 4, 4]  # 257, 258: row and result


def test_merged_token_stands_on_legs_from_both_its_parts():
    drawing = merge_tree("banana bandana", MERGES)
    pattern = r'd="M([\d.]+) [\d.]+ L([\d.]+) ([\d.]+)".*s-ink'
    legs = [match.groups() for part in drawing.parts if (match := re.search(pattern, part))]
    assert all(start == end for start, end, _ in legs)
    assert [sum(float(y) == row_top(row) for *_, y in legs) for row in (1, 2, 3)] == [8, 4, 4]


def test_description_says_the_numbers():
    assert "258, 257, 32, 258, 100, 257" in merge_tree("banana bandana", MERGES).description


@pytest.mark.parametrize("call", [
    lambda: merge_tree("", []),
    lambda: merge_tree("banana", [(97, 120)]),
    lambda: merge_tree("a text of far too many bytes", []),
])
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
