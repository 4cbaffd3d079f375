"""FlashAttention as one Triton kernel: a program for each tile of queries, whose tiles of keys pass by on the chip.

On a GPU Triton compiles it. With TRITON_INTERPRET=1 in the environment Triton's interpreter runs it, slowly, on a
CPU too. Triton reads the variable when it is imported itself, when this module is, and when the kernel runs. So set
it before anything imports Triton, as `torch.utils.flop_counter` does too, and leave it set; a process that has begun
without it has to start again. Triton is large and optional, so nothing else here imports it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.config import is_size, require
from course_lib.flash import check_shapes

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("course_lib.flash_triton needs Triton (Linux, about 0.7 GB), which is not installed. To get "
                      "it: pip install -c constraints.txt -e '.[kernels]'") from error

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCKS = (16, 32, 64, 128, 256)


@triton.jit
def attention_tile(q, k, v, out, q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, out_b, out_h, out_t,
                   H, groups, T, S, Dh, scale, CAUSAL: tl.constexpr, DOT: tl.constexpr,
                   BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr):
    """Attention of BLOCK_Q queries of one head, in the names of `course_lib.flash`; `x_y` is a step of x along y."""
    first, head = tl.program_id(0) * BLOCK_Q, tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    t, d = first + tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_D)
    q += b * q_b + h * q_h
    k += b * k_b + h // groups * k_h  # the query heads of a group read the same keys
    v += b * v_b + h // groups * v_h
    in_q = (t < T)[:, None] & (d < Dh)[None, :]
    rows = tl.load(q + t[:, None] * q_t + d[None, :], mask=in_q, other=0.0).to(DOT)  # (BLOCK_Q, BLOCK_D)

    m = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)  # noqa: E741
    o = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    seen = min(S, S - T + first + BLOCK_Q) if CAUSAL else S
    for start in range(0, seen, BLOCK_K):
        s = start + tl.arange(0, BLOCK_K)
        in_k = (s < S)[:, None] & (d < Dh)[None, :]
        keys = tl.load(k + s[:, None] * k_s + d[None, :], mask=in_k, other=0.0).to(DOT)  # (BLOCK_K, BLOCK_D)
        values = tl.load(v + s[:, None] * v_s + d[None, :], mask=in_k, other=0.0).to(DOT)
        scores = tl.dot(rows, tl.trans(keys), input_precision="ieee") * scale  # (BLOCK_Q, BLOCK_K)
        visible = (s < S)[None, :]
        if CAUSAL:
            visible = visible & (s[None, :] <= S - T + t[:, None])
        scores = tl.where(visible, scores, -float("inf"))
        larger = tl.maximum(m, tl.max(scores, 1))
        finite = tl.maximum(larger, -3e38)  # a row without a key yet: exp(-inf - finite) is 0, not NaN
        weights, keep = tl.exp(scores - finite[:, None]), tl.exp(m - finite)
        m = larger
        l = keep * l + tl.sum(weights, 1)  # noqa: E741
        o = keep[:, None] * o + tl.dot(weights.to(DOT), values, input_precision="ieee")

    out += b * out_b + h * out_h
    o = o / tl.maximum(l, 1.0)[:, None]  # below 1 is the 0 of a row that saw no key
    tl.store(out + t[:, None] * out_t + d[None, :], o.to(out.dtype.element_ty), mask=in_q)


def flash_attention_triton(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, block_q: int | None = None,
                           block_k: int | None = None) -> Tensor:
    """Attention (B, H, T, Dh), as `course_lib.flash.flash_attention`, in one launch; forward only.

    Args:
        q: (B, H, T, Dh) in float32, bfloat16 or float16, its last axis without gaps, on a GPU or, interpreted, a CPU.
        k, v: (B, Hkv, S, Dh), H a multiple of Hkv. Dh is at most 256.
        causal: whether the queries are the last T of the S positions, none of which sees a later one.
        block_q, block_k: queries and keys of a tile, a power of 2 from 16 to 256; None: see `fitting_block`.

    Raises:
        ValueError: shapes, type, device or block sizes that the kernel does not take.
    """
    check_shapes(q, k, v)
    block_q, block_k = (fitting_block(q) if block is None else block for block in (block_q, block_k))
    check_for_kernel(q, k, v, block_q, block_k)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    (B, H, T, Dh), Hkv, S = q.shape, k.shape[1], k.shape[2]
    if out.numel():
        strides = [step for x in (q, k, v, out) for step in x.stride()[:3]]
        attention_tile[triton.cdiv(T, block_q), B * H](
            q, k, v, out, *strides, H, H // Hkv, T, S, Dh, Dh**-0.5, CAUSAL=causal, DOT=dot_type(q),
            BLOCK_Q=block_q, BLOCK_K=block_k, BLOCK_D=padded(Dh))
    return out


def check_for_kernel(q: Tensor, k: Tensor, v: Tensor, block_q: int, block_k: int) -> None:
    """Refuse what the kernel is not written for."""
    require(q.dtype in DTYPES, "q.dtype", q.dtype, f"one of {', '.join(map(str, DTYPES))}")
    require(k.shape == v.shape and q.shape[3] <= 256, "v.shape", tuple(v.shape), "that of k, with Dh <= 256")
    for name, size in (("block_q", block_q), ("block_k", block_k)):
        require(is_size(size) and size in BLOCKS, name, size, f"one of {BLOCKS}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        require(x.stride(3) == 1, f"{name}.stride(3)", x.stride(3), "1: its last axis without gaps")
        require(x.device == q.device, f"{name}.device", x.device, f"that of q, {q.device}")
    if not interpreted():
        require(q.is_cuda, "q.device", q.device, "a GPU; for a CPU, start Python with TRITON_INTERPRET=1 in its "
                                                 "environment")


def padded(head_dim: int) -> int:
    """The power of 2, at least 16, that the kernel works with in place of Dh."""
    return max(16, triton.next_power_of_2(head_dim))


def fitting_block(q: Tensor) -> int:
    """Positions of a tile that fit the 160 kB of shared memory of an A100; products in float32 need more of it."""
    return 64 if q.element_size() == 2 else max(16, min(64, 4096 // padded(q.shape[3])))


def dot_type(q: Tensor) -> tl.dtype:
    """What the products multiply; always added up in float32. The interpreter has no product of bfloat16."""
    if q.dtype == torch.float32 or interpreted():
        return tl.float32
    return tl.bfloat16 if q.dtype == torch.bfloat16 else tl.float16


def interpreted() -> bool:
    """Whether Triton runs the kernel in its interpreter, as the environment said when this module was imported."""
    return not isinstance(attention_tile, triton.JITFunction)
