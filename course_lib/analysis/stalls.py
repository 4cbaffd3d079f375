"""What running answers feel when a long prompt arrives: the gaps between their tokens, with and without chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from course_lib.analysis.machine_speed import now
from course_lib.config import require
from course_lib.generate import prefill
from course_lib.kv_cache import StaticCache
from course_lib.model import CausalLM


@dataclass(frozen=True)
class Gaps:
    """One run of `gaps_between_tokens`.

    Attributes:
        seconds: between the tokens of the running answers, step by step; they are one batch, so all feel the same.
        stretched: the places in `seconds` where a prompt, or a piece of one, was read.
        ttft_s: of each prompt, from its arrival to its first token.
    """

    seconds: list[float]
    stretched: list[int]
    ttft_s: list[float]


def percentile(values: Sequence[float], p: float) -> float:
    """The smallest value that at least p percent of them do not exceed, p in (0, 100].

    >>> percentile([1, 2, 3, 50], 75), percentile([1, 2, 3, 50], 99)
    (3, 50)
    """
    require(len(values) > 0, "values", values, "at least one")
    require(0 < p <= 100, "p", p, "in (0, 100]")
    return sorted(values)[math.ceil(len(values) * p / 100) - 1]


@torch.inference_mode()
def gaps_between_tokens(model: CausalLM, *, chunk: int | None, prompt_tokens: int = 768, running: int = 3,
                        steps: int = 120, every: int = 40) -> Gaps:
    """Decode a few answers in a batch, while every now and then a long prompt has to be read as well.

    The work of one step of the loop is one token for each running answer and, if a prompt is waiting, one piece of
    it, in turn. A server that takes both into one pass reads the weights once for them, and delays the prompt less
    (Agrawal et al. 2023, "SARATHI").

    Args:
        chunk: ids of the prompt between two steps; None: all of it.
        prompt_tokens: of each arriving prompt.
        running: answers, >= 1.
        steps: tokens that each of them gets.
        every: steps between two arrivals; the first prompt is there at once.

    Raises:
        ValueError: a prompt would not be read before the next one arrives.
    """
    require(running >= 1, "running", running, ">= 1")
    pieces_each = 1 if chunk is None else math.ceil(prompt_tokens / chunk)
    require(pieces_each <= every, "chunk", chunk, f">= {math.ceil(prompt_tokens / every)}, to be done in {every} steps")
    cache = StaticCache.for_model(model, steps + 1, batch_size=running)
    ids = torch.ones(running, 1, dtype=torch.long)
    model(ids, kv_cache=cache)
    seconds, stretched, ttft = [], [], []
    for i in range(steps):
        started = now()
        if i % every == 0:
            arrived = started
            pieces = prefill(model, [1] * prompt_tokens, StaticCache.for_model(model, prompt_tokens), chunk=chunk)
        if next(pieces, None) is not None:
            stretched.append(i)
            if i % every == pieces_each - 1:
                ttft.append(now() - arrived)
        ids = model(ids, kv_cache=cache, logits_to_keep=1).argmax(-1)  # (running, 1)
        seconds.append(now() - started)
    return Gaps(seconds, stretched, ttft)
