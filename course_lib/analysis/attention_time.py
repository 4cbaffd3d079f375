"""Causal attention in each way that a machine has it, timed side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.config import ModelConfig, require
from course_lib.flash import flash_attention
from course_lib.layers import attention, causal_mask

Calls = Mapping[str, Callable[[], Tensor]]


def attention_inputs(config: ModelConfig, tokens: int, *, device: torch.device | str = "cpu",
                     dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries (1, H, tokens, Dh), keys and values (1, Hkv, tokens, Dh) of one layer; the same on every call."""
    generator = torch.Generator().manual_seed(0)
    heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    return tuple(torch.randn(1, n, tokens, config.head_dim, generator=generator).to(device, dtype) for n in heads)


def attention_calls(q: Tensor, k: Tensor, v: Tensor) -> Calls:
    """Causal attention of these, T == S, by name; on a GPU with the Triton kernel, if Triton is installed."""
    mask = causal_mask(q.shape[2], k.shape[2], device=q.device)
    calls = {"naive": lambda: attention(q, k, v, mask),
             "tiled": lambda: flash_attention(q, k, v, causal=True),
             "SDPA": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)}
    if q.is_cuda and find_spec("triton"):
        from course_lib.flash_triton import flash_attention_triton  # optional, and only for this

        calls["Triton"] = lambda: flash_attention_triton(q, k, v, causal=True)
    return calls


@torch.inference_mode()
def fastest(calls: Calls, *, rounds: int = 5) -> dict[str, float]:
    """Seconds of the fastest of several runs of each call; they take turns, after one round that does not count.

    Whatever else a machine does only ever slows a run down, so the fastest says most.
    """
    require(rounds >= 1, "rounds", rounds, ">= 1")
    settle = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            settle()
            start = time.perf_counter()
            call()
            settle()
            seconds[name].append(time.perf_counter() - start)
    return {name: min(times[1:]) for name, times in seconds.items()}
