"""The law L(N, D) = E + (A / N^alpha + B / D^beta)^gamma, and what follows from it: the best size for a budget.

With gamma = 1 it is the law of Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", section 3.3:
what a small model adds to the loss and what little text adds are independent. Below 1 the larger of the two counts for
more, and near 0 it alone: a model that lacks text gains little from its size. With E = 0, beta = 1 and gamma = alpha_D
it is the law of Kaplan et al. 2020, "Scaling Laws for Neural Language Models", equation 1.5.

N counts parameters, D training tokens, L is in nats per token. Training costs about 6 N D floating-point operations,
and each token that is served later 2 N. `course_lib.analysis.scaling_fit` fits the law to finished runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from course_lib.config import require
from course_lib.costs import serving_flops, training_flops


@dataclass(frozen=True)
class ScalingLaw:
    """Loss as a function of model size and training tokens: E + (A / N^alpha + B / D^beta)^gamma.

    Args:
        E: the loss that no size and no amount of text removes, in nats per token, >= 0.
        A, alpha: what a small model adds, > 0.
        B, beta: what little text adds, > 0.
        gamma: how far the two stand in for each other, > 0; 1 adds them.

    Raises:
        ValueError: a number is out of its range.
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.E) and self.E >= 0, "E", self.E, "a finite number >= 0")
        for name in ("A", "B", "alpha", "beta", "gamma"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "a finite number > 0")

    def loss(self, N: float, D: float) -> float:
        """Of a model of N parameters after D tokens; arrays of floats give arrays.

        >>> round(LAWS["Hoffmann et al. 2022"].loss(70e9, 1.4e12), 2)  # Chinchilla
        1.94
        """
        return self.E + (self.A / N**self.alpha + self.B / D**self.beta) ** self.gamma

    def tokens_for(self, loss: float, N: float) -> float:
        """The training tokens after which a model of N parameters has this loss; infinity if it never has."""
        require(N > 0, "N", N, "> 0")
        left = self.shortfall(loss) - self.A / N**self.alpha
        return (self.B / left) ** (1 / self.beta) if left > 0 else math.inf

    def shortfall(self, loss: float) -> float:
        """What A / N^alpha + B / D^beta may be for a loss; 0 for one that no model reaches."""
        return max(0.0, loss - self.E) ** (1 / self.gamma)

    def optimal(self, flops: float) -> tuple[float, float]:
        """The N and D of the lowest loss among all with 6 N D = flops, whatever gamma is.

        Source: Hoffmann et al. 2022, equation 4.

        >>> N, D = LAWS["Besiroglu et al. 2024"].optimal(5.76e23)  # Chinchilla's budget
        >>> f"{N / 1e9:.0f} B parameters, {D / 1e12:.1f} T tokens"
        '72 B parameters, 1.3 T tokens'
        """
        require(flops > 0, "flops", flops, "> 0")
        total = self.alpha + self.beta
        G = (self.alpha * self.A / (self.beta * self.B)) ** (1 / total)
        N = G * (flops / 6) ** (self.beta / total)
        return N, flops / 6 / N

    def cheapest(self, loss: float, served: float = 0) -> tuple[float, float]:
        """The N and D that reach a loss with the fewest operations, `served` tokens of use included.

        Args:
            loss: to be reached, in nats per token, above E.
            served: tokens that the finished model will read or write, >= 0.

        Raises:
            ValueError: no model has this loss.
        """
        require(loss > self.E, "loss", loss, f"above E = {self.E:.4f}, which no model reaches")
        require(served >= 0, "served", served, ">= 0")
        smallest = math.log(self.A / self.shortfall(loss)) / self.alpha  # log N: even endless text would just reach it

        def cost(excess: float) -> float:
            N = math.exp(smallest + math.exp(excess))
            return math.log(total_flops(N, self.tokens_for(loss, N), served))

        N = math.exp(smallest + math.exp(minimum(cost, -20, 4)))
        return N, self.tokens_for(loss, N)


# Fits to the same models of 70 M to 16 B parameters, those of Hoffmann et al. (arXiv:2203.15556, equation 10 in
# appendix D.3). Besiroglu et al. (arXiv:2404.10102, table 1) read the runs off the first paper's figure 4 and fitted
# them again; their standard errors are 0.03, 124.58, 1293.23, 0.02 and 0.02.
LAWS: dict[str, ScalingLaw] = {
    "Hoffmann et al. 2022": ScalingLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28),
    "Besiroglu et al. 2024": ScalingLaw(E=1.8172, A=482.01, B=2085.43, alpha=0.3478, beta=0.3658),
}


def total_flops(N: float, D: float, served: float) -> float:
    """Operations to train a model of N parameters on D tokens and to use it for `served` more."""
    return training_flops(N, D) + serving_flops(N, served)


def break_even_tokens(small: tuple[float, float], large: tuple[float, float]) -> float:
    """Served tokens from which on the smaller of two models, trained longer, has cost fewer operations in all.

    Args:
        small, large: parameters and training tokens of each; the small one has fewer parameters. Meant for two
            models of the same loss.

    Returns: 0 if the small one was cheaper to train already.

    >>> break_even_tokens((1e9, 60e9), (2e9, 20e9))  # 120e18 more in training, 2e9 less for each token
    60000000000.0
    """
    require(0 < small[0] < large[0], "small", small, f"a model of fewer parameters than {large[0]:,.0f}")
    extra = training_flops(*small) - training_flops(*large)
    return max(0.0, extra / (serving_flops(large[0], 1) - serving_flops(small[0], 1)))


def minimum(function: Callable[[float], float], low: float, high: float, steps: int = 200) -> float:
    """Where a function with a single valley is lowest between two numbers, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (low + high) / 2
