"""Linear maps and embeddings whose weights are kept in one byte or in half a byte each.

Decoding waits for weights to come from memory, so fewer bytes are more tokens per second, provided that nothing
writes the weights out in full again. PyTorch has two products for CPUs that read the integers as they lie; both
take bfloat16 activations. Where they do not fit, the weights are dequantized and multiplied as ever.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.config import is_size, require
from course_lib.gptq import gptq
from course_lib.rounding import check_bits, check_finite, dequantize, pack_int4, round_to_nearest, unpack_int4

KERNEL_GROUPS = (256, 128, 64, 32)  # that the int4 product knows


class QuantizedLinear(nn.Module):
    """An `nn.Linear` for inference, its weights rounded. `Int8Linear` and `Int4Linear` say how they lie in memory.

    `most_rows` is up to where the packed product is the faster one; for more rows the weights are written out
    in bfloat16 first. Measured on shapes from 256 x 256 to 2048 x 768, on one thread.

    Args:
        bits: of the codes, in [2, 8].
        group_size: inputs that share a scale; None: all inputs of an output.
        bias: (N,), or None.
    """

    most_rows: int
    has_kernel: bool

    def __init__(self, shape: tuple[int, int], bits: int, group_size: int | None, bias: Tensor | None) -> None:
        super().__init__()
        check_bits(bits)
        self.out_features, self.in_features = shape
        self.bits, self.group_size = bits, group_size
        own = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        self.register_parameter("bias", own)

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N), in the type of `x`."""
        rows = x.reshape(-1, self.in_features)  # (R, K)
        kernel = self.has_kernel and rows.is_cpu and not (torch.is_grad_enabled() and rows.requires_grad)
        if kernel and 0 < len(rows) <= (self.most_rows if fast_bfloat16() else math.inf):
            y = self.packed_product(rows.bfloat16())
        else:
            wide = torch.bfloat16 if kernel and fast_bfloat16() else x.dtype
            y = F.linear(rows.to(wide), self.dequantize(wide))
        y = y.to(x.dtype)
        return (y if self.bias is None else y + self.bias).view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """What `print` shows."""
        groups = f"groups of {self.group_size}" if self.group_size else "a scale for each output"
        return f"{self.in_features} to {self.out_features}, {self.bits} bits, {groups}"


class Int8Linear(QuantizedLinear):
    """One byte a weight, 5 to 8 bits of it used; symmetric.

    Buffers: weight (N, K) int8, scales (N, K / group_size) bfloat16.
    """

    most_rows = 32

    def __init__(self, weight: Tensor, scales: Tensor, *, bits: int = 8, group_size: int | None = None,
                 bias: Tensor | None = None) -> None:
        super().__init__(tuple(weight.shape), bits, group_size, bias)
        self.register_buffer("weight", aligned(weight))
        self.register_buffer("scales", scales)
        self.stored_group = weight.shape[1] // scales.shape[1]
        self.has_kernel = group_size is None and int8_kernel() and weight.shape[1] % 32 == 0

    def packed_product(self, rows: Tensor) -> Tensor:
        """(R, K) bfloat16 to (R, N)."""
        return torch._weight_int8pack_mm(aligned(rows), aligned(self.weight), self.scales.reshape(-1).bfloat16())

    def dequantize(self, dtype: torch.dtype, ids: Tensor | slice = slice(None)) -> Tensor:
        """The weights, or those of some outputs, as numbers: (..., K)."""
        codes, scales = self.weight[ids], self.scales[ids].to(dtype)
        groups = codes.unflatten(-1, (scales.shape[-1], -1))  # (..., K / G, G)
        return dequantize(groups, scales.unsqueeze(-1)).flatten(-2)

    def portable(self) -> dict[str, Tensor]:
        """What a file holds, the same on every machine."""
        return {"weight": self.weight, "scales": self.scales}


