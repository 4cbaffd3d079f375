"""A decode step in which nothing but numbers changes from one token to the next, so that it can be made once.

The step of `CausalLM.forward` is another one at each position: the cache is one longer, and so is what attention
reads. Here the cache is written at a position that is itself a tensor, attention reads the whole buffer, and a mask
hides the rest of it. On a CPU a compiler turns this into a few loops; on a GPU it is recorded once, as a CUDA graph,
and played back. Both take away the overhead of starting some hundred operations, and compute the same.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.config import require
from course_lib.kv_cache import StaticCache
from course_lib.model import CausalLM, KVCache

Step = Callable[[Tensor, Tensor], Tensor]


class IndexedCache:
    """The buffers of a static cache, (L, B, Hkv, S, Dh), written at `position` (1,) and returned in full."""

    def __init__(self, keys: Tensor, values: Tensor, position: Tensor) -> None:
        self.keys, self.values, self.position = keys, values, position

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Write (B, Hkv, 1, Dh) of one position; return (B, Hkv, S, Dh), used or not."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        return (keys.index_copy_(2, self.position, key_states), values.index_copy_(2, self.position, value_states))


def static_step(model: CausalLM, ids: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Logits (B, 1, V) of the token after `ids` (B, 1), which stand at `position` (1,) and extend the buffers.

    What the buffers hold beyond the position is multiplied by 0, so it must be finite: NaN times 0 is NaN.
    """
    config = model.config
    x, rope = model.embed_tokens(ids), None  # (B, 1, D)
    if config.positions == "learned":
        x = x + model.embed_positions(position)
    else:
        rope = model.rope_cos[position].to(x.dtype), model.rope_sin[position].to(x.dtype)  # (1, Dh)
    key = torch.arange(keys.shape[3], device=ids.device)
    seen = key <= position  # (S,)
    if config.sliding_window is not None:
        seen = seen & (key > position - config.sliding_window)
    cache = IndexedCache(keys, values, position)
    for layer in model.layers:
        x = layer(x, rope, seen[None], cache)
    return model.lm_head(model.norm(x))


class CompiledLM(CausalLM):
    """A `CausalLM` whose decode steps with a `StaticCache` are static ones; all else is as ever, prefill included.

    A hook on any module, a mask for padding, another kind of cache, or a gradient to record: then it computes as a
    `CausalLM` does. Weights that are edited or replaced count.
    """

    compiled: Callable[..., Tensor] | None = None  # on a CPU

    def forward(self, input_ids: Tensor, *, kv_cache: KVCache | None = None, attention_mask: Tensor | None = None,
                position_ids: Tensor | None = None, logits_to_keep: int | Tensor = 0) -> Tensor:
        """As `CausalLM.forward`."""
        static = (input_ids.shape[1] == 1 and type(kv_cache) is StaticCache
                  and attention_mask is None and position_ids is None
                  and (self.compiled is not None or kv_cache.keys.is_cuda)
                  and kv_cache.get_seq_length() < kv_cache.keys.shape[3] and not torch.is_grad_enabled()
                  and not any(part._forward_hooks or part._forward_pre_hooks for part in self.modules()))
        if not static:
            return super().forward(input_ids, kv_cache=kv_cache, attention_mask=attention_mask,
                                   position_ids=position_ids, logits_to_keep=logits_to_keep)
        owner, step = kv_cache.__dict__.get("static_step", (None, None))
        if owner is not self:
            step = self.prepare(input_ids, kv_cache)
            kv_cache.static_step = self, step
        past = kv_cache.get_seq_length()
        logits = step(input_ids, torch.tensor([past], device=input_ids.device))
        kv_cache.lengths = [past + 1] * len(kv_cache.lengths)
        return logits

    def prepare(self, ids: Tensor, kv_cache: StaticCache) -> Step:
        """The step for one cache: on a CPU one for all of them, on a GPU recorded for its memory."""
        past, (keys, values) = kv_cache.get_seq_length(), (kv_cache.keys, kv_cache.values)
        for buffer in (keys, values):
            buffer[:, :, :, past:] = 0
        if self.config.positions == "rope" and len(self.rope_cos) < keys.shape[3]:
            self.extend_rope(keys.shape[3])
        if keys.is_cuda:
            return record(self, ids, torch.tensor([past], device=ids.device), keys, values)

        def step(ids: Tensor, position: Tensor) -> Tensor:
            for buffer in (keys, values):
                torch._dynamo.maybe_mark_dynamic(buffer, 3)  # one graph for buffers of every length
            return self.compiled(self, ids, position, keys, values)

        return step

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "compiled"}


def record(model: CausalLM, ids: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> Step:
    """Record the step as a CUDA graph; each call copies its two inputs in and starts all kernels at once."""
    ids, position = ids.clone(), position.clone()
    side = torch.cuda.Stream(ids.device)
    side.wait_stream(torch.cuda.current_stream(ids.device))
    with torch.cuda.stream(side):  # what is allocated only the first time must not be recorded
        for _ in range(3):
            static_step(model, ids, position, keys, values)
    torch.cuda.current_stream(ids.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = static_step(model, ids, position, keys, values)

    def replay(new_ids: Tensor, new_position: Tensor) -> Tensor:
        ids.copy_(new_ids)
        position.copy_(new_position)
        graph.replay()
        return logits.clone()

    return replay


def compile_steps(model: CausalLM, **options: Any) -> None:
    """Make the decode steps of a model static: compiled on a CPU, at the first step, which then takes up to two
    minutes; recorded as a CUDA graph on a GPU, at the first step with each cache.

    Args:
        model: a `CausalLM`; it stays the same object.
        options: for `torch.compile`, such as `mode` or `backend`.

    Raises:
        ValueError: it is on a CPU, and there is no C++ compiler.
    """
    if model.embed_tokens.weight.is_cpu:
        require(options.get("backend") is not None or find_compiler() is not None, "compile", True,
                f"False where there is no C++ compiler: PyTorch looks for {compiler_name()!r} (set CXX to use another)")
        model.compiled = torch.compile(static_step, fullgraph=True, **options)
    model.__class__ = CompiledLM


def compiler_name() -> str:
    """The C++ compiler that PyTorch will call."""
    return os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")


def find_compiler() -> str | None:
    """Where it is."""
    return shutil.which(compiler_name())
