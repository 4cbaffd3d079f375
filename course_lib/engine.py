"""Many requests at once on one model: the scheduler decides, the pages remember, one pass serves them all.

In vLLM's words and of its kind: `add_request` at any time, `step` for one pass, `abort_request` when a reader leaves.
The engine deals in token ids; text and stop strings are the business of what stands in front of it.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from collections.abc import Sequence as Items
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from course_lib.config import SamplingParams, require
from course_lib.fast_layer import packed_weights
from course_lib.generate import LanguageModel, Step, as_ids, check_logits, check_prompt, end_ids
from course_lib.grammar import LogitsProcessor, logits_processor_for
from course_lib.paged_cache import PackedPass, PagedCache
from course_lib.paging import BlockManager
from course_lib.sampling import has_penalties, logprobs_of, request_generator, sample, top_candidates
from course_lib.scheduler import Batch, Scheduler, Sequence, Work

DEFAULT_POOL = 2**29  # bytes of keys and values at most, where the caller names no number of pages


@dataclass(frozen=True)
class EngineOutput:
    """What a request got in one pass.

    Attributes:
        request_id: whose.
        step: its token; None if it could not get one. `positions` and `seconds` of a first token are those of all
            passes that read the prompt; what was found in the prefix index is not among the positions.
        finish_reason: "stop" (an end token), "length", "error", or None while it goes on.
        error: what went wrong.
    """

    request_id: str
    step: Step | None
    finish_reason: str | None
    error: str | None = None

    def result(self) -> Step:
        """Its token.

        Raises:
            ValueError: it could not get one.
        """
        if self.step is None:
            raise ValueError(self.error)
        return self.step


@dataclass(frozen=True)
class EngineStats:
    """How busy the engine is, and what it has saved, since it was made.

    Attributes:
        running, waiting: requests.
        blocks_used, blocks_total: pages.
        prefix_hits, prefix_queries: prompt tokens found in the prefix index, and looked for.
        preemptions: times that a request lost its pages.
    """

    running: int
    waiting: int
    blocks_used: int
    blocks_total: int
    prefix_hits: int
    prefix_queries: int
    preemptions: int


@dataclass(eq=False)
class Request:
    """What the engine knows of a request and the scheduler need not."""

    sequence: Sequence
    params: SamplingParams
    generator: torch.Generator
    processor: LogitsProcessor | None = None
    seconds: float = 0.0  # since its last token
    positions: int = 0


class Engine:
    """Continuous batching over a paged cache.

    Greedy answers are those of `generate`, up to near ties: a product of many rows rounds differently from one of a
    single row. A row draws from its own generator, whatever its neighbours do.

    Args:
        lm: as `load()` returns it. Where packed weights help, it holds a second copy of its weights as long as the
            engine lives.
        max_num_seqs: requests that run at the same time.
        max_num_batched_tokens: tokens in a pass, >= max_num_seqs; longer prompts are read in several passes.
        block_size: tokens in a page.
        num_blocks: pages; None: room for `max_num_seqs` full contexts, but no more than half a gigabyte.
        enable_prefix_caching: reuse the pages of equal beginnings, also among those who come together.

    Attributes:
        batch: what the last pass consisted of.

    Raises:
        ValueError: a size is out of range.
    """

    def __init__(self, lm: LanguageModel, *, max_num_seqs: int = 32, max_num_batched_tokens: int = 512,
                 block_size: int = 16, num_blocks: int | None = None, enable_prefix_caching: bool = True) -> None:
        require(block_size >= 1, "block_size", block_size, ">= 1")
        if num_blocks is None:
            num_blocks = default_num_blocks(lm.model, max_num_seqs, block_size)
        self.lm, self.max_num_seqs = lm, max_num_seqs
        self.blocks = BlockManager(num_blocks, block_size, enable_prefix_caching=enable_prefix_caching)
        self.scheduler = Scheduler(self.blocks, max_num_seqs=max_num_seqs,
                                   max_num_batched_tokens=max_num_batched_tokens)
        self.cache = PagedCache.for_model(lm.model, num_blocks, block_size)
        self.requests: dict[str, Request] = {}
        self.batch = Batch()
        kept = ExitStack()
        kept.enter_context(packed_weights(lm.model))
        weakref.finalize(self, kept.close)

    def add_request(self, request_id: str, prompt_ids: Items[int], params: SamplingParams) -> None:
        """Queue a request; the next passes serve it as soon as there is room.

        Args:
            request_id: any that is not in use.
            prompt_ids: at least one.
            params: `stop` strings are not looked at: they are text.

        Raises:
            ValueError: the id is in use, the prompt is empty, leaves no room in the context or holds an unknown id, or
                all pages together would not hold the request, or its structured output holds what is not supported.
        """
        require(request_id not in self.requests, "request_id", request_id, "one that is not in use")
        ids = as_ids(prompt_ids, list(prompt_ids))
        require(len(ids) > 0, "prompt_ids", ids, "at least one token long")
        check_prompt(self.lm.config, ids)
        ends = end_ids(self.lm, params)
        processor = logits_processor_for(params, self.lm.tokenizer, ends)
        sequence = self.scheduler.add(
            request_id, ids, max_tokens=min(params.max_tokens, self.lm.config.max_position_embeddings - len(ids)),
            stop_token_ids=ends)
        self.requests[request_id] = Request(sequence, params, request_generator(params.seed), processor)

    def abort_request(self, request_id: str) -> None:
        """Forget a request and free its pages at once; an unknown id is ignored."""
        self.scheduler.abort(request_id)
        self.requests.pop(request_id, None)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has something to do."""
        return self.scheduler.has_unfinished()

    def reset_prefix_cache(self) -> None:
        """Forget the pages of all prompts, for when the weights have changed: they hold what the old ones computed.

        Raises:
            ValueError: there are requests.
        """
        require(not self.has_unfinished_requests(), "requests", len(self.requests), "none, to forget what pages hold")
        self.blocks.reset_prefix_cache()

    def step(self) -> list[EngineOutput]:
        """One pass: a token for each request that decodes, and pieces of the prompts that are being read.

        A request whose logits are not finite, or whose grammar no token can continue, ends with an error, and the
        others go on. Any other exception, an interrupt included, ends all requests and leaves the engine as new.

        Returns:
            One output for each request that got a token, or an error; the finished ones are forgotten.
        """
        try:
            return self.one_pass()
        except BaseException:
            self.scheduler.abort_all()
            self.requests.clear()
            raise

    @torch.inference_mode()
    def one_pass(self) -> list[EngineOutput]:
        """What `step` does when nothing comes between."""
        started = time.perf_counter()
        batch = self.batch = self.scheduler.schedule()
        for source, target in batch.copies:
            self.cache.copy_block(source, target)
        if not batch.work:
            return []
        logits = self.forward(batch.work)  # (tokens to choose, V)
        requests = [self.requests[work.sequence.request_id] for work in batch.work if work.gets_token]
        allowed, errors = mask(self.lm.model, logits, requests)
        failed = self.fail(requests, errors)
        if errors:
            kept = [i for i in range(len(requests)) if i not in errors]
            logits, allowed, requests = logits[kept], allowed[kept], [requests[i] for i in kept]
        token_ids = choose(self.lm, allowed, requests)
        if errors := advance(token_ids, requests):
            failed += self.fail(requests, errors)
            kept = [i for i in range(len(requests)) if i not in errors]
            logits, token_ids, requests = logits[kept], [token_ids[i] for i in kept], [requests[i] for i in kept]
        seconds = time.perf_counter() - started
        for work in batch.work:
            request = self.requests[work.sequence.request_id]
            request.seconds += seconds
            request.positions += work.num_tokens
        steps = record(logits, token_ids, requests)
        self.scheduler.update(batch, token_ids)
        outputs = [EngineOutput(request.sequence.request_id, step, request.sequence.finish_reason)
                   for request, step in zip(requests, steps, strict=True)]
        for output in outputs:
            if output.finish_reason:
                del self.requests[output.request_id]
        return outputs + failed

    def fail(self, requests: Items[Request], errors: Mapping[int, str]) -> list[EngineOutput]:
        """End those requests, by their places, that can get no token in the pass that has been computed."""
        names = {requests[i].sequence.request_id: error for i, error in errors.items()}
        self.batch.work = [work for work in self.batch.work if work.sequence.request_id not in names]
        for name in names:
            self.abort_request(name)
        return [EngineOutput(name, None, "error", error) for name, error in names.items()]

    def forward(self, work: Items[Work]) -> Tensor:
        """Compute a pass: the logits (n, V) after those n sequences that get a token, in their order."""
        device, counts = self.cache.pages.device, [one.num_tokens for one in work]
        tables, starts = [one.sequence.table.block_ids for one in work], [one.start for one in work]
        packed = PackedPass(self.cache, tables, starts, counts)
        ids = [i for one in work for i in one.sequence.token_ids[one.start : one.start + one.num_tokens]]
        ends = [end - 1 for one, end in zip(work, accumulate(counts)) if one.gets_token]
        return self.lm.model(torch.tensor([ids], device=device), kv_cache=packed, position_ids=packed.position_ids,
                             logits_to_keep=torch.tensor(ends, dtype=torch.long, device=device))[0]

    def stats(self) -> EngineStats:
        """The numbers of this moment."""
        return EngineStats(
            running=len(self.scheduler.running), waiting=len(self.scheduler.waiting),
            blocks_used=self.blocks.num_used_blocks, blocks_total=self.blocks.num_blocks,
            prefix_hits=self.blocks.prefix_hits, prefix_queries=self.blocks.prefix_queries,
            preemptions=self.scheduler.num_preemptions)


