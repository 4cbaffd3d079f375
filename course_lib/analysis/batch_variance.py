"""Temperature 0 in company: how far the logits of one request move when others share its batch, and what that changes.

A sum of floating-point numbers depends on its order, and a product of matrices chooses the order by its shape. So the
same row gets other last bits in a batch of 2 than alone, and where two logits are nearly equal, another token wins.
Source: He & Thinking Machines Lab 2025, "Defeating Nondeterminism in LLM Inference".
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.config import SamplingParams, require
from course_lib.engine import Engine
from course_lib.fast_layer import packed_weights
from course_lib.generate import LanguageModel, next_logits
from course_lib.kv_cache import cache_for
from course_lib.paged_cache import PackedPass, PagedCache
from course_lib.paging import BlockTable
from course_lib.scheduler import Sequence, Work


class Difference(NamedTuple):
    """One request's logits in a batch, beside those that it gets alone.

    Attributes:
        batch_size: rows.
        changed: logits whose bits differ, of V.
        largest: absolute difference.
        same_token: whether the largest logit is the same token's.
    """

    batch_size: int
    changed: int
    largest: float
    same_token: bool


@torch.inference_mode()
def logit_differences(lm: LanguageModel, prompts: Items[Items[int]],
                      batch_sizes: Items[int] = (2, 4, 8, 16, 32)) -> list[Difference]:
    """Decode the last token of the first prompt alone, and then with others of the prompts beside it.

    Only the company changes: all prompts are read one by one, by the same kernels.

    Args:
        prompts: as many as the largest batch, each of at least two tokens.
        batch_sizes: in [1, len(prompts)].
    """
    largest = max(batch_sizes)
    require(1 <= min(batch_sizes) and largest <= len(prompts), "batch_sizes", tuple(batch_sizes),
            f"in [1, {len(prompts)}], the number of prompts")
    size = 16
    pages = [-(-len(ids) // size) for ids in prompts[:largest]]
    cache, first = PagedCache.for_model(lm.model, sum(pages), size), 0
    tables = []
    for ids, n in zip(prompts, pages):
        tables.append(list(range(first, first + n)))
        first += n
        packed = PackedPass(cache, tables[-1:], [0], [len(ids) - 1])
        lm.model(torch.tensor([ids[:-1]]), kv_cache=packed, logits_to_keep=1)

    def last_of_first(B: int) -> Tensor:
        packed = PackedPass(cache, tables[:B], [len(ids) - 1 for ids in prompts[:B]], [1] * B)
        ids = torch.tensor([[ids[-1] for ids in prompts[:B]]])
        return lm.model(ids, kv_cache=packed, position_ids=packed.position_ids)[0, 0]

    with packed_weights(lm.model):  # as in the engine
        alone, found = last_of_first(1), []
        for B in batch_sizes:
            logits = last_of_first(B)
            found.append(Difference(B, int((bits(logits) != bits(alone)).sum()), (logits - alone).abs().max().item(),
                                    bool(logits.argmax() == alone.argmax())))
    return found


def bits(x: Tensor) -> Tensor:
    """The bits of floating-point numbers, read as integers: 0.0 and -0.0 are equal numbers, and differ in one bit.

    >>> bits(torch.tensor([0.0, -0.0, 1.0])).tolist()
    [0, -2147483648, 1065353216]
    """
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


class Flip(NamedTuple):
    """The first token at which an answer in company leaves the one that was written alone.

    Attributes:
        prompt: which, by its place.
        position: of the token in the answer.
        alone, batched: the two tokens.
        margin: by how much the token was ahead of the next one in the logits, alone.
    """

    prompt: int
    position: int
    alone: int
    batched: int
    margin: float


class Comparison(NamedTuple):
    """Greedy answers alone and in company.

    Attributes:
        flips: at most one for each prompt.
        tokens: that were written alone.
        smallest_margin: of all of them, in logits.
    """

    flips: list[Flip]
    tokens: int
    smallest_margin: float


@torch.inference_mode()
def greedy_margins(lm: LanguageModel, prompt_ids: Items[int], n: int) -> tuple[list[int], list[float]]:
    """A greedy answer of n tokens, written alone, and by how much each token was ahead of the next likeliest."""
    cache, ids, tokens, margins = cache_for(lm.model, len(prompt_ids) + n), prompt_ids, [], []
    for _ in range(n):
        logits = next_logits(lm.model, ids, cache)[0]
        first, second = logits.topk(2).values.tolist()
        tokens.append(int(logits.argmax()))
        margins.append(first - second)
        ids = tokens[-1:]
    return tokens, margins


def compare(engine: Engine, prompts: Items[Items[int]], n: int) -> Comparison:
    """Write greedy answers of n tokens alone, by a loop over the model, and all together, by an engine.

    Args:
        engine: with nobody in it.
        prompts: ids.
    """
    lone = [greedy_margins(engine.lm, ids, n) for ids in prompts]
    together, flips = answers(engine, prompts, n), []
    for i, ((tokens, margins), others) in enumerate(zip(lone, together)):
        for position, (token, other) in enumerate(zip(tokens, others)):
            if token != other:
                flips.append(Flip(i, position, token, other, margins[position]))
                break
    return Comparison(flips, sum(len(tokens) for tokens, _ in lone), min(min(margins) for _, margins in lone))


def answers(engine: Engine, prompts: Items[Items[int]], n: int) -> list[list[int]]:
    """Greedy answers of n tokens, all requests at once."""
    for i, ids in enumerate(prompts):
        engine.add_request(str(i), ids, SamplingParams(temperature=0, max_tokens=n, ignore_eos=True))
    written: list[list[int]] = [[] for _ in prompts]
    while engine.has_unfinished_requests():
        for output in engine.step():
            written[int(output.request_id)].append(output.result().token_id)
    return written


class InvariantEngine(Engine):
    """An engine whose logits do not depend on the company, to the last bit: each sequence goes through the model alone.

    Prompts are read in one piece and from their beginning, so that no neighbour decides where they are cut, and there
    are pages enough that nobody is preempted. To give lone rows company of their own is not enough: attention pads
    rows to the longest, and the last few keys of a row are summed in another way than those before. Kernels with one
    order of summation for every shape lose less than this.

    Args:
        lm, max_num_seqs, block_size: as for `Engine`.
    """

    def __init__(self, lm: LanguageModel, *, max_num_seqs: int = 32, block_size: int = 16) -> None:
        context = lm.config.max_position_embeddings
        super().__init__(lm, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_seqs * context,
                         block_size=block_size, num_blocks=max_num_seqs * -(-context // block_size),
                         enable_prefix_caching=False)

    def forward(self, work: Items[Work]) -> Tensor:
        """As `Engine.forward`, one sequence after the other."""
        return torch.cat([super(InvariantEngine, self).forward([one]) for one in work])


class FixedShapeEngine(Engine):
    """An engine whose decode steps all have the same shape: empty rows are computed, too, and each as the longest.

    The order of a sum follows the shape of the product, and each row of one product is summed alike. So the bits of a
    row depend on its own text alone, as in `InvariantEngine`, and weights are still read once for all rows. The price
    is paid in an empty room: one reader costs as much as `max_num_seqs` of them.

    Args:
        lm, max_num_seqs, block_size: as for `Engine`.
        max_model_len: tokens of the longest text; None: the context.
    """

    def __init__(self, lm: LanguageModel, *, max_num_seqs: int = 32, block_size: int = 16,
                 max_model_len: int | None = None) -> None:
        context = lm.config.max_position_embeddings
        self.max_model_len = max_model_len = context if max_model_len is None else max_model_len
        require(2 <= max_model_len <= context, "max_model_len", max_model_len, f"in [2, {context}]")
        width = -(-max_model_len // block_size)
        super().__init__(lm, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_seqs * max_model_len,
                         block_size=block_size, num_blocks=max_num_seqs * width, enable_prefix_caching=False)
        spare = self.blocks.num_blocks  # one page more, which no request gets: of all rows that are nobody's
        self.cache = PagedCache.for_model(lm.model, spare + 1, block_size)
        self.spare = Sequence("", [0] * max_model_len, max_model_len, 1,
                              table=BlockTable([spare] * width, max_model_len))

    def add_request(self, request_id: str, prompt_ids: Items[int], params: SamplingParams) -> None:
        """As `Engine.add_request`; a text that could grow longer than `max_model_len` is refused, too."""
        if self.max_model_len < self.lm.config.max_position_embeddings:  # which ends an answer by itself
            require(len(prompt_ids) + params.max_tokens <= self.max_model_len, "prompt tokens + max_tokens",
                    len(prompt_ids) + params.max_tokens, f"<= max_model_len = {self.max_model_len}")
        super().add_request(request_id, prompt_ids, params)

    def forward(self, work: Items[Work]) -> Tensor:
        """As `Engine.forward`: prompts alone, and steps together with rows that are nobody's, one at least.

        Those are as long as the longest text may be.
        """
        steps = [one for one in work if one.num_tokens == 1]
        spare = [Work(self.spare, self.max_model_len - 1, 1)] * (self.max_num_seqs + 1 - len(steps))
        rows = iter(super().forward([*steps, *spare]) if steps else ())
        return torch.stack([next(rows) if one.num_tokens == 1 else super(FixedShapeEngine, self).forward([one])[0]
                            for one in work])


def same_bits(make_engine: Callable[[], Engine], prompts: Items[Items[int]], n: int) -> list[bool]:
    """For each prompt, whether all logits of its greedy answer of n tokens are the same alone and in company."""
    together = watch(make_engine(), prompts, n)
    alone = [watch(make_engine(), [ids], n)[0] for ids in prompts]
    return [all(bits(a).equal(bits(b)) for a, b in zip(rows, others, strict=True))
            for rows, others in zip(alone, together)]


def watch(engine: Engine, prompts: Items[Items[int]], n: int) -> list[list[Tensor]]:
    """The logits of every token that an engine chooses in greedy answers of n tokens, for each prompt."""
    seen: list[list[Tensor]] = [[] for _ in prompts]
    forward = engine.forward

    def watched(work: Items[Work]) -> Tensor:
        logits = forward(work)
        for one, row in zip((one for one in work if one.gets_token), logits, strict=True):
            seen[int(one.sequence.request_id)].append(row.clone())
        return logits

    engine.forward = watched
    answers(engine, prompts, n)
    return seen
