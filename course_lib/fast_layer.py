"""A layer in fewer and larger operations, put on a model from outside like `few_rows`, for inference on a CPU.

A step of a small model waits less for memory than for Python and for the start of some thirty operations in each
layer. Here the matrices that multiply the same vector lie one after another in memory, so that one product reads
them, and the modules around them are not called. As soon as one of these modules is hooked, replaced, reshaped or
trained, its layer computes as `course_lib.model` says. Nothing is copied: the parameters, or the codes and scales of
quantized maps, are views of that memory. Quantized maps round what they give as each does alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from course_lib import model as readable
from course_lib.few_rows import ONEDNN, FewRowsLinear, Packed, speed_up_few_rows
from course_lib.joined import Joined, can_be_joined
from course_lib.layers import MLP, RMSNorm
from course_lib.model import Attention, DecoderLayer, KVCache
from course_lib.quantized_linear import Int4Linear, Int8Linear


def methods() -> tuple:
    """What this module computes in its own way; a reader may put other functions in their places."""
    return (RMSNorm.forward, Attention.forward, Attention.project, MLP.forward, DecoderLayer.forward,
            Int8Linear.forward, Int8Linear.packed_product, Int8Linear.dequantize,
            Int4Linear.forward, Int4Linear.packed_product, Int4Linear.dequantize)


METHODS = methods()


class FastNorm(RMSNorm):
    """An `RMSNorm` that takes the length of a single vector as one number: three operations in place of six."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) to (..., size)."""
        alone = x.numel() == x.shape[-1] and is_inference(x) and RMSNorm.forward is METHODS[0]
        if alone and (length := torch.linalg.vector_norm(x).item()):
            return (x * self.weight) * (1 / math.sqrt(length * length / x.shape[-1] + self.eps))
        return super().forward(x)


class FastLayer(DecoderLayer):
    """A `DecoderLayer` that multiplies by joined matrices while its parts are plain and nothing is to learn."""

    qkv: Joined | None = None
    out: Joined | None = None
    gate_up: Joined | None = None
    down: Joined | None = None

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None,
                kv_cache: KVCache | None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        if rope is None or not is_inference(x) or not self.is_current():
            return super().forward(x, rope, mask, kv_cache)
        qkv = self.qkv.times(self.input_layernorm(x))  # (B, T, (H + 2 Hkv) Dh)
        x = x + self.out.times(self.attend(qkv, rope, mask, kv_cache))
        gate, up = self.gate_up.times(self.post_attention_layernorm(x)).chunk(2, dim=-1)
        return x + self.down.times(self.mlp.activation(gate).mul_(up))

    def attend(self, qkv: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None,
               kv_cache: KVCache | None) -> Tensor:
        """What `Attention` does between its products: (B, T, (H + 2 Hkv) Dh) to (B, T, H Dh)."""
        (B, T), Dh = qkv.shape[:2], self.self_attn.head_dim
        H, Hkv = self.qkv.sizes[0] // Dh, self.qkv.sizes[1] // Dh
        heads = qkv.view(B, T, -1, Dh).transpose(1, 2) if T > 1 else qkv.view(B, -1, 1, Dh)  # (B, H + 2 Hkv, T, Dh)
        turned, v = heads.split_with_sizes((H + Hkv, Hkv), dim=1)
        q, k = readable.apply_rope(turned, *rope).split_with_sizes((H, Hkv), dim=1)
        if hasattr(kv_cache, "attend"):
            y = kv_cache.attend(q, k, v, self.self_attn.layer_idx, readable.fused_attention)
            return y.transpose(1, 2).flatten(2)
        if kv_cache is not None:
            k, v = kv_cache.update(k, v, self.self_attn.layer_idx)  # (B, Hkv, S, Dh)
        if T == 1:  # as in `fused_attention`, with one change of shape fewer
            return F.scaled_dot_product_attention(q.reshape(B, Hkv, -1, Dh), k, v, mask).reshape(B, 1, -1)
        return readable.fused_attention(q, k, v, mask).transpose(1, 2).flatten(2)

    def is_current(self) -> bool:
        """Whether the joined matrices are all that the layer's modules would do between norms, RoPE and cache."""
        attn, mlp = self._modules["self_attn"], self._modules["mlp"]
        return (self.qkv is not None and methods() == METHODS and not _has_any_global_hook()
                and is_plain(attn, Attention) and is_plain(mlp, MLP) and is_plain(attn._modules["q_norm"], nn.Identity)
                and is_plain(attn._modules["k_norm"], nn.Identity) and self.qkv.is_current(attn)
                and self.out.is_current(attn) and self.gate_up.is_current(mlp) and self.down.is_current(mlp))


