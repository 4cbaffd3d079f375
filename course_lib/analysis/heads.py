"""What the attention heads of a model look at, as one number per head, and heads switched off.

A score is a share of attention: where does a pattern expect a query to look, and how much of the query's
attention lies there? Everything is read from the attention weights of one pass (`trace.Trace.attentions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.analysis.trace import trace
from course_lib.checkpoint import LanguageModel
from course_lib.config import require
from course_lib.layers import apply_rope
from course_lib.model import CausalLM
from course_lib.training.corpus import data, people
from course_lib.training.corpus.grammar import expand

TRIES = 1_000  # lines written for each one that is kept, at most

# (B, T, H * Dh), head numbers and H to the same with these heads zero
Zeroing = Callable[[Tensor, list[int], int], Tensor]


@torch.no_grad()
def projections(model: CausalLM, input_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (L, B, H, T, Dh), keys and values (L, B, Hkv, T, Dh) of every layer, positions applied.

    Args:
        input_ids: (B, T).
    """
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    with ExitStack() as hooks:  # removes them, whatever happens
        for layer in model.layers:
            hooks.enter_context(layer.self_attn.register_forward_pre_hook(
                lambda attention, args: seen.append(attention.project(*args[:2]))))
        model(input_ids)
    q, k, v = (torch.stack(one) for one in zip(*seen))
    return q, k, v


@torch.no_grad()
def attention_inputs(model: CausalLM, input_ids: Tensor) -> Tensor:
    """What the attention of every layer is given, the normed residual stream: (L, B, T, D).

    Args:
        input_ids: (B, T).
    """
    seen: list[Tensor] = []
    with ExitStack() as hooks:
        for layer in model.layers:
            hooks.enter_context(layer.self_attn.register_forward_pre_hook(lambda _, args: seen.append(args[0])))
        model(input_ids)
    return torch.stack(seen)


def turn(model: CausalLM, heads: Tensor) -> Tensor:
    """RoPE on queries or keys (B, H, T, Dh) of the positions 0 ... T - 1, if the model has it."""
    if model.config.positions != "rope":
        return heads
    return apply_rope(heads, *model.rope(slice(0, heads.shape[2]), heads.dtype))


def attention_share(attentions: Tensor, places: Tensor) -> Tensor:
    """How much attention each head puts on the places that a pattern names: (L, H), in [0, 1].

    The mean over all queries for which there is a place; the others do not count.

    Args:
        attentions: (L, B, H, T, S), rows that sum to 1.
        places: True where a query (row) should look; (T, S), or (B, T, S) if the texts differ.

    Raises:
        ValueError: no query has a place.
    """
    places = places.expand(attentions.shape[1], *attentions.shape[-2:])  # (B, T, S)
    asked = places.any(-1)  # (B, T)
    require(bool(asked.any()), "places", "False everywhere", "True somewhere")
    there = (attentions * places[:, None]).sum(-1)  # (L, B, H, T)
    return (there * asked[:, None]).sum((1, 3)) / asked.sum()  # (L, H)


def previous_token(T: int) -> Tensor:
    """Places (T, T): each query looks at the token before it.

    >>> previous_token(3).int().tolist()
    [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    """
    return torch.ones(T, T, dtype=torch.bool).tril(-1).triu(-1)


def first_token(T: int) -> Tensor:
    """Places (T, T): each query but the first two looks at the first token.

    The first has no choice, and for the second the first token is the one before it as well.

    >>> first_token(3).int().tolist()
    [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    """
    places = torch.zeros(T, T, dtype=torch.bool)
    places[2:, 0] = True
    return places


def lines_said_twice(tokenizer: Any, words: Sequence[str], n: int, *, batch_size: int,
                     generator: torch.Generator) -> Tensor:
    """Lines of words in random order, n ids each, each line said twice: (B, 2 n).

    The first time a word can hardly be guessed, the second time everything can be copied. The ids of a line,
    its line break included, are all different, so each has one place to be copied from.

    Args:
        words: at least one; those of a line are different.

    Raises:
        ValueError: in `TRIES` attempts, no line of n different ids came about.
    """
    first, inside = ([tokenizer.encode(f"{space}{word}") for word in words] for space in ("", " "))
    line_break, rows = tokenizer.encode("\n"), []
    for _ in range(TRIES * batch_size):
        start, *others = torch.randperm(len(words), generator=generator).tolist()
        ids = list(first[start])
        while others and len(ids) + len(line_break) < n:
            ids += inside[others.pop()]
        ids += line_break
        if len(ids) == len(set(ids)) == n:
            rows.append(torch.tensor(ids))
        if len(rows) == batch_size:
            return torch.stack(rows).repeat(1, 2)  # (B, 2 n)
    raise ValueError(f"n = {n} is not allowed: must be a number of tokens that a line of these words can have")


def induction_scores(attentions: Tensor, n: int) -> Tensor:
    """How much each head looks at what followed its token last time, on lines of n ids said twice: (L, H).

    The query at position i holds the id that stood at i - n, and position i - n + 1 holds what came after
    it. The mean over the batch and over i = n ... 2 n - 2 (Olsson et al. 2022).

    Args:
        attentions: (L, B, H, 2 n, 2 n), of such texts.
    """
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i, i - n + 1].mean((1, 3))  # (L, H)


@torch.no_grad()
def copying_loss(model: CausalLM, rows: Tensor) -> float:
    """Mean loss in nats on the second of two equal lines (B, 2 n), from its second id on."""
    n = rows.shape[1] // 2
    logits = model(rows)[:, n:-1]  # (B, n - 1, V)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, n + 1 :].flatten()).item()


