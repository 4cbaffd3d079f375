"""A long prompt among running answers: read at once it stalls them, read in chunks it stretches a few steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from course_lib.analysis.roofline import Machine, bound, decode_seconds
from course_lib.config import ModelConfig, require
from course_lib.costs import decode_bytes, flops_per_token, kv_bytes_per_token, prefill_flops
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.diagrams.phases import milliseconds

START, END, TICK, HIGH = 136, 696, 30, 142  # of a time line, from one of its rows to the next, and the rest of a panel
BEFORE, AFTER = 3, 4  # steps before the prompt arrives, and after the last piece of it is read


def shared_passes(prompt: int, chunk: int, config: ModelConfig, machine: Machine, running: int) -> list[float]:
    """Seconds of the passes that read a prompt piece by piece, a row of each running answer in every one of them.

    Args:
        prompt, chunk: tokens, and how many of them a pass takes.
        running: answers; their own texts are short.
    """
    rows = running * flops_per_token(config, 1).total
    seconds = []
    for before, after in pairwise([*range(0, prompt, chunk), prompt]):
        flops = rows + prefill_flops(config, after) - (prefill_flops(config, before) if before else 0)
        nbytes = decode_bytes(config, 1, batch_size=running) + after * kv_bytes_per_token(config)
        seconds.append(bound(flops, nbytes, machine))
    return seconds


def chunked_prefill(prompt: int, chunk: int, config: ModelConfig, machine: Machine, name: str, *,
                    running: int = 3) -> Drawing:
    """Running answers and a long prompt, read at once and in pieces: where no token comes, and when the first one does.

    Args:
        prompt, chunk: tokens, and how many are read in one pass, together with a row of each answer.
        config, machine, name: of the model, whose weights have 16 bits.
        running: answers, up to four.
    """
    require(2 <= running <= 4, "running", running, "2 to 4")
    require(0 < chunk < prompt, "chunk", chunk, f"in [1, {prompt - 1}]")
    panels = [shared_passes(prompt, size, config, machine, running) for size in (prompt, chunk)]
    step = decode_seconds(config, 1, machine, batch_size=running)
    drawing = Drawing("A long prompt at once and in chunks",
                      f"{running} running answers, a tick for each of their tokens, and a prompt of {prompt:,} tokens. "
                      f"Prefilled at once, it is one long block; above it no answer has a tick for "
                      f"{milliseconds(max(panels[0]))}. In chunks of {chunk} it is {len(panels[1])} short blocks, each "
                      f"of which ends with a tick of every answer, {milliseconds(max(panels[1]))} apart at most. Its "
                      f"own first token comes after {milliseconds(sum(panels[1]))} instead of "
                      f"{milliseconds(sum(panels[0]))}.", height=2 * (HIGH + TICK * running) + 20)
    drawing.text(END, 34, "a tick: one token", size=SMALL, role="faint", anchor="end")
    scale = (END - START) / (step * (BEFORE + AFTER) + max(map(sum, panels)))
    headings = "prefill at once", f"prefill in chunks of {chunk}"
    for top, panel, words in zip((0, HIGH + TICK * running), panels, headings):
        drawing.text(14, top + 34, words, bold=True, anchor="start")
        one_panel(drawing, top + 64, [seconds * scale for seconds in panel], step * scale, running)
        drawing.text(START + BEFORE * step * scale + sum(panel) * scale, top + 112 + TICK * running,
                     f"first token after {milliseconds(sum(panel))}", size=SMALL)
        no_token(drawing, top + 64, START + BEFORE * step * scale, panel, scale)
    drawing.text(360, drawing.height - 18, f"{name} on one {machine.name}, prompt of {prompt:,} tokens, at best",
                 size=SMALL, role="faint")
    return drawing


def one_panel(drawing: Drawing, top: float, passes: Sequence[float], step: float, running: int) -> None:
    """Ticks of the answers over the blocks of the prompt; all lengths in units of the drawing."""
    bottom, arrival = top + TICK * running, START + BEFORE * step
    edges = list(accumulate(passes, initial=arrival))
    later = [edges[-1] + step * i for i in range(1, int((END - edges[-1]) / step + 0.01) + 1)]
    for row in range(running):
        y = top + TICK * row + 11
        drawing.text(14, y + 6, f"answer {row + 1}", size=SMALL, anchor="start")
        drawing.path([(START, y), (END, y)], stroke="line", thick=1)
        for x in [arrival - step * i for i in range(1, BEFORE)] + edges + later:
            drawing.path([(x, y - 9), (x, y + 9)], thick=4)
    drawing.text(14, bottom + 20, "new prompt", size=SMALL, anchor="start")
    for left, right in pairwise(edges):
        drawing.rect(Area(left, bottom + 2, right, bottom + 26), fill="cost", stroke="ink", thick=1, radius=0)
    drawing.circle(edges[-1], bottom + 14, 7, fill="mark", stroke="ink")


def no_token(drawing: Drawing, top: float, arrival: float, passes: Sequence[float], scale: float) -> None:
    """A bracket over the longest pass, and how long it is."""
    longest = max(range(len(passes)), key=passes.__getitem__)
    left = arrival + sum(passes[:longest]) * scale
    right = left + passes[longest] * scale
    drawing.path([(left, top - 12), (left, top - 6), (right, top - 6), (right, top - 12)], thick=1.6)
    drawing.text((left + right) / 2, top - 18, f"no token for {milliseconds(passes[longest])}", size=SMALL, bold=True)
