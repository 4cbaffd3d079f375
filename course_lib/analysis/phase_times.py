"""Prefill and decode of real shapes, timed; the weights have the right size and place, and no meaning."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.analysis.machine_speed import fastest, finished
from course_lib.config import ModelConfig, require
from course_lib.costs import attention_parameters, mlp_parameters
from course_lib.fast_layer import speed_up
from course_lib.kv_cache import StaticCache
from course_lib.model import CausalLM

# About as many parameters as their names say, in the proportions of the Llama family.
SHAPES: dict[str, ModelConfig] = {
    "30M": ModelConfig(vocab_size=8192, hidden_size=512, intermediate_size=1408, num_hidden_layers=8,
                       num_attention_heads=8),
    "124M": ModelConfig(vocab_size=50_304, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                        num_attention_heads=12),
    "350M": ModelConfig(vocab_size=50_304, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
                        num_attention_heads=16),
}


@torch.no_grad()
def timing_model(config: ModelConfig, *, distinct_layers: int | None = None, seed: int = 0) -> CausalLM:
    """A model to time, in float32 on the CPU, as fast as `load` makes one.

    Args:
        config: its shape.
        distinct_layers: how many layers have weights of their own; the others use theirs again, in turn. Where these
            are larger than the processor's caches together, each layer still finds its weights in memory, and takes
            as long as with weights of its own. None: all.
        seed: of the weights, uniform in +-0.02.
    """
    L = config.num_hidden_layers
    distinct = L if distinct_layers is None else distinct_layers
    require(1 <= distinct <= L, "distinct_layers", distinct, f"in [1, {L}]")
    with torch.device("meta"):
        model = CausalLM(config)
    del model.layers[distinct:]
    model.to_empty(device="cpu").derive_state()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.uniform_(-0.02, 0.02, generator=generator) if parameter.dim() == 2 else parameter.fill_(1)
    speed_up(model.eval())
    for i in range(distinct, L):
        model.layers.append(twin(model.layers[i % distinct], i))
    return model


def twin(layer: torch.nn.Module, layer_idx: int) -> torch.nn.Module:
    """A layer with another's weights, not copied, and a place of its own in the cache."""
    other, attention = copy.copy(layer), copy.copy(layer.self_attn)
    attention.layer_idx = layer_idx
    other._modules = {**layer._modules, "self_attn": attention}
    return other


def cut_into_layers(config: ModelConfig, layers: int) -> ModelConfig:
    """A shape with about as many weights, in more layers or in fewer: only the width of the MLP changes.

    A step of it reads as many bytes and computes as much, in another number of operations.

    Raises:
        ValueError: the attention alone would have more weights than all layers of `config`.
    """
    weights = config.num_hidden_layers * (attention_parameters(config) + mlp_parameters(config))
    left = weights / layers - attention_parameters(config)
    width = config.intermediate_size * left / mlp_parameters(config)
    most = weights // attention_parameters(config)
    require(width >= 2, "layers", layers, f"so few that an MLP is left beside the attention, below {most}")
    return replace(config, num_hidden_layers=layers, intermediate_size=2 * round(width / 2))


def prefill_times(model: CausalLM, lengths: Sequence[int], *, rounds: int = 3) -> dict[int, float]:
    """Seconds to the logits after a prompt, by its length in tokens: the least of the rounds, which take turns.

    The longest comes first, because a long one drives the weights of a small model out of the processor's caches, and
    a short one right after it would pay for that.
    """
    seconds = fastest({T: step(model, context=T, tokens=T) for T in sorted(lengths, reverse=True)}, rounds)
    return {T: seconds[T] for T in lengths}


def decode_times(model: CausalLM, contexts: Sequence[int], *, rounds: int = 10) -> dict[int, float]:
    """Seconds of a decode step for one row, by the positions that its token sees, its own included."""
    return fastest({context: step(model, context=context) for context in contexts}, rounds)


def batch_times(model: CausalLM, batch_sizes: Sequence[int], *, context: int = 64,
                rounds: int = 10) -> dict[int, float]:
    """Seconds of a decode step by the number of rows, each of which sees `context` positions."""
    return fastest({B: step(model, context=context, batch_size=B) for B in batch_sizes}, rounds)


def step(model: CausalLM, *, context: int, tokens: int = 1, batch_size: int = 1) -> Callable[[], Tensor]:
    """A pass over the last `tokens` of `context` positions, to be called again and again; called once already."""
    require(tokens <= context, "tokens", tokens, f"<= context = {context}")
    cache = StaticCache.for_model(model, context, batch_size=batch_size)
    cache.keys.fill_(0.01)
    cache.values.fill_(0.01)
    ids = torch.ones(batch_size, tokens, dtype=torch.long, device=cache.keys.device)

    @torch.inference_mode()
    def run() -> Tensor:
        cache.lengths = [context - tokens] * len(cache.lengths)
        return finished(model(ids, kv_cache=cache, logits_to_keep=1))

    run()
    return run


class CallCounter(TorchDispatchMode):
    """While it is entered, counts PyTorch's operations, views of a tensor included."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Count and call."""
        self.calls += 1
        return function(*args, **kwargs or {})


def operations_per_step(model: CausalLM, *, context: int = 64) -> int:
    """How many operations of PyTorch one decode step starts, whatever their size."""
    run = step(model, context=context)
    with CallCounter() as counter:
        run()
    return counter.calls