def default_num_blocks(model: object, max_num_seqs: int, block_size: int) -> int:
    """Pages for `max_num_seqs` full contexts, for at least one, and within `DEFAULT_POOL` where that allows it."""
    config, weight = model.config, next(model.parameters())
    context = -(-config.max_position_embeddings // block_size)
    page_bytes = (2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * block_size
                  * weight.element_size())
    return max(context, min(max_num_seqs * context, DEFAULT_POOL // page_bytes))


def mask(model: object, logits: Tensor, requests: Items[Request]) -> tuple[Tensor, dict[int, str]]:
    """The logits (B, V) without what the grammars forbid, and for each row that can give no token, why."""
    finite, masked, errors = logits.amax(-1).isfinite().tolist(), {}, {}
    for i, request in enumerate(requests):
        try:
            if not finite[i]:
                check_logits(model, logits[i])
            if request.processor:
                masked[i] = request.processor.mask(logits[i])
        except ValueError as error:
            errors[i] = str(error)
    if masked:
        logits = torch.stack([masked.get(i, row) for i, row in enumerate(logits)])
    return logits, errors


def choose(lm: LanguageModel, logits: Tensor, requests: Items[Request]) -> list[int]:
    """The next token of each request from its row of the logits (B, V), by the model's own sampler if it has one."""
    if not requests:
        return []
    prompts, outputs = zip(*(texts(request) for request in requests))
    own = getattr(lm, "sample", sample)
    return own(logits, [request.params for request in requests], [request.generator for request in requests],
               prompt_ids=prompts, output_ids=outputs).tolist()


def advance(token_ids: Items[int], requests: Items[Request]) -> dict[int, str]:
    """Tell the grammars what was drawn; for each row where a sampler of somebody's own drew what they forbid, why."""
    errors = {}
    for i, (token_id, request) in enumerate(zip(token_ids, requests, strict=True)):
        try:
            if request.processor:
                request.processor.advance(token_id)
        except ValueError as error:
            errors[i] = str(error)
    return errors


def texts(request: Request) -> tuple[list[int], list[int]]:
    """Prompt and output, where a penalty asks for them."""
    if not has_penalties(request.params):
        return [], []
    ids, n = request.sequence.token_ids, request.sequence.num_prompt_tokens
    return ids[:n], ids[n:]


def record(logits: Tensor, token_ids: Items[int], requests: Items[Request]) -> list[Step]:
    """A `Step` for each row; the likeliest tokens only where they were asked for."""
    if not requests:
        return []
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    logprobs = logprobs_of(logits).gather(-1, chosen)[:, 0].tolist()
    steps = []
    for i, request in enumerate(requests):
        top = ()
        if request.params.logprobs:
            values, ids = top_candidates(logits[i : i + 1], request.params.logprobs)
            top = tuple(zip(ids[0].tolist(), values[0].tolist()))
        steps.append(Step(token_ids[i], logprobs[i], top, request.seconds, request.positions))
        request.seconds, request.positions = 0.0, 0
    return steps
