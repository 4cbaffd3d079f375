"""The loss on text that was held back from training: not a trend, but a level that can be compared."""

from __future__ import annotations

import numpy as np
import torch

from course_lib.model import CausalLM
from course_lib.training.train import next_token_loss

MOST_WINDOWS = 400
TOGETHER = 4  # windows that are read at once


@torch.inference_mode()
def held_back_loss(model: CausalLM, tokens: np.ndarray, length: int) -> float:
    """Mean loss, in nats per token, over at most `MOST_WINDOWS` windows of the tokens that do not overlap.

    Args:
        tokens: (N,) ids, more than `length` of them.
        length: of a window.
    """
    count = min(MOST_WINDOWS, (len(tokens) - 1) // length)
    windows = np.stack([tokens[i * length : (i + 1) * length + 1] for i in range(count)]).astype(np.int64)
    device = model.embed_tokens.weight.device
    sums = [next_token_loss(model(ids[:, :-1].to(device)), ids.to(device)).item() * len(ids)
            for ids in torch.from_numpy(windows).split(TOGETHER)]
    return sum(sums) / count
