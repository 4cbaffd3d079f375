"""What a pass of speculative decoding costs, part by part; the speed-up that follows from it; and the stopwatch.

Costs are in plain steps, a plain step being a pass of the target over one row. So they say of another machine what
they say of this one, if its processor and its memory are as fast in proportion.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from course_lib.analysis.acceptance import KINDS, Tally, write_all
from course_lib.analysis.long_texts import course_text
from course_lib.analysis.machine_speed import seconds_of
from course_lib.config import SamplingParams
from course_lib.generate import Draft, LanguageModel, Prompt, encode_prompt
from course_lib.kv_cache import StaticCache
from course_lib.speculative import Proposer, Run

ROWS = (1, 2, 3, 4, 5, 7, 9)  # of a check that are timed


class Check:
    """A pass of the target over some new tokens, again and again after the same text.

    Args:
        ids: (B, T), the text and the tokens that can be new.
        seen: tokens of the text.
    """

    def __init__(self, lm: LanguageModel, ids: Tensor, seen: int) -> None:
        self.model, self.ids, self.seen = lm.model, ids.to(lm.model.embed_tokens.weight.device), seen
        self.kv_cache = StaticCache.for_model(lm.model, ids.shape[1], batch_size=len(ids))
        self.model(self.ids[:, :seen], kv_cache=self.kv_cache)

    def seconds(self, rows: int) -> float:
        """The time of one pass over that many new tokens of each text."""
        self.kv_cache.crop(self.seen)
        return seconds_of(lambda: self.run(self.ids[:, self.seen : self.seen + rows]))

    def run(self, new: Tensor) -> None:
        """The pass, finished."""
        self.model(new, kv_cache=self.kv_cache)
        if new.is_cuda:
            torch.cuda.synchronize()


@torch.inference_mode()
def check_ms(lm: LanguageModel, rows: Sequence[int], *, batch_size: int = 1, runs: int = 40) -> list[float]:
    """Milliseconds of a pass over that many new tokens of each text, after 64 tokens; the fastest of some runs."""
    most = 64 + max(rows)
    check = Check(lm, course_text(lm.tokenizer, most)[None].expand(batch_size, -1), 64)
    timed = [[1000 * check.seconds(n) for n in rows] for _ in range(runs)]
    return [min(column) for column in zip(*timed)]


class PassCosts(NamedTuple):
    """What the parts of a pass cost, in plain steps.

    Attributes:
        checks: c, for a number of rows the cost of a pass of the target over them.
        guesses: d, of each draft by its name the cost of one proposed token.
    """

    checks: Mapping[int, float]
    guesses: Mapping[str, float]

    def check(self, rows: float) -> float:
        """The cost of a pass over any number of rows, on a line between those that were timed.

        >>> PassCosts({1: 1.0, 3: 2.0}, {}).check(2)
        1.5
        """
        return float(np.interp(rows, list(self.checks), list(self.checks.values())))


@torch.inference_mode()
def pass_costs(lm: LanguageModel, drafts: Mapping[str, Proposer], *, runs: int = 30) -> PassCosts:
    """Time the parts of a pass one by one, and take means, which a busy machine lengthens in proportion.

    They take turns, so that a draft finds the processor's cache full of the target's weights, as it does in a pass.
    The text is an answer of the target that is said again, so that it can also be looked up.
    """
    asked = encode_prompt(lm.tokenizer, KINDS["questions"][0])
    answer = write_all(lm, [asked], SamplingParams(temperature=0, max_tokens=32)).token_ids[0]
    said, again = [*asked, *answer], 2 + (runs + max(ROWS)) // len(asked)
    ids, n = said * again, len(said)
    check, params = Check(lm, torch.tensor([ids[: n + max(ROWS)]]), n), SamplingParams(temperature=0, max_tokens=1)
    at_work = {name: draft.start(lm, asked, params, len(ids)) for name, draft in drafts.items()}
    checks, guesses = {rows: [] for rows in ROWS}, {name: [] for name in drafts}
    for i in range(runs + 1):
        for rows, seconds in checks.items():
            seconds.append(check.seconds(rows))
        for name, run in at_work.items():
            check.seconds(5)
            guesses[name].append(guess_seconds(run, ids[: n + i], drafts[name].num_speculative_tokens))
    step = mean(checks[1][1:])  # the first turn reads the text, and wakes everything up
    return PassCosts({rows: mean(seconds[1:]) / step for rows, seconds in checks.items()},
                     {name: mean(seconds[1:]) / step for name, seconds in guesses.items()})


def guess_seconds(run: Run, ids: Sequence[int], k: int) -> float:
    """The time for one of k proposals after a text of which a run knows all but the last id."""
    run.crop(len(ids) - 1)
    started = time.perf_counter()
    proposal, _ = run.propose(ids, torch.full((k,), 0.5, dtype=torch.float64))
    return (time.perf_counter() - started) / max(1, len(proposal))


class Forecast(NamedTuple):
    """What a pass writes and what it should cost, on average.

    Attributes:
        tokens: that it writes.
        check: c, in plain steps.
        guessing: k d, in plain steps.
    """

    tokens: float
    check: float
    guessing: float

    @property
    def speed_up(self) -> float:
        """How many times as fast as without a draft, which writes one token a step.

        >>> Forecast(3.0, 1.5, 0.5).speed_up
        1.5
        """
        return self.tokens / (self.check + self.guessing)


def forecast(tally: Tally, costs: PassCosts, draft: str) -> Forecast:
    """What the passes of a tally should cost, each by its own number of proposals; reading the prompt is left out.

    Args:
        draft: its name in the costs.
    """
    proposals = [len(one.proposal) for one in tally.passes]
    return Forecast(tally.tokens_per_pass, mean(costs.check(k + 1) for k in proposals),
                    mean(proposals) * costs.guesses[draft])


def race(lm: LanguageModel, texts: Mapping[str, Sequence[Prompt]], drafts: Mapping[str, Draft], *,
         temperature: float = 0, max_tokens: int = 48, rounds: int = 3) -> dict[tuple[str, str], list[float]]:
    """How many times as fast as without a draft: for each kind of text and each draft, once a round.

    Whole answers are timed, the prompt included, in seconds a token. At every prompt plain decoding and all drafts
    take turns, so that what disturbs one disturbs all.
    """
    params = SamplingParams(temperature=temperature, seed=0, max_tokens=max_tokens)
    ratios: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in texts for name in drafts}
    for _ in range(rounds):
        for kind, prompts in texts.items():
            turns = [[write_all(lm, [prompt], params, draft) for draft in (None, *drafts.values())]
                     for prompt in prompts]
            plain, *each = (sum(one.seconds for one in tallies) / sum(one.tokens for one in tallies)
                            for tallies in zip(*turns))
            for name, seconds in zip(drafts, each):
                ratios[kind, name].append(plain / seconds)
    return ratios
