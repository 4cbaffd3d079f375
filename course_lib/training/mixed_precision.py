"""The number formats of a training step: products in bfloat16, weights and gradients in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


@contextmanager
def mixed_precision(device_type: str) -> Iterator[None]:
    """Autocast to bfloat16; on a CPU all but attention, whose fused kernel takes twice as long there in bfloat16."""
    attention = Float32Attention() if device_type == "cpu" else nullcontext()
    with torch.autocast(device_type, torch.bfloat16), attention:
        yield


class Float32Attention(TorchFunctionMode):
    """A context in which `scaled_dot_product_attention` computes in float32, whatever autocast says."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v, *rest = args
        with torch.autocast(q.device.type, enabled=False):
            return func(q.float(), k.float(), v.float(), *rest, **kwargs)