class Int4Linear(QuantizedLinear):
    """Half a byte a weight, 2 to 4 bits of it used; asymmetric, since the product adds an offset anyway.

    Buffers: weight uint8, N K / 2 bytes; scales_and_zeros (K / G, N, 2) bfloat16, a step and the number that
    code 0 is worth.

    Args:
        packed: (N, K / 2) uint8, as `pack_int4` makes it. It is kept in the order of this CPU's product.
    """

    most_rows = 384

    def __init__(self, packed: Tensor, scales_and_zeros: Tensor, *, bits: int = 4, group_size: int | None = None,
                 bias: Tensor | None = None) -> None:
        N, K = len(packed), 2 * packed.shape[1]
        super().__init__((N, K), bits, group_size, bias)
        self.stored_group = K // len(scales_and_zeros)
        block = int4_block()
        self.has_kernel = (block is not None and N % 64 == 0 and self.stored_group in KERNEL_GROUPS
                           and packed.device.type == "cpu")
        self.block = block if self.has_kernel else None
        self.register_buffer("weight", to_kernel_order(unpack_int4(packed)) if self.has_kernel else packed)
        self.register_buffer("scales_and_zeros", scales_and_zeros)

    def packed_product(self, rows: Tensor) -> Tensor:
        """(R, K) bfloat16 to (R, N)."""
        return torch._weight_int4pack_mm_for_cpu(rows.contiguous(), self.weight, self.stored_group,
                                                 self.scales_and_zeros.bfloat16().contiguous())

    def codes(self, ids: Tensor | slice = slice(None)) -> Tensor:
        """The codes in [-8, 7], or those of some outputs: (..., K) int8."""
        if self.block is None:
            return unpack_int4(self.weight[ids])
        if isinstance(ids, slice):
            return from_kernel_order(self.weight, self.block)[ids]
        half = self.block // 2
        packed = self.weight.view(-1, self.in_features, half)[ids // self.block, :, ids % half]  # (..., K)
        is_high = (ids % self.block >= half).unsqueeze(-1)
        return torch.where(is_high, packed >> 4, packed & 15).to(torch.int8) - 8

    def dequantize(self, dtype: torch.dtype, ids: Tensor | slice = slice(None)) -> Tensor:
        """The weights, or those of some outputs, as numbers: (..., K)."""
        scales, zeros = self.scales_and_zeros.movedim(0, -1)[ids].to(dtype).unsqueeze(-1).unbind(-3)  # (..., K / G, 1)
        groups = self.codes(ids).unflatten(-1, (scales.shape[-2], -1))  # (..., K / G, G)
        return torch.addcmul(zeros, scales, groups.to(dtype)).flatten(-2)

    def portable(self) -> dict[str, Tensor]:
        """What a file holds, the same on every machine."""
        packed = self.weight if self.block is None else pack_int4(self.codes())
        return {"weight": packed, "scales_and_zeros": self.scales_and_zeros}


class QuantizedEmbedding(nn.Module):
    """Rows of a quantized matrix, looked up: of its own, or of the LM head that is tied to it."""

    def __init__(self, table: QuantizedLinear, dtype: torch.dtype) -> None:
        super().__init__()
        self.table = table
        self.register_buffer("like", torch.empty(0, dtype=dtype), persistent=False)  # follows `model.to`

    @property
    def weight(self) -> Tensor:
        """The codes as they lie; like an `nn.Embedding`'s weight, they say on which device the model is."""
        return self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, D)."""
        return self.table.dequantize(self.like.dtype, ids)


def quantize_linear(weight: Tensor, bits: int, group_size: int | None = None, *, bias: Tensor | None = None,
                    hessian: Tensor | None = None, name: str = "weight") -> QuantizedLinear:
    """The quantized form of a matrix (N, K): two weights in a byte up to 4 bits, one above.

    Args:
        hessian: (K, K) of the inputs, to round with `gptq`; None: to the nearest code.
        name: of the matrix, for errors.

    Raises:
        ValueError: `bits` is not in [2, 8], the groups do not divide K, or a weight is not finite.
    """
    check_bits(bits)
    check_finite(weight, name)
    K = weight.shape[1]
    require(group_size is None or (is_size(group_size) and K % group_size == 0), "group_size", group_size,
            f"None or a divisor of the {K} inputs of {name}")
    require(bits > 4 or K % 2 == 0, f"{name}.shape[1]", K, "even: two weights share a byte")
    codes, scales, zeros = (round_to_nearest(weight, bits, group_size) if hessian is None
                            else gptq(weight, hessian, bits, group_size))
    if bits > 4:
        return Int8Linear(codes, scales[..., 0].bfloat16(), bits=bits, group_size=group_size, bias=bias)
    return Int4Linear(pack_int4(codes), join_scales(scales, zeros, K), bits=bits, group_size=group_size, bias=bias)


def join_scales(scales: Tensor, zeros: Tensor, K: int) -> Tensor:
    """(N, K / G, 1) each, in the order of the int4 product: (K / G, N, 2) bfloat16.

    A scale for a whole row is repeated for groups that the product knows, if there is such a size.
    """
    pair = torch.cat((scales, zeros), dim=-1).transpose(0, 1)  # (K / G, N, 2)
    if len(pair) == 1:
        pair = pair.expand(stored_groups(K, 4, None), -1, -1)
    return pair.bfloat16().contiguous()


def stored_groups(K: int, bits: int, group_size: int | None) -> int:
    """How many scales are kept for the K inputs of an output."""
    if group_size is None and bits <= 4:
        group_size = next((size for size in KERNEL_GROUPS if K % size == 0), K)
    require(K % (group_size or K) == 0, "group_size", group_size, f"a divisor of {K} inputs")
    return K // (group_size or K)


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, contiguous and at an address of a multiple of 64, without which the int8 product crashes.

    PyTorch allocates so. What lies in a mapped file, or is cut out of something larger, may not.
    """
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()


