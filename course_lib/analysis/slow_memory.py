"""Memory that counts: how many bytes attention loads and stores, by letting it run on tensors that keep a record."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.flash import Traffic


class SlowMemory:
    """Holds tensors and counts the bytes that are loaded from them and stored to them.

    >>> memory = SlowMemory()
    >>> far = memory.hold(torch.zeros(10, 3))
    >>> far[:2] = far[8:] + 1
    >>> memory.traffic
    Traffic(loaded=24, stored=24)
    """

    def __init__(self) -> None:
        self.loaded = self.stored = 0

    def hold(self, tensor: Tensor) -> SlowTensor:
        """The tensor, from now on in this memory; putting it there is not counted."""
        return SlowTensor(tensor, self)

    @property
    def traffic(self) -> Traffic:
        """Bytes so far."""
        return Traffic(self.loaded, self.stored)


class SlowTensor:
    """A tensor in slow memory: indexing loads a copy into fast memory, assigning stores one.

    `course_lib.flash.flash_attention` touches its arguments in no other way, so it runs on these unchanged.
    """

    def __init__(self, tensor: Tensor, memory: SlowMemory) -> None:
        self.tensor, self.memory = tensor, memory
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def __getitem__(self, where: Any) -> Tensor:
        part = self.tensor[where].clone()
        self.memory.loaded += part.nbytes
        return part

    def __setitem__(self, where: Any, values: Tensor) -> None:
        self.tensor[where] = values
        self.memory.stored += self.tensor[where].nbytes

    def new_empty(self, *sizes: int) -> SlowTensor:
        """Room for another tensor in the same memory."""
        return self.memory.hold(self.tensor.new_empty(sizes))


def attention_in_three_steps(q: SlowTensor, k: SlowTensor, v: SlowTensor) -> SlowTensor:
    """Attention (B, H, T, Dh) without a mask, as three kernels that leave their results in slow memory.

    Args:
        q: (B, H, T, Dh).
        k, v: (B, H, S, Dh), a head for each query head.
    """
    scores = q.new_empty(*q.shape[:3], k.shape[2])  # (B, H, T, S)
    scores[:] = q[:] @ k[:].transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = q.new_empty(*scores.shape)
    weights[:] = torch.softmax(scores[:], -1)
    out = q.new_empty(*q.shape[:3], v.shape[3])  # (B, H, T, Dh)
    out[:] = weights[:] @ v[:]
    return out
