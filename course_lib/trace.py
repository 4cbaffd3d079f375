"""One pass through the model with everything that happened on the way kept for looking at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.layers import attention_weights, causal_mask
from course_lib.model import CausalLM


@dataclass(frozen=True)
class Trace:
    """What `trace` saw.

    Attributes:
        hidden_states: (L + 1, B, T, D), the residual stream before each layer and after the last one.
        attentions: (L, B, H, T, T), how much each position took from each.
        logits: (B, T, V).
    """

    hidden_states: Tensor
    attentions: Tensor
    logits: Tensor


@torch.inference_mode()
def trace(model: CausalLM, input_ids: Tensor) -> Trace:
    """Run `input_ids` (B, T) through the model, without a cache, and keep what passed.

    The model computes attention in a fused kernel that never shows its weights. They are computed a
    second time here, from each layer's own queries and keys, by `course_lib.layers.attention_weights`.
    """
    entering: list[Tensor] = []
    attentions: list[Tensor] = []

    def on_layer(layer: nn.Module, args: tuple[Any, ...]) -> None:
        entering.append(args[0])

    def on_attention(attn: nn.Module, args: tuple[Any, ...]) -> None:
        q, k, _ = attn.project(args[0], args[1])
        mask = causal_mask(q.shape[2], k.shape[2], window=model.config.sliding_window, device=q.device)
        attentions.append(attention_weights(q, k, mask))

    def on_norm(norm: nn.Module, args: tuple[Any, ...]) -> None:
        entering.append(args[0])

    with hooks([(layer, on_layer) for layer in model.layers]
               + [(layer.self_attn, on_attention) for layer in model.layers] + [(model.norm, on_norm)]):
        logits = model(input_ids)
    return Trace(torch.stack(entering), torch.stack(attentions), logits)


@contextmanager
def hooks(pairs: list[tuple[nn.Module, Any]]) -> Iterator[None]:
    """Call each function with its module's arguments before the module runs, until the block ends."""
    handles = [module.register_forward_pre_hook(function) for module, function in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
