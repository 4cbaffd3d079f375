"""Keys and values of the positions already seen, kept so that they are computed once.

Names and shapes are those of `transformers`: per layer (B, Hkv, S, Dh), keys after RoPE. `cache_for` chooses the one
that a model needs.
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


class Allocated:
    """Keys and values of every layer as two tensors that are allocated once, for the caches that write in place.

    Args:
        room: positions that fit; the rest as for the caches.
    """

    def __init__(self, config: ModelConfig, room: int, *, batch_size: int, dtype: torch.dtype,
                 device: torch.device | str) -> None:
        require(batch_size >= 1, "batch_size", batch_size, ">= 1")
        shape = (config.num_hidden_layers, batch_size, config.num_key_value_heads, room, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)  # (L, B, Hkv, room, Dh)
        self.values = torch.empty_like(self.keys)
        self.layers = list(zip(self.keys.unbind(), self.values.unbind()))  # views, one pair a layer
        self.lengths = [0] * config.num_hidden_layers

    def get_seq_length(self) -> int:
        """Positions seen, whether they are still held or not."""
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


class StaticCache(Allocated):
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
        check_length(max_length, config)
        super().__init__(config, max_length, batch_size=batch_size, dtype=dtype, device=device)

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


class SlidingWindowCache(Allocated):
    """A ring: the newest position overwrites the one that its window has left, so the bytes are bounded.

    Slots 0 ... sink - 1 keep the first positions for good, the others take turns. Keys carry RoPE at their position
    in the text, so their order in memory means nothing to attention. (StreamingLLM numbers the positions by slot
    instead; the two differ only in how far the sink seems to be.)

    Source: Beltagy et al. 2020 (the window), Xiao et al. 2023 (the sink).

    Args:
        config: of the model; a window that it was trained with must be at least as long as this one.
        window: positions that a query sees, itself included, >= 1.
        sink: first positions that every query sees as well, >= 0.
        batch_size: rows, B.
        dtype, device: of the model's activations.

    Raises:
        ValueError: a size is out of range, or `crop` would need what has been overwritten.
    """

    def __init__(self, config: ModelConfig, window: int, *, sink: int = 0, batch_size: int = 1,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        longest = config.sliding_window or config.max_position_embeddings
        require(1 <= window <= longest, "window", window, f"in [1, {longest}], what a query of this model may see")
        room = config.max_position_embeddings - window
        require(0 <= sink <= room, "sink", sink, f"in [0, {room}], the positions outside the window")
        super().__init__(config, sink + window, batch_size=batch_size, dtype=dtype, device=device)
        self.window, self.sink = window, sink
        self.newest = 0  # positions ever written: of them the ring holds the last `window`

    def slots(self, positions: Tensor) -> Tensor:
        """Where these positions lie, of any shape."""
        return torch.where(positions < self.sink, positions, self.sink + (positions - self.sink) % self.window)

    def held(self, length: int) -> Tensor:
        """Which position lies in each slot, slot by slot, after `length` positions: (min(length, sink + window),)."""
        slot = torch.arange(min(length, self.sink + self.window), device=self.keys.device)
        turns = (length - 1 - slot).div(self.window, rounding_mode="floor")  # how often the slot was overwritten
        return torch.where(slot < self.sink, slot, slot + turns * self.window)

    def key_positions(self, T: int) -> Tensor:
        """The positions of the keys that `update` will return for T new ones, in their order: (S,)."""
        past = self.get_seq_length()
        if T == 1:
            return self.held(past + 1)
        return torch.cat((self.held(past), torch.arange(past, past + T, device=self.keys.device)))

    def mask(self, T: int, attention_mask: Tensor | None = None) -> Tensor | None:
        """Which of the keys that `update` will return each of T new positions may see; None: the usual ones.

        Args:
            attention_mask: (B, positions so far and T new), False or 0 on padding; only without a sink, since
                the first positions of a padded row are padding.

        Returns:
            (T, S) or (B, 1, T, S), True where the query may see the key; None for one new position, which sees all
            that is left, and for a text that fits the window.
        """
        past = self.get_seq_length()
        if attention_mask is None and (T == 1 or (past == 0 and T <= self.window)):
            return None
        query, key = torch.arange(past, past + T, device=self.keys.device)[:, None], self.key_positions(T)
        seen = (key <= query) & ((key > query - self.window) | (key < self.sink))  # (T, S)
        if attention_mask is None:
            return seen
        require(self.sink == 0, "sink", self.sink, "0 where rows are padded: their first positions are padding")
        return seen & attention_mask[:, None, None, key].bool()  # (B, 1, T, S)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Write (B, Hkv, T, Dh) over what the window leaves; return what T queries may need, (B, Hkv, S, Dh).

        For one position that is the ring itself. Several together see more than the ring ever holds: they get a
        copy of what was in it, followed by the new ones.
        """
        start, T = self.lengths[layer_idx], key_states.shape[2]
        end = self.lengths[layer_idx] = start + T
        self.newest = max(self.newest, end)
        pair, new = self.layers[layer_idx], (key_states, value_states)
        if T == 1:
            slot = start if start < self.sink else self.sink + (start - self.sink) % self.window
            filled = min(end, self.sink + self.window)
            for ring, states in zip(pair, new):
                ring.narrow(2, slot, 1).copy_(states)
            return pair[0].narrow(2, 0, filled), pair[1].narrow(2, 0, filled)
        filled = min(start, self.sink + self.window)
        seen = tuple(torch.cat((ring[:, :, :filled], states), dim=2) if start else states
                     for ring, states in zip(pair, new))
        positions = torch.arange(start, end, device=self.keys.device)
        kept = positions[(positions < self.sink) | (positions >= end - self.window)]
        for ring, states in zip(pair, new):
            ring[:, :, self.slots(kept)] = states[:, :, kept - start]
        return seen

    def crop(self, length: int) -> None:
        """Forget every position from `length` on; in [0, get_seq_length()].

        Raises:
            ValueError: a position that the next query sees has been overwritten.
        """
        nothing_lost = self.newest <= self.sink + self.window
        require(nothing_lost or length >= self.newest - 1 or length <= self.sink, "length", length,
                f"at least {self.newest - 1} or at most {self.sink}: of the window before it, part is overwritten")
        super().crop(length)
        if length <= self.sink:
            self.newest = length


def cache_for(model: Any, max_length: int, *, batch_size: int = 1) -> StaticCache | SlidingWindowCache:
    """An empty cache for a model: a ring where the model looks back less far than the text is long.

    Args:
        model: anything with a `config` and `parameters()`; the cache has the type of its weights and their device.
        max_length: positions of the whole text, in [1, max_position_embeddings].
        batch_size: rows, B.
    """
    window = model.config.sliding_window
    if window is None or max_length <= window:
        return StaticCache.for_model(model, max_length, batch_size=batch_size)
    check_length(max_length, model.config)
    weight = next(model.parameters())
    return SlidingWindowCache(model.config, window, batch_size=batch_size, dtype=weight.dtype, device=weight.device)


def check_length(max_length: int, config: ModelConfig) -> None:
    """Refuse a length that is none, or that the model has no positions for."""
    require(1 <= max_length <= config.max_position_embeddings, "max_length", max_length,
            f"in [1, max_position_embeddings = {config.max_position_embeddings}]")


def check_crop(length: int, held: int) -> None:
    """Refuse a crop that would lengthen the cache or cut to a negative length."""
    require(0 <= length <= held, "length", length, f"in [0, {held}], the positions held")
