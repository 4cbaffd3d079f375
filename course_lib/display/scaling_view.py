"""The best model for a budget, for training alone and with what it will serve, as data.

Pure functions; `scaling_words` says it and `scaling_picture` draws it. Every number of operations, the best size and
the break-even come from functions that are given, and may be a reader's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

from course_lib.analysis.scaling_law import LAWS, ScalingLaw, minimum
from course_lib.analysis.training_cost import TRAININGS
from course_lib.config import require
from course_lib.costs import parameter_count
from course_lib.display.diagrams.scaling import amount, power
from course_lib.display.roofline_view import digits
from course_lib.published import PUBLISHED
from course_lib.training.scaling_runs import FEWEST_TOKENS, LONG, SIZES, TOKENS, shape

BILLION = 1e9
WIDTH = 40  # factor that a curve goes beyond the best sizes on both sides
POINTS = 301
SMALLEST = 1000  # parameters: a budget that is too small for them is refused
SMALLER = (2, 4, 8)  # how many times smaller the models of the same loss are
REACH = 10  # a published model this many times larger than the largest of a fit is still shown


class Formulas(NamedTuple):
    """What the numbers come from.

    Attributes:
        total_flops: of (parameters, training tokens, served tokens).
        optimal: parameters and tokens from (law, flops), nothing served.
        break_even_tokens: of two (parameters, tokens), the smaller model first.
    """

    total_flops: Callable[[float, float, float], float]
    optimal: Callable[[ScalingLaw, float], tuple[float, float]]
    break_even_tokens: Callable[[tuple[float, float], tuple[float, float]], float]


class Model(NamedTuple):
    """A trained model: parameters, training tokens, and its loss by a law."""

    N: float
    D: float
    loss: float

    @property
    def words(self) -> str:
        """Its size, its text, and how they compare."""
        return (f"{amount(self.N, 3)} parameters, {amount(self.D, 3)} tokens ({digits(self.D / self.N)} per "
                f"parameter), loss {self.loss:.3f}")


class Range(NamedTuple):
    """The least and the greatest of the runs that a law was fitted on."""

    sizes: tuple[float, float]
    tokens: tuple[float, float]

    def holds(self, model: Model) -> bool:
        """Whether a model is within it."""
        return self.sizes[0] <= model.N <= self.sizes[1] and self.tokens[0] <= model.D <= self.tokens[1]

    @property
    def words(self) -> str:
        """Both."""
        (a, b), (c, d) = ((amount(value) for value in pair) for pair in self)
        return f"{a} to {b} parameters and {c} to {d} tokens"


PUBLISHED_RANGE = Range((70e6, 16e9), (5e9, 500e9))  # Hoffmann et al. 2022, abstract; both laws are fits to these runs
OUR_RANGE = Range((parameter_count(shape(SIZES[0])).total, parameter_count(shape(SIZES[-1])).total),
                  (min(n for n in TOKENS if n >= FEWEST_TOKENS), max(n for _, n in LONG)))


def fitted_range(name: str) -> Range:
    """Where a law of this name was fitted; one that is not published is a fit to the course's own runs."""
    return PUBLISHED_RANGE if name in LAWS else OUR_RANGE


@dataclass(frozen=True)
class Setting:
    """What is asked.

    Attributes:
        name, law: the law, which predicts the losses.
        flops: the budget.
        served: tokens that the finished model is to read or write, paid from the same budget.
    """

    name: str
    law: ScalingLaw
    flops: float = 1e23
    served: float = 0.0

    def __post_init__(self) -> None:
        require(0 < self.flops < math.inf, "flops", self.flops, "a finite number > 0")
        require(0 <= self.served < math.inf, "served", self.served, "a finite number >= 0")

    def model(self, N: float, D: float) -> Model:
        """A model with its loss by the law."""
        return Model(N, D, self.law.loss(N, D))


class Smaller(NamedTuple):
    """A smaller model that reaches the same loss, or does not.

    Attributes:
        model: its tokens are infinite where it never has that loss.
        cost: of its training, as a multiple of the larger one's.
        pays_from: tokens served; None where it has not that loss.
    """

    model: Model
    cost: float
    pays_from: float | None


@dataclass(frozen=True)
class ScalingView:
    """What a budget buys.

    Attributes:
        setting: what was asked.
        measured: where the law was fitted.
        alone: the best model if all goes into training, as `optimal` says.
        spent: what that one costs by `total_flops`, as a share of the budget.
        lowest: where the curve of the budget is lowest.
        paid: the best one with the served tokens paid from the same budget; None where nothing is served.
        training: the share of the budget that its training takes.
        curves: models of all sizes on which the budget is spent, training alone, and with the served tokens.
        smaller: models of the loss of `alone`.
        known: published models, with their names.
    """

    setting: Setting
    measured: Range
    alone: Model
    spent: float
    lowest: Model
    paid: Model | None
    training: float
    curves: tuple[tuple[Model, ...], ...]
    smaller: tuple[Smaller, ...]
    known: tuple[tuple[str, Model], ...]

    @property
    def bests(self) -> list[Model]:
        """One or two."""
        return [self.alone, *filter(None, [self.paid])]


