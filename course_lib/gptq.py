"""Rounding that makes good its own errors: each weight that is rounded moves those that are still to come.

What counts is not how far a weight moves but how far the layer's output does. Where two inputs rise and fall
together, an error in the weight of one can be taken back by the weight of the other. GPTQ (Frantar et al. 2022)
rounds column by column and does this in closed form, from the second moments of the layer's inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.config import is_number, require
from course_lib.rounding import check_bits, dequantize, quantize_tensor, split_groups, stored_grid


def gptq(weight: Tensor, hessian: Tensor, bits: int, group_size: int | None = None, *,
         damping: float = 0.01) -> tuple[Tensor, Tensor, Tensor]:
    """Round a matrix so that its products with typical inputs change little.

    Args:
        weight: (N, K).
        hessian: (K, K), the sum of x x^T over typical inputs x, (K,) each; scaling it changes nothing.
        bits, group_size: as for `round_to_nearest`.
        damping: as for `error_feedback`.

    Returns:
        As `round_to_nearest`: codes (N, K), scales and zeros (N, K / G, 1).

    Raises:
        ValueError: the hessian is not (K, K), or not one of finite inputs.
    """
    check_bits(bits)
    (N, K), G = weight.shape, group_size or weight.shape[1]
    split_groups(weight, G)  # refuses a size that does not divide
    require(hessian.shape == (K, K), "hessian.shape", tuple(hessian.shape), f"({K}, {K})")
    w, shares = weight.detach().float().clone(), error_feedback(hessian, damping=damping)
    codes, grids = torch.empty(N, K, dtype=torch.int8), []
    for k in range(K):
        if k % G == 0:  # the group's grid fits what earlier errors have made of its weights
            grids.append(stored_grid(w[:, k : k + G], bits))
        scale, zero = grids[-1]
        zero_point = -zero / scale
        column = quantize_tensor(w[:, k : k + 1], scale, bits, zero_point=zero_point)  # (N, 1)
        error = w[:, k : k + 1] - dequantize(column, scale, zero_point=zero_point)
        w[:, k + 1 :] += error * shares[k, k + 1 :]
        codes[:, k : k + 1] = column
    scales, zeros = (torch.stack(parts, dim=1) for parts in zip(*grids))  # (N, K / G, 1)
    return codes, scales, zeros


def error_feedback(hessian: Tensor, *, damping: float = 0.01) -> Tensor:
    """Which share of the rounding error of a column each later column takes over: row k for an error in column k.

    The last of two columns takes h01 / h11. With more of them the shares depend on one another: they are the rows of
    the upper Cholesky factor of the inverse, each divided by minus its entry on the diagonal.

    Args:
        hessian: (K, K), the sum or the mean of x x^T over typical inputs x.
        damping: share of the mean of the diagonal that is added to it, > 0, since inputs that never occur leave
            the matrix singular.

    Returns:
        (K, K), zero except right of the diagonal.

    Raises:
        ValueError: the hessian is not one of finite inputs, or the damping is not > 0.

    >>> f"{error_feedback(torch.tensor([[1.0, 0.9], [0.9, 1.0]]), damping=1e-9)[0, 1]:.3f}"
    '0.900'
    """
    require(is_number(damping) and damping > 0, "damping", damping, "a number > 0")
    diagonal = hessian.diagonal().double()
    require(bool(hessian.isfinite().all()) and bool((diagonal >= 0).all()), "hessian", "one with NaN, infinity or "
            "a negative diagonal", "a sum of x x^T")
    mean = diagonal.mean().item() or 1.0  # of inputs that are all zero, any will do
    damped = hessian.double() + damping * mean * torch.eye(len(hessian), dtype=torch.float64)
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
    return (-factor / factor.diagonal().unsqueeze(-1)).triu(1).float()
