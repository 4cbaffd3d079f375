"""Quantization drawn: a ruler with few marks, who shares a scale, codes in a byte, bits of a weight, GPTQ's errors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.rounding import pack_int4, quantize_tensor, split_groups, symmetric_scale

GAP = 40  # between two marks of a ruler
CELL, ROW = 78, 46  # of a matrix
BIT, BAR = 44, 17  # of a byte; of a bar, for one bit


def signed(value: float, digits: int | None = None) -> str:
    """A number with a true minus.

    >>> signed(-3), signed(0.25), signed(-0.3, 2)
    ('−3', '0.25', '−0.30')
    """
    return (f"{value:g}" if digits is None else f"{value:.{digits}f}").replace("-", "−")


def listed(parts: Sequence[str]) -> str:
    """The parts as a sentence has them.

    >>> listed(["1", "2", "3"])
    '1, 2 and 3'
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def ruler(weights: Sequence[float]) -> Drawing:
    """Weights above a ruler of 4 bits, each with an arrow to its nearest mark; the codes beneath.

    Args:
        weights: two to four, far enough from one another to be written.
    """
    require(2 <= len(weights) <= 4, "weights", weights, "two to four")
    group = torch.tensor(weights, dtype=torch.float64)
    scale = symmetric_scale(group, 4)
    codes, step = quantize_tensor(group, scale, 4).tolist(), scale.item()
    said, marks, worth = ([signed(w) for w in weights], [signed(c) for c in codes],
                          [signed(round(c * step, 6)) for c in codes])
    drawing = Drawing("Weights on a ruler with few marks",
                      f"A ruler with 15 marks, numbered −7 to 7, {signed(step)} apart; an end mark −8 is not used. "
                      f"Above it the weights {listed(said)}, each with an arrow to its nearest mark: {listed(marks)}. "
                      f"They come back as {listed(worth)}.", height=310)
    drawing.text(24, 38, "the weights", size=SMALL, role="faint", anchor="start")
    base = 172
    drawing.path([(60 - 12, base), (660 + 12, base)], stroke="ink")
    for code in range(-8, 8):
        x, used = 60 + GAP * (code + 8), code > -8
        hit = code in codes
        drawing.path([(x, base - 12), (x, base + 12)], stroke="ink" if used else "line",
                     thick=5.6 if hit else 2.2, dashed=not used)
        drawing.text(x, base + 38, signed(code), size=SMALL, role="ink" if used else "faint", bold=hit)
    for weight, code, text in zip(weights, codes, said):
        x = 60 + GAP * (weight / step + 8)
        drawing.text(x, 74, text, size=SMALL, bold=True)
        drawing.circle(x, 94, 7, fill="weights", stroke="ink")
        drawing.arrow((x, 103), (60 + GAP * (code + 8), base - 16))
    drawing.text(24, 254, f"kept: the codes {listed(marks)}, and the step {signed(step)}", size=SMALL, bold=True,
                 anchor="start")
    drawing.text(24, 282, f"come back as: {listed(worth)}", size=SMALL, role="faint", anchor="start")
    return drawing


def shared_scales(matrix: Sequence[Sequence[float]], group_size: int) -> Drawing:
    """A matrix three times: one scale for all, one a row, one a group; in 4 bits, hatched where a weight becomes 0.

    Args:
        matrix: two rows of eight weights.
        group_size: a divisor of eight.
    """
    weight = torch.tensor(matrix)
    require(tuple(weight.shape) == (2, 8), "matrix.shape", tuple(weight.shape), "(2, 8)")
    panels, lost = [], []
    for per in ("tensor", "channel", group_size):
        groups = split_groups(weight, per)
        scale = symmetric_scale(groups, 4)
        codes = quantize_tensor(groups, scale, 4).view_as(weight)
        panels.append((codes, scale))
        lost.append(int((codes == 0).sum()))
    largest = signed(weight.abs().max().item())
    drawing = Drawing("Who shares a scale with an outlier",
                      f"A matrix of 2 rows of 8 weights, three times. One of them, {largest}, is far larger than the "
                      f"others. With one scale for all, {lost[0]} weights become 0. With a scale for each row, "
                      f"{lost[1]} do: the neighbours in its row. With a scale for each group of {group_size}, "
                      f"{lost[2]} do.", height=3 * 166 + 8)
    names = ("one scale for all", "a scale for each row", f"a scale for each group of {group_size}")
    for i, ((codes, scale), name) in enumerate(zip(panels, names)):
        panel(drawing, 166 * i, name, weight, codes, scale)
        words = f"{lost[i]} become 0"
        drawing.text(48 + 8 * CELL, 166 * i + 38, words, size=SMALL, bold=True, anchor="end")
    return drawing


