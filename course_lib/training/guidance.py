"""Showing a few attention heads where to look, so that a small model finds copying within minutes.

To copy from earlier text, one head has to fetch the token before each position, and a later head has to
look for the place where the same tokens occurred last time (Olsson et al. 2022, "induction heads"). Neither
is of use without the other, so gradient descent on next-token loss alone finds the pair late. Here the
attention weights of the named heads get a loss of their own for part of the training. What the heads fetch
and what becomes of it is learned from the text as usual, and afterwards nothing holds them in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from course_lib.layers import attention_weights, causal_mask
from course_lib.model import CausalLM

# layer -> head -> how far back to look; COPY means: where the next token occurred last time
COPY = 0
GUIDED_HEADS = {1: {0: 1, 4: 2}, 3: {0: COPY, 4: COPY}, 5: {2: COPY}}


class Guide:
    """Reads the queries and keys of the guided layers as `model` runs, and scores their attention.

    Use it as a context: outside, the model runs without hooks.
    """

    def __init__(self, model: CausalLM, heads: dict[int, dict[int, int]] | None = None) -> None:
        self.model = model
        self.heads = GUIDED_HEADS if heads is None else heads
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> Guide:
        self.handles = [self.model.layers[i].self_attn.register_forward_pre_hook(self.read) for i in self.heads]
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()

    def read(self, attn: nn.Module, args: tuple[Any, ...]) -> None:
        """Keep a layer's queries and keys."""
        q, k, _ = attn.project(args[0], args[1])
        self.seen[attn.layer_idx] = q.float(), k.float()

    def loss(self, ids: Tensor) -> Tensor:
        """Mean negative log of the attention that lies where it should, summed over the guided heads.

        Args:
            ids: (B, T), those that the model has just read.

        Returns:
            A scalar, in nats, with a gradient for the queries and keys of the guided layers.
        """
        T = ids.shape[1]
        mask, targets = causal_mask(T, T, device=ids.device), copy_targets(ids)
        total = torch.zeros((), device=ids.device)
        for layer, heads in self.heads.items():
            weights = attention_weights(*self.seen[layer], mask)  # (B, H, T, T)
            for head, back in heads.items():
                where = targets if back == COPY else torch.ones_like(mask).tril(-back).triu(-back)
                total = total + misplaced(weights[:, head], where.expand_as(weights[:, head]))
        return total


def misplaced(weights: Tensor, where: Tensor) -> Tensor:
    """Mean of -ln(attention on `where`) over the queries for which there is such a place; all (B, T, T)."""
    mass = (weights * where).sum(-1)[where.any(-1)]
    # 1e-4 is added so that a head that looks elsewhere has a finite loss.
    return -(mass + 1e-4).log().sum() / max(mass.numel(), 1)


def copy_targets(ids: Tensor) -> Tensor:
    """Where a query should look to copy: (B, T, T), True at each earlier place that holds the token to predict
    and comes after the same two tokens.

    >>> copy_targets(torch.tensor([[7, 8, 9, 7, 8, 9]]))[0].nonzero().tolist()
    [[4, 2]]
    """
    before, before_that = shifted(ids, 1), shifted(ids, 2)
    following = torch.cat((ids[:, 1:], torch.full_like(ids[:, :1], -3)), dim=1)
    same = ((ids[:, None, :] == following[:, :, None])  # holds the next token ...
            & (before[:, None, :] == ids[:, :, None])  # ... after the token of the query ...
            & (before_that[:, None, :] == before[:, :, None]))  # ... and after the one before it
    return same.tril()


def shifted(ids: Tensor, by: int) -> Tensor:
    """The id `by` positions earlier, and -by where there is none."""
    return torch.cat((torch.full_like(ids[:, :by], -by), ids[:, :-by]), dim=1)
