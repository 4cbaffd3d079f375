"""The residual stream taken apart: what each part of a model adds to it, and the model without a part.

A part is the attention or the MLP of one layer, under the name of its module: `layers.3.mlp`. Each adds
one vector per position to the stream and changes nothing else, so a part can be switched off by letting it
add nothing, or always the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.config import require
from course_lib.model import CausalLM

KINDS = ("self_attn", "mlp")


def part_names(model: CausalLM) -> list[str]:
    """Every part, in the order in which they run: `layers.0.self_attn`, `layers.0.mlp`, ..."""
    return [f"layers.{i}.{kind}" for i in range(len(model.layers)) for kind in KINDS]


@torch.no_grad()
def stream_writes(model: CausalLM, input_ids: Tensor) -> dict[str, Tensor]:
    """What the embedding and each part add to the residual stream over `input_ids` (B, T): (B, T, D) each.

    The first is called `embedding` and includes learned positions, where there are any; the others follow
    in the order of `part_names`. Their sum is what reaches the final norm.
    """
    writes: dict[str, Tensor] = {}
    with ExitStack() as hooks:
        hooks.enter_context(model.layers[0].register_forward_pre_hook(
            lambda _, args: writes.update(embedding=args[0])))
        for name in part_names(model):
            hooks.enter_context(model.get_submodule(name).register_forward_hook(
                lambda _, args, output, name=name: writes.update({name: output})))
        model(input_ids)
    return writes


@contextmanager
def knocked_out(model: CausalLM, parts: Collection[str], *,
                instead: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """Run the model with some parts switched off, until the block ends.

    Args:
        parts: names out of `part_names`.
        instead: what a part adds at every position in place of its own, (D,) for each name; None: zeros.

    Raises:
        ValueError: there is no such part.
    """
    known = part_names(model)
    for name in parts:
        require(name in known, "part", name, f"one of {known[0]} ... {known[-1]}")

    def replacement(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            return torch.zeros_like(output) if instead is None else instead[name].to(output).expand_as(output)
        return hook

    with ExitStack() as hooks:
        for name in parts:
            hooks.enter_context(model.get_submodule(name).register_forward_hook(replacement(name)))
        yield


def mean_writes(model: CausalLM, input_ids: Tensor) -> dict[str, Tensor]:
    """What each part adds on average over all positions of `input_ids` (B, T) but the first: (D,) each.

    The first position is left out because many models write something there that they write nowhere else.
    """
    writes = stream_writes(model, input_ids)
    return {name: writes[name][:, 1:].mean((0, 1)) for name in part_names(model)}
