"""Keys and values of the positions already seen, kept so that they are computed once.

Names and shapes are those of `transformers`: per layer (B, Hkv, S, Dh), keys after RoPE.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course_lib.config import ModelConfig, require


class DynamicCache:
    """Grows by concatenation: no length to choose, but every step copies all that came before."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Append (B, Hkv, T, Dh) to a layer; return all its keys and values, (B, Hkv, S, Dh)."""
        if layer_idx == len(self.keys):
            self.keys.append(key_states)
            self.values.append(value_states)
        else:
            self.keys[layer_idx] = torch.cat((self.keys[layer_idx], key_states), dim=2)
            self.values[layer_idx] = torch.cat((self.values[layer_idx], value_states), dim=2)
        return self.keys[layer_idx], self.values[layer_idx]

    def get_seq_length(self) -> int:
        """Positions held."""
        return self.keys[0].shape[2] if self.keys else 0

    def crop(self, length: int) -> None:
        """Forget every position from `length` on; in [0, get_seq_length()]."""
        check_crop(length, self.get_seq_length())
        self.keys = [keys[:, :, :length] for keys in self.keys]
        self.values = [values[:, :, :length] for values in self.values]

    def reset(self) -> None:
        """Forget everything."""
        self.keys, self.values = [], []

    @property
    def nbytes(self) -> int:
        """Bytes of the positions held."""
        return sum(t.numel() * t.element_size() for t in self.keys + self.values)


class StaticCache:
    """Allocated once: a step writes T new rows in place and returns views, so nothing is copied.

    Args:
        config: of the model; its layers, key/value heads and head_dim set the shape.
        max_length: positions to make room for, in [1, max_position_embeddings].
        batch_size: rows, B.
        dtype, device: of the model's activations.

    Raises:
        ValueError: a size is out of range, or an update would not fit.
    """

    def __init__(self, config: ModelConfig, max_length: int, *, batch_size: int = 1,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        require(1 <= max_length <= config.max_position_embeddings, "max_length", max_length,
                f"in [1, max_position_embeddings = {config.max_position_embeddings}]")
        require(batch_size >= 1, "batch_size", batch_size, ">= 1")
        shape = (config.num_hidden_layers, batch_size, config.num_key_value_heads, max_length,
                 config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)  # (L, B, Hkv, max_length, Dh)
        self.values = torch.empty_like(self.keys)
        self.layers = list(zip(self.keys.unbind(), self.values.unbind()))  # views, one pair a layer
        self.lengths = [0] * config.num_hidden_layers

    @classmethod
    def for_model(cls, model: Any, max_length: int, *, batch_size: int = 1) -> StaticCache:
        """An empty cache of a model's shape, in the type of its weights and on their device.

        Args:
            model: anything with a `config` and `parameters()`.
            max_length, batch_size: as above.
        """
        weight = next(model.parameters())
        return cls(model.config, max_length, batch_size=batch_size, dtype=weight.dtype, device=weight.device)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Write (B, Hkv, T, Dh) after a layer's positions; return views of all, (B, Hkv, S, Dh)."""
        (keys, values), start, T = self.layers[layer_idx], self.lengths[layer_idx], key_states.shape[2]
        end = start + T
        if end > keys.shape[2]:
            raise ValueError(f"{end} positions do not fit a cache of max_length = {keys.shape[2]}")
        keys.narrow(2, start, T).copy_(key_states)
        values.narrow(2, start, T).copy_(value_states)
        self.lengths[layer_idx] = end
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def get_seq_length(self) -> int:
        """Positions held."""
        return self.lengths[0]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on; in [0, get_seq_length()]. Nothing is freed."""
        check_crop(length, self.get_seq_length())
        self.lengths = [length] * len(self.lengths)

    def reset(self) -> None:
        """Forget everything; the memory stays."""
        self.crop(0)

    @property
    def nbytes(self) -> int:
        """Bytes allocated, used or not."""
        return 2 * self.keys.numel() * self.keys.element_size()


def check_crop(length: int, held: int) -> None:
    """Refuse a crop that would lengthen the cache or cut to a negative length."""
    require(0 <= length <= held, "length", length, f"in [0, {held}], the positions held")
