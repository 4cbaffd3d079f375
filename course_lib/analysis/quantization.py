"""What rounding the weights does to what a model knows: loss, capitals, tool calls, and which part feels it most.

Quality does not depend on how the integers lie in memory. So here weights are rounded and kept in floating point,
which is quick to evaluate, for grids that no product knows as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_lib.analysis.knockout import greedy_batch
from course_lib.analysis.machine_speed import fastest
from course_lib.analysis.phase_times import step
from course_lib.checkpoint import LanguageModel
from course_lib.config import require
from course_lib.gptq import gptq
from course_lib.kv_cache import StaticCache
from course_lib.model import KVCache
from course_lib.quantize import matrices, quantize
from course_lib.quantized_cache import QuantizedCache
from course_lib.rounding import dequantize, round_weights
from course_lib.training.corpus import Writer, stories
from course_lib.training.corpus.facts import is_held_out
from course_lib.training.questions import SEED, Question, kinds
from course_lib.training.train import next_token_loss

EMBEDDING = ("embed_tokens", "lm_head")


def parts_of(lm: LanguageModel, *, embedding: bool = False) -> list[str]:
    """The modules whose weight is rounded: the layers' linear maps, and the embedding and head if asked for."""
    return [name for name in matrices(lm.model) if embedding or name not in EMBEDDING]


def rounded(lm: LanguageModel, bits: int, per: str | int, *, parts: Collection[str] | None = None,
            symmetric: bool = False) -> LanguageModel:
    """A copy whose weights lie on grids of this many bits, in floating point.

    Args:
        per: "tensor", "channel" or a group size.
        parts: names of modules, as `parts_of` gives them; None: all linear maps of the layers.
        symmetric: whether code 0 is worth 0; otherwise all 2^bits codes are used.
    """
    return changed(lm, parts, lambda name, weight: round_weights(weight, bits, per, symmetric=symmetric))


def rounded_with_feedback(lm: LanguageModel, bits: int, group_size: int | None,
                          hessians: Mapping[str, Tensor]) -> LanguageModel:
    """`rounded`, with `gptq` in place of rounding to nearest, for the modules that there are Hessians of."""
    def with_feedback(name: str, weight: Tensor) -> Tensor:
        codes, scales, zeros = gptq(weight, hessians[name], bits, group_size)
        groups = codes.unflatten(-1, (scales.shape[1], -1))
        return dequantize(groups, scales, zero_point=-zeros / scales).view_as(weight)

    return changed(lm, hessians, with_feedback)


@torch.no_grad()
def changed(lm: LanguageModel, parts: Collection[str] | None, change: Callable[[str, Tensor], Tensor]) -> LanguageModel:
    """A copy in which the weights of some modules are what `change` makes of name and weight."""
    parts, known = parts_of(lm) if parts is None else parts, parts_of(lm, embedding=True)
    require(set(parts) <= set(known), "parts", sorted(set(parts) - set(known)), f"among {known[:3]} and so on")
    model = deepcopy(lm.model)
    for name in parts:
        weight = model.get_submodule(name).weight
        weight.copy_(change(name, weight))
    return replace(lm, model=model)