def panel(drawing: Drawing, top: float, name: str, weight: torch.Tensor, codes: torch.Tensor,
          scale: torch.Tensor) -> None:
    """One of the three: the weights in cells, hatched where the code is 0, and a frame around each shared scale."""
    drawing.text(48, top + 38, name, size=SMALL, anchor="start")
    wide = codes.shape[1] if scale.shape[0] == 1 else codes.shape[1] // scale.shape[1]
    for n in range(2):
        for k in range(8):
            x, y = 48 + CELL * k, top + 52 + ROW * n
            gone = codes[n, k].item() == 0
            outlier = bool(weight[n, k].abs() == weight.abs().max())
            fill = "plain" if gone else "cost" if outlier else "weights"
            drawing.rect(Area(x + 7, y + 7, x + CELL - 7, y + ROW - 7), fill=fill, tint=1 if gone or outlier else 0.5,
                         hatched=gone)
            if not gone:
                text = signed(round(weight[n, k].item(), 4))
                drawing.text(x + CELL / 2, y + 29, text, size=SMALL, bold=outlier)
    for g in range(scale.shape[0] * scale.shape[1]):
        if scale.shape[0] == 1:
            area = Area(48, top + 50, 48 + 8 * CELL, top + 54 + 2 * ROW)
        else:
            n, k = divmod(g, scale.shape[1])
            area = Area(50 + wide * k * CELL, top + 53 + ROW * n, 46 + wide * (k + 1) * CELL, top + 51 + ROW * (n + 1))
        drawing.rect(area, stroke="ink", thick=2)


def nibbles(first: int, second: int) -> Drawing:
    """Two codes of 4 bits, bit by bit, and the byte that holds both.

    Args:
        first, second: in [-8, 7]; the first goes into the low half.
    """
    byte = pack_int4(torch.tensor([first, second], dtype=torch.int8)).item()
    low, high = f"{first & 15:04b}", f"{second & 15:04b}"
    drawing = Drawing("Two codes of 4 bits in one byte",
                      f"Two codes with their four bits: {signed(first)} is {low}, {signed(second)} is {high}. Arrows "
                      f"bring them into one byte of eight bits: the second code fills the high half, on the left, the "
                      f"first one the low half, on the right. The byte is {high} {low}, {byte} in decimal.", height=292)
    left = (720 - 8 * BIT - 24) / 2
    for half, (code, bits, name, role) in enumerate(((second, high, "second code", "cost"),
                                                     (first, low, "first code", "latency"))):
        x = left + half * (4 * BIT + 24)
        drawing.text(x + 2 * BIT, 40, f"{name}: {signed(code)}", size=SMALL, bold=True)
        for y in (56, 172):
            for i, bit in enumerate(bits):
                place = x + BIT * i
                drawing.rect(Area(place + 2, y, place + BIT - 2, y + 42), fill=role, stroke="faint")
                drawing.text(place + BIT / 2, y + 28, bit, mono=True)
        drawing.arrow((x + 2 * BIT, 106), (x + 2 * BIT, 156))
        drawing.text(x + 2 * BIT, 246, ("high half", "low half")[half], size=SMALL, role="faint")
    drawing.rect(Area(left - 12, 162, left + 8 * BIT + 36, 224), stroke="ink")
    drawing.text(left + 8 * BIT + 50, 200, "1 byte", size=SMALL, anchor="start")
    drawing.text(360, 276, f"{high[:4]} {low} = {byte}", size=SMALL, bold=True)
    return drawing


def bits_of_a_weight(group_size: int = 32) -> Drawing:
    """What one weight takes in four formats, as bars; with groups, its share of scale and offset as well.

    Args:
        group_size: of the int4 format, whose groups have a scale and an offset of 16 bits each.
    """
    shared = 32 / group_size
    rows = (("float32", 32.0, 0.0), ("bfloat16", 16.0, 0.0), ("int8", 8.0, 0.0), ("int4", 4.0, shared))
    drawing = Drawing("The bits of one weight in four formats",
                      f"Four bars. A weight takes 32 bits in float32, 16 in bfloat16, 8 in int8, where a whole row "
                      f"shares one scale, and 4 in int4. With groups of {group_size}, an int4 weight also pays its "
                      f"share of a scale and an offset of 16 bits each: {signed(shared)} more, {signed(4 + shared)} "
                      f"in all.", height=262)
    for i, (name, bits, more) in enumerate(rows):
        y = 26 + 48 * i
        drawing.text(120, y + 25, name, size=SMALL, anchor="end", mono=True)
        end = 136 + BAR * bits
        drawing.rect(Area(136, y, end, y + 36), fill="weights", tint=0.6, radius=3)
        words = "8, and one scale for a whole row" if name == "int8" else f"{bits:g}"
        if more:
            drawing.rect(Area(end, y, end + BAR * more, y + 36), fill="cost", radius=3)
            words = f"{bits:g} + {signed(more)} for its share of scale and offset"
        inside = bits > 20
        drawing.text(end - 12 if inside else end + BAR * more + 10, y + 25, words, size=SMALL,
                     anchor="end" if inside else "start", bold=True)
    drawing.text(136, 242, f"bits of one weight, groups of {group_size}", size=SMALL, role="faint", anchor="start")
    return drawing


