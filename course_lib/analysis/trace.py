"""What a forward pass went through: the residual stream, the attention weights and the logits."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course_lib.layers import attention_weights, causal_mask
from course_lib.model import Attention, CausalLM


@dataclass(frozen=True)
class Trace:
    """Values of one forward pass.

    Attributes:
        hidden_states: the residual stream as it enters each layer and as it leaves the last one, before
            the final norm: (L + 1, B, T, D).
        attentions: how much each query takes from each key: (L, B, H, T, T), rows that sum to 1.
        logits: (B, T, V).
    """

    hidden_states: Tensor
    attentions: Tensor
    logits: Tensor


@torch.no_grad()
def trace(model: CausalLM, input_ids: Tensor) -> Trace:
    """Run the model over `input_ids` (B, T), without a cache, and keep what passes by.

    The fused attention kernel never forms the weights, so they are computed a second time, from the
    queries and keys of the layer's own projections. That takes B * H * T * T numbers per layer.
    """
    hidden_states, attentions = [], []
    with ExitStack() as hooks:  # removes them, whatever happens
        for layer in model.layers:
            hooks.enter_context(layer.register_forward_pre_hook(lambda _, args: hidden_states.append(args[0])))
            hooks.enter_context(layer.self_attn.register_forward_pre_hook(
                lambda attention, args: attentions.append(weights_of(attention, *args))))
        hooks.enter_context(model.norm.register_forward_pre_hook(lambda _, args: hidden_states.append(args[0])))
        logits = model(input_ids)
    return Trace(torch.stack(hidden_states), torch.stack(attentions), logits)


def weights_of(attention: Attention, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None,
               kv_cache: Any) -> Tensor:
    """The attention weights (B, H, T, T) of a layer that is called with these arguments."""
    q, k, _ = attention.project(x, rope)
    if mask is None:
        mask = causal_mask(q.shape[2], k.shape[2], device=x.device)
    return attention_weights(q, k, mask)
