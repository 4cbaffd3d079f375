"""Pages that several requests share, and pages that one of them loses to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.analysis.slots import Cell, Pass, Request, continuous
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.diagrams.pages import TINT, places
from course_lib.paging import BlockManager, BlockTable
from course_lib.scheduler import Scheduler

EDGE, PAGE, GAP = 56, 150, 10  # of tables: where pages begin, a page, and between two
TOP, LINE = 124, 68  # the first table, and how far tables are apart
SIZE = 4  # tokens of a page
TIME, END, HEAD, ROW, TALL = 112, 698, 84, 44, 250  # of a time line; its first row; its upper part


class Shared(NamedTuple):
    """Four tables with one beginning.

    Attributes:
        blocks: the pages.
        tables: of three requests, and of a fork of the last one that has written a token since.
        copy: (source, target) of that token.
        alone: pages that they would take without sharing.
    """

    blocks: BlockManager
    tables: list[BlockTable]
    copy: tuple[int, int]
    alone: int


def share(system: int, questions: Sequence[int]) -> Shared:
    """Three requests with the same first tokens, one after the other, and a fork of the last that writes."""
    blocks, tables = BlockManager(20, SIZE), []
    for i, n in enumerate(questions):
        ids = [*range(system), *(100 * (i + 1) + j for j in range(n))]
        tables.append(blocks.allocate(ids))
        blocks.cache_full_blocks(tables[-1], ids, len(ids))
    tables.append(blocks.fork(tables[-1]))
    copy = blocks.append(tables[-1])
    return Shared(blocks, tables, copy, sum(blocks.blocks_for(table.num_tokens) for table in tables))


def shared_prefix(system: int = 8, questions: tuple[int, int, int] = (3, 6, 2)) -> Drawing:
    """Requests with one system prompt: pages in common, their hashes in a chain, and a copy at the first write.

    Args:
        system: tokens of the system prompt: two full pages.
        questions: tokens of each request's own; the last one ends inside of a page.
    """
    require(system == 2 * SIZE, "system", system, f"{2 * SIZE}, two full pages")
    require(all(1 <= n <= 2 * SIZE for n in questions) and questions[-1] < SIZE, "questions", questions,
            f"1 to {2 * SIZE}, the last < {SIZE}")
    made = share(system, questions)
    used, users = made.blocks.num_used_blocks, len(made.tables)
    common = made.tables[0].block_ids[:2]
    drawing = Drawing("Pages that requests share",
                      f"Requests A, B, C with one system prompt of {system} tokens, and D, a second answer to C. The "
                      f"2 pages of the system prompt are drawn once, over all {users} rows. Their hashes are chained: "
                      f"the second is made of the first and of its own tokens. Each question has pages of its own. D "
                      f"shared C's last page until it wrote: then it got a copy. {used} pages instead of {made.alone}.",
                      height=TOP + LINE * users + 62)
    hashes(drawing)
    for i, block_id in enumerate(common):
        area = Area(at(i), TOP, at(i) + PAGE, TOP + LINE * users - 12)
        drawing.rect(area, fill="cache", tint=TINT, stroke="cache")
        x, y = (area.left + area.right) / 2, (area.top + area.bottom) / 2
        drawing.text(x, y - 10, f"tokens {SIZE * i + 1} to {SIZE * i + SIZE}", size=SMALL)
        drawing.text(x, y + 22, f"in {made.blocks.ref_counts[block_id]} tables", bold=True)
    for row, table in enumerate(made.tables):
        drawing.text(EDGE - 16, TOP + LINE * row + 36, "ABCD"[row], bold=True, anchor="end")
        for i, block_id in enumerate(table.block_ids[2:]):
            own(drawing, Area(at(i + 2), TOP + LINE * row, at(i + 2) + PAGE, TOP + LINE * row + LINE - 12),
                min(SIZE, table.num_tokens - SIZE * (i + 2)), copied=block_id == made.copy[1])
    fork(drawing, TOP + LINE * (users - 2))
    drawing.text(EDGE, TOP + LINE * users + 30, f"{used} pages instead of {made.alone}", anchor="start", bold=True)
    drawing.text(at(2), TOP + LINE * users + 30, "D: a second answer to C", size=SMALL, anchor="start", role="faint")
    return drawing


def at(i: int) -> float:
    """Where page i of a text begins."""
    return EDGE + (PAGE + GAP) * i


def hashes(drawing: Drawing) -> None:
    """The chain over the first two pages, and what the columns are."""
    drawing.text(at(0), 34, "system prompt: one copy", bold=True, anchor="start")
    drawing.text(at(2), 34, "questions: own pages", bold=True, anchor="start")
    middles = [at(i) + PAGE / 2 for i in range(2)]
    for x, words in zip(middles, ("h1", "h2")):
        drawing.box(Area(x - 32, 56, x + 32, 92), words, size=SMALL)
        drawing.arrow((x, TOP - 2), (x, 96), stroke="faint")
    drawing.text(EDGE - 16, 80, "0", mono=True, anchor="end", size=SMALL)
    drawing.arrow((EDGE - 10, 74), (middles[0] - 36, 74))
    drawing.arrow((middles[0] + 34, 74), (middles[1] - 36, 74))
    drawing.text(middles[1] + 46, 80, "h2 = hash(h1, tokens of the page)", size=SMALL, anchor="start")


def own(drawing: Drawing, area: Area, n: int, *, copied: bool) -> None:
    """A page that one request has for itself."""
    drawing.rect(area, fill="paper", stroke="cache", dashed=copied)
    inner = Area(area.left + 6, area.top + 8, area.right - 6, area.bottom - 8)
    places(drawing, inner, SIZE, n)
    if copied:  # its newest token is the one that made it necessary
        pitch = (inner.right - inner.left) / SIZE
        left = inner.left + pitch * (n - 1)
        drawing.rect(Area(left + 1, inner.top, left + pitch - 1, inner.bottom), fill="mark", stroke="ink", thick=1.6,
                     radius=2)


def fork(drawing: Drawing, top: float) -> None:
    """The page that is copied when the fork writes."""
    x = at(2) + PAGE + 4
    drawing.path([(x, top + 28), (x + 24, top + 28), (x + 24, top + LINE + 28), (x + 3, top + LINE + 28)], arrow=True)
    drawing.text(x + 36, top + 50, "copied when", size=SMALL, anchor="start")
    drawing.text(x + 36, top + 72, "D writes", size=SMALL, anchor="start")


def preemption(requests: Sequence[Request], num_blocks: int) -> Drawing:
    """Memory is full: the newest request gives up its pages, waits, and reads all of its text again.

    Args:
        requests: three, of which the last one loses its pages once.
        num_blocks: pages of four tokens.
    """
    blocks = BlockManager(num_blocks, SIZE, enable_prefix_caching=False)
    run = continuous(Scheduler(blocks, max_num_seqs=len(requests)), requests)
    lost = [i for i, one in enumerate(run) if one.preempted]
    back = [(i, cell) for i, one in enumerate(run) for cell in one.cells if cell and cell.kind == "again"]
    require(len(lost) == len(back) == 1 and run[lost[0]].preempted == (requests[-1].request_id,), "requests",
            list(requests), "such that the last one loses its pages, once")
    (out,), ((into, cell),) = lost, back
    held = pages_of(run, [request.request_id for request in requests])
    name, twice, gone = cell.request_id, cell.num_tokens - 1, held[out - 1][-1]
    drawing = Drawing("Preemption by recomputation",
                      f"{len(requests)} requests on {num_blocks} pages of {SIZE} tokens, a column for each of "
                      f"{len(run)} passes: above what each request does, below the pages in use. In pass {out} all "
                      f"pages are taken. For the next token {name}, the newest, gives up its {gone} pages, and waits "
                      f"for {into - out} passes. In pass {into + 1} there is room: it reads all of its "
                      f"{cell.num_tokens} tokens, {twice} of them for the second time, and continues writing.",
                      height=TALL + 290)
    pitch = (END - TIME) / len(run)
    drawing.text(18, 32, f"{num_blocks} pages of {SIZE} tokens for {len(requests)} requests", bold=True,
                 anchor="start")
    drawing.text(18, 66, "pass", size=SMALL, role="faint", anchor="start")
    for i in range(len(run)):
        drawing.text(TIME + pitch * (i + 0.5), 66, str(i + 1), size=SMALL, role="faint")
    for row, request in enumerate(requests):
        y = HEAD + ROW * row
        drawing.text(18, y + 24, f"request {request.request_id}", size=SMALL, anchor="start")
        cells = [next((c for c in one.cells if c and c.request_id == request.request_id), None) for one in run]
        life(drawing, cells, y, pitch)
    y = HEAD + ROW * (len(requests) - 1)
    area = Area(TIME + pitch * out + 1, y, TIME + pitch * into - 1, y + 36)
    drawing.rect(area, fill="plain", stroke="faint", thick=1.4, hatched=True, radius=3)
    middle, half = (area.left + area.right) / 2, text_width("waits", SMALL) / 2 + 5
    drawing.rect(Area(middle - half, y + 6, middle + half, y + 30), fill="paper", radius=3)
    drawing.text(middle, y + 24, "waits", size=SMALL)
    cost(drawing, TIME + pitch * out, TIME + pitch * (into + 1), y + 44,
         (f"{name} ends {into - out} passes later,", f"and reads {twice} tokens a second time"))
    kinds(drawing, HEAD + ROW * len(requests) + 92)
    levels(drawing, held, num_blocks, pitch, name)
    return drawing


def pages_of(run: Sequence[Pass], names: Sequence[str]) -> list[list[int]]:
    """The pages that each request has in each pass."""
    tokens, made = dict.fromkeys(names, 0), []
    for one in run:
        tokens |= dict.fromkeys(one.preempted, 0)
        for cell in filter(None, one.cells):
            tokens[cell.request_id] += cell.num_tokens
        made.append([-(-tokens[name] // SIZE) for name in names])
        tokens |= dict.fromkeys(one.finished, 0)
    return made


def life(drawing: Drawing, cells: Sequence[Cell | None], y: float, pitch: float) -> None:
    """A request: the passes that read its text with the number of tokens, and those that write."""
    for i, cell in enumerate(cells):
        if cell:
            area = Area(TIME + pitch * i + 1, y, TIME + pitch * (i + 1) - 1, y + 36)
            drawing.rect(area, fill="latency" if cell.kind == "decode" else "cost", stroke="ink",
                         thick=3 if cell.kind == "again" else 1.4, radius=3)
            if cell.kind != "decode":
                drawing.text((area.left + area.right) / 2, y + 24, str(cell.num_tokens), size=SMALL, bold=True)


def kinds(drawing: Drawing, y: float) -> None:
    """What the boxes of the time line are."""
    x = 18.0
    for fill, number, words in (("cost", "6", "reads 6 tokens, and writes one"), ("latency", "", "writes one token")):
        drawing.rect(Area(x, y - 20, x + 36, y + 8), fill=fill, stroke="ink", thick=1.4, radius=3)
        drawing.text(x + 18, y, number, size=SMALL, bold=True) if number else None
        drawing.text(x + 46, y, words, size=SMALL, role="faint", anchor="start")
        x += 46 + text_width(words, SMALL) + 36


def cost(drawing: Drawing, left: float, right: float, y: float, words: Sequence[str]) -> None:
    """A stretch of the time line, and what it is."""
    drawing.path([(left + 2, y), (left + 2, y + 10), (right - 2, y + 10), (right - 2, y)])
    for i, line in enumerate(words):
        drawing.text((left + right) / 2, y + 34 + 24 * i, line, size=SMALL, bold=not i)


def levels(drawing: Drawing, held: Sequence[Sequence[int]], num_blocks: int, pitch: float, newest: str) -> None:
    """Pages in use in each pass, those of the newest request on top, under the line of all that there are."""
    base, slip = TALL + 242, 17
    for i, pages in enumerate(held):
        left, n = TIME + pitch * i, sum(pages)
        for page in range(n):
            y = base - slip * page
            own = page >= n - pages[-1]
            drawing.rect(Area(left + 3, y - slip + 2, left + pitch - 3, y), fill="mark" if own else "cache",
                         tint=1.0 if own else TINT, stroke="ink" if own else "cache", thick=1, radius=2)
        drawing.text(left + pitch / 2, base + 24, str(n), size=SMALL, bold=n == num_blocks)
        if n == num_blocks:
            drawing.text(left + pitch / 2, base - slip * n - 12, "full", size=SMALL, bold=True)
    top = base - slip * num_blocks - 3
    drawing.path([(TIME - 6, top), (END + 6, top)], dashed=True)
    drawing.text(18, top + 6, f"all {num_blocks}", size=SMALL, anchor="start", bold=True)
    drawing.text(18, base - 62, "pages", size=SMALL, anchor="start")
    drawing.text(18, base - 40, "in use", size=SMALL, anchor="start")
    drawing.rect(Area(18, base - 20, 44, base - 4), fill="mark", stroke="ink", thick=1, radius=2)
    drawing.text(52, base - 6, f"{newest}'s", size=SMALL, anchor="start")
