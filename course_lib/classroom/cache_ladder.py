"""A ladder of tests for a KV cache, every way to cut a text into calls, and three caches that each fall off one rung.

A cache changes what a model costs and nothing of what it says. So whatever the calls, the logits have to be those of
one pass without a cache: in all rows, through at least two layers, with shared heads and positions that turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.config import ModelConfig, require
from course_lib.kv_cache import DynamicCache
from course_lib.layers import causal_mask
from course_lib.model import CausalLM
from course_lib.threads import one_thread

CLOSE = 1e-10  # of logits of a few units in float64, where rounding leaves some 1e-15


class Buffers:
    """The room of one layer: keys and values (B, Hkv, max_length, Dh), and how many positions are written."""

    def __init__(self, batch_size: int, heads: int, max_length: int, head_dim: int, *,
                 dtype: torch.dtype = torch.float32) -> None:
        self.keys = torch.full((batch_size, heads, max_length, head_dim), torch.nan, dtype=dtype)
        self.values = torch.full_like(self.keys, torch.nan)
        self.length = 0


class Climbed(NamedTuple):
    """What came of the ladder: splits tried, splits whose logits were right, and the largest difference of all."""

    splits: int
    right: int
    gap: float


def small_model(layers: int = 2) -> CausalLM:
    """Six query heads on two key/value heads, RoPE, float64, and weights of which each one matters."""
    config = ModelConfig(vocab_size=37, hidden_size=20, intermediate_size=28, num_hidden_layers=layers,
                         num_attention_heads=6, num_key_value_heads=2, head_dim=4, max_position_embeddings=64)
    model, generator = CausalLM(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return model.double().eval().requires_grad_(False)


def small_text(n: int = 12) -> Tensor:
    """Ids for `small_model`, two texts: (2, n)."""
    return torch.randint(0, 37, (2, n), generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def logits_in_calls(model: CausalLM, ids: Tensor, sizes: Sequence[int], kv_cache: Any) -> Tensor:
    """The logits of a text that comes in calls of these sizes: (B, T, V).

    Args:
        ids: (B, T), with T the sum of the sizes.
        kv_cache: empty.
    """
    require(sum(sizes) == ids.shape[1], "sizes", sizes, f"together {ids.shape[1]}, the length of the text")
    return torch.cat([model(chunk, kv_cache=kv_cache) for chunk in ids.split(list(sizes), dim=1)], dim=1)


@torch.inference_mode()
def climb(make_cache: Callable[[], Any], model: CausalLM, ids: Tensor, expected: Tensor | None = None) -> Climbed:
    """Cut a text into calls in every way, and compare all logits with those of one pass without a cache.

    A text of n tokens has 2 ** (n - 1) ways; a start that several of them share is computed once.

    Args:
        make_cache: makes an empty cache, which can be copied by `copy.deepcopy`.
        ids: (B, n), n at most 14.
        expected: (B, n, V), where they are not those of the model alone.
    """
    n = ids.shape[1]
    require(1 <= n <= 14, "ids.shape[1]", n, "in [1, 14]: the ways double with each token")
    expected = model(ids) if expected is None else expected
    gaps: list[float] = []  # one for each way
    todo = [(0, 0.0, make_cache())]  # where a start ends, its largest difference, its cache
    with one_thread():  # the products are too small to share
        while todo:
            start, gap, cache = todo.pop()
            for end in range(start + 1, n + 1):
                grown = copy.deepcopy(cache)
                off = (model(ids[:, start:end], kv_cache=grown) - expected[:, start:end]).abs().max().item()
                off = max(gap, off if off == off else torch.inf)  # NaN is as wrong as can be
                gaps += [off] * (end == n)
                todo += [(end, off, grown)] * (end < n)
    return Climbed(len(gaps), sum(gap <= CLOSE for gap in gaps), max(gaps))


class LateByOne(DynamicCache):
    """Says that it holds one position more than it does, once it holds any."""

    def get_seq_length(self) -> int:
        """One too many."""
        held = super().get_seq_length()
        return held + 1 if held else 0

    def mask(self, T: int, attention_mask: Tensor | None = None) -> Tensor:
        """The right one."""
        return causal_mask(T, super().get_seq_length() + T)


class TopLeft(DynamicCache):
    """Lays the triangle of the mask into the wrong corner; a single query goes without."""

    def mask(self, T: int, attention_mask: Tensor | None = None) -> Tensor:
        """Row t sees keys 0 ... t, whatever was there before."""
        seen = torch.ones(T, self.get_seq_length() + T, dtype=torch.bool)
        return seen if T == 1 else seen.tril()


class Unmasked(DynamicCache):
    """Takes the mask to be needed in training only."""

    def mask(self, T: int, attention_mask: Tensor | None = None) -> Tensor:
        """Everything, the future included."""
        return torch.ones(T, self.get_seq_length() + T, dtype=torch.bool)


MISTAKES = {"late": LateByOne, "corner": TopLeft, "no mask": Unmasked}
SUSPECTS = {"A": TopLeft, "B": Unmasked, "C": LateByOne}
RUNGS = {"one call": (12,), "one by one": (1,) * 12, "5, then 7": (5, 7)}
