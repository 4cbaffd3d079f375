"""Fitting L(N, D) = E + (A / N^alpha + B / D^beta)^gamma to finished runs, and how sure the fit is.

Source: Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", appendix D.3, for the objective: the
sum over runs of a Huber loss of log L. Besiroglu et al. 2024 traced the published fit's faults to an optimizer that
stopped early, and take bootstrap resamples for the standard errors.

The papers minimize with L-BFGS from a grid of starts, one after another. Here damped Gauss-Newton steps go from all
starts, or from all resamples, at once: a thousand fits take about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from course_lib.analysis.scaling_law import ScalingLaw
from course_lib.config import require

DELTA = 1e-3  # of the Huber loss: that of the paper
SMALLEST_STEP = 1e-10  # of the logarithms and exponents: when no fit moves further, all have arrived
# Log A, log B, log E, alpha, beta, log gamma: wide, and only there so that a resample in which a term is not
# determined ends somewhere.
BOX = (torch.tensor((-30, -30, -20, 1e-3, 1e-3, -4), dtype=torch.float64),
       torch.tensor((90, 90, 10, 4, 4, 2), dtype=torch.float64))
FREE_GAMMAS = (0.1, 0.3, 1.0)  # to start from where gamma is fitted
STARTS_OF_A_RESAMPLE = 3  # of the grid, beside the best fit to all runs: from there alone, some end in a higher valley
FIT_STEPS, DAMPING = 500, (1e-12, 1e-3, 1e12)  # lowest, first, highest
# Of log E, of A N^-alpha and B D^-beta in the middle of the runs, as shares of the loss there, and of the exponents.
STARTS = tuple(product((0.2, 0.6, 0.9), (0.05, 0.3), (0.05, 0.3), (0.2, 0.5, 1.0), (0.2, 0.5, 1.0)))


def huber(residual: Tensor, delta: float = DELTA) -> Tensor:
    """r^2 / 2 up to |r| = delta, and a straight line beyond: one run that went wrong cannot bend the whole fit.

    Source: Huber 1964.

    >>> huber(torch.tensor([0.5, 3.0]), delta=1.0).tolist()
    [0.125, 2.5]
    """
    size = residual.abs()
    return torch.where(size <= delta, residual.square() / 2, delta * (size - delta / 2))


def log_loss(theta: Tensor, logs: Tensor) -> Tensor:
    """The law's log L for each run, each sum as a stable log-sum-exp.

    Args:
        theta: (..., 6), log A, log B, log E, alpha, beta, log gamma.
        logs: (n, 2), log N and log D of the runs.

    Returns: (..., n).
    """
    terms, e, gamma = log_terms(theta, logs)
    return torch.logaddexp(gamma * terms.logsumexp(-1), e)


def log_terms(theta: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The logarithms of A / N^alpha and B / D^beta, (..., n, 2); log E and gamma, (..., 1)."""
    a, b, e, alpha, beta, log_gamma = theta.unsqueeze(-1).unbind(-2)  # each (..., 1)
    return torch.stack((a - alpha * logs[:, 0], b - beta * logs[:, 1]), -1), e, log_gamma.exp()


def objective(theta: Tensor, logs: Tensor, log_losses: Tensor, *, weights: Tensor | None = None,
              delta: float = DELTA) -> Tensor:
    """What the fit minimizes: the sum over the runs of the Huber loss of log L.

    Args:
        theta: (..., 6), as for `log_loss`.
        logs: (n, 2), log N and log D; log_losses: (n,), the measured log L.
        weights: (..., n), how often each run counts; None: once.
    """
    each = huber(log_loss(theta, logs) - log_losses, delta)
    return (each if weights is None else weights * each).sum(-1)


def minimize(theta: Tensor, logs: Tensor, log_losses: Tensor, *, weights: Tensor | None = None,
             delta: float = DELTA, fixed: Sequence[int] = ()) -> Tensor:
    """Follow `objective` down from each start by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963).

    Around the current residuals r the Huber loss is a square with weight min(1, delta / |r|). A step that makes
    the objective worse is undone and the damping raised.

    Args:
        theta: (R, 6) starts; the other arguments are those of `objective`.
        fixed: columns of theta that keep their values.

    Returns: (R, 6), where each ends.
    """
    counts = torch.ones(len(theta), len(logs), dtype=theta.dtype) if weights is None else weights
    lowest, first, highest = DAMPING
    damping = torch.full((len(theta), 1), first, dtype=theta.dtype)
    value = objective(theta, logs, log_losses, weights=counts, delta=delta)
    for _ in range(FIT_STEPS):
        step = gauss_newton_step(theta, (logs, log_losses), counts, damping, delta, fixed)
        step = (theta + step).clamp(*BOX) - theta
        new = objective(theta + step, logs, log_losses, weights=counts, delta=delta)
        better = (new <= value)[:, None]  # False for NaN
        theta, value = torch.where(better, theta + step, theta), torch.where(better[:, 0], new, value)
        damping = torch.where(better, damping / 4, damping * 4).clamp(lowest, highest)
        if step.abs().max() < SMALLEST_STEP:
            break
    return theta


