"""From a prompt to text: prefill, then one token at a time, with a record of every step.

The model and the tokenizer are arguments: anything that maps ids to logits and ids to text will do.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from course_lib.config import ModelConfig, SamplingParams, require
from course_lib.detokenize import decode_stream
from course_lib.grammar import logits_processor_for
from course_lib.kv_cache import SlidingWindowCache, StaticCache, cache_for
from course_lib.sampling import logprobs_of, request_generator, sample, top_candidates

Prompt = str | Sequence[Mapping[str, Any]] | Sequence[int] | Tensor


class LanguageModel(Protocol):
    """What generation needs; `course_lib.checkpoint.load` returns one.

    It may bring functions of its own, `sample` and `verify`, which then stand in for the library's.
    """

    model: Any
    tokenizer: Any
    config: ModelConfig
    eos_token_ids: frozenset[int]


@dataclass(frozen=True)
class Step:
    """One pass of the model and the token that came of it.

    Attributes:
        token_id: the chosen token.
        logprob: its natural log-probability under the model, before any filter.
        top: the likeliest (id, logprob) of that distribution, `params.logprobs` of them.
        seconds: from handing ids to the model to knowing the token.
        positions: ids that went through the model: the whole prompt in prefill, 1 in decode.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    seconds: float
    positions: int


class Draft(Protocol):
    """What lets generation write several tokens a pass; `course_lib.drafts` has three."""

    def decode_steps(self, lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams) -> Iterator[Step]:
        """In place of `decode_steps` below: tokens of the same distribution, until the same end."""


class Latency(NamedTuple):
    """What a reader of the stream feels: time to first token, time between tokens, tokens per second."""

    ttft_s: float
    itl_s: float
    tokens_per_s: float


def latency(steps: Sequence[Step]) -> Latency:
    """The three numbers of a finished generation.

    `ttft_s` is the time of the first step, prefill. `itl_s` is the mean time of the steps after it, 0.0
    if there is none. `tokens_per_s` counts every new token over the time of all steps.

    Args:
        steps: at least one, as `Stream.steps` holds them.
    """
    seconds = [step.seconds for step in steps]
    later = seconds[1:]
    return Latency(seconds[0], sum(later) / len(later) if later else 0.0, len(seconds) / sum(seconds))


