"""The logit lens: what the model would say next if its layers ended earlier (nostalgebraist 2020).

Every layer adds to one residual stream, and only its final state meets the final norm and the LM head. The
lens applies these two to the states before it. The head was trained for the final state alone, so an early
reading is a projection and no belief of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.model import CausalLM


@torch.no_grad()
def logit_lens(model: CausalLM, hidden_states: Tensor) -> Tensor:
    """Logits of the next token, read off the residual stream at every depth: (..., D) to (..., V).

    Args:
        hidden_states: states before the final norm, such as `trace(model, ids).hidden_states`, of shape
            (L + 1, B, T, D); there the last gives the model's own logits.
    """
    return model.lm_head(model.norm(hidden_states))


def ranks_of(logits: Tensor, token_id: int) -> Tensor:
    """The token's place by probability in each row: (..., V) to (...); 1 is the likeliest.

    >>> ranks_of(torch.tensor([[0.1, 0.7, 0.2], [3.0, 2.0, 1.0]]), 2).tolist()
    [2, 3]
    """
    return 1 + (logits > logits[..., token_id, None]).sum(-1)


def settling_depth(logits: Tensor) -> int:
    """The first depth from which on the likeliest token is the one of the last depth, to the end.

    Args:
        logits: (L + 1, V), one row for each depth.

    >>> settling_depth(torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [3.0, 1.0]]))
    2
    """
    best = logits.argmax(-1)
    differs = (best != best[-1]).nonzero()
    return int(differs.max()) + 1 if len(differs) else 0
