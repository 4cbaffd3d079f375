"""The matrices of several linear maps side by side in memory, so that one product reads them all."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from course_lib import few_rows
from course_lib.few_rows import FewRowsLinear, Packed, product
from course_lib.quantized_linear import Int4Linear, Int8Linear, QuantizedLinear

# The tensors of a map that have a row, or a column, for each output, and the dimension of its outputs.
OUTPUTS: dict[type[nn.Module], dict[str, int]] = {
    FewRowsLinear: {"weight": 0},
    Int8Linear: {"weight": 0, "scales": 0},
    Int4Linear: {"weight": 0, "scales_and_zeros": 1},  # the codes lie in blocks of outputs, none of them cut
}
OWN = frozenset(("forward", "packed_product", "dequantize"))  # methods that a reader may replace in one map


class Joined:
    """The matrices of several linear maps, laid one after another and multiplied as one.

    Args:
        parent: the module that has the maps; their tensors stay the same objects and move in memory.
        names: of the maps, which `can_be_joined`.
    """

    @torch.no_grad()
    def __init__(self, parent: nn.Module, *names: str) -> None:
        parts = [parent.get_submodule(name) for name in names]
        self.kind, self.names = type(parts[0]), names
        self.sizes = [part.out_features for part in parts]
        self.K, self.packed = parts[0].in_features, None
        whole, moved = {}, []
        for key, dim in OUTPUTS[self.kind].items():
            tensors = [getattr(part, key) for part in parts]
            whole[key] = torch.cat(tensors, dim)
            for tensor, own in zip(tensors, whole[key].split([tensor.shape[dim] for tensor in tensors], dim)):
                tensor.data = own
            moved.append([(key, tensor, tensor.detach()) for tensor in tensors])  # and the memory they must be in
        self.parts = list(zip(names, zip(*moved)))
        self.weight, self.weights = whole["weight"], tuple(part.weight for part in parts)
        N, plain = sum(self.sizes), self.kind is FewRowsLinear
        self.halves = self.weight.view(2, N // 2, self.K) if plain and N % 2 == 0 and not few_rows.MKL_IS_FAST else None
        self.quantized = None if plain else wider(parts[0], whole, N)
        self.packed: Packed | None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()  # a copy of the model has its tensors elsewhere

    def times(self, x: Tensor) -> Tensor:
        """(B, T, K) to (B, T, N1 + N2 + ...)."""
        alone = x.numel() == self.K
        if self.quantized is not None:  # `forward`, less what is known for a row of float32
            return (self.quantized.packed_product(x.view(1, self.K).bfloat16()).float().view(1, 1, -1) if alone
                    else self.quantized.forward(x))
        if alone and self.halves is not None:  # `weight_first`, with the matrix in halves already
            return torch.bmm(self.halves, x.mT.expand(2, self.K, 1)).view(1, 1, -1)
        y = product(x.reshape(-1, self.K), self.weight, self.weights, self.packed)
        return y.view(*x.shape[:-1], -1)

    def is_current(self, parent: nn.Module) -> bool:
        """Whether the maps are plain and their tensors those of this matrix."""
        modules, kind = parent._modules, self.kind
        holder = "_parameters" if kind is FewRowsLinear else "_buffers"
        for name, tensors in self.parts:
            part = modules[name]  # as `is_plain`, without a call: this runs for each part at each step
            own = part.__dict__
            if (type(part) is not kind or own["_forward_hooks"] or own["_forward_pre_hooks"]
                    or not OWN.isdisjoint(own) or own["_parameters"]["bias"] is not None
                    or not own.get("has_kernel", True)):
                return False
            for key, tensor, memory in tensors:
                if own[holder].get(key) is not tensor or not tensor.is_set_to(memory):
                    return False
        return True


def wider(part: QuantizedLinear, buffers: dict[str, Tensor], out_features: int) -> QuantizedLinear:
    """A map like this one to multiply with, its buffers followed by those of others, and as quick to read as can be."""
    other = copy.copy(part)
    other.__dict__ |= {"_parameters": {"bias": None}, "_buffers": {}, "out_features": out_features, **buffers}
    return other


def can_be_joined(parts: Sequence[nn.Module]) -> bool:
    """Whether maps of the same input are plain, on the CPU, without biases, and all in float32 or all quantized alike.

    Alike: in codes of one size, with scales for groups of one size, for which PyTorch has a product.
    """
    if len({type(part) for part in parts}) > 1 or type(parts[0]) not in OUTPUTS:
        return False
    if any(part.bias is not None or not part.weight.is_cpu for part in parts):
        return False
    if isinstance(parts[0], QuantizedLinear):
        return all(part.has_kernel for part in parts) and len({part.stored_group for part in parts}) == 1
    return all(part.weight.dtype is torch.float32 for part in parts)
