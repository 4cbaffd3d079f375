"""Speculative decoding: a draft guesses a few tokens, and one pass of the target checks them all.

Throughout, p is the target's distribution of the next token and q the draft's, both after penalties, temperature,
top-k, top-p and min-p. What is written has the distribution p, whatever q is; a good q only makes it fast.
`course_lib.drafts` has three that propose: a model, the text itself, and counts of other text.

Source: Leviathan et al. 2023, Chen et al. 2023.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from course_lib.config import SamplingParams
from course_lib.generate import LanguageModel, Step, check_logits, end_ids, record
from course_lib.grammar import logits_processor_for
from course_lib.kv_cache import StaticCache
from course_lib.sampling import draw, filter_logits, has_penalties, request_generator


def accept(p: Any, q: Any, uniform: Any) -> Any:
    """Whether a token that the draft drew may stay: with probability min(1, p / q), `uniform` being in [0, 1).

    Args:
        p, q: the token's probability for the target and for the draft, q > 0; numbers, fractions or tensors.

    >>> accept(0.5, 0.25, 0.99), accept(0.25, 0.5, 0.49), accept(0.25, 0.5, 0.5)
    (True, True, False)
    """
    return uniform * q < p


def residual(p: Any, q: Any) -> Any:
    """What a rejected token is replaced from: max(0, p - q), divided by its sum; p itself where nothing is left.

    Nothing is left where p equals q but for rounding.

    Args:
        p, q: (V,), a tensor each, or an array of exact fractions.

    >>> residual(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.5, 0.25])).tolist()
    [1.0, 0.0, 0.0]
    """
    excess = (p - q).clip(min=0)
    total = excess.sum()
    return excess / total if total > 0 else p


def verify(p_rows: Tensor, q_rows: Tensor, proposal: Sequence[int], uniforms: Tensor) -> list[int]:
    """The tokens that come of a proposal: its beginning, as far as accepted, and one more. Distributed as p.

    Proposals are looked at in order until one is rejected. It is replaced by a draw from the residual; if none is,
    a bonus token is drawn from the last row of p.

    Args:
        p_rows: (k + 1, V); row i is the target's distribution after the first i proposals.
        q_rows: (k, V); row i is the one that proposal i was drawn from.
        proposal: k ids, drawn independently of `uniforms`.
        uniforms: (k + 1,), in [0, 1): one for each proposal, and one to draw with.

    Returns:
        1 to k + 1 ids.

    >>> p, q = torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> verify(p, q, [0], torch.tensor([0.4, 0.0])), verify(p, q, [0], torch.tensor([0.6, 0.0]))
    ([0, 1], [1])
    """
    n = len(proposal)
    stays = accept(probability_of(p_rows, proposal), probability_of(q_rows, proposal), uniforms[:n].to(p_rows.device))
    accepted = [*stays.tolist(), False].index(False)
    row = p_rows[n] if accepted == n else residual(p_rows[accepted], q_rows[accepted])
    return [*proposal[:accepted], draw(row[None], uniforms[-1:]).item()]


def probability_of(rows: Tensor, ids: Sequence[int]) -> Tensor:
    """For each of k ids its probability in its row of (k or more, V): (k,)."""
    chosen = torch.tensor(ids, dtype=torch.long, device=rows.device)
    return rows[: len(ids)].gather(-1, chosen[:, None])[:, 0]


def expected_tokens(acceptance: Any, k: int) -> Any:
    """Tokens per pass of the target if each of k proposals is accepted with the same probability, independently.

    It is 1 + a + ... + a^k, which is (1 - a^(k + 1)) / (1 - a) for a < 1.

    >>> expected_tokens(0.5, 2), expected_tokens(1, 4)
    (1.75, 5)
    """
    return sum(acceptance**i for i in range(k + 1))


def distributions(logits: Tensor, params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int],
                  proposal: Sequence[int] = ()) -> Tensor:
    """What the next token is drawn from, after the output and the first 0, 1, ... proposals: (n, V), n <= k + 1.

    Args:
        logits: (n, V), a model's, one row for each of these beginnings.
        params: their chain of penalties, temperature and filters is applied to each row.
    """
    if not has_penalties(params):
        if params.temperature == 0:  # as the chain gives it, in a third of the time
            return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        return filter_logits(logits, params).softmax(-1)
    outputs = [[*output_ids, *proposal[:i]] for i in range(len(logits))]
    return filter_logits(logits, params, [prompt_ids] * len(logits), outputs).softmax(-1)


@dataclass(frozen=True)
class Pass:
    """One round: what the draft proposed, and what one pass of the target made of it.

    Attributes:
        proposal: k ids, 0 <= k <= num_speculative_tokens.
        p, q: the probability of each proposal for the target and for the draft, given those before it.
        tokens: the accepted proposals and one more, which is the bonus if all were accepted.
        positions: ids that went through the target: the pending one (in the first pass the prompt) and the proposal.
        draft_seconds, seconds: for the proposal, and for the whole round.
    """

    proposal: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    tokens: tuple[int, ...]
    positions: int
    draft_seconds: float
    seconds: float

    @property
    def accepted(self) -> int:
        """How many of the proposals stayed."""
        return len(self.tokens) - 1

    @property
    def tested(self) -> int:
        """How many were looked at: those after a rejected one are thrown away unseen."""
        return min(len(self.tokens), len(self.proposal))


@dataclass(frozen=True)
class SpeculativeStep(Step):
    """One token of a pass. They become known together: the first carries the seconds and the positions of the whole
    pass, the others 0. So the sums are right, and the time between tokens shows the bursts that a reader sees.

    Attributes:
        target_pass: the pass that it came from, the same object for each of its tokens.
    """

    target_pass: Pass


def passes(steps: Sequence[Step]) -> list[Pass]:
    """The passes of a speculative stream, from its `steps`, in order."""
    return [step.target_pass for step in steps if step.positions]


def acceptance_rate(rounds: Sequence[Pass]) -> float:
    """Accepted proposals as a share of those tested; 0.0 if there was none."""
    return sum(one.accepted for one in rounds) / max(1, sum(one.tested for one in rounds))


class Run(Protocol):
    """A proposer at work on one request."""

    def propose(self, ids: Sequence[int], uniforms: Tensor) -> tuple[list[int], Tensor]:
        """At most as many ids as there are uniforms, each drawn with one from its row of q: k ids and (k, V).

        Args:
            ids: prompt and output so far; they begin with what the last `crop` left of the ids seen before.
        """

    def crop(self, length: int) -> None:
        """Roll back: of the text and the proposal that were seen, only the first `length` ids still hold."""


class Proposer:
    """What `stream` and `generate` take as `draft`; it holds nothing of a request, so that several can share it."""

    num_speculative_tokens: int

    def start(self, lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, length: int) -> Run:
        """Begin a request whose text will have at most `length` tokens, those of the prompt included."""
        raise NotImplementedError

    def decode_steps(self, lm: LanguageModel, prompt_ids: Sequence[int],
                     params: SamplingParams) -> Iterator[SpeculativeStep]:
        """What `course_lib.generate.decode_steps` yields, but several tokens for each pass of the model.

        Raises:
            ValueError: the proposer does not fit the model. While it runs: logits are not finite.
        """
        length = min(len(prompt_ids) + params.max_tokens, lm.config.max_position_embeddings)
        request = Request(lm, self.start(lm, prompt_ids, params, length), prompt_ids, params, length)
        return request.steps(self.num_speculative_tokens)


class Request:
    """The loop: propose, verify, roll back."""

    def __init__(self, lm: LanguageModel, run: Run, prompt_ids: Sequence[int], params: SamplingParams,
                 length: int) -> None:
        self.lm, self.run, self.prompt_ids, self.params, self.length = lm, run, prompt_ids, params, length
        self.ids = list(prompt_ids)  # and the output so far
        self.kv_cache = StaticCache.for_model(lm.model, length)  # a ring could not be rolled back
        self.generator = request_generator(params.seed)
        self.processor = logits_processor_for(params, lm.tokenizer, end_ids(lm, params))

    def steps(self, k: int) -> Iterator[SpeculativeStep]:
        """Up to k proposals a pass, until an end token or until the text is as long as it may be."""
        ends = end_ids(self.lm, self.params)
        while len(self.ids) < self.length:
            one, logits = self.next_pass(min(k, self.length - len(self.ids) - 1))
            for i, token_id in enumerate(one.tokens):
                step = record(logits[i : i + 1], token_id, self.params.logprobs, one.seconds * (i == 0),
                              one.positions * (i == 0))
                yield SpeculativeStep(**vars(step), target_pass=one)
                if token_id in ends:
                    return

    @torch.inference_mode()
    def next_pass(self, k: int) -> tuple[Pass, Tensor]:
        """One round of at most k proposals; its record, and the target's logits (proposals + 1, V)."""
        started, ids, cache = time.perf_counter(), self.ids, self.kv_cache
        uniforms = torch.rand(2 * k + 1, generator=self.generator, dtype=torch.float64)
        proposal, q_rows = self.run.propose(ids, uniforms[:k])
        drafted, pending = time.perf_counter(), [*ids[cache.get_seq_length() :], *proposal]
        logits = self.lm.model(torch.tensor([pending], device=cache.keys.device), kv_cache=cache,
                               logits_to_keep=len(proposal) + 1)[0]  # (proposals + 1, V)
        for row in logits:
            check_logits(self.lm.model, row)
        allowed = self.processor.mask_rows(logits, proposal) if self.processor else logits
        p_rows = distributions(allowed, self.params, self.prompt_ids, ids[len(self.prompt_ids) :], proposal)
        q_rows = q_rows.to(p_rows.device)
        tokens = getattr(self.lm, "verify", verify)(p_rows, q_rows, proposal, uniforms[k:])
        for token_id in tokens if self.processor else ():
            self.processor.advance(token_id)
        still_true = len(ids) + len(tokens) - 1
        cache.crop(still_true)
        self.run.crop(still_true)
        ids += tokens
        return Pass(tuple(proposal), *(tuple(probability_of(rows, proposal).tolist()) for rows in (p_rows, q_rows)),
                    tuple(tokens), len(pending), drafted - started, time.perf_counter() - started), logits
