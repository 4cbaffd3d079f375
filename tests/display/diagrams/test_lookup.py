"""The lookup drawn: its hashes are those of the pages, and what is found is what the manager of pages finds."""

import pytest
from well_drawn import check, paths, rects, words

from course_lib import load
from course_lib.display.diagrams import pocket
from course_lib.display.diagrams.lookup import PAGES, Page, chained_lookup, hashes_of, middle, num_found, short
from course_lib.generate import encode_prompt
from course_lib.paging import hash_block

KNOWN, ASKED = ([Page(*page) for page in pages] for pages in (pocket.ASKED_BEFORE, pocket.ASKED_NOW))


def draw():
    return chained_lookup(("Uganda", "Rwanda"), KNOWN, ASKED)


def test_each_hash_is_made_of_the_one_before():
    first = hash_block(0, KNOWN[0].token_ids)
    second = hash_block(first, KNOWN[1].token_ids)
    assert hashes_of(KNOWN) == [first, second, hash_block(second, KNOWN[2].token_ids)]
    assert hashes_of(ASKED)[0] == first and not set(hashes_of(ASKED)[1:]) & set(hashes_of(KNOWN))


def test_only_the_first_page_is_found():
    assert num_found(KNOWN, ASKED) == 1 and num_found(KNOWN, KNOWN) == 3
    drawing = check(draw)
    written = words(drawing)
    assert [word for word in written if word[1:].isdigit()] == [short(n) for n in hashes_of(KNOWN) + hashes_of(ASKED)]
    pages = [page.text for page in (*KNOWN, *ASKED)]
    assert [word for word in written if word in pages] == pages
    below = [rect for rect in rects(drawing, "cache") if rect[1] == PAGES[1]]
    assert len(below) == 1 and len([rect for rect in rects(drawing, "cache") if rect[1] == PAGES[0]]) == 3
    assert len([rect for rect in rects(drawing, "cost") if rect[1] == PAGES[1]]) == 2, "what is to be read"
    assert "1 of its pages is found" in drawing.description


def test_arrows_lead_from_page_to_hash_and_from_hash_to_hash():
    arrows = [points for points in paths(draw(), 2.2) if len(points) == 2]
    up_or_down = [(start, end) for start, end in arrows if start[0] == end[0]]
    assert sorted(start[0] for start, _ in up_or_down) == sorted([middle(i) for i in range(3)] * 2)
    assert len(arrows) - len(up_or_down) == 6 and all(start[1] == end[1] and start[0] < end[0]
                                                      for start, end in arrows if start[0] != end[0])


def test_pages_are_those_of_the_two_questions():
    tokenizer = load("pocket", device="cpu").tokenizer
    for country, pages in (("Uganda", KNOWN), ("Rwanda", ASKED)):
        text = f"What is the capital of {country}? Please."
        ids = encode_prompt(tokenizer, [{"role": "user", "content": text}])
        assert [page.token_ids for page in pages] == [tuple(ids[i : i + 5]) for i in (0, 5, 10)] and len(ids) < 20
        for page in pages:
            assert page.text.strip("… ") in tokenizer.decode(list(page.token_ids))


@pytest.mark.parametrize("known, asked", [(KNOWN, KNOWN), (KNOWN, ASKED[:2]), (KNOWN, ASKED[::-1])])
def test_other_texts_are_refused(known, asked):
    with pytest.raises(ValueError, match="is not allowed"):
        chained_lookup(("Uganda", "Rwanda"), known, asked)
