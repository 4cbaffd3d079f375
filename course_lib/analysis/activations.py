"""What a training step has to keep: the activations that the backward pass reads again."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_lib.training.train import next_token_loss


def kept_for_backward(model: nn.Module, ids: Tensor) -> float:
    """Bytes per token that a forward pass and its loss keep for the backward pass.

    PyTorch shows each tensor that it keeps to a hook. Tensors that share memory count once, and the model's
    own, its weights and tables, not at all: they are there in inference, too.

    Args:
        model: ids (B, T) to logits (B, T, V).
        ids: (B, T + 1), of which the first T are read.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept = {}

    def pack(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            kept[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = next_token_loss(model(ids[:, :-1]), ids)
    assert loss.requires_grad  # while it lives, so does all that was kept, and no memory is counted twice
    return sum(kept.values()) / (ids.numel() - len(ids))
