"""Checks of notebook 15, Scaling laws.

What is expected is worked out by hand with round numbers, or found by trying many sizes and starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from course_lib.analysis import scaling_fit, scaling_law
from course_lib.analysis.scaling_law import LAWS, ScalingLaw
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import (
    CheckFailed,
    expect_close,
    expect_diagnosis,
    expect_number,
    show,
)

# 15.1


def total_flops(num_parameters: float, num_tokens: float, served: float = 0) -> float:
    """Operations to train a model once and to serve some tokens with it."""
    return scaling_law.total_flops(num_parameters, num_tokens, served)


def check_total_flops(attempt: Callable) -> None:
    def expect_flops(arguments: tuple, flops: float, likely: str) -> None:
        expect_number(attempt(*arguments), flops, likely, rtol=1e-9, atol=0, where="FLOPs")

    expect_flops((3, 5), 90, "training costs 6 for each parameter and each token: 2 forward and 4 backward")
    expect_flops((7, 5), 210, "every parameter works on every token: the two numbers are multiplied")
    expect_flops((3, 0, 5), 30, "a token that is served passes forward only: 2 for each parameter, and not 6")
    expect_flops((3, 5, 7), 132, "both bills are added: 6 for a parameter and a training token, 2 for a parameter and "
                                 "a served token")
    expect_flops((70e9, 1.4e12), 5.88e23, "large numbers are no special case: do not round, and do not use integer "
                                          "division")
    expect_flops((0.5, 4, 3), 15, "parameters may be given in billions: do not round them")


# 15.2


def objective(params: Tensor, num_parameters: Tensor, num_tokens: Tensor, losses: Tensor,
              delta: float = 1e-3) -> Tensor:
    """The sum of the Huber losses of log L over some runs, for the law with A = exp a, B = exp b, E = exp e.

    Args:
        params: (5,), a, b, e, alpha, beta.
        num_parameters, num_tokens, losses: (n,) of the runs, in the same dtype.
    """
    a, b, e, alpha, beta = params
    theta = torch.stack((a, b, e, alpha, beta, torch.zeros_like(a)))
    logs = torch.stack((num_parameters.log(), num_tokens.log()), -1)  # (n, 2)
    return scaling_fit.objective(theta, logs, losses.log(), delta=delta)


def check_objective(attempt: Callable) -> None:
    def expect_value(params: list[float], runs: list[tuple[float, float, float]], value: float, likely: str,
                     delta: float | None = None) -> None:
        columns = [torch.tensor(column, dtype=torch.float64) for column in zip(*runs)]
        extra = {} if delta is None else {"delta": delta}
        expect_close(attempt(torch.tensor(params, dtype=torch.float64), *columns, **extra),
                     torch.tensor(value, dtype=torch.float64), likely, rtol=1e-6, atol=1e-15, where="objective")

    log, nothing = math.log, -60.0  # exp(-60) is too little to be seen
    off = 0.0004  # of log L, in the parabola of a delta of 1e-3
    run, powers = (8.0, 9.0), [2 / 3, 0.5]
    check_terms_are_added(attempt, [log(24), log(90), log(2), *powers])
    expect_value([nothing, nothing, log(2), *powers], [(*run, 2.0)], 0.0,
                 "where A and B are next to nothing, the law says E = exp(e), whatever N and D are")
    expect_value([log(24), nothing, log(2), *powers], [(*run, 8.0)], 0.0,
                 "A / N^alpha is 24 / 8^(2/3) = 6 here, and its logarithm a - alpha · log N")
    expect_value([nothing, log(90), log(2), *powers], [(*run, 32.0)], 0.0,
                 "B / D^beta is 90 / 9^(1/2) = 30 here, and its logarithm b - beta · log D")
    params = [log(24), log(90), log(2), *powers]
    expect_value(params, [(*run, 38.0)], 0.0, "the three terms add up: E + A / N^alpha + B / D^beta")
    expect_value(params, [(*run, 38 * math.exp(-off))], off**2 / 2,
                 "the residual is log(predicted) - log(measured), not a difference of losses; a small one costs r² / 2")
    expect_value(params, [(*run, 38 * math.exp(off))], off**2 / 2, "too low costs as much as too high")
    far = 1e-3 * (0.3 - 5e-4)
    expect_value(params, [(*run, 38 * math.exp(-0.3))], far, "beyond delta the Huber loss is a straight line: "
                 "delta · (|r| - delta / 2); torch.nn.functional.huber_loss does it, with delta=delta")
    expect_value(params, [(*run, 38 * math.exp(-0.3)), (*run, 38 * math.exp(off)), (*run, 38.0)], far + off**2 / 2,
                 "add the runs up, and do not take their mean: huber_loss averages unless reduction=\"sum\"")
    expect_value(params, [(*run, 38 * math.exp(-0.3))], 0.1 * 0.25, "delta is an argument: use it", delta=0.1)
    expect_value(params, [(*run, 38 * math.exp(-0.3))], 0.045, "delta is an argument: use it", delta=0.5)
    expect_value([800 + 100 * log(8), 800 + 50 * log(9), 800.0, 100.0, 50.0],
                 [(8.0, 9.0, math.exp(100))], 1e-3 * (700 + log(3) - 5e-4),
                 "exp(800) is too large for a float: keep the three terms as logarithms, and add them with "
                 "torch.logsumexp")
    check_slope(attempt, params)


def check_terms_are_added(attempt: Callable, params: list[float]) -> None:
    """With as many runs as terms, a sum over the wrong axis has the right shape, and would be blamed on the formula."""
    runs = torch.tensor([[8.0] * 3, [9.0] * 3, [38.0] * 3], dtype=torch.float64)
    theta = torch.tensor(params, dtype=torch.float64)
    over_runs = (torch.log(torch.tensor([6.0, 30.0, 2.0], dtype=torch.float64) * 3) - runs[2].log()).abs()
    wrong = scaling_fit.huber(over_runs).sum()
    got = attempt(theta, *runs)
    if isinstance(got, Tensor) and got.numel() == 1 and math.isclose(got.item(), wrong.item(), rel_tol=1e-6):
        raise CheckFailed("0.0", show(got), f"objective is {show(got)}, expected 0.0",
                          "add the three terms of each run, not one term over the runs: torch.logsumexp over dim 0 "
                          "of a (3, n) tensor")


def check_slope(attempt: Callable, params: list[float]) -> None:
    """An optimizer follows the slope of the objective, so that it has to have one."""
    start = torch.tensor(params, dtype=torch.float64, requires_grad=True)
    columns = [torch.tensor([x], dtype=torch.float64) for x in (8.0, 9.0, 38 * math.exp(-4e-4))]
    value = attempt(start, *columns)
    if not (isinstance(value, Tensor) and value.requires_grad):
        raise CheckFailed("a tensor that PyTorch can differentiate", show(value), "objective",
                          "an optimizer needs the slope: compute with torch functions, and without .item() or float()")


# 15.3


def optimal(law: ScalingLaw, flops: float) -> tuple[float, float]:
    """The N and D of the lowest loss that this many training operations can buy."""
    return law.optimal(flops)


def check_optimal(attempt: Callable) -> None:
    def expect_optimum(law: ScalingLaw, flops: float, best: tuple[float, float], likely: str, *, rtol: float) -> None:
        got = attempt(law, flops)
        if not (isinstance(got, tuple | list) and len(got) == 2):
            raise CheckFailed("two numbers", show(got), "result", "return N and D: a tuple of two numbers")
        spent = 6 * float(got[0]) * float(got[1])
        if not math.isclose(spent, flops, rel_tol=1e-6):
            raise CheckFailed(show(flops), show(spent), f"6 N D is {show(spent)}, expected {show(flops)}",
                              "the two have to cost the whole budget and no more: D = flops / (6 N)")
        expect_number(got[0], best[0], likely, rtol=rtol, atol=0, where="N")
        expect_number(got[1], best[1], likely, rtol=rtol, atol=0, where="D")

    even = ScalingLaw(E=1.0, A=5.0, B=5.0, alpha=0.5, beta=0.5)
    expect_optimum(even, 600.0, (10.0, 10.0), "with A = B and alpha = beta, size and text get the same: N = D, and "
                   "6 N D is the budget", rtol=1e-6)
    expect_optimum(even, 60_000.0, (100.0, 100.0), "a hundred times the budget: ten times as large, ten times the "
                   "text; the exponent is beta / (alpha + beta), here a half", rtol=1e-6)
    tilted = ScalingLaw(E=1.0, A=80.0, B=5.0, alpha=0.5, beta=0.5)
    expect_optimum(tilted, 600.0, (160.0, 0.625), "a large A means that size is worth more: G is "
                   "(alpha A / (beta B)) ** (1 / (alpha + beta)), and it multiplies N", rtol=1e-6)
    steep = ScalingLaw(E=1.0, A=5.0, B=15.0, alpha=0.75, beta=0.25)
    expect_optimum(steep, 6 * 1.0, (1.0, 1.0), "here alpha A = beta B and flops / 6 is 1, so G has to be 1: it needs "
                   "alpha A / (beta B), and A / B is not enough", rtol=1e-6)
    expect_optimum(steep, 6 * 16.0, (2.0, 8.0), "G is 1 here, so only the exponent counts: N grows with "
                   "beta / (alpha + beta), and not with alpha: where more size helps quickly, less of it is needed",
                   rtol=1e-6)
    for law, flops in ((LAWS["Besiroglu et al. 2024"], 1e22), (ScalingLaw(0.0, 16e3, 25e6, 0.64, 1.04, 0.35), 1e13)):
        sizes = np.geomspace(1e3, 1e13, 200_001)
        N = float(sizes[np.argmin(law.loss(sizes, flops / 6 / sizes))])
        expect_optimum(law, flops, (N, flops / 6 / N), "no other size may have a lower loss for the same budget: the "
                       "check has tried 200,000 of them", rtol=2e-3)


# 15.4


def break_even_tokens(small: tuple[float, float], large: tuple[float, float]) -> float:
    """Served tokens from which on the small model, trained longer, has cost less in all."""
    return scaling_law.break_even_tokens(small, large)


def check_break_even_tokens(attempt: Callable) -> None:
    def expect_tokens(small: tuple[float, float], large: tuple[float, float], tokens: float, likely: str) -> None:
        expect_number(attempt(small, large), tokens, likely, rtol=1e-9, atol=1e-9, where="tokens")

    expect_tokens((1.0, 60.0), (2.0, 20.0), 60.0, "training costs 360 and 240, so the small one starts with 120 more; "
                  "each token saves 2 · (2 - 1) = 2")
    expect_tokens((1.0, 60.0), (5.0, 9.0), 11.25, "a served token costs 2 N, not 6 N, and it is the difference of "
                  "the two sizes that counts")
    expect_tokens((3.0, 40.0), (4.0, 21.0), 108.0, "from a pair (N, D), training costs 6 N D: take the difference of "
                  "the two bills, and not of the tokens")
    expect_tokens((1.0, 30.0), (2.0, 20.0), 0.0, "here the small one was cheaper to train already: 0, and nothing "
                  "negative")
    expect_tokens((0.5e9, 8e9), (2e9, 1e9), 4e9, "large numbers are no special case")


# 15.5

SUSPECTS = ("other text", "too noisy", "rate still high", "text seen before")
EVIDENCE = {
    "A": "these three runs differ in nothing but chance; which suspect is a matter of chance?",
    "B": "a curve and a held-out loss come from different texts, and here they agree; which suspect does that clear?",
    "C": "which suspect would make the loss lower, and not higher?",
}


def diagnosis() -> dict[str, str]:
    """Whom each fact clears; a rate that is still high is left, and raises the loss in the middle of a long run."""
    return {"A": "too noisy", "B": "other text", "C": "text seen before"}


def check_diagnosis(attempt: Callable) -> None:
    got = attempt()
    if not isinstance(got, dict):
        raise CheckFailed("the suspects by the letters A, B, C", show(got), "result",
                          "return a dict: for each fact the suspect that it clears")
    expect_diagnosis(got, diagnosis(), SUSPECTS, EVIDENCE, noun="suspect")


EXERCISES = (
    Exercise(
        "15.1", "FLOPs to train and to serve", total_flops, check_total_flops, minutes=2, difficulty="warm-up", hints=(
            "There are two bills: one for training, one for use. Both grow with the parameters.",
            "A training token costs 2 operations a parameter forward and 4 backward, a served one only the first.",
            "6 * num_parameters * num_tokens + 2 * num_parameters * served.",
        )),
    Exercise(
        "15.2", "what a fit minimizes", objective, check_objective, minutes=7, hints=(
            "Three logarithms for each run: of A / N^alpha, of B / D^beta, and of E. The first is a - alpha * log N.",
            "torch.stack the three, each of shape (n,): torch.logsumexp(stacked, 0) is the predicted log L.",
            "torch.nn.functional.huber_loss(predicted, losses.log(), reduction=\"sum\", delta=delta).",
        )),
    Exercise(
        "15.3", "the best size for a budget", optimal, check_optimal, minutes=5, hints=(
            "With D = flops / (6 N), the right side of the equation is beta B · (6 N / flops)^beta.",
            "Multiply both sides by N^alpha, and divide by the rest: N^(alpha + beta) = … Then take the root.",
            "total = alpha + beta; N = (alpha A / (beta B)) ** (1 / total) * (flops / 6) ** (beta / total).",
        )),
    Exercise(
        "15.4", "when the small model pays", break_even_tokens, check_break_even_tokens, minutes=4, hints=(
            "The small one costs more in training, and less with every token that it serves. When are they even?",
            "Divide the difference of the training bills by what one served token saves.",
            "max(0, (6 Ns Ds - 6 Nl Dl) / (2 Nl - 2 Ns)), with s and l for small and large.",
        )),
    Exercise(
        "15.5", "points that cost nothing", diagnosis, check_diagnosis, minutes=5, kind="find the bug",
        difficulty="stretch", hints=(
            "Take one fact, and one suspect after the other: if this one were guilty, would the fact be different?",
            "Noise is what changes with the seed. A text that a model has read has a lower loss afterwards.",
            "The one that is left: what does every run do on its way, and complete only at its end?",
        )),
)
