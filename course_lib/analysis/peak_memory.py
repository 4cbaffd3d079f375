"""How much memory a call needs while it runs, beyond what was there before."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):
    """Watches the operations of PyTorch inside a `with` block, and the memory of the tensors that they return.

    Attributes:
        live: bytes of those that are still in use; what shares memory counts once.
        peak: the most that `live` has been.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for tensor in tensors_in((args, kwargs)):
            self.note(tensor, nbytes=0)  # it was there before
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            self.note(tensor, nbytes=tensor.untyped_storage().nbytes())
        return result

    def note(self, tensor: Tensor, nbytes: int) -> None:
        """Count the memory of a tensor as `nbytes`, unless it is known, until nobody uses it any more."""
        memory = tensor.untyped_storage()
        key = memory._cdata

        def forget(_: weakref.ref) -> None:
            self.live -= nbytes
            self.known.pop(key)

        if key not in self.known:
            self.known[key] = weakref.ref(memory, forget)
            self.live += nbytes
            self.peak = max(self.peak, self.live)


def tensors_in(tree: object) -> list[Tensor]:
    """The tensors among arguments or results, however they are nested."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes of tensors that a call holds at once, its result included and its inputs not.

    What a single operation of PyTorch allocates for itself and frees before it returns is not seen. Of fused attention
    on a CPU that is about half a megabyte for each thread. Under `torch.inference_mode` more counts as one operation:
    all of `scaled_dot_product_attention` with the MATH back end, so that its (T, S) matrices go unseen. Call it
    without, or under `torch.no_grad`, to see them.

    >>> import torch
    >>> peak_bytes(lambda: torch.ones(1000).exp() + 1)  # never more than two of the three at once
    8000
    """
    with LiveTensors() as tensors:
        call()
    return tensors.peak
