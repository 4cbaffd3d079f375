"""A language model with its weights in 8 bits or fewer, ready for `generate`.

    lm = quantize(load())                                  # int8: a quarter of float32's bytes
    lm = quantize(load(), bits=4, group_size=32)           # int4 layers, int8 embedding
    save(lm, "pocket-int4"); lm = load("pocket-int4")      # the same logits
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor, nn

from course_lib.config import is_size, require
from course_lib.fast_layer import join_matrices
from course_lib.quantized_linear import QuantizedEmbedding, QuantizedLinear, quantize_linear
from course_lib.rounding import check_bits

LM = TypeVar("LM")


@dataclass(frozen=True)
class Quantization:
    """How the weights of a model are kept.

    Args:
        bits: of the layers' matrices, in [2, 8].
        group_size: inputs that share a scale; None: all inputs of an output.
        embedding_bits: of the embedding and the LM head, in [2, 8]; None: they are left alone.

    Raises:
        ValueError: a number is out of its range.
    """

    bits: int = 8
    group_size: int | None = None
    embedding_bits: int | None = 8

    def __post_init__(self) -> None:
        check_bits(self.bits)
        require(self.group_size is None or is_size(self.group_size), "group_size", self.group_size,
                "None or a positive integer")
        if self.embedding_bits is not None:
            check_bits(self.embedding_bits, "embedding_bits")

    def of(self, name: str) -> tuple[int | None, int | None]:
        """Bits and group size of the matrix of a module; no bits: it is left alone."""
        if name not in ("embed_tokens", "lm_head"):
            return self.bits, self.group_size
        return self.embedding_bits, self.group_size if self.embedding_bits == self.bits else None

    def __str__(self) -> str:
        groups = f" in groups of {self.group_size}" if self.group_size else ""
        head = "unchanged" if self.embedding_bits is None else f"in {self.embedding_bits}"
        return f"{self.bits} bits{groups}, embedding {head}"


def quantize(lm: LM, bits: int = 8, group_size: int | None = None, *, embedding_bits: int | None = 8,
             hessians: Mapping[str, Tensor] | None = None) -> LM:
    """A copy of a model with its matrices in few bits; norms, biases and learned positions do not change.

    Up to 4 bits two weights share a byte, above each has its own. On a CPU, products with groups of 32, 64, 128 or
    256 inputs (up to 4 bits) or with a scale for each output run on the packed weights.

    Args:
        lm: as `load()` returns it. It is left untouched.
        bits: of the layers' matrices, in [2, 8].
        group_size: inputs that share a scale, a divisor of every layer's inputs; None: all inputs of an output.
        embedding_bits: of the embedding and the LM head, one table where they are tied; None: left alone.
            In 8 bits they cost nothing that can be measured; in 4, about half as much as all layers of `pocket`.
        hessians: for modules by name, second moments (K, K) of their inputs; these are rounded with `gptq`.

    Raises:
        ValueError: a number is out of range, the model is quantized already, or a weight is not finite; the message
            names it.
    """
    quantization = Quantization(bits, group_size, embedding_bits)
    require(not is_quantized(lm.model), "model", lm, "one that is not quantized yet: rounding twice adds up the errors")
    hessians = dict(hessians or {})
    memo: dict[int, nn.Module] = {}  # what deepcopy takes in place of a copy
    for name, module in matrices(lm.model).items():
        module_bits, module_group = quantization.of(name)
        if module_bits is not None:
            memo[id(module)] = quantize_linear(module.weight, module_bits, module_group, name=f"{name}.weight",
                                               bias=getattr(module, "bias", None), hessian=hessians.pop(name, None))
    require(not hessians, "hessians", sorted(hessians), "for matrices that are quantized")
    embedding = lm.model.embed_tokens
    if embedding_bits is not None:
        table = memo[id(lm.model.lm_head if lm.config.tie_word_embeddings else embedding)]
        memo[id(embedding)] = QuantizedEmbedding(table, embedding.weight.dtype)
    model = copy.deepcopy(lm.model, memo)
    model.quantization = quantization
    join_matrices(model)
    return replace(lm, model=model)


def matrices(model: nn.Module) -> dict[str, nn.Module]:
    """The modules whose weight is quantized, by name; of a tied embedding and head, the head."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    return found if model.config.tie_word_embeddings else {"embed_tokens": model.embed_tokens, **found}


def is_quantized(model: nn.Module) -> bool:
    """Whether some of its weights are."""
    return any(isinstance(module, QuantizedLinear) for module in model.modules())


def stored_bytes(model: nn.Module) -> int:
    """Bytes of everything that has to be kept of a model: weights, or codes and scales, each once."""
    kept = {tensor.data_ptr(): tensor.nbytes for tensor in model.state_dict().values() if tensor.numel()}
    return sum(kept.values())
