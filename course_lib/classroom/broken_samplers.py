"""Five samplers with one mistake each, to be told apart by what they draw (the last exercise of notebook 07).

Who reads on looks up the answer. Of the eight in `MISTAKES`, all easily made and hard to see in a text, five
are in `SAMPLERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.config import SamplingParams
from course_lib.sampling import apply_penalties, apply_temperature, apply_top_k, apply_top_p, draw, uniform

MISTAKES = {
    "too few": "top-p drops the token that crosses p",
    "top-p first": "top-p is applied before the temperature",
    "ties": "top-k keeps every token that ties with the k-th",
    "sign": "the repetition penalty divides negative logits, too",
    "inverted": "the logits are multiplied by the temperature",
    "shared settings": "the first row's settings are applied to every row",
    "shared generator": "every row draws from the first row's generator",
    "reseeded": "every call sets the generator back to its seed",
}
Params = Sequence[SamplingParams]
Prompts = Sequence[Sequence[int]]
Step = Callable[[Tensor, Params, Prompts], Tensor]
Sampler = Callable[[Tensor, Params, Sequence[torch.Generator], Prompts], Tensor]


def penalise(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """The repetition penalty, on what each row was given."""
    return apply_penalties(logits, prompt_ids, [[]] * len(logits),
                           repetition_penalty=[p.repetition_penalty for p in params])


def penalise_by_division(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """The same, blind to the sign: a negative logit comes nearer to 0."""
    result = logits.clone()
    for row, p, ids in zip(result, params, prompt_ids, strict=True):
        row[list(set(ids))] /= p.repetition_penalty
    return result


def warm(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """The temperature."""
    return apply_temperature(logits, [p.temperature for p in params])


def cut_k(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """Top-k."""
    return apply_top_k(logits, [p.top_k for p in params])


def cut_k_by_threshold(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """Top-k that asks whether a logit is as large as the k-th."""
    V = logits.shape[1]
    places = torch.tensor([[(p.top_k or V) - 1] for p in params])
    border = logits.sort(descending=True).values.gather(-1, places)  # (B, 1)
    return logits.masked_fill(logits < border, -torch.inf)


def cut_p(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """Top-p."""
    return apply_top_p(logits, [p.top_p for p in params])


def cut_p_too_early(logits: Tensor, params: Params, prompt_ids: Prompts) -> Tensor:
    """Top-p that asks whether the sum with a token is still within p; the first token always stays."""
    p = torch.tensor([[p.top_p] for p in params], dtype=logits.dtype)
    probs, order = logits.softmax(-1).sort(descending=True, stable=True)
    within = (probs.cumsum(-1) <= p) | (p == 1)
    within[:, 0] = True
    return logits.masked_fill(~within.scatter(-1, order, within.clone()), -torch.inf)


def sampler(*steps: Step, own_generators: bool = True) -> Sampler:
    """A sampler that takes these steps and then draws, called with logits (B, V) and one entry per row of
    params, generators and prompt ids."""
    def sample(logits: Tensor, params: Params, generators: Sequence[torch.Generator], prompt_ids: Prompts) -> Tensor:
        for step in steps:
            logits = step(logits, params, prompt_ids)
        sources = generators if own_generators else [generators[0]] * len(generators)
        return draw(logits.softmax(-1), torch.tensor([uniform(g) for g in sources]))

    return sample


SAMPLERS = {
    "A": sampler(penalise, warm, cut_k_by_threshold, cut_p),
    "B": sampler(penalise, warm, cut_k, cut_p, own_generators=False),
    "C": sampler(penalise, cut_p, warm, cut_k),
    "D": sampler(penalise_by_division, warm, cut_k, cut_p),
    "E": sampler(penalise, warm, cut_k, cut_p_too_early),
}
RIGHT = sampler(penalise, warm, cut_k, cut_p)
