"""Keys and values in pages: one pool for all sequences, and what attention reads of it in one pass.

The pool is written and read through block tables (`course_lib.paging`), so a sequence's pages may lie anywhere. Before
attention they are gathered, one layer at a time, into rows that lie in order: a copy, which a kernel that follows
block tables itself saves (Kwon et al. 2023). On a CPU the copy takes about a tenth of a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.config import ModelConfig, require


class PagedCache:
    """The pool of pages, zeros at first: what is masked is multiplied by 0, and NaN times 0 is NaN.

    Args:
        config: of the model; its layers, key/value heads and head_dim set the shape.
        num_blocks: pages, >= 1.
        block_size: tokens in a page, >= 1.
        dtype, device: of the model's activations.
    """

    def __init__(self, config: ModelConfig, num_blocks: int, block_size: int, *,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        require(num_blocks >= 1, "num_blocks", num_blocks, ">= 1")
        require(block_size >= 1, "block_size", block_size, ">= 1")
        self.config, self.block_size = config, block_size
        heads = 2 * config.num_key_value_heads  # of a token all keys, then all values: one copy moves both
        shape = (config.num_hidden_layers, num_blocks, block_size, heads, config.head_dim)
        self.pages = zeros(shape, dtype, torch.device(device))  # (L, num_blocks, block_size, 2 Hkv, Dh)
        self.layers = self.pages.unbind()
        self.room = torch.empty(0, dtype=dtype, device=device)  # for what is gathered, one layer at a time

    @classmethod
    def for_model(cls, model: Any, num_blocks: int, block_size: int) -> PagedCache:
        """Pages for a model, in the type of its weights and on their device."""
        weight = next(model.parameters())
        return cls(model.config, num_blocks, block_size, dtype=weight.dtype, device=weight.device)

    def copy_block(self, source: int, target: int) -> None:
        """Copy a page in all layers, for a sequence that will write to it while another still reads it."""
        self.pages[:, target] = self.pages[:, source]

    def rows(self, tables: Sequence[Sequence[int]], past: Sequence[int], T: int = 1) -> PagedRows:
        """What the model is given as its cache for one pass: T new tokens for each of these sequences.

        Args:
            tables: their pages, in the order of the text, with places for the new tokens.
            past: positions that each of them has computed.
            T: 1, or for a single sequence any number >= 1.
        """
        return PagedRows(self, tables, past, T)

    def gather(self, layer_idx: int, block_ids: Tensor) -> Tensor:
        """Copies of some pages of a layer, one after another: (n, block_size, 2 Hkv, Dh), until the next call."""
        pages = self.layers[layer_idx]
        shape = (len(block_ids), *pages.shape[1:])
        if self.room.numel() < math.prod(shape):  # memory that is kept costs no page faults
            self.room = pages.new_empty(2 * math.prod(shape))
        return torch.index_select(pages, 0, block_ids, out=self.room[: math.prod(shape)].view(shape))

    @property
    def nbytes(self) -> int:
        """Bytes of all pages, used or not."""
        return self.pages.nbytes


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """As `torch.zeros`, but on a CPU the system gives the memory only where something is written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(*shape)


class PagedRows:
    """B sequences of different lengths in one pass of the model, T new tokens each; a `KVCache`.

    Row b has seen past[b] positions and lies at the beginning of its row of keys; what follows it is masked. Where
    B > 1 the model needs `attention_mask`, which tells it the positions.

    Args:
        cache: the pool.
        tables, past, T: as for `PagedCache.rows`.
    """

    def __init__(self, cache: PagedCache, tables: Sequence[Sequence[int]], past: Sequence[int], T: int) -> None:
        require(T >= 1 and (T == 1 or len(tables) == 1), "T", T, "1 for several sequences, else >= 1")
        size, device = cache.block_size, cache.pages.device
        self.cache, self.B, self.T, self.S = cache, len(tables), T, max(past) + T
        width = -(-self.S // size)  # pages of the longest row; a shorter one repeats its first, which is masked
        last = [(n + T - 1) // size for n in past]  # of each row's own pages that are written to
        own = [table[: i + 1] for table, i in zip(tables, last)]
        begun = [table[i] for table, i, n in zip(tables, last, past) if i * size >= n]
        self.begun = torch.tensor(begun, device=device) if begun else None  # last pages that nothing of theirs is in
        padded = [[*table, *[table[0]] * (width - len(table))] for table in own]
        self.block_ids = torch.tensor(padded, device=device).view(-1)  # (B * width,)
        places = [table[i // size] * size + i % size for table, n in zip(tables, past) for i in range(n, n + T)]
        self.places = torch.tensor(places, device=device)  # (B * T,), of the new tokens in the pool
        key = torch.arange(self.S, device=device)
        query = torch.tensor(past, device=device)[:, None] + torch.arange(T, device=device)  # (B, T)
        self.seen = key <= query[..., None]  # (B, T, S)
        self.attention_mask = self.seen[:, 0] if self.B > 1 else None
        window = cache.config.sliding_window
        if window is not None:
            self.seen = self.seen & (key > query[..., None] - window)
        self.needs_mask = self.B > 1 or T not in (1, self.S) or (window is not None and self.S > window)

    def get_seq_length(self) -> int:
        """Positions that the longest row has seen."""
        return self.S - self.T

    def mask(self, T: int, attention_mask: Tensor | None = None) -> Tensor | None:
        """What is added to the scores, (B, 1, T, S): 0 where a query may see a key, else -inf. None: nothing."""
        if not self.needs_mask:
            return None
        scores = torch.zeros(self.seen.shape, dtype=self.cache.pages.dtype, device=self.seen.device)
        return scores.masked_fill_(~self.seen, -torch.inf)[:, None]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Write (B, Hkv, T, Dh) to the pages of a layer; return all, (B, Hkv, S, Dh), until the next call."""
        new = torch.cat((key_states, value_states), dim=1)  # (B, 2 Hkv, T, Dh)
        pages = self.cache.layers[layer_idx]
        if self.begun is not None:  # what another sequence left there may be NaN, which a mask does not hide
            pages.index_fill_(0, self.begun, 0)
        pages.flatten(0, 1).index_copy_(0, self.places, new.transpose(1, 2).flatten(0, 1))
        if self.S == self.T:
            return key_states, value_states
        states = self.cache.gather(layer_idx, self.block_ids).view(self.B, -1, *pages.shape[2:])
        states = states.narrow(1, 0, self.S).transpose(1, 2)  # (B, 2 Hkv, S, Dh)
        return states.chunk(2, dim=1)
