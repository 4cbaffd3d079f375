"""A KV cache of one byte a number: a quarter of float32's, with a scale for each head's key and value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course_lib.config import ModelConfig, require
from course_lib.rounding import dequantize, quantize_tensor, symmetric_scale


class QuantizedCache:
    """Keys and values in int8, rounded once, when they come in; `update` returns them all dequantized.

    One position's key or value in one head shares a scale: later positions cannot change what is stored, and a large
    number in one head costs the others no precision. What `update` returns exists for one layer at a time.

    Args:
        config: of the model; its layers, key/value heads and head_dim set the shape.
        max_length: positions to make room for, in [1, max_position_embeddings].
        batch_size: rows, B.
        dtype, device: of the model's activations.

    Raises:
        ValueError: a size is out of range, an update would not fit, or it holds NaN or infinity.
    """

    def __init__(self, config: ModelConfig, max_length: int, *, batch_size: int = 1,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        require(1 <= max_length <= config.max_position_embeddings, "max_length", max_length,
                f"in [1, max_position_embeddings = {config.max_position_embeddings}]")
        require(batch_size >= 1, "batch_size", batch_size, ">= 1")
        shape = (config.num_hidden_layers, batch_size, config.num_key_value_heads, max_length, config.head_dim)
        self.keys = torch.empty(shape, dtype=torch.int8, device=device)  # (L, B, Hkv, max_length, Dh)
        self.values = torch.empty_like(self.keys)
        self.key_scales = torch.empty((*shape[:-1], 1), dtype=torch.bfloat16, device=device)
        self.value_scales = torch.empty_like(self.key_scales)
        self.dtype, self.lengths = dtype, [0] * config.num_hidden_layers

    @classmethod
    def for_model(cls, model: Any, max_length: int, *, batch_size: int = 1) -> QuantizedCache:
        """An empty cache of a model's shape, that returns the type of its weights, on their device."""
        weight = next(model.parameters())
        return cls(model.config, max_length, batch_size=batch_size, dtype=weight.dtype, device=weight.device)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Round (B, Hkv, T, Dh) and write them after a layer's positions; return all, (B, Hkv, S, Dh)."""
        start, T = self.lengths[layer_idx], key_states.shape[2]
        end, room = start + T, self.keys.shape[3]
        if end > room:
            raise ValueError(f"{end} positions do not fit a cache of max_length = {room}")
        result = []
        for states, codes, scales in ((key_states, self.keys, self.key_scales),
                                      (value_states, self.values, self.value_scales)):
            require(bool(states.isfinite().all()), "keys or values", f"NaN or infinite in layer {layer_idx}", "finite")
            codes, scales = codes[layer_idx], scales[layer_idx]
            scales[:, :, start:end] = symmetric_scale(states.float(), 8)
            codes[:, :, start:end] = quantize_tensor(states.float(), scales[:, :, start:end].float(), 8)
            result.append(dequantize(codes[:, :, :end], scales[:, :, :end].to(self.dtype)))
        self.lengths[layer_idx] = end
        return result[0], result[1]

    def get_seq_length(self) -> int:
        """Positions held."""
        return self.lengths[0]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on; in [0, get_seq_length()]. Nothing is freed."""
        require(0 <= length <= self.lengths[0], "length", length, f"in [0, {self.lengths[0]}], the positions held")
        self.lengths = [length] * len(self.lengths)

    def reset(self) -> None:
        """Forget everything; the memory stays."""
        self.crop(0)

    @property
    def nbytes(self) -> int:
        """Bytes allocated, codes and scales, used or not."""
        return sum(part.nbytes for part in (self.keys, self.values, self.key_scales, self.value_scales))
