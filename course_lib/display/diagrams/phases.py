"""Prefill and decode: passes that all read the same weights, and rows that share one reading of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.analysis.roofline import Machine, critical_batch
from course_lib.config import ModelConfig, require
from course_lib.costs import decode_bytes, flops_per_token, prefill_flops
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.views import count

SQUARE, LINES = 11, 4  # of a token in a pass, and how many lie on each other
PREFILL, DECODE, PITCH, PASSES = 112, 424, 86, 3  # where the passes begin, and how many that decode are drawn
BAR, ROW, EDGE, LONGEST = 26, 84, 124, 444  # of a batch: a bar, a line, where the time begins and how far it goes


def milliseconds(seconds: float) -> str:
    """A time with two digits.

    >>> milliseconds(0.00452), milliseconds(0.0000162), milliseconds(0.0619)
    ('4.5 ms', '0.016 ms', '62 ms')
    """
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{1e3 * seconds:,.0f} ms"


def two_phases(tokens: int, config: ModelConfig, machine: Machine, name: str) -> Drawing:
    """A wide pass over the prompt and narrow ones for the answer; each reads every weight once.

    Args:
        tokens: of the prompt, a multiple of four from 48 to 100, so few that reading takes longer than multiplying.
        config, machine, name: of the model, whose weights have 16 bits, and whose times are printed.
    """
    require(tokens % LINES == 0 and 48 <= tokens <= 100, "tokens", tokens, "a multiple of 4 from 48 to 100")
    nbytes = decode_bytes(config, tokens)
    require(prefill_flops(config, tokens) / machine.flops_per_s < nbytes / machine.bytes_per_s, "tokens", tokens,
            f"less than the machine multiplies while it reads {name}")
    weights, read = f"{nbytes / 1e9:.0f} GB", milliseconds(nbytes / machine.bytes_per_s)
    aside = "" if config.tie_word_embeddings else " without its embedding"
    many = milliseconds(prefill_flops(config, tokens) / machine.flops_per_s)
    one = milliseconds(flops_per_token(config, tokens).total / machine.flops_per_s)
    drawing = Drawing("Prefill and decode read the same weights",
                      f"{name} on one {machine.name}. Prefill is one wide pass over {tokens} tokens, decode is narrow "
                      f"passes of 1 token. From one grey stack, the weights{aside}, an equal stream of {weights} goes "
                      f"into every pass, wide or narrow. Each pass writes 1 token. Reading takes {read} in each; "
                      f"multiplying {many} in prefill, {one} in decode. The longer counts: {tokens} tokens take as "
                      f"long as 1.", height=456)
    weight_stack(drawing, f"the weights of {name}{aside}: {weights}")
    drawing.text(PREFILL, 34, f"prefill: {tokens} tokens at once", bold=True, anchor="start")
    drawing.text(DECODE, 34, "decode: 1 token a pass", bold=True, anchor="start")
    one_pass(drawing, Area(PREFILL, 162, PREFILL + SQUARE * tokens / LINES + 8, 214), tokens, (read, many))
    for left in (DECODE + PITCH * i for i in range(PASSES)):
        one_pass(drawing, Area(left, 162, left + 52, 214), 1, (read, one))
    for y in (195, 270, 324, 364):
        drawing.text(692, y, "…", size=24)
    drawing.text(360, 408, f"The longer counts: {tokens} tokens take as long as 1.", bold=True)
    drawing.text(360, 437, f"on one {machine.name}, at best", size=SMALL, role="faint")
    return drawing


def weight_stack(drawing: Drawing, words: str) -> None:
    """The weights over all passes, and what the lines beneath are about."""
    for lower in (12, 6, 0):
        drawing.rect(Area(PREFILL, 52 + lower, 694, 92 + lower), fill="paper", stroke="weights")
    drawing.rect(Area(PREFILL, 52, 694, 92), fill="weights", tint=0.45, stroke="weights")
    drawing.text((PREFILL + 694) / 2, 79, words)
    for y, line in ((138, "reads"), (194, "a pass"), (268, "writes"), (324, "to read"), (364, "to multiply")):
        drawing.text(14, y, line, size=SMALL, role="faint", anchor="start")
    for y in (300, 340):
        drawing.path([(14, y), (706, y)], stroke="line", thick=1)


def one_pass(drawing: Drawing, area: Area, tokens: int, times: tuple[str, str]) -> None:
    """A pass: the weights that come in, its tokens, the token that comes out, and the times to read and to multiply."""
    x = (area.left + area.right) / 2
    drawing.path([(x, 106), (x, 142)], stroke="weights", thick=14)
    drawing.path([(x - 15, 141), (x + 15, 141), (x, 159)], fill="weights", stroke="weights", thick=1, closed=True)
    drawing.rect(area, fill="paper", stroke="ink")
    lines = LINES if tokens > 1 else 1
    wide = SQUARE * tokens / lines
    for i in range(tokens):
        left, top = x - wide / 2 + SQUARE * (i // lines), (area.top + area.bottom - SQUARE * lines) / 2
        top += SQUARE * (i % lines)
        drawing.rect(Area(left + 1, top + 1, left + SQUARE - 1, top + SQUARE - 1), fill="latency", stroke="ink",
                     thick=0.8, radius=1)
    drawing.arrow((x, area.bottom + 2), (x, area.bottom + 36))
    drawing.rect(Area(x - 9, 253, x + 9, 271), fill="mark", stroke="ink", radius=2)
    drawing.text(x, 324, times[0], size=SMALL, bold=True)
    drawing.text(x, 364, times[1], size=SMALL)


class Step(NamedTuple):
    """A decode step of a batch.

    Attributes:
        rows: of the batch.
        read, multiply: seconds.
    """

    rows: int
    read: float
    multiply: float

    @property
    def seconds(self) -> float:
        """How long it takes at least."""
        return max(self.read, self.multiply)


def decode_step(rows: int, config: ModelConfig, machine: Machine) -> Step:
    """A step whose rows have no past: every weight once, and the FLOPs of each row; 16-bit weights."""
    one = flops_per_token(config, 1)
    weights = (one.dense + one.head) / 2  # those that are multiplied with
    return Step(rows, 2 * weights / machine.bytes_per_s, rows * 2 * weights / machine.flops_per_s)


def shared_reading(batches: Sequence[int], config: ModelConfig, machine: Machine, name: str) -> Drawing:
    """Batch by batch the time of reading, which stays, and of multiplying, which grows row by row.

    Args:
        batches: three or four numbers of rows, up to twice the critical batch; one of them is about critical.
        config, machine, name: of the model, whose weights have 16 bits.
    """
    critical = round(critical_batch(machine))
    require(3 <= len(batches) <= 4 and critical in batches, "batches", list(batches), f"3 or 4, with {critical}")
    require(max(batches) <= 32, "batches", list(batches), "up to 32 rows")
    steps = [decode_step(rows, config, machine) for rows in batches]
    scale = LONGEST / max(step.seconds for step in steps)
    drawing = Drawing("Rows that share one reading of the weights", told(steps, critical, machine, name),
                      height=92 + ROW * len(steps) + 76)
    for x, role, words in ((EDGE, "weights", "read the weights"), (EDGE + 214, "cost", "multiply, a square a row")):
        drawing.rect(Area(x, 22, x + 18, 40), fill=role, stroke="ink", thick=1, radius=2)
        drawing.text(x + 26, 38, words, size=SMALL, anchor="start")
    drawing.text(700, 76, "tokens/s", size=SMALL, role="faint", anchor="end")
    drawing.text(EDGE, 76, "time of one step", size=SMALL, role="faint", anchor="start")
    drawing.text(EDGE - 18, 76, "batch", size=SMALL, role="faint", anchor="end")
    for i, step in enumerate(steps):
        one_batch(drawing, 92 + ROW * i, step, scale)
    x, bottom = EDGE + scale * steps[0].read, 92 + ROW * len(steps)
    drawing.path([(x, 88), (x, bottom + 6)], thick=2, dashed=True)
    drawing.text(x, bottom + 26, f"critical batch: {critical} rows", size=SMALL, bold=True)
    drawing.text(360, bottom + 56, f"{name} on one {machine.name}, 16-bit weights, at best", size=SMALL, role="faint")
    return drawing


def told(steps: Sequence[Step], critical: int, machine: Machine, name: str) -> str:
    """The description of the batches."""
    each = "; ".join(f"{count(step.rows, 'row')}: multiply {milliseconds(step.multiply)}, "
                     f"{step.rows / step.seconds:.0f} tokens/s" for step in steps)
    return (f"{name} on one {machine.name}, a line for each batch. The grey bar, reading the weights, is always as "
            f"long: {milliseconds(steps[0].read)}. The bar below it has a square for each row. {each}. At {critical} "
            f"rows both take equally long: the critical batch. Before it, rows are nearly free.")


def one_batch(drawing: Drawing, top: float, step: Step, scale: float) -> None:
    """A batch: both bars from the same start, and what comes of it."""
    drawing.text(EDGE - 18, top + 34, count(step.rows, "row"), anchor="end", bold=True)
    drawing.rect(Area(EDGE, top, EDGE + scale * step.read, top + BAR), fill="weights", stroke="ink", thick=1, radius=0)
    wide = scale * step.multiply / step.rows
    for row in range(step.rows):
        left = EDGE + wide * row
        drawing.rect(Area(left, top + BAR + 2, left + wide, top + 2 * BAR + 2), fill="cost", stroke="ink", thick=1,
                     radius=0)
    drawing.text(EDGE + scale * step.seconds + 12, top + (20 if step.read >= step.multiply else 48),
                 milliseconds(step.seconds), size=SMALL, anchor="start")
    drawing.text(700, top + 34, f"{step.rows / step.seconds:.0f}", anchor="end", bold=True)
