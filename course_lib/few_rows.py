"""Products of a few rows with a matrix, in the order of factors that is fast on an x86 CPU.

The model is written for no machine in particular. `load` puts this on it from outside; it changes how long a
product takes, and nothing that is computed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Where W x^T is the faster of the two, in float32. Measured on shapes from 256 x 256 to 4096 x 768.
MOST_ROWS = 8
MOST_NUMBERS = 4096  # in several rows together


class FewRowsLinear(nn.Linear):
    """An `nn.Linear` that computes W x^T instead of x W^T when `x` has few rows and nothing is to learn.

    Decoding reads every weight for one row or a few. For x W^T, MKL then runs on one thread and copies W into
    another order first; W x^T reads W as it lies. Nothing is kept between calls, so hooks, edits, new weights
    and moves to another device or type count as they do in an `nn.Linear`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not suits(x, self.weight):
            return super().forward(x)
        y = weight_first(x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def suits(x: Tensor, weight: Tensor) -> bool:
    """Whether `weight_first` can multiply these, and is worth it."""
    K = x.shape[-1]
    few = K <= x.numel() <= max(K, min(MOST_NUMBERS, MOST_ROWS * K))
    return (few and x.is_cpu and x.dtype is weight.dtype is torch.float32
            and weight.is_contiguous() and weight.shape[0] % 2 == 0)


def weight_first(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T from (R, K) and (N, K), N even: (R, N). As a batch of two products, which two threads share."""
    (R, K), N = x.shape, weight.shape[0]
    halves = torch.bmm(weight.view(2, N // 2, K), x.mT.expand(2, K, R))  # (2, N / 2, R)
    return halves.view(N, R).mT.contiguous()


def speed_up_few_rows(model: nn.Module) -> None:
    """Make every `nn.Linear` of a model a `FewRowsLinear`, where PyTorch multiplies with MKL.

    The modules, their parameters and their hooks stay the same objects; other kinds of modules are left alone.
    """
    if not torch.backends.mkl.is_available():
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = FewRowsLinear
