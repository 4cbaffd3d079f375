"""Attention in each way that a machine has it, timed side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.analysis import machine_speed
from course_lib.analysis.machine_speed import finished
from course_lib.config import ModelConfig
from course_lib.flash import flash_attention
from course_lib.layers import attention, causal_mask, repeat_kv

Calls = Mapping[str, Callable[[], Tensor]]


def attention_inputs(config: ModelConfig, tokens: int, *, device: torch.device | str = "cpu",
                     dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries (1, H, tokens, Dh), keys and values (1, Hkv, tokens, Dh) of one layer; the same on every call."""
    generator = torch.Generator().manual_seed(0)
    heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    return tuple(torch.randn(1, n, tokens, config.head_dim, generator=generator).to(device, dtype) for n in heads)


def attention_calls(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Calls:
    """Attention of these, T == S, by name; on a GPU with the Triton kernel, if Triton is installed.

    Args:
        causal: whether a position sees itself and earlier ones only. Then "three steps" compute every score and mask
            half of them, while the others skip the tiles that nobody sees.
    """
    mask = causal_mask(q.shape[2], k.shape[2], device=q.device) if causal else None
    calls = {"three steps": lambda: attention(q, k, v, mask),
             "in tiles": lambda: flash_attention(q, k, v, causal=causal),
             "SDPA": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)}
    if q.is_cuda and find_spec("triton"):
        from course_lib.flash_triton import flash_attention_triton  # optional, and only for this

        calls["Triton"] = lambda: flash_attention_triton(q, k, v, causal=causal)
    return calls


def three_steps_into(q: Tensor, k: Tensor, v: Tensor, scores: Tensor, weights: Tensor, *, causal: bool) -> Tensor:
    """The three steps, which write their matrices where they are told to; without gradients only.

    `attention` gets new memory for each matrix on each call, which on a CPU the operating system then brings page by
    page. The difference between the two is what that costs.

    Args:
        q, k, v: (B, H, T, Dh), and (B, Hkv, T, Dh) twice.
        scores, weights: (B, H, T, T) each, overwritten.
    """
    T, groups = q.shape[2], q.shape[1] // k.shape[1]
    torch.matmul(q, repeat_kv(k, groups).transpose(-1, -2), out=scores).div_(math.sqrt(q.shape[-1]))
    if causal:
        scores.masked_fill_(~causal_mask(T, T, device=q.device), -torch.inf)
    return torch.softmax(scores, -1, out=weights) @ repeat_kv(v, groups)


def times_by_cause(config: ModelConfig, tokens: int, *, rounds: int = 3) -> dict[str, float]:
    """Seconds for one layer, all in turns: "three steps", "in tiles", "SDPA" and "memory kept", with and without mask.

    Without a mask all do the same operations; the names of the others end in ", causal". "memory kept" is
    `three_steps_into` two matrices that stay.
    """
    q, k, v = attention_inputs(config, tokens)
    kept = [q.new_empty(*q.shape[:2], tokens, tokens) for _ in range(2)]
    calls: dict[str, Callable[[], Tensor]] = {}
    for causal, ending in ((False, ""), (True, ", causal")):
        for name, call in attention_calls(q, k, v, causal=causal).items():
            calls[name + ending] = call
        calls["memory kept" + ending] = partial(three_steps_into, q, k, v, *kept, causal=causal)
    return fastest(calls, rounds=rounds)


@torch.inference_mode()
def fastest(calls: Calls, *, rounds: int = 5) -> dict[str, float]:
    """Seconds of the fastest of several runs of each call, in turns, after one round that does not count."""
    done = {name: lambda call=call: finished(call()) for name, call in calls.items()}
    for call in done.values():
        call()
    return machine_speed.fastest(done, rounds)
