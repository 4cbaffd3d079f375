"""Pages that several requests share, the copy when one of them writes, and pages that one loses to the others."""

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
TOP, LINE = 52, 68  # the first table, and how far tables are apart
SIZE = 4  # tokens of a page
TIME, END, HEAD, ROW, TALL = 112, 698, 84, 44, 250  # of a time line; its first row; its upper part


class Shared(NamedTuple):
    """Tables with one beginning.

    Attributes:
        blocks: the pages.
        tables: of the requests.
        alone: pages that they would take without sharing.
    """

    blocks: BlockManager
    tables: list[BlockTable]
    alone: int


def share(system: int, questions: Sequence[int]) -> Shared:
    """Requests with the same first tokens, one after the other."""
    blocks, tables = BlockManager(20, SIZE), []
    for i, n in enumerate(questions):
        ids = [*range(system), *(100 * (i + 1) + j for j in range(n))]
        tables.append(blocks.allocate(ids))
        blocks.cache_full_blocks(tables[-1], ids, len(ids))
    return Shared(blocks, tables, sum(blocks.blocks_for(table.num_tokens) for table in tables))


def shared_prefix(system: int = 8, questions: tuple[int, int, int] = (3, 6, 2)) -> Drawing:
    """Requests with one system prompt: its pages are there once, and each question has pages of its own.

    Args:
        system: tokens of the system prompt: two full pages.
        questions: tokens of each request's own.
    """
    require(system == 2 * SIZE, "system", system, f"{2 * SIZE}, two full pages")
    require(all(1 <= n <= 2 * SIZE for n in questions), "questions", questions, f"1 to {2 * SIZE}")
    made = share(system, questions)
    used, users = made.blocks.num_used_blocks, len(made.tables)
    own_pages = [", ".join(map(str, questions[:-1])), questions[-1]]
    drawing = Drawing("Pages that requests share",
                      f"Requests A, B and C with one system prompt of {system} tokens, in pages of {SIZE}. The 2 pages "
                      f"of the system prompt are drawn once, over all {users} rows: they are in {users} block tables. "
                      f"The questions, of {own_pages[0]} and {own_pages[1]} tokens, have pages of their own. {used} "
                      f"pages instead of {made.alone}.", height=TOP + LINE * users + 50)
    drawing.text(at(0), 34, "system prompt: one copy", bold=True, anchor="start")
    drawing.text(at(2), 34, "questions: own pages", bold=True, anchor="start")
    for i in range(2):
        common(drawing, Area(at(i), TOP, at(i) + PAGE, TOP + LINE * users - 12),
               f"tokens {SIZE * i + 1} to {SIZE * i + SIZE}", made.blocks.ref_counts[made.tables[0].block_ids[i]])
    for row, table in enumerate(made.tables):
        drawing.text(EDGE - 16, TOP + LINE * row + 36, "ABC"[row], bold=True, anchor="end")
        for i in range(2, len(table.block_ids)):
            own(drawing, at(i), TOP + LINE * row, min(SIZE, table.num_tokens - SIZE * i))
    drawing.text(EDGE, TOP + LINE * users + 24, f"{used} pages instead of {made.alone}", anchor="start", bold=True)
    return drawing


def copy_on_write(tokens: int = 6) -> Drawing:
    """Two answers to one question: they share its pages, until the second writes into the last one.

    Args:
        tokens: of the question: a full page, and a part of another.
    """
    require(SIZE < tokens < 2 * SIZE, "tokens", tokens, f"> {SIZE}, < {2 * SIZE}")
    blocks = BlockManager(6, SIZE)
    first = blocks.allocate(range(tokens))
    second = blocks.fork(first)
    source, target = blocks.append(second)
    drawing = Drawing("Copy on write",
                      f"Two answers to one question of {tokens} tokens. Page {first.block_ids[0]}, which is full, is "
                      f"in both tables. They shared page {source} as well, until the second answer wrote a token: then "
                      f"it got a copy, page {target}, and its token went into that one.", height=2 * LINE + 24)
    x, top = 104, 18  # the rows have longer names
    common(drawing, Area(x, top, x + PAGE, top + 2 * LINE - 12), f"page {first.block_ids[0]}",
           blocks.ref_counts[first.block_ids[0]])
    x, right = x + PAGE + GAP, x + 2 * PAGE + GAP + 4
    for row, (name, words, n) in enumerate((("first", f"page {source}", tokens),
                                            ("second", f"page {target}, a copy", tokens + 1))):
        y = top + LINE * row
        drawing.text(x - PAGE - GAP - 14, y + 34, name, size=SMALL, bold=True, anchor="end")
        own(drawing, x, y, n - SIZE, copied=bool(row))
        drawing.text(right + 36, y + 34, words, size=SMALL, anchor="start")
    source_y, target_y = top + 28, top + LINE + 28
    drawing.path([(right, source_y), (right + 24, source_y), (right + 24, target_y), (right + 3, target_y)], arrow=True)
    return drawing


def at(i: int) -> float:
    """Where page i of a text begins."""
    return EDGE + (PAGE + GAP) * i


def common(drawing: Drawing, area: Area, words: str, users: int) -> None:
    """A page that several requests have, over all of their rows."""
    drawing.rect(area, fill="cache", tint=TINT, stroke="cache")
    x, y = (area.left + area.right) / 2, (area.top + area.bottom) / 2
    drawing.text(x, y - 10, words, size=SMALL)
    drawing.text(x, y + 22, f"in {users} tables", bold=True)


def own(drawing: Drawing, left: float, top: float, n: int, *, copied: bool = False) -> None:
    """A page of n tokens that one request has for itself."""
    area = Area(left, top, left + PAGE, top + LINE - 12)
    drawing.rect(area, fill="paper", stroke="cache", dashed=copied)
    inner = Area(area.left + 6, area.top + 8, area.right - 6, area.bottom - 8)
    places(drawing, inner, SIZE, n)
    if copied:  # its newest token is the one that made it necessary
        pitch = (inner.right - inner.left) / SIZE
        x = inner.left + pitch * (n - 1)
        drawing.rect(Area(x + 1, inner.top, x + pitch - 1, inner.bottom), fill="mark", stroke="ink", thick=1.6,
                     radius=2)


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
                      f"pages are taken. Then {name}, the newest, gives up its {gone} pages for the next token, and "
                      f"waits for {into - out} passes. In pass {into + 1} there is room: it reads all of its "
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
    cost(drawing, TIME + pitch * out, TIME + pitch * into, y + 44,
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
