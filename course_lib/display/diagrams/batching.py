"""Batches: rows padded to the longest, and slots that are idle in a static batch and filled in a continuous one."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.analysis.slots import Cell, Pass, Request, continuous, static
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.paging import BlockManager
from course_lib.scheduler import Scheduler

LEFT, ROW = 108, 46  # of padded prompts: where the columns begin, and how far rows are apart
EDGE, RIGHT, TOP = 84, 694, 56  # of slots: where time begins and ends, and where the first row is
HIGH, APART = 34, 40  # a row, and how far rows are apart


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
