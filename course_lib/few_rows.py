"""Products of a few rows with a matrix, by the routine that is fast for that many rows on an x86 CPU.

The model is written for no machine in particular. `load` puts this on it from outside; it changes how long a
product takes, and nothing that is computed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.device import cpu_name

# On an Intel processor MKL's x W^T reads W once, as fast as memory allows, on all threads, and W x^T takes 2 to 4 times
# as long. On an AMD processor x W^T runs on one thread and copies W first, and W x^T is the faster one.
MKL_IS_FAST = "intel" in cpu_name().lower()
# Where these are faster than oneDNN, in float32. Measured on shapes from 256 x 256 to 4096 x 768.
MOST_ROWS = 4
MOST_NUMBERS = 4096  # in several rows together
# oneDNN compiles code for each number of rows that it meets, and keeps it: 0.6 MB for a matrix of `pocket`, for good.
# A server that fills its passes as requests come would meet hundreds. So there are as few as this.
EXACT_ROWS = 32
STEP_OF_ROWS = 16
# oneDNN's x W^T. What PyTorch's compiler calls; for want of a public name, it is called so here.
ONEDNN = torch.ops.mkldnn._linear_pointwise.default if torch.backends.mkldnn.is_available() else None


class Packed:
    """A second copy of a matrix in the order in which oneDNN reads it, for as long as the matrix is the same.

    Args:
        weight: (N, K), in float32, on the CPU.
        parts: the parameters whose rows these are.

    Attributes:
        holders: blocks of `packed_weights` that rely on it.
    """

    def __init__(self, weight: Tensor, parts: tuple[Tensor, ...]) -> None:
        self.holders = 0
        self.copied, self.blocks = self.state(parts), torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    @staticmethod
    def state(parts: tuple[Tensor, ...]) -> list[tuple[int, int]]:
        """Where each parameter lies, and how often PyTorch has changed it."""
        return [(part.data_ptr(), part._version) for part in parts]

    def is_current(self, parts: tuple[Tensor, ...]) -> bool:
        """Whether the copy is still one of these parameters."""
        return self.copied == self.state(parts)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()  # copies and pickles of a model do without


class FewRowsLinear(nn.Linear):
    """An `nn.Linear` that chooses among the products of MKL and oneDNN, when nothing is to learn.

    Decoding reads every weight for one row or a few. For these, `few_rows_product` is the fastest; oneDNN is faster
    from a handful of rows on. Nothing is kept between calls but what `packed_weights` makes, so hooks, edits, new
    weights and moves to another device or type count as they do in an `nn.Linear`.
    """

    packed: Packed | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        weight = self.weight
        if torch.is_grad_enabled() or not suits(x, weight):
            return super().forward(x)
        if torch.compiler.is_compiling():
            return compiled_product(x, weight, self.bias)
        y = product(x.reshape(-1, x.shape[-1]), weight, (weight,), self.packed).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def suits(x: Tensor, weight: Tensor) -> bool:
    """Whether `product` can multiply these."""
    return (x.is_cpu and x.dtype is weight.dtype is torch.float32 and x.numel() > 0 and weight.is_contiguous()
            and (ONEDNN is not None or is_few(x, weight)))


def is_few(x: Tensor, weight: Tensor) -> bool:
    """Whether `few_rows_product` is the fastest."""
    K, numbers = x.shape[-1], x.numel()
    return (numbers == K or numbers <= min(MOST_NUMBERS, MOST_ROWS * K)) and weight.shape[0] % 2 == 0


def product(x: Tensor, weight: Tensor, parts: tuple[Tensor, ...], packed: Packed | None) -> Tensor:
    """x W^T from (R, K) and (N, K), both as `suits` wants them: (R, N).

    Args:
        parts: the parameters that W consists of.
        packed: of this W, or None.
    """
    if packed is not None and len(x) > 1 and packed.is_current(parts):
        return ONEDNN(filled(x), packed.blocks, None, "none", [], "")[: len(x)]
    return few_rows_product(x, weight) if is_few(x, weight) else ONEDNN(x, weight, None, "none", [], "")


def filled(x: Tensor) -> Tensor:
    """(R, K) with rows of zeros after it, up to the next number of rows that the code exists for."""
    rest = -len(x) % STEP_OF_ROWS if len(x) > EXACT_ROWS else 0
    return F.pad(x, (0, 0, 0, rest)) if rest else x


def few_rows_product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T from (R, K) and (N, K), N even, by the routine that this processor is fast with: (R, N)."""
    return F.linear(x, weight) if MKL_IS_FAST else weight_first(x, weight)


def weight_first(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T from (R, K) and (N, K), N even: (R, N). As a batch of two products, which two threads share."""
    (R, K), N = x.shape, weight.shape[0]
    halves = torch.bmm(weight.view(2, N // 2, K), x.mT.expand(2, K, R))  # (2, N / 2, R)
    return halves.view(N, R).mT.contiguous()


def compiled_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same in the words that PyTorch's compiler does best: one row as sums, which become a single loop over W."""
    if x.numel() != x.shape[-1]:
        return F.linear(x, weight, bias)
    y = (weight * x.reshape(-1)).sum(-1).view(*x.shape[:-1], -1)
    return y if bias is None else y + bias


def speed_up_few_rows(model: nn.Module) -> None:
    """Make every `nn.Linear` of a model a `FewRowsLinear`, where PyTorch multiplies with MKL.

    The modules, their parameters and their hooks stay the same objects; other kinds of modules are left alone.
    """
    if not torch.backends.mkl.is_available():
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = FewRowsLinear