def error_feedback_by_hand(weight: float, step: float, correlation: float) -> Drawing:
    """Two equal weights rounded one after the other: the second takes over a share of what the first one lost.

    Args:
        weight: of both, between two marks, nearer to the lower one.
        step: between two marks.
        correlation: of the two inputs, which are equally large: the share.
    """
    low = step * int(weight / step)
    lost = weight - low
    moved = weight + correlation * lost
    second = step * round(moved / step)
    require(0 < lost < step / 2 and second > low, "weight, step, correlation", (weight, step, correlation),
            "such that the first weight goes down and the second one up")
    names = [signed(round(x, 3)) for x in (weight, lost, correlation, correlation * lost, moved, low, second)]
    one, error, share, passed, two, down, up = names
    drawing = Drawing("A rounding error is passed on to the next weight",
                      f"Two weights of {one} above two rulers with marks at {down} and {up}. The first one goes to its "
                      f"nearest mark, {down}, and loses {error}. An arrow brings {share} times that, {passed}, to the "
                      f"second weight, which has not been rounded yet. It rises to {two}, and its nearest mark is "
                      f"{up}. The sum should be {2 * weight:.2f}; the nearest marks give {2 * low:.2f}, feedback "
                      f"{low + second:.2f}.", height=452)

    def place(value: float) -> float:
        return 190 + 240 * (value - low) / step

    for base, name in ((132, "first weight"), (318, "second weight")):
        drawing.text(24, base - 84, name, size=SMALL, bold=True, anchor="start")
        drawing.path([(110, base), (510, base)])
        for mark in (low, low + step):
            drawing.path([(place(mark), base - 12), (place(mark), base + 12)],
                         thick=5.6 if mark == (low if base == 132 else second) else 2.2)
            drawing.text(place(mark), base + 36, signed(round(mark, 3)), size=SMALL)
    drawing.text(place(weight), 62, one, size=SMALL)
    drawing.circle(place(weight), 82, 7, fill="weights", stroke="ink")
    drawing.arrow((place(weight) - 5, 91), (place(low) + 4, 116))
    drawing.rect(Area(place(low), 124, place(weight), 140), fill="cost", stroke="ink", thick=1.4, radius=0)
    drawing.text(place(weight) + 14, 118, f"loses {error}", size=SMALL, anchor="start")
    drawing.text(696, 138, f"becomes {down}", size=SMALL, bold=True, anchor="end")

    middle = (place(weight) + place(moved)) / 2
    drawing.arrow((place(weight) - 16, 145), (middle, 254))
    drawing.text((place(weight) + middle) / 2 + 8, 200, f"× {share} = {passed}", size=SMALL, anchor="start", bold=True)
    drawing.rect(Area(place(weight), 260, place(moved), 276), fill="cost", stroke="ink", thick=1.4, radius=0)
    drawing.circle(place(weight), 268, 7, fill="paper", stroke="ink")
    drawing.text(place(weight) - 14, 274, one, size=SMALL, role="faint", anchor="end")
    drawing.circle(place(moved), 268, 7, fill="weights", stroke="ink")
    drawing.text(place(moved) + 14, 260, two, size=SMALL, anchor="start")
    drawing.arrow((place(moved) + 5, 277), (place(second) - 4, 302))
    drawing.text(696, 324, f"becomes {up}", size=SMALL, bold=True, anchor="end")
    drawing.text(24, 398, f"output for inputs 1 and 1: exact {2 * weight:.2f}", size=SMALL, role="faint",
                 anchor="start")
    drawing.text(24, 428, f"nearest marks {2 * low:.2f}, with feedback {low + second:.2f}", size=SMALL, bold=True,
                 anchor="start")
    return drawing