@dataclass(frozen=True)
class CompletionOutput:
    """A finished text, in vLLM's names.

    `finish_reason` is "stop" (an end token or a stop string), "length" (max_tokens or the context is
    used up), or None while the text is not finished. `token_ids` holds the end token, `text` does not.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    cumulative_logprob: float
    logprobs: tuple[tuple[tuple[int, float], ...], ...] | None
    finish_reason: str | None


def encode_prompt(tokenizer: Any, prompt: Prompt) -> list[int]:
    """A string as raw text, after the tokens that the model expects first; messages through the chat
    template; ids unchanged, in a list or a tensor (T,).

    Raises:
        ValueError: it is something else, or nothing is left to condition on.
    """
    if isinstance(prompt, str):
        ids = tokenizer.encode_prompt(prompt)
    else:
        items = prompt.tolist() if isinstance(prompt, Tensor) and prompt.dim() == 1 else prompt
        require(isinstance(items, Iterable) and not isinstance(items, (Mapping, bytes, Tensor)), "prompt", prompt,
                "text, a list of messages, or ids in a list or a tensor (T,)")
        items = list(items)
        chat = bool(items) and all(isinstance(item, Mapping) for item in items)
        ids = tokenizer.apply_chat_template(items, add_generation_prompt=True) if chat else as_ids(prompt, items)
    require(len(ids) > 0, "prompt", prompt, "at least one token long")
    return ids


def as_ids(prompt: Prompt, items: Sequence[Any]) -> list[int]:
    """The items as Python's integers, NumPy's and PyTorch's included.

    Raises:
        ValueError: one is no integer.
    """
    truths = [item for item in items if isinstance(item, bool) or getattr(item, "dtype", None) == torch.bool]
    try:
        ids = [operator.index(item) for item in items]
    except TypeError:
        ids = None
    require(ids is not None and not truths, "prompt", prompt, "text, messages alone, or ids alone")
    return ids


@torch.inference_mode()
def next_logits(model: Any, ids: Sequence[int], kv_cache: StaticCache | SlidingWindowCache) -> Tensor:
    """Logits (1, V) of the token after `ids`, which extend the cache."""
    device = kv_cache.keys.device
    return model(torch.tensor([ids], device=device), kv_cache=kv_cache, logits_to_keep=1)[:, -1]


def prefill(model: Any, prompt_ids: Sequence[int], kv_cache: StaticCache, *,
            chunk: int | None = None) -> Iterator[Tensor]:
    """Read a prompt into the cache a piece at a time, so that other answers' steps can go on in between.

    The cache holds the same keys and values as after one pass, within rounding: a piece sees all pieces before it.
    Source: Agrawal et al. 2023, SARATHI.

    Args:
        prompt_ids: at least one.
        kv_cache: extended by the prompt.
        chunk: ids in a piece, >= 1; the last one may be shorter. None: all in one.

    Yields:
        Logits (1, V) after each piece; the last are those of the token that follows the prompt.

    Raises:
        ValueError: `chunk` is not positive, at the first piece.
    """
    chunk = len(prompt_ids) if chunk is None else chunk
    require(chunk >= 1, "chunk", chunk, "None or >= 1")
    for start in range(0, len(prompt_ids), chunk):
        yield next_logits(model, prompt_ids[start : start + chunk], kv_cache)


def check_prompt(config: ModelConfig, prompt_ids: Sequence[int]) -> None:
    """Refuse a prompt that the model cannot continue.

    Raises:
        ValueError: the prompt leaves no room in the context, or holds an id outside the vocabulary.
    """
    if len(prompt_ids) >= config.max_position_embeddings:
        raise ValueError(f"a prompt of {len(prompt_ids)} tokens leaves no room: "
                         f"max_position_embeddings = {config.max_position_embeddings}")
    lowest, highest = min(prompt_ids), max(prompt_ids)
    if lowest < 0 or highest >= config.vocab_size:
        raise ValueError(f"prompt ids in [{lowest}, {highest}] are not allowed: "
                         f"must be in [0, {config.vocab_size})")


def check_logits(model: Any, logits: Tensor, name: str = "the model") -> None:
    """Refuse logits that are NaN or infinitely large, and say whether the weights are.

    Raises:
        ValueError: the largest logit is not finite.
    """
    if math.isfinite(logits.max()):
        return
    broken = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    cause = (f"of its weights, {', '.join(broken[:4])} {'hold' if len(broken) > 1 else 'holds'} NaN or infinity"
             if broken else f"its weights are finite, so that it must have computed beyond {logits.dtype}")
    raise ValueError(f"{name}'s logits are not finite: {cause}")


def end_ids(lm: LanguageModel, params: SamplingParams) -> frozenset[int]:
    """The ids that end this request's text."""
    return frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else lm.eos_token_ids)


def decode_steps(lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, *,
                 new_cache: Callable[[Any, int], Any] = cache_for) -> Iterator[Step]:
    """Run the loop until an end token, `max_tokens` or the end of the context.

    Args:
        prompt_ids: at least one, and such as `check_prompt` accepts.
        new_cache: makes the cache, called with the model and the positions of the whole text.
    """
    max_tokens = min(params.max_tokens, lm.config.max_position_embeddings - len(prompt_ids))
    kv_cache = new_cache(lm.model, len(prompt_ids) + max_tokens)
    generator, ends = request_generator(params.seed), end_ids(lm, params)
    processor, choose = logits_processor_for(params, lm.tokenizer, ends), getattr(lm, "sample", sample)
    ids, output_ids = prompt_ids, []
    for _ in range(max_tokens):
        started = time.perf_counter()
        logits = next_logits(lm.model, ids, kv_cache)
        check_logits(lm.model, logits)
        allowed = processor.mask(logits) if processor else logits
        token_id = choose(allowed, params, generator, prompt_ids=[prompt_ids], output_ids=[output_ids]).item()
        if processor:
            processor.advance(token_id)
        seconds = time.perf_counter() - started
        yield record(logits, token_id, params.logprobs, seconds, len(ids))
        if token_id in ends:
            return
        output_ids.append(token_id)
        ids = [token_id]


