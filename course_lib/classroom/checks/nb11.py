"""Checks of notebook 11, Quantization. What is expected is written by hand, or found code by code in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import torch

from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, expect_number, show
from course_lib.rounding import asymmetric_scale, pack_int4, quantize_tensor, split_groups, symmetric_scale

# 11.1


def check_symmetric_scale(attempt: Callable) -> None:
    def expect_scale(weight: list, bits: int, scale: list, likely: str) -> None:
        expect_close(attempt(torch.tensor(weight), bits), torch.tensor(scale), likely)

    expect_scale([[0.0, 0.7, 0.3]], 4, [[0.1]], "the last code of 4 bits is 7, and in general 2^(bits-1) - 1: the "
                                                "largest weight divided by that is the step")
    expect_scale([[0.2, -1.27, 0.5]], 8, [[0.01]],
                 "the largest *absolute* value sets the step, so -1.27 counts as 1.27")
    expect_scale([[[1.5, -3.0], [0.6, 0.3], [-6.0, 2.0]]], 3, [[[1.0], [0.2], [2.0]]],
                 "each group along the last axis has a scale of its own, (..., G) to (..., 1)")
    expect_scale([[0.0, 0.0], [0.5, -1.0]], 2, [[1.0], [1.0]],
                 "a group of zeros gets the scale 1: with 0, the next step would be 0 / 0, which is NaN")
    expect_scale([[3e-9, -1.5e-8, 0.0]], 5, [[1e-9]],
                 "only a group of zeros gets another scale; tiny weights are not 0")


# 11.2


def check_quantize_tensor(attempt: Callable) -> None:
    def expect_codes(weight: list, scale: list | float, bits: int, codes: list, likely: str,
                     zero_point: list | float = 0) -> None:
        points = torch.tensor(zero_point) if isinstance(zero_point, list) else zero_point
        got = attempt(torch.tensor(weight), torch.tensor(scale), bits, zero_point=points)
        expect_close(got, torch.tensor(codes, dtype=torch.int8), likely)

    expect_codes([0.38, 0.32, 0.04], 0.1, 4, [4, 3, 0],
                 "the nearest code: torch.round(0.38 / 0.1) is 4. A cast alone cuts off what follows the point")
    expect_codes([0.9, -2.0, 0.3], 0.1, 4, [7, -8, 3],
                 "4 bits have the codes -8 to 7, and what lies beyond gets the last one")
    expect_codes([0.9, -2.0, 0.3], 0.1, 3, [3, -4, 3],
                 "the range depends on bits: -2^(bits-1) to 2^(bits-1) - 1, so -4 to 3 in 3 bits")
    expect_codes([1.28, -9.9, 0.5], 0.01, 8, [127, -128, 50],
                 "clamp before the cast: an int8 cannot hold 128, and wraps around to -128")
    expect_codes([[0.5, -0.3], [5.0, -3.1]], [[0.1], [1.0]], 4, [[5, -3], [5, -3]],
                 "each weight is divided by the scale of its own row")
    expect_codes([0.42, 0.0, -0.31], 0.1, 4, [2, -2, -5], "the zero point is added to weight / scale", -2.0)
    expect_codes([[0.5, 0.8], [0.5, 0.9]], 0.1, 4, [[3, 6], [7, 7]],
                 "clamp after the zero point is added, since it can push a code out of the range", [[-2.0], [3.0]])


# 11.3


def bound() -> tuple[float, float, float]:
    """Of a group whose largest weight is 0.7: farthest move in 4 bits, share beyond half of it, factor of 8 bits."""
    return 0.7 / 7 / 2, 0.5, 127 / 7


def check_bound(attempt: Callable) -> None:
    got = attempt()
    if not (isinstance(got, (tuple, list)) and len(got) == 3):
        raise CheckFailed("three numbers", show(got), "result", "return all three: farthest, share, times")
    expect_number(got[0], 0.05, "marks are 0.1 apart, so between two of them the nearest one is at most half a step "
                                "away", rtol=1e-3, where="farthest")
    expect_number(got[1], 0.5, "between two marks every place is about as likely; of the way from a mark to the "
                               "middle, half lies beyond half", rtol=1e-3, where="share")
    expect_number(got[2], 127 / 7, "the step is the largest weight divided by the last code, 7 in 4 bits and 127 in 8",
                  rtol=0.01, where="times")


# 11.4


def check_split_groups(attempt: Callable) -> None:
    N, K = 4, 6
    weight = torch.arange(N * K, dtype=torch.float32).view(N, K)
    rows = weight.tolist()

    def expect_parts(per: str | int, parts: list, likely: str) -> None:
        expect_close(attempt(weight.clone(), per), torch.tensor(parts), likely, rtol=0, atol=0)

    expect_parts("channel", [[row] for row in rows], "a row of the matrix is one group: (N, 1, K)")
    expect_parts("tensor", [[[x for row in rows for x in row]]], "the whole matrix is one group: (1, 1, N K)")
    expect_parts(3, [[row[:3], row[3:]] for row in rows],
                 "a group is G neighbours within a row, and per is their number G: (N, K / G, G), so that "
                 "result[n, g, i] is weight[n, g G + i]")
    expect_parts(2, [[row[:2], row[2:4], row[4:]] for row in rows],
                 "per is how many weights share a scale, not how many groups there are: (N, K / G, G)")
    expect_parts(6, [[row] for row in rows], "a group as long as a row is a row")


# 11.5


def check_asymmetric_scale(attempt: Callable) -> None:
    def expect_grid(weight: list, bits: int, scale: list, zero: list, likely: str, zero_likely: str) -> None:
        got = attempt(torch.tensor(weight), bits)
        if not (isinstance(got, tuple) and len(got) == 2):
            raise CheckFailed("a tuple of two tensors", show(got), "result", "return both: scale, zero_point")
        expect_close(got[0], torch.tensor(scale), likely, where="scale")
        expect_close(got[1], torch.tensor(zero), zero_likely, where="zero_point")

    sign = "low should get the first code, -2^(bits-1), so 0 gets -2^(bits-1) - low / scale"
    expect_grid([[-0.5, 0.25, 1.0]], 2, [[0.5]], [[-1.0]],
                "2^bits codes have 2^bits - 1 steps between them: scale = (high - low) / (2^bits - 1)", sign)
    expect_grid([[-1.0, 0.53, -0.25], [-1.0, 2.0, 0.0]], 4, [[0.102], [0.2]], [[2.0], [-3.0]],
                "each group has a smallest and a largest weight of its own",
                "0 has to get a code, so the zero point is a whole number: torch.round")
    expect_grid([[0.9, 1.5, 1.2]], 4, [[0.1]], [[-8.0]], "0 belongs to the range even if all weights are above it: low "
                                                        "is at most 0", sign)
    expect_grid([[-0.9, -1.4, -1.2]], 3, [[0.2]], [[3.0]], "0 belongs to the range even if all weights are below it: "
                                                          "high is at least 0", sign)
    got = attempt(torch.tensor([[0.0, 0.0], [0.0, 1.5]]), 2)
    expect_close(got[0], torch.tensor([[1.0], [0.5]]), "a group of zeros gets the scale 1: 0 would make NaN of it",
                 where="scale")
    expect_equal(bool(got[1].isfinite().all()), True, "a group of zeros has a finite zero point, too",
                 where="zero_point is finite")


# 11.6


def check_pack_int4(attempt: Callable) -> None:
    def expect_bytes(codes: list, packed: list, likely: str) -> None:
        expect_close(attempt(torch.tensor(codes, dtype=torch.int8)), torch.tensor(packed, dtype=torch.uint8), likely)

    expect_bytes([1, 2], [0x21], "the first code of a pair goes into the low half, the second into the high half: "
                                 "1 and 2 make 1 + 16 * 2")
    expect_bytes([1, 2, 3, 4, 5, 6], [0x21, 0x43, 0x65], "neighbours share a byte: codes 0 and 1, then 2 and 3")
    expect_bytes([3, -2], [0xE3], "the four bits of -2 are 1110, that is 14 = -2 + 16: `& 15` keeps exactly these four")
    expect_bytes([-1, 2], [0x2F], "a negative code in the low half must not spill into the high half: `& 15` it first")
    expect_bytes([-8, 7, 0, -1], [0x78, 0xF0], "every code from -8 to 7 has four bits of its own")
    grid = [[n - k for k in range(-3, 3)] for n in (-4, 0, 4)]
    expect_bytes(grid, [[(a % 16) + 16 * (b % 16) for a, b in zip(row[::2], row[1::2])] for row in grid],
                 "only the last axis shrinks, (..., K) to (..., K / 2)")


EXERCISES = (
    Exercise(
        "11.1", "one scale for each group", symmetric_scale, check_symmetric_scale, minutes=4, difficulty="warm-up",
        hints=(
            "Which weight of a group needs the last code? How many steps is that code away from 0?",
            "weight.abs().amax(-1, keepdim=True) is (..., 1). Divide it by 2 ** (bits - 1) - 1.",
            "torch.where(scale == 0, 1.0, scale) gives a group of zeros the scale 1.",
        )),
    Exercise(
        "11.2", "repair a quantizer", quantize_tensor, check_quantize_tensor, minutes=6, kind="find the bug", hints=(
            "Two lines, two mistakes. What does a cast to int8 do to 3.8, and what to 128?",
            "Round before you clamp, and clamp before you cast. The zero point is added before all that.",
            "torch.round(weight / scale + zero_point).clamp(-last - 1, last).to(torch.int8) with "
            "last = 2 ** (bits - 1) - 1.",
        )),
    Exercise(
        "11.3", "how far can a weight move", bound, check_bound, minutes=5, kind="predict", difficulty="warm-up",
        hints=(
            "Draw two neighbouring marks. Where between them is a weight farthest from both?",
            "Put weights everywhere between the mark and the middle. Which of them are in the outer half?",
            "The last code is 7 in 4 bits and 127 in 8. The step is the largest weight divided by it.",
        )),
    Exercise(
        "11.4", "cut a matrix into groups", split_groups, check_split_groups, minutes=5, hints=(
            "Neighbours in a row lie next to each other in memory. So nothing has to move: it is a matter of shape.",
            "weight.reshape(N, K // G, G) for groups of G. A whole row is a group with G = K.",
            'Two cases: "tensor" is weight.reshape(1, 1, -1). For the others G is K if per == "channel" else per.',
        )),
    Exercise(
        "11.5", "a grid that slides", asymmetric_scale, check_asymmetric_scale, minutes=8, difficulty="stretch", hints=(
            "low = weight.amin(-1, keepdim=True).clamp(max=0), and high in the same way. How many steps fit between?",
            "scale = (high - low) / (2 ** bits - 1), and 1 where that is 0. low gets the code -2 ** (bits - 1).",
            "zero_point = -(2 ** (bits - 1)) - torch.round(low / scale). Return scale, zero_point.",
        )),
    Exercise(
        "11.6", "two codes in a byte", pack_int4, check_pack_int4, minutes=8, difficulty="stretch", hints=(
            "codes[..., 0::2] are the first codes of all pairs. What are the second ones?",
            "codes.view(torch.uint8) & 15 keeps the lowest four bits of each code, and drops the copies of the sign.",
            "first | second << 4, with first and second cut to four bits.",
        )),
)
