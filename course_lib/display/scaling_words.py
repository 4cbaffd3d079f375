"""What the best size for a budget is, in words."""

from __future__ import annotations

import math

from course_lib.display.diagrams.scaling import amount, power
from course_lib.display.roofline_view import digits
from course_lib.display.scaling_view import ScalingView
from course_lib.display.views import percent


def scaling_summary(view: ScalingView) -> str:
    """The best sizes in words."""
    setting = view.setting
    words = (f"{power(setting.flops)} FLOPs, law: {setting.name}. Training alone: the best model has "
             f"{view.alone.words}.")
    if view.paid:
        words += (f" With {amount(setting.served, 3)} tokens to be served from the same budget: {view.paid.words}; "
                  f"{percent(view.training)} of the budget trains it.")
    return f"{words} {even_words(view)}"


def even_words(view: ScalingView) -> str:
    """When half the parameters pay."""
    half = view.smaller[0]
    if half.pays_from is None:
        return f"No model of half that size reaches the loss of {view.alone.loss:.3f}."
    return (f"Half as many parameters reach {view.alone.loss:.3f} with {amount(half.model.D, 3)} tokens, and pay off "
            f"after {amount(half.pays_from, 3)} served tokens.")


def remark(view: ScalingView) -> str:
    """What is to be seen: that `optimal` is off the curve or not at its lowest point, or what serving changes."""
    if abs(view.spent - 1) > 0.01:
        return f"The round dot is off its curve: the model of optimal(…) costs {digits(view.spent)} times the budget."
    ratio = view.alone.N / view.lowest.N
    if abs(math.log(ratio)) > 0.02:
        return (f"The round dot is not where its curve is lowest: optimal(…) has {digits(ratio)} times the parameters "
                "of the best model.")
    if view.paid is None:
        return f"{digits(view.alone.D / view.alone.N)} tokens per parameter are best for training alone."
    return (f"Serving makes the best model {digits(view.alone.N / view.paid.N)} times smaller: it reads "
            f"{digits(view.paid.D / view.paid.N)} tokens per parameter instead of "
            f"{digits(view.alone.D / view.alone.N)}.")


def range_words(view: ScalingView) -> str:
    """Whether the best models are within what was measured."""
    where = f"this law was fitted on {view.measured.words}"
    outside = [f"{amount(model.N)} on {amount(model.D)}" for model in view.bests if not view.measured.holds(model)]
    if not outside:
        return f"Within the measured range: {where}."
    return f"Extrapolated: {where}, and {' and '.join(outside)} {'is' if len(outside) == 1 else 'are'} outside it."
