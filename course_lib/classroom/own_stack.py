"""A whole model around the reader's three functions of notebook 04: modules that hold weights and call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_lib.config import ModelConfig, require
from course_lib.model import Attention, CausalLM, KVCache


class Parts(NamedTuple):
    """What the reader wrote, called as in the exercises 04.1 to 04.3."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    swiglu: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    decoder_layer: Callable[..., Tensor]


class Norm(nn.Module):
    """The weight of a norm, and the reader's function."""

    def __init__(self, config: ModelConfig, parts: Parts) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(config.hidden_size)), config.rms_norm_eps
        self.function = parts.rms_norm

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return self.function(x, self.weight, self.eps)


class GatedMLP(nn.Module):
    """The three matrices of an MLP, and the reader's function."""

    def __init__(self, config: ModelConfig, parts: Parts) -> None:
        super().__init__()
        D, width = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(D, width, bias=False)
        self.up_proj = nn.Linear(D, width, bias=False)
        self.down_proj = nn.Linear(width, D, bias=False)
        self.function = parts.swiglu

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return self.function(x, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)


class Layer(nn.Module):
    """The parts of a layer under Hugging Face's names, put together by the reader's function."""

    def __init__(self, config: ModelConfig, layer_idx: int, parts: Parts) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(config, layer_idx), GatedMLP(config, parts)
        self.input_layernorm, self.post_attention_layernorm = Norm(config, parts), Norm(config, parts)
        self.function = parts.decoder_layer

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, kv_cache: KVCache | None) -> Tensor:
        """(B, T, D) to (B, T, D); the arguments are those of `course_lib.model.DecoderLayer`."""
        return self.function(x, lambda h: self.self_attn(h, rope, mask, kv_cache), self.mlp,
                             self.input_layernorm, self.post_attention_layernorm)


def is_llama(config: ModelConfig) -> bool:
    """Whether the three functions are what a model of this family consists of."""
    return config.norm == "rmsnorm" and config.gated_mlp and not config.mlp_bias and config.hidden_act == "silu"


def build(config: ModelConfig, weights: Mapping[str, Tensor], parts: Parts) -> CausalLM:
    """A model whose layers and norms run on the reader's functions, with these weights, loaded by name.

    Raises:
        ValueError: the model is of another family than Llama's.
    """
    require(is_llama(config), "config", config, "a model with RMSNorm and a gated MLP without biases")
    with torch.device("meta"):  # shapes without memory, until the weights are put in
        model = CausalLM(config)
        model.layers = nn.ModuleList(Layer(config, i, parts) for i in range(config.num_hidden_layers))
        model.norm = Norm(config, parts)
    model.load_state_dict(weights, assign=True)
    model.derive_state()  # RoPE tables, and the head that is the embedding
    return model.eval()
