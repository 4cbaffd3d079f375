"""The roofline: what a machine can do at most for each byte that it reads, and where steps of a model lie under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from course_lib.analysis.roofline import Machine, bound
from course_lib.config import ModelConfig, require
from course_lib.costs import decode_bytes, flops_per_token, prefill_flops
from course_lib.display.diagrams.drawing import ANCHORS, SMALL, Area, Drawing, text_width
from course_lib.display.diagrams.log_axes import ON, Axes, Dot, bandwidth, in_flops, powers

PLOT = Area(84, 60, 700, 400)


def roofline(machine: Machine, dots: Sequence[Dot], description: str, *, title: str, heading: str) -> Drawing:
    """Draw the two roofs of a machine, the ridge where they meet, and the dots.

    Args:
        heading: a line above: which model on which machine.
        dots: steps of a model, one to five.
        description: what the drawing says.
    """
    require(1 <= len(dots) <= 5, "len(dots)", len(dots), "1 to 5")
    drawing = Drawing(title, description, height=476)
    axes = Axes.around(machine, dots, PLOT)
    start, ridge, end = axes.roof(machine)
    floor = PLOT.bottom
    for points, role, tint in (((start, ridge, (ridge[0], floor), (start[0], floor)), "weights", 0.16),
                               ((ridge, end, (end[0], floor), (ridge[0], floor)), "cost", 0.3)):
        drawing.path(points, fill=role, tint=tint, closed=True, stroke="paper", thick=0)
    frame(drawing, axes)
    drawing.text((PLOT.left + PLOT.right) / 2, PLOT.top - 26, heading, size=SMALL)
    drawing.path([ridge, (ridge[0], floor)], dashed=True, thick=1.6, stroke="faint")
    drawing.path([start, ridge], stroke="weights", thick=6)
    drawing.path([ridge, end], stroke="cost", thick=6)
    drawing.text(end[0], ridge[1] - 41, "compute roof", size=SMALL, anchor="end")
    drawing.text(end[0], ridge[1] - 19, in_flops(machine.flops_per_s), size=SMALL, role="faint", anchor="end")
    x, y = (a + 0.42 * (b - a) for a, b in zip(start, ridge))
    beside = x - 12 - text_width("memory roof", SMALL) > PLOT.left  # else under the line
    write(drawing, (x - 12, y - 30) if beside else (x + 14, y + 24),
          (Line("memory roof"), Line(bandwidth(machine), role="faint")), "end" if beside else "start")
    for dot in dots:
        place_dot(drawing, axes, machine, dot)
    write(drawing, (ridge[0] - 8, floor - 14), (Line(f"ridge: {machine.balance:.0f}"),), "end", step=-8)
    return drawing


class Line(NamedTuple):
    """A line of small text."""

    text: str
    bold: bool = False
    role: str = "ink"


def write(drawing: Drawing, place: tuple[float, float], lines: Sequence[Line], anchor: str, *, step: float = 8) -> None:
    """Lines from a place down, moved in steps until they are free of what is written already."""
    x, y = place
    while any(line_area(x, y + 22 * i, line, anchor).overlaps(area)
              for i, line in enumerate(lines) for _, area in drawing.texts):
        y += step
    for i, line in enumerate(lines):
        drawing.text(x, y + 22 * i, line.text, size=SMALL, anchor=anchor, bold=line.bold, role=line.role)


def line_area(x: float, y: float, line: Line, anchor: str) -> Area:
    """What a line of text will cover."""
    width = text_width(line.text, SMALL, bold=line.bold)
    left = x - ANCHORS[anchor] * width
    return Area(left, y - 0.75 * SMALL, left + width, y + 0.22 * SMALL)


def frame(drawing: Drawing, axes: Axes) -> None:
    """The axes, marked at every power of ten."""
    drawing.path([(PLOT.left, PLOT.top - 14), (PLOT.left, PLOT.bottom), (PLOT.right, PLOT.bottom)], stroke="faint")
    for value in powers(*axes.x):
        x = axes.right(value)
        drawing.path([(x, PLOT.bottom), (x, PLOT.bottom + 7)], stroke="faint")
        drawing.text(x, PLOT.bottom + 27, f"{value:,g}", size=SMALL)
    scale, unit = (1e12, "T") if axes.y[1] >= 1e13 else (1e9, "G")
    for value in powers(*axes.y):
        y = axes.height(value)
        drawing.path([(PLOT.left - 7, y), (PLOT.left, y)], stroke="faint")
        drawing.text(PLOT.left - 12, y + 6, f"{value / scale:,g}", size=SMALL, anchor="end")
    drawing.text((PLOT.left + PLOT.right) / 2, PLOT.bottom + 58, "FLOPs for each byte read", size=SMALL, role="faint")
    drawing.text(14, PLOT.top - 26, f"{unit}FLOP/s", size=SMALL, role="faint", anchor="start")


def place_dot(drawing: Drawing, axes: Axes, machine: Machine, dot: Dot) -> None:
    """A dot on the roof or, hollow, beneath it, with a line up to where it could be."""
    x, y = axes.place(dot)
    top = axes.height(min(machine.flops_per_s, dot.intensity * machine.bytes_per_s))
    hanging = dot.share_of(machine) < ON
    if hanging:
        drawing.path([(x, top), (x, y)], dashed=True, thick=2)
    drawing.circle(x, y, 9, fill="paper" if hanging else "ink", stroke="ink", thick=3)
    dx, dy, anchor = {"right": (18, 14, "start"), "left": (-14, -34, "end"), "below": (0, 38, "middle")}[dot.side]
    lines = [Line(dot.name, bold=True), Line(dot.more)]
    write(drawing, (x + dx, y + dy), lines if dot.more else lines[:1], anchor)


def four_steps(machine: Machine, config: ModelConfig, name: str, *, batch: int = 64, tokens: int = 1000,
               overhead_s: float = 0.02) -> Drawing:
    """Steps of one model under the roof of one machine: decode of one row and of many, prefill, and one with overhead.

    Args:
        config, name: of the model, whose weights have 16 bits.
        batch: rows of the larger decode step.
        tokens: of each row's context, and of the prompt.
        overhead_s: of a step whose dot hangs beneath the roof.
    """
    one, many = (row_step(config, tokens, rows) for rows in (1, batch))
    prompt = prefill_flops(config, tokens), decode_bytes(config, tokens)
    slow = replace(machine, overhead_s=overhead_s)
    steps = ((1, *one, machine), (batch, *many, machine), (tokens, *prompt, machine), (1, *one, slow))
    names = ("decode, 1 row", f"decode, {batch} rows", f"prefill of {tokens:,}",
             f"with {1000 * overhead_s:.0f} ms overhead")
    dots = [Dot(title, flops, nbytes, bound(flops, nbytes, on), side, rate(made, bound(flops, nbytes, on)))
            for title, (made, flops, nbytes, on), side in zip(names, steps, ("right", "left", "below", "right"))]
    said = "; ".join(f"{dot.name} at {dot.intensity:.0f}, {dot.more}" for dot in dots[:3])
    return roofline(machine, dots,
                    f"FLOPs for each byte read to the right, FLOP/s upwards, both logarithmic. The roof of one "
                    f"{machine.name} rises, {bandwidth(machine)}, to a ridge at {machine.balance:.0f}, then is flat, "
                    f"{in_flops(machine.flops_per_s)}. {name} lies on it: {said}. A hollow dot hangs below the first: "
                    f"{dots[3].name}, {dots[3].more}.", title="The roofline of a machine",
                    heading=f"{name} on one {machine.name}, at best")


def row_step(config: ModelConfig, context: int, rows: int) -> tuple[float, float]:
    """FLOPs and bytes of a decode step."""
    return rows * flops_per_token(config, context).total, decode_bytes(config, context, batch_size=rows)


def rate(tokens: int, seconds: float) -> str:
    """Tokens a second, three digits."""
    return f"{float(f'{tokens / seconds:.3g}'):,.0f} tokens/s"
