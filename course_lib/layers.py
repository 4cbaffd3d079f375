"""The parts of a transformer block, each a function or a small module.

Shapes, here and everywhere: `B` batch, `T` query positions in this call, `S` key positions,
`D` hidden_size, `H` query heads, `Hkv` key/value heads, `Dh` head_dim, `F` intermediate_size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.config import ModelConfig


class RMSNorm(nn.Module):
    """Scale each vector to root mean square 1, then by a learned weight (Zhang & Sennrich 2019).

    The mean of squares is taken in float32: in float16 the square of 300 is already infinite.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) to (..., size), in the type of `x`."""
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


def make_norm(size: int, config: ModelConfig) -> nn.Module:
    """The normalization this family uses."""
    norm = RMSNorm if config.norm == "rmsnorm" else nn.LayerNorm
    return norm(size, eps=config.rms_norm_eps)


def rope_frequencies(config: ModelConfig) -> Tensor:
    """How fast each pair of dimensions turns, in radians per position: (Dh / 2,), float32, on the CPU.

    Source: Su et al. 2021; the `rope_scaling` branch is Llama 3.1's.
    """
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu") / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponent
    if config.rope_scaling is None:
        return frequencies
    s = config.rope_scaling
    turns = s.original_max_position_embeddings * frequencies / (2 * math.pi)
    keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    return torch.lerp(frequencies / s.factor, frequencies, keep.clamp(0, 1))


def rope_tables(config: ModelConfig, length: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle: two tables (length, Dh), by default of all max_position_embeddings.

    Both halves of a row are equal: dimension i turns together with dimension i + Dh / 2. They are
    computed on the CPU, so that they are the same numbers on every device.
    """
    positions = torch.arange(length or config.max_position_embeddings, dtype=torch.float32, device="cpu")
    angles = torch.outer(positions, rope_frequencies(config)).repeat(1, 2)  # (positions, Dh)
    return angles.cos(), angles.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + Dh / 2) of `x` by the angles of their positions.

    Args:
        x: queries or keys (B, H, T, Dh).
        cos, sin: rows of `rope_tables` for the T positions, broadcastable to `x`.

    >>> quarter = torch.tensor([torch.pi / 2]).repeat(2)
    >>> apply_rope(torch.tensor([[[[3.0, 0.0]]]]), quarter.cos(), quarter.sin()).round().tolist()
    [[[[-0.0, 3.0]]]]
    """
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    """Give each of `groups` neighbouring query heads its key/value head: (B, Hkv, S, Dh) to (B, H, S, Dh).

    >>> repeat_kv(torch.tensor([10, 20]).view(1, 2, 1, 1), 2).flatten().tolist()
    [10, 10, 20, 20]
    """
    return x.repeat_interleave(groups, dim=1)


def causal_mask(T: int, S: int, *, window: int | None = None, device: torch.device | None = None) -> Tensor:
    """Which of S keys each of the last T positions may see: (T, S), True where it may.

    The queries are the last T of the S positions. `window` counts the query's own position.

    >>> causal_mask(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    >>> causal_mask(3, 3, window=2).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    query = torch.arange(S - T, S, device=device)[:, None]
    key = torch.arange(S, device=device)
    seen = key <= query
    return seen if window is None else seen & (key > query - window)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """How much each query takes from each key: softmax(q k^T / sqrt(Dh)), (B, H, T, S).

    A query that may see no key gets a row of zeros, not NaN and not a uniform row.

    Args:
        q: (B, H, T, Dh).
        k: (B, Hkv, S, Dh), repeated over the query heads of its group.
        mask: broadcastable to (B, H, T, S), True where the query may see the key; None: everywhere.
    """
    k = repeat_kv(k, q.shape[1] // k.shape[1])
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask, 0.0)  # softmax of nothing is NaN; nothing was taken


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017), every step visible: (B, H, T, Dh).

    The arguments are those of `attention_weights`, and `v` has the shape of `k`. The model calls `fused_attention`,
    which gives the same in one kernel.
    """
    return attention_weights(q, k, mask) @ repeat_kv(v, q.shape[1] // v.shape[1])


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same by `torch.nn.functional.scaled_dot_product_attention`: (B, H, T, Dh).

    Args:
        q: (B, H, T, Dh).
        k, v: (B, Hkv, S, Dh).
        mask: broadcastable to (B, H, T, S), True where the query may see the key, or numbers that are added to the
            scores; None: T is S, causal, or 1, and sees every key.
    """
    if q.shape[2] > 1:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
    rows = q.reshape(*k.shape[:2], -1, q.shape[3])  # (B, Hkv, H / Hkv, Dh): the heads of a group read the same keys
    return F.scaled_dot_product_attention(rows, k, v, mask).reshape(q.shape)


ACTIVATION = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class MLP(nn.Module):
    """The feed-forward network: widen, bend, narrow; with a gate in the Llama family (SwiGLU)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, width, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(D, width, bias=bias) if config.gated_mlp else None
        self.up_proj = nn.Linear(D, width, bias=bias)
        self.down_proj = nn.Linear(width, D, bias=bias)
        self.activation = ACTIVATION[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(x)))
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
