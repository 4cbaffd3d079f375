"""The tensors of a quantized model in a file: the same on every machine, whatever order its products want."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from course_lib.model import CausalLM
from course_lib.quantize import Quantization, matrices
from course_lib.quantized_linear import (
    Int4Linear,
    Int8Linear,
    QuantizedEmbedding,
    QuantizedLinear,
    aligned,
    stored_groups,
)
from course_lib.weights import CODES, FLOATS, load_weights, read_tensors


def coded_tensors(model: CausalLM) -> Iterator[tuple[str, Tensor]]:
    """Codes and scales of every quantized matrix, each once, under the names that a file gives them."""
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, QuantizedLinear):
            if name == "embed_tokens.table":
                if module is model.lm_head:
                    continue
                name = "embed_tokens"
            for part, tensor in module.portable().items():
                yield f"{name}.{part}", tensor


def load_quantized(model: CausalLM, folder: Path, quantization: Quantization, device: torch.device,
                   dtype: torch.dtype) -> None:
    """Give a model that lies on the meta device the codes and the other weights of a folder.

    Args:
        dtype: of norms, biases and activations, and of matrices that are not quantized.

    Raises:
        ValueError: as `load_weights`, or a matrix's codes or scales are missing or of another kind or shape.
    """
    tensors = list(read_tensors(folder, FLOATS + CODES))
    by_name = {name.removeprefix("model."): (file, tensor) for file, name, tensor in tensors}
    used: set[str] = set()
    for name, module in matrices(model).items():
        bits, group_size = quantization.of(name)
        if bits is None:
            continue
        parts = expected(tuple(module.weight.shape), bits, group_size)
        codes, scales = (checked(by_name, folder, f"{name}.{part}", *kind) for part, kind in parts.items())
        used.update(f"{name}.{part}" for part in parts)
        make = Int8Linear if bits > 4 else Int4Linear
        part = make(codes, scales, bits=bits, group_size=group_size, bias=getattr(module, "bias", None))
        put(model, name, part, device, dtype)
    rest = [(file, name, tensor) for file, name, tensor in tensors if name.removeprefix("model.") not in used]
    load_weights(model, folder, device, dtype, rest)
    model.quantization = quantization


def expected(shape: tuple[int, int], bits: int, group_size: int | None) -> dict[str, tuple[tuple, torch.dtype]]:
    """Shape and type of the tensors that a file holds for a matrix (N, K)."""
    N, K = shape
    groups = stored_groups(K, bits, group_size)
    if bits > 4:
        return {"weight": ((N, K), torch.int8), "scales": ((N, groups), torch.bfloat16)}
    return {"weight": ((N, K // 2), torch.uint8), "scales_and_zeros": ((groups, N, 2), torch.bfloat16)}


def checked(by_name: dict[str, tuple[Path, Tensor]], folder: Path, name: str, shape: tuple,
            dtype: torch.dtype) -> Tensor:
    """The tensor of this name, if it is what the configuration says."""
    if name not in by_name:
        raise ValueError(f"{folder}: missing tensor {name}")
    file, tensor = by_name[name]
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{file}: tensor {name} is {tuple(tensor.shape)} of {tensor.dtype}, "
                         f"expected {shape} of {dtype}")
    return tensor


def put(model: CausalLM, name: str, part: QuantizedLinear, device: torch.device, dtype: torch.dtype) -> None:
    """Put a quantized matrix where it belongs, and in the embedding's where this looks its rows up."""
    for key, buffer in part.named_buffers():
        setattr(part, key, aligned(buffer.to(device)))
    if name != "embed_tokens":
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, part)
    if name == "embed_tokens" or (name == "lm_head" and model.config.tie_word_embeddings):
        model.embed_tokens = QuantizedEmbedding(part, dtype).to(device)