def is_inference(x: Tensor) -> bool:
    """Whether these are numbers of float32 on the CPU, and neither a gradient nor a graph is recorded."""
    return x.is_cpu and x.dtype is torch.float32 and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def is_plain(module: nn.Module | None, kind: type[nn.Module]) -> bool:
    """Whether a module is of this class itself, without hooks and without methods of its own."""
    return (type(module) is kind and not module._forward_hooks and not module._forward_pre_hooks
            and "forward" not in module.__dict__ and "project" not in module.__dict__)


def speed_up(model: nn.Module) -> None:
    """Make a model's inference on a CPU faster, where PyTorch multiplies with MKL; what it computes stays the same.

    The modules, their parameters and their hooks stay the same objects.
    """
    speed_up_few_rows(model)
    for module in model.modules():
        if type(module) is RMSNorm:
            module.__class__ = FastNorm
    join_matrices(model)


def join_matrices(model: nn.Module) -> None:
    """Make a `FastLayer` of every layer of this package's with a gate, whose maps can be joined, quantized or not."""
    for layer in model.modules():
        if type(layer) not in (DecoderLayer, FastLayer):
            continue
        attn, mlp = layer.self_attn, layer.mlp
        if type(attn) is not Attention or type(mlp) is not MLP or mlp.gate_proj is None:
            continue
        if all(can_be_joined(parts) for parts in ((attn.q_proj, attn.k_proj, attn.v_proj), (attn.o_proj,),
                                                  (mlp.gate_proj, mlp.up_proj), (mlp.down_proj,))):
            layer.__class__ = FastLayer
            layer.qkv = Joined(attn, "q_proj", "k_proj", "v_proj")
            layer.out = Joined(attn, "o_proj")
            layer.gate_up = Joined(mlp, "gate_proj", "up_proj")
            layer.down = Joined(mlp, "down_proj")


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """While it is entered, two rows and more take about half the time: batches, prompts, the check of a draft.

    oneDNN reads a matrix in an order of its own. Outside, it brings each matrix into that order in every call; inside,
    it has a copy, which costs as much memory again as the layers and the LM head. A change that PyTorch counts (an
    optimizer's step, `weight.mul_(2)`, other data) makes the copy of that matrix void. A write around it, through
    `weight.data` or NumPy, is seen only outside.

    Args:
        model: as `load` returns it, in float32 on the CPU; otherwise this does nothing.
    """
    owners: list[Joined | FewRowsLinear] = []
    for module in model.modules() if ONEDNN is not None else ():
        if isinstance(module, FastLayer) and module.is_current():
            owners += [joined for joined in (module.qkv, module.out, module.gate_up, module.down)
                       if joined.kind is FewRowsLinear]
    inside = {id(weight) for joined in owners for weight in joined.weights}
    owners += [module for module in model.modules() if type(module) is FewRowsLinear
               and id(module.weight) not in inside and is_packable(module.weight)]
    held = [(owner, hold(owner)) for owner in owners]
    try:
        yield
    finally:
        for owner, packed in held:
            packed.holders -= 1
            if not packed.holders and owner.packed is packed:  # blocks need not end in the order in which they began
                owner.packed = None


def hold(owner: Joined | FewRowsLinear) -> Packed:
    """The second copy of a matrix: the one that another block has made, if it still is one, or a new one."""
    parts = getattr(owner, "weights", (owner.weight,))
    if owner.packed is None or not owner.packed.is_current(parts):
        owner.packed = Packed(owner.weight, parts)
    owner.packed.holders += 1
    return owner.packed


def is_packable(weight: Tensor) -> bool:
    """Whether oneDNN can copy it, and PyTorch counts its changes."""
    return weight.is_cpu and weight.dtype is torch.float32 and not weight.is_inference()
