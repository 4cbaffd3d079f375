"""Memory in pages: block tables against room reserved in advance."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.views import count
from course_lib.paging import BlockManager, BlockTable

LEFT, RIGHT = 58, 696  # where rows begin and end
TINT = 0.5  # of what is held
NAMES = ("A", "B")


def places(drawing: Drawing, area: Area, n: int, used: int) -> None:
    """Room for n tokens: solid where one is, hatched where none is yet."""
    pitch = (area.right - area.left) / n
    for i in range(n):
        cell = Area(area.left + pitch * i + 1, area.top, area.left + pitch * (i + 1) - 1, area.bottom)
        if i < used:
            drawing.rect(cell, fill="cache", tint=TINT, stroke="cache", thick=1.4, radius=2)
        else:
            drawing.rect(cell, fill="plain", stroke="faint", thick=1, radius=2, hatched=True)


def scattered(lengths: tuple[int, int], num_blocks: int, block_size: int) -> tuple[BlockManager, list[BlockTable]]:
    """Two requests that have grown beside others, which have ended since."""
    blocks = BlockManager(num_blocks, block_size)
    ended, a, gone, b = (blocks.allocate([i] * n) for i, n in enumerate((2 * block_size, 1, block_size, 1)))
    for _ in range(block_size):
        blocks.append(a)
    blocks.free(ended)
    for table, n in ((b, lengths[1]), (a, lengths[0])):
        while table.num_tokens < n:
            blocks.append(table)
    blocks.free(gone)
    return blocks, [a, b]


def block_tables(lengths: tuple[int, int], *, num_blocks: int = 10, block_size: int = 4,
                 max_length: int = 24) -> Drawing:
    """Two requests with room reserved for the longest text, and the same two in pages.

    Args:
        lengths: tokens of both, more than a page and up to half of `max_length`.
        num_blocks: pages of the pool.
        block_size: tokens of a page.
        max_length: tokens that are reserved for each request without pages.
    """
    require(all(block_size < n <= max_length / 2 for n in lengths), "lengths", lengths, "> block_size, up to half")
    blocks, tables = scattered(lengths, num_blocks, block_size)
    used = sum(lengths)
    reserved, paged = 2 * max_length, blocks.num_used_blocks * block_size
    said = "; ".join(f"{name} has pages {', '.join(map(str, table.block_ids))}" for name, table in zip(NAMES, tables))
    drawing = Drawing("Block tables and a pool of pages",
                      f"Request A has {lengths[0]} tokens, B {lengths[1]}. Above, each has a row of {max_length} "
                      f"places reserved: {reserved - used} of {reserved} are empty, hatched. Below, a pool of "
                      f"{num_blocks} pages of {block_size} tokens, lying anywhere. Arrows lead from each block table "
                      f"to its pages: {said}. {paged - used} of {paged} places are empty, and "
                      f"{count(blocks.num_free_blocks, 'page')} are free.", height=560)
    drawing.text(18, 36, f"reserved in advance: {max_length} places each", bold=True, anchor="start")
    for i, (name, n) in enumerate(zip(NAMES, lengths)):
        top = 54 + 46 * i
        drawing.text(36, top + 25, name, bold=True)
        places(drawing, Area(LEFT, top, RIGHT, top + 36), max_length, n)
    drawing.text(RIGHT, 170, f"{reserved} places taken, {reserved - used} empty", anchor="end", bold=True)
    drawing.text(18, 236, f"pages of {block_size}, taken when they are needed", bold=True, anchor="start")
    pool(drawing, tables, num_blocks, block_size)
    drawing.text(RIGHT, 536, f"{paged} places taken, {paged - used} empty", anchor="end", bold=True)
    return drawing


def pool(drawing: Drawing, tables: Sequence[BlockTable], num_blocks: int, block_size: int) -> None:
    """Both block tables, the pages in their order in memory, and arrows from an entry to its page."""
    pitch = (RIGHT - LEFT + 30) / num_blocks
    pages = {block_id: (i, min(block_size, table.num_tokens - block_size * at))
             for i, table in enumerate(tables) for at, block_id in enumerate(table.block_ids)}
    middles = [LEFT - 30 + pitch * (block_id + 0.5) for block_id in range(num_blocks)]
    for block_id, x in enumerate(middles):
        area = Area(x - pitch / 2 + 4, 412, x + pitch / 2 - 4, 478)
        drawing.rect(area, fill="paper", stroke="cache" if block_id in pages else "line", radius=4)
        drawing.text(x, 500, str(block_id), size=SMALL, role="faint")
        if block_id in pages:
            i, n = pages[block_id]
            places(drawing, Area(area.left + 4, 446, area.right - 4, 472), block_size, n)
            drawing.text(x, 436, NAMES[i], size=SMALL, bold=True)
        else:
            drawing.text(x, 451, "free", size=SMALL, role="faint")
    for i, table in enumerate(tables):
        left = (118, 470)[i]
        drawing.text(left - 12, 290, f"{NAMES[i]}'s table", size=SMALL, bold=True, anchor="end")
        for at, block_id in enumerate(table.block_ids):
            area = Area(left + 46 * at, 266, left + 46 * (at + 1), 304)
            drawing.rect(area, fill="cache", tint=TINT, stroke="cache", radius=0)
            drawing.text((area.left + area.right) / 2, 291, str(block_id), bold=True)
            drawing.arrow(((area.left + area.right) / 2, 308), (middles[block_id], 407), stroke="faint")