def scaling_view(setting: Setting, formulas: Formulas) -> ScalingView:
    """Find the best sizes of a budget.

    Raises:
        ValueError: a formula returns what it cannot, or the budget does not pay for what is to be served.
    """
    total_flops, served = formulas.total_flops, setting.served
    alone = setting.model(*pair("optimal(…)", formulas.optimal(setting.law, setting.flops)))
    lowest = best(setting, total_flops, 0.0)
    paid = best(setting, total_flops, served) if served else None
    sizes = [model.N for model in (lowest, paid) if model]
    curves = tuple(curve(setting, total_flops, tokens, (min(sizes) / WIDTH, max(sizes) * WIDTH))
                   for tokens in ((0.0, served) if served else (0.0,)))
    measured = fitted_range(setting.name)
    training = flops_of(total_flops, paid.N, paid.D, 0.0) / setting.flops if paid else 1.0
    known = tuple((name.replace("-", " "), setting.model(parameter_count(PUBLISHED[name]).total, facts.tokens))
                  for name, facts in TRAININGS.items() if parameter_count(PUBLISHED[name]).total
                  <= REACH * measured.sizes[1])
    return ScalingView(setting, measured, alone, flops_of(total_flops, alone.N, alone.D, 0.0) / setting.flops, lowest,
                       paid, training, curves, tuple(smaller(setting, formulas, alone, k) for k in SMALLER), known)


def flops_of(total_flops: Callable[..., Any], N: float, D: float, served: float) -> float:
    """What the formula says, if it is a number that operations can be."""
    return number("total_flops(…)", total_flops(N, D, served), positive=D > 0 or served > 0)


def number(name: str, value: Any, *, positive: bool) -> float:
    """The value, if it is a finite number that is large enough."""
    fine = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    require(fine and (value > 0 if positive else value >= 0), name, value,
            "a positive number" if positive else "a number >= 0")
    return float(value)


def pair(name: str, value: Any) -> tuple[float, float]:
    """The value, if it is parameters and tokens."""
    require(isinstance(value, tuple | list) and len(value) == 2, name, value, "a pair: parameters and tokens")
    N, D = (number(name, part, positive=True) for part in value)
    return N, D


def tokens_left(setting: Setting, total_flops: Callable[..., Any], N: float, served: float) -> float:
    """Training tokens that the budget pays for beside the served ones; not positive where it does not."""
    left = setting.flops - flops_of(total_flops, N, 0.0, served)
    return left / flops_of(total_flops, N, BILLION, 0.0) * BILLION


def best(setting: Setting, total_flops: Callable[..., Any], served: float) -> Model:
    """The model of the lowest loss that the budget pays for."""
    most = setting.flops / flops_of(total_flops, 1.0, 1.0, served)  # with a single training token
    require(most > SMALLEST, "served" if served else "flops", served or setting.flops,
            f"such that {power(setting.flops)} FLOPs pay for a model of {SMALLEST:,} parameters")

    def loss(log_n: float) -> float:
        N = math.exp(log_n)
        return setting.law.loss(N, max(tokens_left(setting, total_flops, N, served), 1e-100))

    N = math.exp(minimum(loss, 0.0, math.log(most), 100))
    return setting.model(N, max(tokens_left(setting, total_flops, N, served), 1.0))


def curve(setting: Setting, total_flops: Callable[..., Any], served: float,
          sizes: tuple[float, float]) -> tuple[Model, ...]:
    """Models of many sizes on which the budget is spent, small ones first."""
    low, high = sizes
    every = (low * (high / low) ** (i / (POINTS - 1)) for i in range(POINTS))
    with_tokens = ((N, tokens_left(setting, total_flops, N, served)) for N in every)
    return tuple(setting.model(N, D) for N, D in with_tokens if D >= 1)


def smaller(setting: Setting, formulas: Formulas, large: Model, times: int) -> Smaller:
    """The model that has a `times`-th of the parameters and is trained to the same loss."""
    N = large.N / times
    D = setting.law.tokens_for(large.loss, N)
    if math.isinf(D):
        return Smaller(Model(N, D, large.loss), math.inf, None)
    cost, own = (flops_of(formulas.total_flops, *model, 0.0) for model in ((N, D), large[:2]))
    even = number("break_even_tokens(…)", formulas.break_even_tokens((N, D), large[:2]), positive=False)
    return Smaller(Model(N, D, large.loss), cost / own, even)
