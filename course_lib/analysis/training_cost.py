"""What a published model cost to train, from formulas, beside what its makers say of it.

The formulas are those of `course_lib.costs`; here are the facts to check them on.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.config import require
from course_lib.costs import gpu_hours, parameter_count, training_flops
from course_lib.published import PUBLISHED

H100_FLOPS_PER_S = 989.4e12  # bfloat16, dense: NVIDIA's data sheet of the H100 SXM; the larger numbers assume sparsity


@dataclass(frozen=True)
class TrainingFacts:
    """What is published of a training.

    Attributes:
        tokens: read in pre-training, as stated ("over 15T" counts as 15e12).
        gpu_hours: of H100 GPUs, as stated: everything that was booked, failures and later phases included.
        context: tokens of a training sequence, in most of the training.
        flops: as stated; None where they are not.
        source: of the numbers.
    """

    tokens: float
    gpu_hours: float
    context: int
    flops: float | None
    source: str


TRAININGS: dict[str, TrainingFacts] = {
    "Llama-3-8B": TrainingFacts(15e12, 1.3e6, 8192, None, "github.com/meta-llama/llama3, MODEL_CARD.md"),
    "Llama-3-70B": TrainingFacts(15e12, 6.4e6, 8192, None, "github.com/meta-llama/llama3, MODEL_CARD.md"),
    "Llama-3.1-405B": TrainingFacts(15.6e12, 30.84e6, 8192, 3.8e25, "arXiv:2407.21783, section 3.2; hours: "
                                    "github.com/meta-llama/llama-models, models/llama3_1/MODEL_CARD.md"),
}

# Tokens that models of `course_lib.published.PUBLISHED` read in pre-training, oldest first, and where it is stated.
TOKENS_READ: dict[str, float] = {"GPT-3 175B": 0.3e12, "Llama-2-7B": 2e12, "Llama-3-8B": 15e12, "Qwen3-8B": 36e12,
                                 "Qwen3-0.6B": 36e12}
TOKENS_SOURCES: dict[str, str] = {
    "GPT-3 175B": "arXiv:2005.14165, table 2.1: 300 billion tokens for every size",
    "Llama-2-7B": "arXiv:2307.09288, table 1",
    "Llama-3-8B": TRAININGS["Llama-3-8B"].source,
    "Qwen3-8B": "arXiv:2505.09388, section 3: about 36 trillion tokens for every size",
    "Qwen3-0.6B": "arXiv:2505.09388, section 3",
}


@dataclass(frozen=True)
class TrainingCost:
    """A training by the formulas.

    Attributes:
        flops: 6 N D with all parameters; attention's scores are left out.
        gpu_hours, dollars: for `flops`.
    """

    flops: float
    gpu_hours: float
    dollars: float


def training_cost(name: str, tokens: float, *, utilisation: float = 0.4, dollars_per_hour: float = 2.5,
                  flops_per_s: float = H100_FLOPS_PER_S) -> TrainingCost:
    """What it costs to train a published shape.

    Args:
        name: of the shape, in `course_lib.published.PUBLISHED`.
        tokens: to train on, >= 0.
        utilisation: the share of the GPU's peak that the training reaches, in (0, 1]; 0.4 is about what the makers of
            Llama 3 state for their largest model (38 to 43 %).
        dollars_per_hour: of one GPU, >= 0.
        flops_per_s: peak of one GPU.

    Source: Dubey et al. 2024, "The Llama 3 Herd of Models", section 3.3, for the utilisation.

    >>> cost = training_cost("Llama-3-8B", 15e12)
    >>> f"{cost.flops:.2e} FLOPs, {cost.gpu_hours:,.0f} GPU hours"
    '7.23e+23 FLOPs, 507,268 GPU hours'
    """
    require(name in PUBLISHED, "name", name, f"one of {sorted(PUBLISHED)}")
    require(dollars_per_hour >= 0, "dollars_per_hour", dollars_per_hour, ">= 0")
    flops = training_flops(parameter_count(PUBLISHED[name]).total, tokens)
    hours = gpu_hours(flops, flops_per_s=flops_per_s, utilisation=utilisation)
    return TrainingCost(flops=flops, gpu_hours=hours, dollars=hours * dollars_per_hour)


def implied_utilisation(name: str, facts: TrainingFacts, flops_per_s: float = H100_FLOPS_PER_S) -> float:
    """The share of the peak that the stated hours amount to, if 6 N D was all they were used for.

    >>> round(implied_utilisation("Llama-3.1-405B", TRAININGS["Llama-3.1-405B"]), 2)
    0.35
    """
    whole = training_cost(name, facts.tokens, utilisation=1, flops_per_s=flops_per_s)
    return whole.gpu_hours / facts.gpu_hours
