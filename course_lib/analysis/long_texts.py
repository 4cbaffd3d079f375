"""How well a model predicts along a long text: the text, the losses along it, and how far back a head looks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.analysis.heads import attention_inputs
from course_lib.analysis.trace import weights_of
from course_lib.config import require
from course_lib.model import CausalLM
from course_lib.training.corpus import documents


def course_text(tokenizer: Any, tokens: int, seed: int = 1) -> Tensor:
    """The first tokens of the course's text, one document after the other: ids (tokens,).

    Args:
        seed: of the text. The shipped models were trained on seed 0.
    """
    require(tokens >= 1, "tokens", tokens, ">= 1")
    ids: list[int] = []
    for document in documents(seed):
        ids += tokenizer.encode(document, allowed_special="all")
        if len(ids) >= tokens:
            break
    return torch.tensor(ids[:tokens])


def token_losses(logits: Tensor, ids: Tensor) -> Tensor:
    """-ln p of each token but the first, given those before it, in nats: (B, T - 1).

    Args:
        logits: (B, T, V), the model's for `ids`.
        ids: (B, T).

    >>> token_losses(torch.zeros(1, 3, 8), torch.tensor([[5, 0, 7]])).exp().round().tolist()
    [[8.0, 8.0]]
    """
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")


def loss_by_stretch(losses: Tensor, size: int = 256) -> list[float]:
    """The mean of each stretch of `size` positions; a text's first token has no loss.

    Args:
        losses: as `token_losses` gives them; the stretches of a second text follow those of the first.

    >>> loss_by_stretch(torch.tensor([[1.0, 2, 4]]), size=2)
    [1.0, 3.0]
    """
    each = F.pad(losses, (1, 0), value=torch.nan)  # (B, T)
    require(each.shape[1] % size == 0, "size", size, f"a divisor of the length {each.shape[1]}")
    return each.view(-1, size).nanmean(1).tolist()


@torch.no_grad()
def weights_by_distance(model: CausalLM, ids: Tensor, rope: tuple[Tensor, Tensor], layer: int, head: int,
                        distances: int = 5) -> list[float]:
    """The mean attention weight that a head gives the token 0, 1, 2, … before, where every one of them exists.

    Args:
        ids: (B, T), more tokens than distances. They come to the layer in the usual way.
        rope: cosine and sine, (T, Dh) each, by which this layer alone turns its queries and keys.
    """
    require(ids.shape[1] >= distances, "distances", distances, f"at most {ids.shape[1]}, the tokens of a text")
    x = attention_inputs(model, ids)[layer]  # (B, T, D)
    weights = weights_of(model.layers[layer].self_attn, x, rope, None, None)[:, head]  # (B, T, T)
    return [weights.diagonal(-d, -2, -1)[:, distances - 1 - d :].mean().item() for d in range(distances)]