@cache
def fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices itself; elsewhere that is slower than float32."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@cache
def int8_kernel() -> bool:
    """Whether PyTorch's product of bfloat16 rows with int8 weights works here."""
    rows, weight = torch.ones(2, 32, dtype=torch.bfloat16), torch.ones(4, 32, dtype=torch.int8)
    try:
        y = torch.ops.aten._weight_int8pack_mm(rows, weight, torch.full((4,), 0.5, dtype=torch.bfloat16))
    except (AttributeError, RuntimeError):  # another build or processor
        return False
    return bool((y == 16).all())


@cache
def int4_block() -> int | None:
    """How many outputs this CPU's int4 product keeps together; None: it has none, or none whose order we know."""
    codes = (torch.arange(64 * 32) * 7 % 16 - 8).to(torch.int8).view(64, 32)
    pair = torch.tensor([1.0, 0.0], dtype=torch.bfloat16).expand(1, 64, 2).contiguous()
    try:
        weight = to_kernel_order(codes)
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(torch.eye(32, dtype=torch.bfloat16), weight, 32, pair)
    except (AttributeError, RuntimeError):
        return None
    known = [block for block in (64, 32) if from_kernel_order(weight, block).equal(codes)]
    return known[0] if known and y.t().equal(codes.bfloat16()) else None


def to_kernel_order(codes: Tensor) -> Tensor:
    """(N, K) codes in [-8, 7] as the int4 product wants them, (N, K / 2) uint8."""
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int().add_(8), 1)


def from_kernel_order(weight: Tensor, block: int) -> Tensor:
    """The codes (N, K) again: each byte holds one input's codes for output j and for output j + block / 2."""
    N, half_k = weight.shape
    blocks = weight.view(N // block, 2 * half_k, block // 2)  # (N / block, K, block / 2)
    nibbles = torch.stack((blocks & 15, blocks >> 4), dim=1)  # (N / block, 2, K, block / 2)
    return nibbles.transpose(2, 3).reshape(N, -1).to(torch.int8) - 8
