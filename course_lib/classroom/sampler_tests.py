"""How notebook 07 tests samplers: filters on rows whose answer is a fraction, and broken samplers by their draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from course_lib.analysis.stats import Limits, count_limits, outside
from course_lib.classroom.broken_samplers import SAMPLERS, Sampler
from course_lib.config import SamplingParams
from course_lib.sampling import filter_logits, request_generator

Filter = Callable[[Tensor, list], Tensor]
# Name of an experiment: weights of four tokens, the settings, and the ids of the prompt.
EXPERIMENTS = {"temperature 0.5, top-p 0.8": ([9, 6, 3, 2], SamplingParams(temperature=0.5, top_p=0.8), []),
               "top-k 2, where tokens 1 and 2 tie": ([4, 3, 3, 2], SamplingParams(top_k=2), []),
               "repetition penalty 2, token 1 is in the prompt": ([4, 2, 1, 1], SamplingParams(repetition_penalty=2.0),
                                                                  [1])}


def unequal_rows(apply: Filter, by_loop: Callable, settings: Sequence[float]) -> tuple[int, list[str]]:
    """How many rows were compared, and those on which a filter and its loop over fractions differ.

    The rows are all of four weights from 1 to 4, each with every setting, in one batch.
    """
    cases = list(product(product(range(1, 5), repeat=4), settings))
    logits = torch.tensor([row for row, _ in cases], dtype=torch.float64).log()
    got = apply(logits, [setting for _, setting in cases]).softmax(-1).tolist()
    exact = [by_loop(row, Fraction(str(setting))) for row, setting in cases]
    return len(cases), [f"weights {row}, setting {setting}" for (row, setting), mine, right in zip(cases, got, exact)
                        if not all(abs(p - q) <= 1e-12 for p, q in zip(mine, right))]


def gap_to_processor(apply: Filter, processor: Callable, settings: Sequence[float]) -> float:
    """The largest difference in probability to a processor of `transformers`, on one random row for each setting."""
    rows = 3 * torch.randn(len(settings), 50, generator=request_generator(0), dtype=torch.float64)
    theirs = torch.cat([processor(setting)(None, row[None]) for setting, row in zip(settings, rows)])
    return (apply(rows, list(settings)).softmax(-1) - theirs.softmax(-1)).abs().max().item()


def experiment(sampler: Sampler, weights: Sequence[float], params: SamplingParams, seen: Sequence[int],
               n: int = 10_000) -> tuple[list[float], list[int], Limits]:
    """The right probabilities, the counts of n draws, and the limits that a correct sampler leaves once in a million.

    Args:
        weights: of four tokens, in proportion to their probabilities.
        seen: the ids of the prompt.
    """
    logits = (torch.tensor([weights], dtype=torch.float64) / sum(weights)).log()
    exact = filter_logits(logits, params, [seen], [[]]).softmax(-1)[0].tolist()
    ids = sampler(logits.expand(n, -1), [params] * n, [request_generator(0)] * n, [seen] * n)
    return exact, torch.bincount(ids, minlength=len(weights)).tolist(), count_limits(
        dict(enumerate(exact)), n, false_alarm=1e-6)


def together(sampler: Sampler, params: Sequence[SamplingParams], n: int = 16) -> list[str]:
    """The first n ids that each request of a batch draws; request i has seed i."""
    B = len(params)
    logits = torch.tensor([[9.0, 6.0, 3.0, 2.0]] * B).log()
    generators = [request_generator(i) for i in range(B)]
    calls = [sampler(logits, params, generators, [[]] * B).tolist() for _ in range(n)]
    return ["".join(map(str, ids)) for ids in zip(*calls)]


def print_shares() -> None:
    """For each experiment the right shares of the four tokens, in percent, and what each broken sampler drew."""
    print("Shares of four tokens in 10,000 draws, in percent.")
    for name, setup in EXPERIMENTS.items():
        print(f"\n{name}")
        for letter, sampler in SAMPLERS.items():
            exact, counts, limits = experiment(sampler, *setup)
            if letter == min(SAMPLERS):
                print("   right", percents(exact))
            mark = "  <-- outside its limits" if outside(dict(enumerate(counts)), limits) else ""
            print(f"   {letter}    ", percents([count / sum(counts) for count in counts]) + mark)


def percents(shares: Sequence[float]) -> str:
    """Shares in columns.

    >>> percents([0.25, 0.75])
    '   25   75'
    """
    return "".join(f"{100 * share:5.0f}" for share in shares)


def print_company() -> None:
    """The ids that request 0 draws from each broken sampler, alone and beside a request with top-k 1."""
    plain, narrow = SamplingParams(), SamplingParams(top_k=1)
    print("\nThe first 16 ids of request 0.")
    print("             alone             in company        (request 1, top-k 1)")
    for letter, sampler in SAMPLERS.items():
        print(f"   {letter}          ", *together(sampler, [plain]), "", *together(sampler, [plain, narrow]))
