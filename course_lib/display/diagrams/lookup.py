"""Two texts that begin alike: which pages of the first the second finds by their chained hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.diagrams.pages import TINT
from course_lib.paging import BlockManager, Prefix

LEFT, PITCH, WIDE = 62, 216, 194  # where pages begin, from one to the next, and how wide one is
PAGES, KEYS, VERDICT = (54, 318), (122, 264), 203  # tops of both rows of pages and of hashes; first line between
HIGH, LOW, HALF = 42, 34, 44  # a page, a hash, and half the width of a hash
BAR = "…"  # for what is not written


class Page(NamedTuple):
    """A full page: what is written in it, and its tokens."""

    text: str
    token_ids: tuple[int, ...]


def hashes_of(pages: Sequence[Page]) -> list[int]:
    """The chained hash of every page."""
    found, prefix = [], None
    for page in pages:
        prefix = Prefix.after(prefix, page.token_ids)
        found.append(prefix.hash)
    return found


def num_found(known: Sequence[Page], asked: Sequence[Page]) -> int:
    """How many pages of a text are found, after another text has been computed."""
    size = len(known[0].token_ids)
    blocks = BlockManager(2 * len(known), size)
    ids = [token for page in known for token in page.token_ids]
    blocks.cache_full_blocks(blocks.allocate(ids), ids, len(ids))
    found, _ = blocks.find_prefix([token for page in asked for token in page.token_ids] + [0])
    return len(found)


def chained_lookup(names: tuple[str, str], known: Sequence[Page], asked: Sequence[Page]) -> Drawing:
    """Above, the pages that are in the index; below, a second text: its first pages are found, the others are not.

    Args:
        names: what the two texts are about.
        known, asked: three pages each. The first are equal, the second differ, and the last have the same tokens.
    """
    same = [a.token_ids == b.token_ids for a, b in zip(known, asked)]
    require(len(known) == len(asked) == 3 and same == [True, False, True], "known, asked", (list(known), list(asked)),
            "three pages each, of which the second differ")
    found, rows = num_found(known, asked), (hashes_of(known), hashes_of(asked))
    drawing = Drawing("A lookup by chained hashes", told(names, known, asked, found, rows), height=PAGES[1] + 136)
    drawing.text(18, 34, f"in the index: the question about {names[0]}", bold=True, anchor="start")
    for row, pages in enumerate((known, asked)):
        for i, page in enumerate(pages):
            area = Area(left(i), PAGES[row], left(i) + WIDE, PAGES[row] + HIGH)
            kept = not row or i < found
            drawing.rect(area, fill="cache" if kept else "cost", tint=TINT if kept else 1.0,
                         stroke="cache" if kept else "ink", thick=2 if kept else 1.4)
            drawing.text(middle(i), area.top + 27, page.text, size=SMALL, mono=True)
        chain(drawing, rows[row], row)
    verdicts = (("same hash", "found"), ("new hash", "stop here"), ("same tokens,", "another hash"))
    for i, (first, second) in enumerate(verdicts):
        drawing.text(middle(i), VERDICT, first, size=SMALL, bold=i == 2)
        drawing.text(middle(i), VERDICT + 24, second, size=SMALL, bold=True)
    drawing.text(18, PAGES[1] + HIGH + 32, f"asked now: the question about {names[1]}", bold=True, anchor="start")
    legend(drawing, PAGES[1] + HIGH + 70)
    return drawing


def left(i: int) -> float:
    """Where page i begins."""
    return LEFT + PITCH * i


def middle(i: int) -> float:
    """The middle of page i."""
    return left(i) + WIDE / 2


def short(number: int) -> str:
    """The end of a long number.

    >>> short(-3183897996957289079)
    '…079'
    """
    return BAR + str(number)[-3:]


def chain(drawing: Drawing, hashes: Sequence[int], row: int) -> None:
    """A row of hashes, each made of the one before and of its page: above the pages if `row` is 1, else beneath."""
    top = KEYS[row]
    y = top + LOW / 2
    drawing.text(LEFT - 34, y + 6, "0", size=SMALL, mono=True)
    drawing.arrow((LEFT - 24, y), (middle(0) - HALF - 3, y))
    for i, number in enumerate(hashes):
        drawing.box(Area(middle(i) - HALF, top, middle(i) + HALF, top + LOW), short(number), size=SMALL)
        start, end = (PAGES[0] + HIGH + 1, top - 3) if not row else (PAGES[1] - 1, top + LOW + 3)
        drawing.arrow((middle(i), start), (middle(i), end), stroke="faint")
        if i:
            drawing.arrow((middle(i - 1) + HALF + 1, y), (middle(i) - HALF - 3, y))


def legend(drawing: Drawing, y: float) -> None:
    """What the two colours of pages are, and what a hash is."""
    x = 18.0
    for fill, tint, words in (("cache", TINT, "in the cache"), ("cost", 1.0, "to be read")):
        drawing.rect(Area(x, y - 18, x + 30, y + 6), fill=fill, tint=tint, stroke="cache" if tint < 1 else "ink",
                     thick=1.4, radius=3)
        drawing.text(x + 38, y, words, size=SMALL, role="faint", anchor="start")
        x += 38 + text_width(words, SMALL) + 26
    drawing.box(Area(x, y - 20, x + 52, y + 8), BAR, size=SMALL)
    drawing.text(x + 60, y, "of its page and the hash before", size=SMALL, role="faint", anchor="start")


def told(names: tuple[str, str], known: Sequence[Page], asked: Sequence[Page], found: int,
         rows: tuple[list[int], list[int]]) -> str:
    """The description."""
    texts = [", ".join(page.text for page in pages) for pages in (known, asked)]
    chains = [", ".join(map(short, row)) for row in rows]
    return (f"Two questions, each in {len(known)} pages with a chain of hashes. {names[0]}, in the index: {texts[0]}; "
            f"hashes {chains[0]}. {names[1]}, asked now: {texts[1]}; hashes {chains[1]}. {found} of its pages is "
            f"found. The second has a new hash, and the lookup stops. The third has the same tokens, but another hash, "
            f"because the page before differs.")
