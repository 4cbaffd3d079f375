"""What a training step has to keep: activations, and three numbers beside each weight."""

from __future__ import annotations

from collections.abc import Iterable

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


def bytes_after_a_step(model: nn.Module, ids: Tensor) -> dict[str, int]:
    """Bytes that lie in memory after one step of AdamW on ids (B, T + 1): weights, gradients, running means.

    Parameters that do not require a gradient are frozen. The optimizer's own count of steps is left out, one number
    for each tensor. The model is changed.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    next_token_loss(model(ids[:, :-1]), ids).backward()
    optimizer.step()
    means = (state[key] for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq"))
    return {"weights": nbytes(model.parameters()), "gradients": nbytes(p.grad for p in trained),
            "running means": nbytes(means)}


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
