"""Weights as small integers: where the grid lies, how far rounding moves a weight, two integers in a byte.

A grid is a step, `scale`, and the code that means 0, `zero_point`: a code c is worth
scale * (c - zero_point). Codes of b bits are signed, so they go from -2^(b-1) to 2^(b-1) - 1. Grids belong to
the last dimension of a tensor: `split_groups` first cuts a matrix into the parts that get a grid each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.config import is_int, is_size, require

BITS = range(2, 9)


def check_bits(bits: int, name: str = "bits") -> None:
    """Refuse what is no integer from 2 to 8."""
    require(is_int(bits) and bits in BITS, name, bits, "an integer in [2, 8]")


def check_finite(weight: Tensor, name: str) -> None:
    """Refuse NaN and infinity: one of them would become the scale of a whole group."""
    if weight.numel() and not all(end.isfinite() for end in weight.aminmax()):  # a NaN is smallest and largest
        broken = (~weight.isfinite()).sum().item()
        raise ValueError(f"{name} cannot be quantized: {broken} of its {weight.numel()} numbers are NaN or infinite")


def split_groups(weight: Tensor, per: str | int) -> Tensor:
    """Cut a matrix into the parts that share a scale, each along the last dimension.

    Args:
        weight: (N, K), a row for each output.
        per: "tensor" for one part, (1, 1, N K); "channel" for one a row, (N, 1, K); or a group size G that
            divides K, (N, K / G, G).

    >>> [tuple(split_groups(torch.zeros(6, 8), per).shape) for per in ("tensor", "channel", 4)]
    [(1, 1, 48), (6, 1, 8), (6, 2, 4)]
    """
    require(weight.dim() == 2, "weight.shape", tuple(weight.shape), "that of a matrix, (N, K)")
    if per == "tensor":
        return weight.reshape(1, 1, -1)
    K = weight.shape[1]
    G = K if per == "channel" else per
    require(is_size(G) and K % G == 0, "per", per, f"'tensor', 'channel' or a group size that divides {K} inputs")
    return weight.reshape(len(weight), K // G, G)


def symmetric_scale(weight: Tensor, bits: int) -> Tensor:
    """The step that puts the largest absolute value on the last code, 2^(bits-1) - 1: (..., G) to (..., 1).

    Where all are zero the step is 1, since 0 / 0 would make NaN of them.

    >>> symmetric_scale(torch.tensor([[1.0, -12.7], [0.0, 0.0]]), 8).round(decimals=6).tolist()
    [[0.10000000149011612], [1.0]]
    """
    check_bits(bits)
    scale = weight.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale == 0, 1.0, scale)


def asymmetric_scale(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Step and zero point that spread all 2^bits codes from the smallest to the largest value, 0 included.

    Returns:
        scale and zero_point, both (..., 1); the zero point is an integer code, so 0 stays exactly 0.

    >>> [part.tolist() for part in asymmetric_scale(torch.tensor([[-0.5, 0.0, 1.0]]), 2)]
    [[[0.5]], [[-1.0]]]
    """
    check_bits(bits)
    low, high = weight.amin(-1, keepdim=True).clamp(max=0), weight.amax(-1, keepdim=True).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    scale = torch.where(scale == 0, 1.0, scale)
    return scale, -(2 ** (bits - 1)) - torch.round(low / scale)


def quantize_tensor(weight: Tensor, scale: Tensor, bits: int, *, zero_point: Tensor | float = 0) -> Tensor:
    """The nearest code of each weight, int8. Clamped before the cast: 128 as int8 would be -128.

    Args:
        weight: (..., G).
        scale, zero_point: broadcastable to it.

    >>> quantize_tensor(torch.tensor([0.26, -1.0, 99.0]), torch.tensor(0.5), 4).tolist()
    [1, -2, 7]
    """
    check_bits(bits)
    codes = (weight / scale).add_(zero_point).round_()  # in place: of the largest matrices, each copy counts
    return codes.clamp_(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes: Tensor, scale: Tensor, *, zero_point: Tensor | float = 0) -> Tensor:
    """What the codes are worth, in the type of the scale.

    >>> dequantize(torch.tensor([1, -2], dtype=torch.int8), torch.tensor(0.5)).tolist()
    [0.5, -1.0]
    """
    return scale * (codes.to(scale.dtype) - zero_point)


def round_weights(weight: Tensor, bits: int, per: str | int, *, symmetric: bool = True) -> Tensor:
    """A matrix with every weight moved to its grid, still in floating point: what quantizing does to quality.

    Args:
        weight: (N, K).
        bits, per: as for `quantize_tensor` and `split_groups`.
        symmetric: whether code 0 is worth 0; otherwise all 2^bits codes are used.
    """
    parts = split_groups(weight, per)
    scale, zero_point = (symmetric_scale(parts, bits), 0) if symmetric else asymmetric_scale(parts, bits)
    codes = quantize_tensor(parts, scale, bits, zero_point=zero_point)
    return dequantize(codes, scale, zero_point=zero_point).view_as(weight)


def stored_grid(groups: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Step and worth of code 0 as they are stored, bfloat16 numbers in float32: (..., G) to two of (..., 1).

    Symmetric above 4 bits, where a spare code matters little; up to 4, the zero point earns its bytes. Codes have to
    be found with these rounded numbers. Then no weight moves further than half a step, and up to 4 bits a twentieth
    of a step more, since the rounded grid may end a little before the largest weight.
    """
    if bits > 4:
        scale = symmetric_scale(groups, bits).bfloat16().float()
        return scale, torch.zeros_like(scale)
    scale, zero_point = asymmetric_scale(groups, bits)
    scale = scale.bfloat16().float()
    return scale, (-scale * zero_point).bfloat16().float()


def round_to_nearest(weight: Tensor, bits: int, group_size: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (N, K) of a matrix and the stored grids of its groups, scales and zeros (N, K / G, 1) each."""
    groups = split_groups(weight.detach().float(), group_size or "channel")
    scales, zeros = stored_grid(groups, bits)
    codes = quantize_tensor(groups, scales, bits, zero_point=-zeros / scales)
    return codes.view(weight.shape), scales, zeros


def pack_int4(codes: Tensor) -> Tensor:
    """Two codes of [-8, 7] in a byte, the first in the low half: (..., K) int8 to (..., K / 2) uint8.

    >>> pack_int4(torch.tensor([1, -1, -8, 7], dtype=torch.int8)).tolist()  # 0xf1, 0x78
    [241, 120]
    """
    require(codes.shape[-1] % 2 == 0, "codes.shape[-1]", codes.shape[-1], "even: two codes share a byte")
    low, high = (end.item() for end in codes.aminmax()) if codes.numel() else (0, 0)
    require(-8 <= low and high <= 7, "codes", f"from {low} to {high}", "in [-8, 7]")
    nibbles = codes.view(torch.uint8) & 15
    return nibbles[..., 0::2] | nibbles[..., 1::2] << 4


def unpack_int4(packed: Tensor) -> Tensor:
    """The codes that `pack_int4` packed: (..., K / 2) uint8 to (..., K) int8.

    >>> unpack_int4(torch.tensor([0xF1, 0x78], dtype=torch.uint8)).tolist()
    [1, -1, -8, 7]
    """
    nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
    return (nibbles ^ 8).to(torch.int8) - 8  # the sign is the fourth bit