@torch.no_grad()
def mean_loss(model: CausalLM, ids: Tensor) -> float:
    """Mean loss in nats over every token of texts (B, T) but the first of each."""
    return nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten()).item()


def zero_heads(merged: Tensor, heads: Collection[int], num_heads: int) -> Tensor:
    """What the heads of a layer made, side by side, with zeros for some of them: (B, T, H * Dh).

    Args:
        merged: (B, T, H * Dh); it does not change.
        heads: numbers of heads, in [0, num_heads - 1].

    >>> zero_heads(torch.tensor([[[1, 2, 3, 4]]]), [1], 2).tolist()
    [[[1, 2, 0, 0]]]
    """
    y = merged.unflatten(-1, (num_heads, -1)).clone()  # (B, T, H, Dh)
    y[..., list(heads), :] = 0
    return y.flatten(-2)


@contextmanager
def knocked_out_heads(model: CausalLM, heads: Mapping[int, Collection[int]],
                      zero: Zeroing = zero_heads) -> Iterator[None]:
    """Run the model without some heads: what they would add to the residual stream is zero.

    Args:
        heads: head numbers by layer number.
        zero: called as `zero_heads` is, on what enters each layer's `o_proj`.

    Raises:
        ValueError: there is no such layer or head.
    """
    L, H = model.config.num_hidden_layers, model.config.num_attention_heads

    def without(layer: int) -> Any:
        gone = sorted(heads[layer])
        return lambda _, args: (zero(args[0], gone, H),)

    for layer, numbers in heads.items():
        require(0 <= layer < L, "layer", layer, f"in [0, {L - 1}]")
        require(all(0 <= h < H for h in numbers), "heads", sorted(numbers), f"in [0, {H - 1}]")
    with ExitStack() as hooks:
        for layer in heads:
            o_proj = model.layers[layer].self_attn.o_proj
            hooks.enter_context(o_proj.register_forward_pre_hook(without(layer)))
        yield


@contextmanager
def without_heads(model: CausalLM, heads: Iterable[tuple[int, int]],
                  zero: Zeroing = zero_heads) -> Iterator[None]:
    """`knocked_out_heads` for heads that are named one by one, as (layer, head)."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    with knocked_out_heads(model, by_layer, zero):
        yield


def others_in_these_layers(scores: Tensor, heads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """For each of the heads another one of its layer, those with the lowest scores: a group to compare with.

    Where a layer has fewer others, all of them.

    Args:
        scores: (L, H).

    >>> others_in_these_layers(torch.tensor([[0.9, 0.2, 0.1, 0.8]]), [(0, 0), (0, 3)])
    [(0, 2), (0, 1)]
    """
    others: list[tuple[int, int]] = []
    for layer, _ in heads:
        free = [(layer, h) for h in scores[layer].argsort().tolist() if (layer, h) not in (*heads, *others)]
        others += free[:1]
    return others


class PronounSentence(NamedTuple):
    """Two people, a pronoun that can mean only one of them, and who is who."""

    text: str
    pronoun: str
    referent: str
    other: str


# The first token of a text draws attention of its own, so no name may stand there.
LEAD = "It was a fine day. "


def pronoun_sentences(n: int, seed: int = 0) -> list[PronounSentence]:
    """Sentences like `Mia gave Tom a coat because he was cold.`, cut after the pronoun.

    A girl and a boy, in either order; who is meant follows from the pronoun, and is the first and the
    second of the two equally often.
    """
    table, names, rng = data("pronouns"), people(), Random(seed)
    sentences = []
    for number in range(n):
        role = ("hero", "friend")[number % 2]  # who is meant
        frame = rng.choice([f for f in table["she_he"] if f"{{{role}.he}}" in f["text"]])
        girl, boy = rng.choice(names["girls"]), rng.choice(names["boys"])
        hero, friend = rng.sample([(girl, "she"), (boy, "he")], 2)
        who = {"hero": hero[0], "hero.he": hero[1], "friend": friend[0], "friend.he": friend[1]}
        text = frame["text"].partition(f"{{{role}.he}}")[0] + f"{{{role}.he}}"
        other = {"hero": "friend", "friend": "hero"}[role]
        sentences.append(PronounSentence(LEAD + expand(text, table["rules"] | who, rng), who[f"{role}.he"],
                                         who[role], who[other]))
    return sentences


def tokens_of(tokenizer: Any, ids: Sequence[int], part: str) -> list[int]:
    """Positions of the tokens that hold the first occurrence of `part` in the text of `ids`.

    Raises:
        ValueError: the text does not hold it.
    """
    pieces = [tokenizer.decode_single_token_bytes(i) for i in ids]
    start = b"".join(pieces).find(part.encode())
    require(start >= 0, "part", part, "in the text")
    ends = torch.tensor([len(piece) for piece in pieces]).cumsum(0).tolist()
    return [position for position, end in enumerate(ends)
            if end > start and end - len(pieces[position]) < start + len(part.encode())]


def pronoun_scores(lm: LanguageModel, sentences: Sequence[PronounSentence]) -> tuple[Tensor, Tensor]:
    """From the pronoun, how much each head looks at the name that is meant, and at the other: (L, H) twice."""
    device, shares = lm.model.embed_tokens.weight.device, []
    for sentence in sentences:
        ids = lm.tokenizer.encode(sentence.text)
        row = trace(lm.model, torch.tensor([ids], device=device)).attentions[:, 0, :, -1]  # (L, H, T)
        names = (sentence.referent, sentence.other)
        shares.append([row[..., tokens_of(lm.tokenizer, ids, name)].sum(-1) for name in names])
    referent, other = (torch.stack(one).mean(0) for one in zip(*shares))
    return referent, other