def calibration_ids(lm: LanguageModel, *, rows: int = 32, length: int = 128, seed: int = SEED) -> Tensor:
    """Ids (rows, length) of stories and of conversations as training has them, but filled anew."""
    writer, result, ids = Writer(seed + 1), [], []
    while len(result) < rows:
        ids += lm.tokenizer.encode(writer.story()[0] + "\n")
        messages = [*writer.capital_exchange(()), *writer.encyclopedia_exchange(())]
        ids += lm.tokenizer.apply_chat_template(messages)
        result += [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
        ids = ids[len(ids) // length * length :]
    return torch.tensor(result[:rows])


@torch.inference_mode()
def input_moments(lm: LanguageModel, ids: Tensor, parts: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The mean of x x^T over the inputs x of each linear map: (K, K) by name.

    Args:
        ids: (B, T), typical text.
        parts: names of modules; None: all linear maps of the layers.
    """
    moments: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple], None]:
        def hook(module: nn.Module, args: tuple) -> None:
            rows = args[0].flatten(0, -2).float()
            moments[name] = rows.T @ rows / len(rows)
        return hook

    names = parts_of(lm) if parts is None else parts
    hooks = [lm.model.get_submodule(name).register_forward_pre_hook(keep(name)) for name in names]
    try:
        lm.model(ids.to(lm.model.embed_tokens.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return moments


def story_ids(lm: LanguageModel, *, rows: int = 16, length: int = 128, seed: int = SEED) -> Tensor:
    """Ids (rows, length) of new stories of the plans that training has, cut where a row is full."""
    writer, result = Writer(seed), []
    plans = [plan for plan in stories() if not is_held_out(plan.title)]
    while len(result) < rows:
        ids = lm.tokenizer.encode(writer.story(writer.rng.choice(plans))[0])
        if len(ids) >= length:
            result.append(ids[:length])
    return torch.tensor(result)


@torch.inference_mode()
def loss(lm: LanguageModel, ids: Tensor, *, kv_cache: object = None) -> float:
    """Mean loss in nats per token over the rows of ids (B, T); exp of it is the perplexity.

    Args:
        kv_cache: whose keys and values attention sees; None: the exact ones.
    """
    ids = ids.to(lm.model.embed_tokens.weight.device)
    return next_token_loss(lm.model(ids, kv_cache=kv_cache)[:, :-1].float(), ids).item()


def cached_loss(lm: LanguageModel, ids: Tensor) -> float:
    """`loss` with keys and values in int8."""
    return loss(lm, ids, kv_cache=QuantizedCache.for_model(lm.model, ids.shape[1], batch_size=len(ids)))


class Quality(NamedTuple):
    """What a model can do: perplexity on stories, and shares of right answers in [0, 1]."""

    perplexity: float
    capitals: float
    tool_calls: float


def first_questions(kind: str, n: int, seed: int = SEED) -> list[Question]:
    """The first n questions of a kind of the evaluation, or all if there are fewer."""
    return [question for question, _ in zip(kinds(seed)[kind], range(n))]


def right_answers(lm: LanguageModel, questions: Sequence[Question], *, together: int = 64,
                  new_cache: Callable[..., KVCache] = StaticCache.for_model) -> list[bool]:
    """Whether the greedy answer to each question is right, asked in batches; a tool call counts to its end."""
    ids = [lm.tokenizer.apply_chat_template(question.messages, tools=question.tools, add_generation_prompt=True)
           for question in questions]
    close = {lm.tokenizer.special_tokens.get("</tool_call>")} - {None}
    asking = replace(lm, eos_token_ids=lm.eos_token_ids | close)
    right = []
    for start in range(0, len(ids), together):
        asked = questions[start : start + together]
        most = max(question.max_tokens for question in asked)
        answers = greedy_batch(asking, ids[start : start + together], most, new_cache=new_cache)
        right += [question.is_right(f"{answer}</tool_call>" if question.tools else answer)
                  for question, answer in zip(asked, answers)]
    return right


def quality(lm: LanguageModel, ids: Tensor, capitals: Sequence[Question], tool_calls: Sequence[Question]) -> Quality:
    """All three measures.

    Args:
        ids: (B, T) of stories, as `story_ids` makes them.
        capitals, tool_calls: as `first_questions` gives them.
    """
    shares = [sum(right) / len(right) for right in (right_answers(lm, capitals), right_answers(lm, tool_calls))]
    return Quality(math.exp(loss(lm, ids)), *shares)


def sensitivity(lm: LanguageModel, bits: int, ids: Tensor, *, per: str | int = "channel",
                groups: Mapping[str, Collection[str]] | None = None) -> dict[str, float]:
    """How much the loss rises, in nats per token, when one group of modules alone is rounded.

    Args:
        ids: (B, T) to measure on.
        groups: names of modules by label; None: each layer, and embedding with head.
    """
    exact, result = loss(lm, ids), {}
    for label, parts in (layers_of(lm) if groups is None else groups).items():
        with rounded_in_place(lm, bits, per, parts):
            result[label] = loss(lm, ids) - exact
    return result


def step_times(lm: LanguageModel, *, context: int = 64, rounds: int = 12) -> dict[str, float]:
    """Seconds of a decode step in float32, bfloat16, int8 and int4, the least of the rounds, which take turns.

    Args:
        lm: in float32; int4 is in groups of 32, the embedding included.
        context: positions that the token sees, its own included.
    """
    int4, int8 = quantize(lm, 4, 32, embedding_bits=4), quantize(lm)
    models = {"float32": lm.model, "bfloat16": in_bfloat16(lm.model), "int8": int8.model, "int4": int4.model}
    return fastest({name: step(model, context=context) for name, model in models.items()}, rounds)


@torch.no_grad()
def in_bfloat16(model: nn.Module) -> nn.Module:
    """A copy, made weight by weight, so that there is never a second one in float32."""
    memo = {id(weight): nn.Parameter(weight.bfloat16(), requires_grad=False) for weight in model.parameters()}
    return deepcopy(model, memo).bfloat16()


def layers_of(lm: LanguageModel) -> dict[str, list[str]]:
    """The modules that are rounded, by layer, and the embedding with the head."""
    groups: dict[str, list[str]] = {}
    for name in parts_of(lm, embedding=True):
        label = "embedding and head" if name in EMBEDDING else ".".join(name.split(".")[:2])
        groups.setdefault(label, []).append(name)
    return groups


def kinds_of(lm: LanguageModel) -> dict[str, list[str]]:
    """The modules that are rounded, by kind: all q_proj, all k_proj and so on, and the embedding with the head."""
    groups: dict[str, list[str]] = {}
    for name in parts_of(lm, embedding=True):
        groups.setdefault("embedding and head" if name in EMBEDDING else name.rpartition(".")[2], []).append(name)
    return groups


@contextmanager
@torch.no_grad()
def rounded_in_place(lm: LanguageModel, bits: int, per: str | int, parts: Collection[str]) -> Iterator[None]:
    """While it is entered, some weights of the model itself are rounded; afterwards they are exactly as before."""
    weights = [lm.model.get_submodule(name).weight for name in parts]
    before = [weight.detach().clone() for weight in weights]
    try:
        for weight in weights:
            weight.copy_(round_weights(weight, bits, per, symmetric=False))
        yield
    finally:
        for weight, old in zip(weights, before):
            weight.copy_(old)