def record(logits: Tensor, token_id: int, n: int | None, seconds: float, positions: int) -> Step:
    """What happened at one step; the model's own distribution, not the filtered one."""
    logprobs = logprobs_of(logits)
    top = ()
    if n:
        values, candidates = top_candidates(logits, n)
        top = tuple(zip(candidates[0].tolist(), values[0].tolist()))
    return Step(token_id, logprobs[0, token_id].item(), top, seconds, positions)


@dataclass
class Stream:
    """Text as it comes: iterate for the pieces; `steps` and `output` tell what has happened so far.

    Leaving the loop early, or interrupting it, leaves the model as it was: the cache belongs to the
    request, and `close` gives it back.
    """

    lm: LanguageModel
    prompt_ids: list[int]
    params: SamplingParams
    steps: list[Step] = field(default_factory=list)
    finish_reason: str | None = None
    draft: Draft | None = None

    def __post_init__(self) -> None:
        self._decoder = decode_stream(self.lm.tokenizer, self.params.stop)
        source = decode_steps if self.draft is None else self.draft.decode_steps
        self._deltas = self._run(source(self.lm, self.prompt_ids, self.params))

    def __iter__(self) -> Iterator[str]:
        return self._deltas

    def __next__(self) -> str:
        return next(self._deltas)

    def close(self) -> None:
        """Generate no more. A text that was not finished keeps `finish_reason` None."""
        self._deltas.close()

    def _run(self, steps: Iterator[Step]) -> Iterator[str]:
        ends = end_ids(self.lm, self.params)
        for step in steps:
            self.steps.append(step)
            if step.token_id in ends:  # not part of the text
                break
            if delta := self._decoder.push(step.token_id):
                yield delta
            if self._decoder.stopped is not None:
                break
        rest = self._decoder.flush()
        ended = step.token_id in ends or self._decoder.stopped is not None
        self.finish_reason = "stop" if ended else "length"
        if rest:
            yield rest

    @property
    def output(self) -> CompletionOutput:
        """The completion as far as it has come."""
        return CompletionOutput(
            index=0, text=self._decoder.text, token_ids=tuple(step.token_id for step in self.steps),
            cumulative_logprob=sum(step.logprob for step in self.steps),
            logprobs=None if self.params.logprobs is None else tuple(step.top for step in self.steps),
            finish_reason=self.finish_reason)


def stream(lm: LanguageModel, prompt: Prompt, params: SamplingParams | None = None, *,
           draft: Draft | None = None) -> Stream:
    """Generate from `prompt`, a piece of text at a time.

    Args:
        lm: as `load()` returns it.
        prompt: raw text, chat messages, or token ids, in a list or a tensor (T,).
        params: how to sample and when to stop; the defaults of `SamplingParams` if None.
        draft: guesses tokens, of which the model checks several in one pass (`course_lib.drafts`). At
            temperature 0 the ids stay the same; else they have the same distribution, but a seed draws others.

    Returns:
        A `Stream`; its pieces joined are its `output.text`. No piece ends inside a character or holds
        part of a stop string.

    Raises:
        ValueError: the prompt is empty or of another kind, leaves no room in the context, or holds an unknown
            id, or the draft has another vocabulary, or the structured output holds what is not supported. While it
            runs: the model's logits are not finite.
    """
    prompt_ids = encode_prompt(lm.tokenizer, prompt)
    check_prompt(lm.config, prompt_ids)
    params = params or SamplingParams()
    logits_processor_for(params, lm.tokenizer, end_ids(lm, params))  # here, so that what it refuses is refused at once
    return Stream(lm, prompt_ids, params, draft=draft)


def generate(lm: LanguageModel, prompt: Prompt, params: SamplingParams | None = None, *,
             draft: Draft | None = None) -> CompletionOutput:
    """Generate from `prompt` to the end; the arguments are those of `stream`."""
    running = stream(lm, prompt, params, draft=draft)
    for _ in running:
        pass
    return running.output
