"""Batches: prompts padded to the longest, slots that are idle or filled again, and a pass that is one row of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.analysis.slots import TOKEN, Cell, Pass, Request, continuous, static
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.diagrams.pages import places
from course_lib.display.diagrams.sharing import SIZE
from course_lib.paging import BlockManager, BlockTable
from course_lib.scheduler import Batch, Scheduler, Work

LEFT, ROW = 108, 46  # of padded prompts: where the columns begin, and how far rows are apart
EDGE, RIGHT, TOP = 84, 694, 56  # of slots: where time begins and ends, and where the first row is
HIGH, APART = 34, 40  # a row, and how far rows are apart
START, END, SHEET = 18, 702, 34  # of one row: where it begins and ends, and how far pages are apart


def padding(lengths: Sequence[int]) -> Drawing:
    """Prompts padded to the longest, on the left, so that all end where their next token comes.

    Args:
        lengths: of three to six prompts, in tokens, up to 14.
    """
    require(3 <= len(lengths) <= 6, "len(lengths)", len(lengths), "3 to 6")
    require(all(1 <= n <= 14 for n in lengths), "lengths", list(lengths), "1 to 14")
    longest, real = max(lengths), sum(lengths)
    total = longest * len(lengths)
    lost, share = total - real, f"{100 * (total - real) / total:.0f} %"
    drawing = Drawing("Prompts padded to the longest",
                      f"{len(lengths)} prompts of {', '.join(map(str, lengths[:-1]))} and {lengths[-1]} tokens in one "
                      f"batch, a row for each. Every row is filled with hatched squares on the left until it is as "
                      f"long as the longest, {longest}. All rows end at the same place, where the next token comes. "
                      f"The model computes {total} squares: {real} tokens and {lost} of padding, {share} for nothing.",
                      height=104 + ROW * len(lengths))
    cell = (RIGHT - 136 - LEFT) / longest
    end = LEFT + cell * longest
    for x, words in ((end + 12 + cell / 2, "next"), (RIGHT - 34, "padding")):
        drawing.text(x, 36, words, size=SMALL, role="faint")
    drawing.text(LEFT, 36, "what the model computes", size=SMALL, role="faint", anchor="start")
    for row, n in enumerate(lengths):
        top = 52 + ROW * row
        drawing.text(LEFT - 14, top + 25, f"prompt {row + 1}", size=SMALL, anchor="end")
        for i in range(longest):
            pad = i < longest - n
            drawing.rect(Area(LEFT + cell * i + 1.5, top, LEFT + cell * (i + 1) - 1.5, top + 36),
                         fill="plain" if pad else "latency", stroke="faint" if pad else "ink", thick=1.4, radius=3,
                         hatched=pad)
        drawing.rect(Area(end + 12, top, end + 12 + cell - 3, top + 36), fill="mark", stroke="ink", thick=1.4,
                     radius=3)
        drawing.text(RIGHT - 34, top + 25, str(longest - n) if n < longest else "–")
    y = 52 + ROW * len(lengths)
    drawing.path([(LEFT, y + 2), (RIGHT, y + 2)], stroke="line", thick=1)
    drawing.text(LEFT, y + 30, f"{total} squares computed, {lost} for nothing: {share}", anchor="start",
                 bold=True)
    return drawing


def slots(requests: Sequence[Request], num_slots: int) -> Drawing:
    """The same requests in static batches and in continuous ones: what each slot does in each pass.

    Args:
        requests: four to nine, named by a letter; all wait from the beginning.
        num_slots: rows of the batch.
    """
    def scheduler() -> Scheduler:
        return Scheduler(BlockManager(1000, 16), max_num_seqs=num_slots)

    above, below = static(scheduler(), requests), continuous(scheduler(), requests)
    require(len(below) < len(above) <= 24, "requests", list(requests), "faster in continuous batches, 24 passes")
    pitch = (RIGHT - EDGE) / len(above)
    second = TOP + APART * num_slots + 96
    drawing = Drawing("Static batches and continuous batching", told(requests, num_slots, above, below),
                      height=second + APART * num_slots + 92)
    for name, top, run in (("static: all wait for the slowest", TOP, above),
                           ("continuous: a free slot is taken at once", second, below)):
        drawing.text(18, top - 18, name, bold=True, anchor="start")
        for slot in range(num_slots):
            drawing.text(18, top + APART * slot + 23, f"slot {slot + 1}", size=SMALL, anchor="start", role="faint")
            lane(drawing, [one.cells[slot] for one in run], Area(EDGE, top + APART * slot, RIGHT, 0), pitch)
        finish(drawing, run, top, pitch)
    x = EDGE + pitch * next(i for i, one in enumerate(above) if requests[num_slots].request_id in taken(one))
    drawing.path([(x, TOP - 10), (x, TOP + APART * num_slots)], thick=3, dashed=True)
    drawing.text(x + 8, TOP - 18, "next batch", size=SMALL, anchor="start")
    saved, y = len(above) - len(below), second + APART * num_slots / 2
    drawing.arrow((RIGHT, y), (EDGE + pitch * len(below) + 12, y), thick=3.4)
    drawing.text(EDGE + pitch * (len(below) + saved / 2), y - 14, f"{saved} passes earlier", size=SMALL, bold=True)
    legend(drawing, second + APART * num_slots + 66)
    return drawing


def taken(one: Pass) -> list[str]:
    """Who has a slot in a pass."""
    return [cell.request_id for cell in one.cells if cell]


def lane(drawing: Drawing, cells: Sequence[Cell | None], place: Area, pitch: float) -> None:
    """A slot: a bar for each request that is in it, hatching where nobody is."""
    for name, first, last in stretches([cell and cell.request_id for cell in cells]):
        area = Area(place.left + pitch * first + 1, place.top, place.left + pitch * last - 1, place.top + HIGH)
        if name is None:
            drawing.rect(area, fill="plain", stroke="faint", thick=1.2, hatched=True, radius=2)
            continue
        drawing.rect(area, fill="latency", stroke="ink", thick=1.4, radius=3)
        drawing.rect(area._replace(right=area.left + pitch - 1), fill="cost", stroke="ink", thick=1.4, radius=3)
        for i in range(first + 2, last):
            x = place.left + pitch * i
            drawing.path([(x, area.top + 1), (x, area.bottom - 1)], stroke="paper", thick=1.4)
        drawing.text(area.left + pitch / 2 - 1, area.top + 24, name, bold=True)
        drawing.text(area.right - pitch / 2 + 1, area.top + 23, str(last), size=SMALL)


def finish(drawing: Drawing, run: Sequence[Pass], top: float, pitch: float) -> None:
    """Where the last request ends, and what was idle until then."""
    end, foot = EDGE + pitch * len(run) + 3, top + APART * len(run[0].cells)
    lost, cells = idle(run)
    drawing.path([(end, top - 8), (end, foot + 8)], thick=4)
    drawing.text(end, foot + 28, f"{len(run)} passes, {lost} of {cells} slots idle", anchor="end", bold=True)


def legend(drawing: Drawing, y: float) -> None:
    """What the three kinds of cells are."""
    x = 18.0
    for fill, words, number in (("cost", "reads its prompt", "A"), ("latency", "writes; ends in pass 5", "5"),
                                ("plain", "idle", "")):
        drawing.rect(Area(x, y - 18, x + 30, y + 8), fill=fill, stroke="ink" if number else "faint", thick=1.4,
                     radius=3, hatched=not number)
        drawing.text(x + 15, y + 1, number, size=SMALL, bold=number == "A") if number else None
        drawing.text(x + 40, y + 1, words, size=SMALL, role="faint", anchor="start")
        x += 40 + text_width(words, SMALL) + 40


def stretches(names: Sequence[str | None]) -> list[tuple[str | None, int, int]]:
    """Runs of the same name: it, where it begins, and where the next one does.

    >>> stretches(["A", "A", None, "B"])
    [('A', 0, 2), (None, 2, 3), ('B', 3, 4)]
    """
    found, first = [], 0
    for i in range(1, len(names) + 1):
        if i == len(names) or names[i] != names[first]:
            found.append((names[first], first, i))
            first = i
    return found


def idle(run: Sequence[Pass]) -> tuple[int, int]:
    """Cells in which a slot does nothing, and all cells."""
    return sum(cell is None for one in run for cell in one.cells), sum(len(one.cells) for one in run)


def told(requests: Sequence[Request], num_slots: int, above: Sequence[Pass], below: Sequence[Pass]) -> str:
    """The description of both time lines."""
    (lost, cells), (less, fewer) = idle(above), idle(below)
    each = ", ".join(f"{r.request_id} {r.answer}" for r in requests)
    return (f"{len(requests)} requests in {num_slots} slots; passes that each needs: {each}. Static: the second "
            f"{num_slots} begin when the slowest of the first has ended: {len(above)} passes, {lost} of "
            f"{cells} slots idle. Continuous: a slot takes the next request in the pass after it is free: {len(below)} "
            f"passes, {less} of {fewer} slots idle.")


def mixed_pass(lengths: Sequence[int], prompt: int) -> Batch:
    """A pass in which some texts get their next token, and a new one reads its prompt."""
    scheduler, names = Scheduler(BlockManager(64, SIZE), max_num_seqs=len(lengths) + 1), iter("ABCDE")
    for i, n in enumerate(lengths):
        scheduler.add(next(names), [i] * (n - 1), max_tokens=2)
    scheduler.update(scheduler.schedule(), [TOKEN] * len(lengths))
    scheduler.add(next(names), [len(lengths)] * prompt, max_tokens=2)
    return scheduler.schedule()


def one_row(lengths: Sequence[int], prompt: int) -> Drawing:
    """The new tokens of all texts in one row: products take the row as a whole, attention each text with its pages.

    Args:
        lengths: of two to four texts that write, in tokens with the newest, 2 to 12.
        prompt: tokens of the one that reads, 2 to 8.
    """
    require(2 <= len(lengths) <= 4 and all(2 <= n <= 12 for n in lengths), "lengths", list(lengths),
            "2 to 4 numbers in [2, 12]")
    require(2 <= prompt <= 8, "prompt", prompt, "in [2, 8]")
    batch = mixed_pass(lengths, prompt)
    *writers, reader = batch.work
    names, new = [one.sequence.request_id for one in writers], reader.sequence.request_id
    held = [f"{one.sequence.request_id} {len(one.sequence.table.block_ids)}" for one in batch.work]
    n, pages = batch.num_tokens, max(len(one.sequence.table.block_ids) for one in batch.work)
    drawing = Drawing("A pass as one row of tokens",
                      f"The {n} new tokens of a pass lie in one row, without padding: one each of {', '.join(names)}, "
                      f"which write, then {prompt} of {new}, which reads its prompt. Norms and products take the row "
                      f"as a whole, and read the weights once. Then attention goes text by text, an arrow from each to "
                      f"its own pages of {SIZE} tokens: {', '.join(held)}.", height=292 + SHEET * pages)
    drawing.text(START, 34, f"one pass, one row: {n} new tokens, no padding", bold=True, anchor="start")
    pitch, left = (END - START) / n, float(START)
    for one in batch.work:
        area = Area(left, 50, left + pitch * one.num_tokens, 94)
        newest(drawing, area, one)
        attention(drawing, area, pitch, one.sequence.table)
        left = area.right
    drawing.box(Area(START, 108, END, 152), "norms and products: the whole row, weights read once", role="weights",
                mono=False)
    drawing.text(START, 190, "attention: each text with its own pages", bold=True, anchor="start")
    x, y = float(START), 242 + SHEET * pages + 30
    for fill, words in (("latency", "newest token of a text that writes"), ("cost", "token of a prompt")):
        drawing.rect(Area(x, y - 18, x + 26, y + 6), fill=fill, stroke="ink", thick=1.4, radius=3)
        drawing.text(x + 36, y, words, size=SMALL, role="faint", anchor="start")
        x += 36 + text_width(words, SMALL) + 40
    return drawing


def newest(drawing: Drawing, area: Area, work: Work) -> None:
    """The new tokens of a text in the row, its name on each."""
    pitch = (area.right - area.left) / work.num_tokens
    for i in range(work.num_tokens):
        left = area.left + pitch * i
        drawing.rect(area._replace(left=left + 2, right=left + pitch - 2), stroke="ink", thick=1.4, radius=3,
                     fill="latency" if work.num_tokens == 1 else "cost")
        drawing.text(left + pitch / 2, area.top + 29, work.sequence.request_id, bold=True)


def attention(drawing: Drawing, area: Area, pitch: float, table: BlockTable) -> None:
    """An arrow from a text's part of the row to its pages, each as wide as a token."""
    middle = (area.left + area.right) / 2
    drawing.path([(area.left + 6, 204), (area.left + 6, 210), (area.right - 6, 210), (area.right - 6, 204)])
    drawing.arrow((middle, 210), (middle, 236))
    for i in range(len(table.block_ids)):
        top = 242 + SHEET * i
        page = Area(middle - pitch / 2 + 3, top, middle + pitch / 2 - 3, top + SHEET - 6)
        drawing.rect(page, fill="paper", stroke="cache", radius=4)
        inner = Area(page.left + 3, page.top + 4, page.right - 3, page.bottom - 4)
        places(drawing, inner, SIZE, min(SIZE, table.num_tokens - SIZE * i))