def slopes(theta: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """Log L of each run, (R, n), and its derivatives by the six numbers of the law, (R, n, 6)."""
    terms, e, gamma = log_terms(theta, logs)
    inner = terms.logsumexp(-1)  # (R, n)
    value = torch.logaddexp(gamma * inner, e)
    reducible = (gamma * inner - value).exp()  # the share of the loss that is not E
    by_term = (gamma * reducible).unsqueeze(-1) * terms.softmax(-1)  # (R, n, 2)
    rest = torch.stack((1 - reducible, gamma * reducible * inner), -1)  # (R, n, 2), by log E and by log gamma
    return value, torch.cat((by_term, rest[..., :1], -by_term * logs, rest[..., 1:]), -1)


def gauss_newton_step(theta: Tensor, target: tuple[Tensor, Tensor], counts: Tensor, damping: Tensor,
                      delta: float, fixed: Sequence[int]) -> Tensor:
    """One damped step for each of R fits: (R, 6). `target`: the runs' logs (n, 2) and log losses (n,)."""
    value, jacobian = slopes(theta, target[0])
    jacobian[..., list(fixed)] = 0
    residual = value - target[1]  # (R, n)
    weights = counts * (delta / residual.abs().clamp(min=delta))
    gradient = torch.einsum("rnp,rn->rp", jacobian, weights * residual)
    curvature = torch.einsum("rnp,rn,rnq->rpq", jacobian, weights, jacobian)
    diagonal = curvature.diagonal(dim1=-2, dim2=-1)
    damped = curvature + torch.diag_embed(damping * diagonal + 1e-18)
    return -torch.linalg.solve_ex(damped, gradient)[0]


def fit(N: Sequence[float], D: Sequence[float], losses: Sequence[float], *, gamma: float | None = 1.0,
        delta: float = DELTA) -> ScalingLaw:
    """The law that fits some runs best, from a grid of starts.

    Args:
        N, D, losses: parameters, training tokens and loss in nats per token of each run, all > 0; at least five runs
            with at least three sizes and three budgets, or the numbers of the law are not determined.
        gamma: of the law, 1 for that of Hoffmann et al.; None fits it too.
        delta: of the Huber loss of log L.

    Raises:
        ValueError: the lengths differ, a number is not positive, or there are too few runs.
    """
    logs, log_losses = run_logs(N, D, losses)
    ends = minimize(starts(logs, log_losses, gamma), logs, log_losses, delta=delta, fixed=fixed_columns(gamma))
    values = objective(ends, logs, log_losses, delta=delta)
    return law(ends[values.nan_to_num(torch.inf).argmin()])


def descend(function: Callable[[Tensor], Tensor], *, tolerance: float = 1e-7) -> tuple[ScalingLaw, int]:
    """Walk downhill with PyTorch's L-BFGS from A = exp 8, B = exp 12, E = 1, alpha = 0.6, beta = 0.8: a law, and steps.

    One start and one tolerance, to see what they do; `fit` takes many starts, and arrives. The tolerance is absolute:
    a function of tiny values looks flat everywhere.

    Args:
        function: of a tensor with log A, log B, log E, alpha and beta; returns a tensor with one number.
        tolerance: stop where no slope is above it, or where a step changes little: PyTorch's default, 1e-7, goes
            with changes below 1e-9.
    """
    require(tolerance > 0, "tolerance", tolerance, "> 0")
    theta = torch.tensor([8.0, 12.0, 0.0, 0.6, 0.8], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=2000, line_search_fn="strong_wolfe", tolerance_grad=tolerance,
                                  tolerance_change=tolerance / 100)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = function(theta)
        value.backward()
        return value

    optimizer.step(closure)
    return law(torch.cat((theta.detach(), torch.zeros(1, dtype=theta.dtype)))), optimizer.state[theta]["n_iter"]


def fixed_columns(gamma: float | None) -> tuple[int, ...]:
    """The column of log gamma where gamma is given, and none where it is to be fitted."""
    require(gamma is None or gamma > 0, "gamma", gamma, "> 0, or None to fit it")
    return () if gamma is None else (5,)


def run_logs(N: Sequence[float], D: Sequence[float], losses: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Checked and in float64: (n, 2) log N and log D, and (n,) log L."""
    require(len(N) == len(D) == len(losses), "losses", len(losses),
            f"as many as there are sizes and token counts, {len(N)} and {len(D)}")
    for name, values in (("N", N), ("D", D), ("losses", losses)):
        wrong = [value for value in values if not 0 < value < float("inf")]
        require(not wrong, name, wrong[:3], "finite numbers > 0")
    require(len(losses) >= 5, "losses", len(losses), ">= 5 runs: the law has five numbers")
    for name, values in (("N", N), ("D", D)):
        require(len(set(values)) >= 3, name, sorted(set(values)), "at least three different values")
    return (torch.tensor(np.log(np.stack((N, D), -1).astype(float))),
            torch.tensor(np.log(np.asarray(losses, float))))


def starts(logs: Tensor, log_losses: Tensor, gamma: float | None = 1.0) -> Tensor:
    """Laws to start from: (R, 6). The terms take shares of the loss in the middle of the runs."""
    if gamma is None:
        return torch.cat([starts(logs, log_losses, each) for each in FREE_GAMMAS])
    grid = torch.tensor(STARTS, dtype=torch.float64)
    (middle_n, middle_d), middle = logs.mean(0), log_losses.mean()
    e, a, b = (middle + grid[:, i].log() for i in range(3))
    alpha, beta = grid[:, 3], grid[:, 4]
    alpha, beta = alpha / gamma, beta / gamma  # so that the loss falls as fast for every gamma
    a, b = a / gamma + alpha * middle_n, b / gamma + beta * middle_d
    return torch.stack((a, b, e, alpha, beta, torch.full_like(a, gamma).log()), -1)


def bootstrap(N: Sequence[float], D: Sequence[float], losses: Sequence[float], *, samples: int = 500,
              seed: int = 0, gamma: float | None = 1.0, delta: float = DELTA) -> list[ScalingLaw]:
    """The fit again, to as many runs drawn with replacement: how far it moves says how sure it is (Efron 1979).

    Each resample is fitted from the best fit to all runs and from a few starts of the grid.

    Args:
        samples: resamples, >= 1. One with fewer than three sizes or budgets determines no law and is drawn again.
        seed: of the draws; the other arguments are those of `fit`.
    """
    require(samples >= 1, "samples", samples, ">= 1")
    logs, log_losses = run_logs(N, D, losses)
    grid = starts(logs, log_losses, gamma)
    begin = torch.cat((parameters(fit(N, D, losses, gamma=gamma, delta=delta))[None],
                       grid[:: len(grid) // STARTS_OF_A_RESAMPLE]))  # (K, 6)
    counts = resample(logs, samples, np.random.default_rng(seed)).repeat_interleave(len(begin), 0)
    ends = minimize(begin.repeat(samples, 1), logs, log_losses, weights=counts, delta=delta,
                    fixed=fixed_columns(gamma))  # (samples K, 6)
    values = objective(ends, logs, log_losses, weights=counts, delta=delta).nan_to_num(torch.inf)
    lowest = values.view(samples, -1).argmin(1)
    return [law(each[i]) for each, i in zip(ends.view(samples, -1, 6), lowest)]


def resample(logs: Tensor, samples: int, rng: np.random.Generator) -> Tensor:
    """How often each of n runs is drawn in n draws with replacement: (samples, n)."""
    counts: list[np.ndarray] = []
    while len(counts) < samples:
        drawn = rng.integers(len(logs), size=len(logs))
        if all(len(logs[drawn, column].unique()) >= 3 for column in (0, 1)):
            counts.append(np.bincount(drawn, minlength=len(logs)))
    return torch.tensor(np.stack(counts), dtype=logs.dtype)


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The middle part of some numbers that holds a share `level` of them.

    >>> interval(range(5), 0.5)
    (1.0, 3.0)
    """
    require(0 < level < 1, "level", level, "in (0, 1)")
    low, high = np.quantile(np.asarray(values, float), ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def law(theta: Tensor) -> ScalingLaw:
    """The numbers of `log_loss` as a law."""
    A, B, E = theta[:3].exp().tolist()
    return ScalingLaw(E, A, B, alpha=theta[3].item(), beta=theta[4].item(), gamma=theta[5].exp().item())


def parameters(law: ScalingLaw) -> Tensor:
    """A law as the six numbers of `log_loss`."""
    a, b, e, log_gamma = np.log((law.A, law.B, max(law.E, 1e-30), law.gamma))
    return torch.tensor((a, b, e, law.alpha, law.beta, log_gamma), dtype=torch.float64)
