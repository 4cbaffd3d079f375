"""Keys and values in pages: one pool for all sequences, and attention over it in one pass of the model.

The pool is written and read through block tables (`course_lib.paging`), so a sequence's pages may lie anywhere. Before
attention they are gathered, one layer at a time, into rows that lie in order: a copy, which a kernel that follows
block tables itself saves (Kwon et al. 2023). On a CPU the copy takes about a tenth of a pass. Pages that a sliding
window has passed stay in their table until the text ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from course_lib.config import ModelConfig, require

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


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

    def gather(self, layer_idx: int, block_ids: Tensor) -> Tensor:
        """Copies of some pages of a layer, one after another: (n, block_size, 2 Hkv, Dh), until the next call."""
        pages = self.layers[layer_idx]
        shape = (len(block_ids), *pages.shape[1:])
        if self.room.numel() < math.prod(shape):  # memory that is kept costs no page faults
            self.room = pages.new_empty(2 * math.prod(shape))
        return torch.index_select(pages, 0, block_ids, out=self.room[: math.prod(shape)].view(shape))

    def claim_memory(self) -> None:
        """Write to all pages while they are empty, so that the system gives their memory now, not page by page."""
        self.pages.zero_()

    @property
    def nbytes(self) -> int:
        """Bytes of all pages, used or not."""
        return self.pages.nbytes


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """As `torch.zeros`, but on a CPU the system gives the memory only where something is written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(*shape)


class Rows(NamedTuple):
    """Texts of a pass that attention takes together: B of them with T new tokens each, one of B and T being 1.

    Attributes:
        first: place of their first token among all of the pass.
        S: keys of the longest.
        block_ids: (B * pages of the longest,); a shorter text repeats its first page, which is masked.
        mask: (B, 1, T, S), added to the scores; None where T is S, causal, or where one token sees all.
    """

    first: int
    B: int
    T: int
    S: int
    block_ids: Tensor
    mask: Tensor | None


class PackedPass:
    """The new tokens of several texts, one text after another in one row of N tokens; a `KVCache` that attends itself.

    Norms, products and MLP take all N tokens alike, so a pass reads the weights once. Only attention goes text by
    text, and takes neighbours with one new token each together. All keys and values of a layer are written before any
    are read: a text may use pages that another one fills in the same pass.

    Args:
        cache: the pool.
        tables: the pages of each text, in its order, with places for the new tokens.
        past: positions that each has computed.
        new: tokens of each in this pass, >= 1.

    Attributes:
        position_ids: (1, N), for the model.
    """

    def __init__(self, cache: PagedCache, tables: Sequence[Sequence[int]], past: Sequence[int],
                 new: Sequence[int]) -> None:
        require(len(new) > 0 and min(new) >= 1, "new", list(new), "at least one token for each of one text or more")
        size, device = cache.block_size, cache.pages.device
        self.cache, self.longest = cache, max(past)
        at = [range(n, n + T) for n, T in zip(past, new)]  # positions of each text
        self.position_ids = torch.tensor([[i for one in at for i in one]], device=device)
        self.places = torch.tensor([table[i // size] * size + i % size for table, one in zip(tables, at) for i in one],
                                   device=device)  # (N,), in the pool
        begun = [table[one[-1] // size] for table, one in zip(tables, at) if one[-1] // size * size >= one[0]]
        if begun:  # what another text left in them may be NaN, which a mask does not hide
            cache.pages[:, begun] = 0
        self.rows, i, first = [], 0, 0
        while i < len(new):
            B = 1
            while new[i] == 1 and new[i + B : i + B + 1] == [1]:
                B += 1
            self.rows.append(make_rows(cache, first, tables[i : i + B], past[i : i + B], new[i]))
            i, first = i + B, first + B * new[i]

    def get_seq_length(self) -> int:
        """Positions that the longest text has computed."""
        return self.longest

    def mask(self, T: int, attention_mask: Tensor | None = None) -> None:
        """None: `attend` knows who sees what."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, layer_idx: int, attention: Attention) -> Tensor:
        """Write the new keys and values to the pages of a layer, and let each text attend to its own.

        Args:
            q: (1, H, N, Dh).
            k, v: (1, Hkv, N, Dh).
            attention: from queries (B, H, T, Dh), keys and values (B, Hkv, S, Dh) and a mask to (B, H, T, Dh).

        Returns:
            (1, H, N, Dh).
        """
        pages, (H, _, Dh) = self.cache.layers[layer_idx], q.shape[1:]
        states = torch.cat((k, v), dim=1)[0].transpose(0, 1)  # (N, 2 Hkv, Dh)
        pages.flatten(0, 1).index_copy_(0, self.places, states)
        results = []
        for first, B, T, S, block_ids, mask in self.rows:
            own = slice(first, first + B * T)
            if B == 1 and S == T:
                keys, values = k[:, :, own], v[:, :, own]
            else:
                seen = self.cache.gather(layer_idx, block_ids).view(B, -1, *pages.shape[2:])
                keys, values = seen.narrow(1, 0, S).transpose(1, 2).chunk(2, dim=1)  # (B, Hkv, S, Dh)
            y = attention(q[:, :, own].reshape(H, B, T, Dh).transpose(0, 1), keys, values, mask)  # (B, H, T, Dh)
            results.append(y.transpose(1, 2).reshape(B * T, H, Dh))
        joined = results[0] if len(results) == 1 else torch.cat(results)  # (N, H, Dh)
        return joined.transpose(0, 1)[None]


def make_rows(cache: PagedCache, first: int, tables: Sequence[Sequence[int]], past: Sequence[int], T: int) -> Rows:
    """What attention needs to know of texts with T new tokens each."""
    size, device, B, S = cache.block_size, cache.pages.device, len(tables), max(past) + T
    width, window = -(-S // size), cache.config.sliding_window
    own = [table[: -(-(n + T) // size)] for table, n in zip(tables, past)]
    block_ids = torch.tensor([[*table, *[table[0]] * (width - len(table))] for table in own], device=device).view(-1)
    if B == 1 and T in (1, S) and (window is None or S <= window):
        return Rows(first, B, T, S, block_ids, None)
    key = torch.arange(S, device=device)
    query = torch.tensor(past, device=device)[:, None] + torch.arange(T, device=device)  # (B, T)
    hidden = key > query[..., None]  # (B, T, S)
    if window is not None:
        hidden |= key <= query[..., None] - window
    scores = torch.zeros(hidden.shape, dtype=cache.pages.dtype, device=device).masked_fill_(hidden, -torch.inf)
    return Rows(first, B, T, S, block_ids, scores[:, None])
