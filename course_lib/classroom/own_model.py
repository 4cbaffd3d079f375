"""A model of Llama's family that computes with the reader's functions, around the weights of another one.

What the reader has not written is what the library has: modules of `course_lib.model`, PyTorch's attention, the caches
of `course_lib.kv_cache`. Only the parts change hands; the weights are the same tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.classroom.engine_slots import Parts
from course_lib.classroom.own_stack import GatedMLP, Norm, is_llama
from course_lib.config import ModelConfig, require
from course_lib.few_rows import speed_up_few_rows
from course_lib.kv_cache import StaticCache
from course_lib.layers import MLP, RMSNorm, causal_mask, fused_attention
from course_lib.model import Attention, CausalLM, DecoderLayer, KVCache
from course_lib.quantize import is_quantized

TILE = 64  # queries and keys of a tile, and keys above which one query goes over them tile by tile
TILES = ("masked_tile", "merge")
ATTENTION = ("attention_weights", "one_row", *TILES)
MODEL = ("lookup", "decoder_layer", "rms_norm", "swiglu", "apply_rope", "split_heads", "repeat_kv", "causal_mask",
         *ATTENTION, "write_in_place", "append", "positions_and_mask", "logit_lens")


class CacheLayer:
    """One layer of a `StaticCache` as exercise 08.2 knows it: buffers, and how many positions are written."""

    def __init__(self, kv_cache: StaticCache, layer_idx: int) -> None:
        self.kv_cache, self.layer_idx = kv_cache, layer_idx
        self.keys, self.values = kv_cache.layers[layer_idx]

    @property
    def length(self) -> int:
        """Positions that are written."""
        return self.kv_cache.lengths[self.layer_idx]

    @length.setter
    def length(self, length: int) -> None:
        self.kv_cache.lengths[self.layer_idx] = length


class OwnAttention(Attention):
    """Attention from the reader's pieces: heads, RoPE, cache, mask, weights or tiles."""

    def __init__(self, config: ModelConfig, layer_idx: int, parts: Parts) -> None:
        super().__init__(config, layer_idx)
        self.parts, self.heads = parts, (config.num_attention_heads, config.num_key_value_heads)
        self.grown: WeakKeyDictionary[StaticCache, tuple[Tensor, Tensor]] = WeakKeyDictionary()  # for exercise 08.1

    def project(self, x: Tensor, rope: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """As `Attention.project`; with exercises 03.3 and 02.4."""
        if not self.parts.own("split_heads", "apply_rope"):
            return super().project(x, rope)
        (H, Hkv), split = self.heads, self.parts.split_heads
        q = self.q_norm(split(self.q_proj(x), H))  # (B, H, T, Dh)
        k, v = self.k_norm(split(self.k_proj(x), Hkv)), split(self.v_proj(x), Hkv)  # (B, Hkv, T, Dh)
        turned = self.parts.apply_rope(torch.cat((q, k), dim=1), *rope)
        return turned[:, :H], turned[:, H:], v

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None,
                kv_cache: KVCache | None) -> Tensor:
        """(B, T, D) to (B, T, D); the arguments are those of `Attention`."""
        q, k, v = self.project(x, rope)
        own = partial(attend, self.parts) if self.parts.own("repeat_kv", *ATTENTION) else fused_attention
        if hasattr(kv_cache, "attend"):
            y = kv_cache.attend(q, k, v, self.layer_idx, own)
        else:
            if kv_cache is not None:
                k, v = self.update(kv_cache, k, v)  # (B, Hkv, S, Dh)
            y = own(q, k, v, mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))  # (B, T, D)

    def update(self, kv_cache: KVCache, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append to the cache, with exercise 08.2 or 08.1 where the cache is one that is allocated once."""
        if type(kv_cache) is not StaticCache or not self.parts.own("write_in_place", "append"):
            return kv_cache.update(k, v, self.layer_idx)
        layer = CacheLayer(kv_cache, self.layer_idx)
        end, room = layer.length + k.shape[2], layer.keys.shape[2]
        require(end <= room, "positions", end, f"at most max_length = {room}")
        if self.parts.own("write_in_place"):
            return self.parts.write_in_place(layer, k, v)
        held = self.grown.get(kv_cache, (None, None)) if layer.length else (None, None)
        held = [None if one is None else one[:, :, : layer.length] for one in held]  # the cache may have been cropped
        self.grown[kv_cache] = tuple(self.parts.append(old, new)[0] for old, new in zip(held, (k, v)))
        layer.length = end
        return self.grown[kv_cache]


def attend(parts: Parts, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention with the reader's functions, a text at a time where the texts differ in what they see: (B, H, T, Dh).

    Several queries go over the keys in tiles if the tiles are the reader's, and so does one query over many keys;
    else the matrix of weights is written out.

    Args:
        q: (B, H, T, Dh).
        k, v: (B, Hkv, S, Dh).
        mask: of booleans or added to the scores, broadcastable to (B, H, T, S) and the same for all heads; None: the
            last T positions, causal.
    """
    (H, T), S = q.shape[1:3], k.shape[2]
    k, v = (parts.repeat_kv(x, H // k.shape[1]) for x in (k, v))  # (B, H, S, Dh)
    if mask is None:
        mask = parts.causal_mask(T, S).to(q.device)
    seen = mask if mask.dtype == torch.bool else mask == 0
    if seen.dim() == 2:
        return one_mask(parts, q, k, v, seen)
    seen = seen.expand(len(q), -1, T, S)[:, 0]  # (B, T, S)
    return torch.cat([one_mask(parts, q[b : b + 1], k[b : b + 1], v[b : b + 1], seen[b]) for b in range(len(q))])


def one_mask(parts: Parts, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """`attend` for keys of every query head and one mask (T, S) for all."""
    T, S = mask.shape
    if parts.own("one_row") and T == 1 and S > TILE:
        keys = mask[0].nonzero()[:, 0]
        k, v = k[:, :, keys], v[:, :, keys]
        rows = [parts.one_row(q[b, h, 0], k[b, h], v[b, h], TILE) for b in range(len(q)) for h in range(q.shape[1])]
        return torch.stack(rows).view(q.shape)
    if parts.own(*TILES) and (T > 1 or not parts.own("attention_weights")):
        heads = [in_tiles(parts, q[b, h], k[b, h], v[b, h], mask) for b in range(len(q)) for h in range(q.shape[1])]
        return torch.stack(heads).view(q.shape)
    if parts.own("attention_weights"):
        return parts.attention_weights(q, k, mask) @ v
    return F.scaled_dot_product_attention(q, k, v, mask)


def in_tiles(parts: Parts, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention (T, Dh) of one head, with exercises 10.4 and 10.1; tiles that nobody sees are skipped."""
    rows = []
    for q_rows, m_rows in zip(q.split(TILE), mask.split(TILE)):
        tiles = [parts.masked_tile(q_rows, *tile) for tile in zip(k.split(TILE), v.split(TILE), m_rows.split(TILE, 1))
                 if tile[2].any()]
        so_far = tiles[0]
        for tile in tiles[1:]:
            so_far = parts.merge(so_far, tile)
        rows.append(so_far[2] / so_far[1])
    return torch.cat(rows)


class OwnLayer(DecoderLayer):
    """A layer put together by exercise 04.3, of norms and an MLP that are 04.1 and 04.2."""

    def __init__(self, config: ModelConfig, layer_idx: int, parts: Parts) -> None:
        super().__init__(config, layer_idx)
        self.parts = parts
        self.self_attn = OwnAttention(config, layer_idx, parts)
        self.mlp = GatedMLP(config, parts) if parts.own("swiglu") else MLP(config)
        self.input_layernorm, self.post_attention_layernorm = own_norm(config, parts), own_norm(config, parts)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None,
                kv_cache: KVCache | None) -> Tensor:
        """(B, T, D) to (B, T, D); the arguments are those of `DecoderLayer`."""
        if not self.parts.own("decoder_layer"):
            return super().forward(x, rope, mask, kv_cache)
        attention = self.parts.not_counted(lambda h: self.self_attn(h, rope, mask, kv_cache))
        return self.parts.decoder_layer(x, attention, self.parts.not_counted(self.mlp), self.input_layernorm,
                                        self.post_attention_layernorm)


def own_norm(config: ModelConfig, parts: Parts) -> nn.Module:
    """A norm with exercise 04.1, or the library's."""
    return Norm(config, parts) if parts.own("rms_norm") else RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class OwnEmbedding(nn.Embedding):
    """The table of token vectors, looked up by exercise 02.1."""

    parts: Parts

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, D)."""
        return self.parts.lookup(self.weight, ids)


class OwnHead(nn.Module):
    """Norm and LM head as exercise 06.3 puts them together."""

    def __init__(self, model: CausalLM, parts: Parts) -> None:
        super().__init__()
        self.norm, self.lm_head, self.parts = model.norm, model.lm_head, parts
        self.seen = SimpleNamespace(norm=self.norm, lm_head=self.lm_head, embed_tokens=model.embed_tokens,
                                    config=model.config)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., D) to (..., V)."""
        return self.parts.logit_lens(self.seen, hidden_states)


class OwnModel(CausalLM):
    """A `CausalLM` made of the reader's parts; positions and masks are those of exercises 08.3 and 03.2."""

    def __init__(self, config: ModelConfig, parts: Parts) -> None:
        super().__init__(config)
        self.parts = parts
        self.layers = nn.ModuleList(OwnLayer(config, i, parts) for i in range(config.num_hidden_layers))
        self.norm = own_norm(config, parts)
        if parts.own("lookup"):
            self.embed_tokens.__class__, self.embed_tokens.parts = OwnEmbedding, parts

    def rope(self, positions: slice | Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """As `CausalLM.rope`."""
        if isinstance(positions, slice) and self.parts.own("positions_and_mask"):
            past = positions.start
            ids = self.parts.positions_and_mask(positions.stop - past, past)[0].to(self.rope_cos.device)
            return self.rope_cos[ids].to(dtype), self.rope_sin[ids].to(dtype)
        return super().rope(positions, dtype)

    def mask(self, T: int, S: int, attention_mask: Tensor | None) -> Tensor | None:
        """As `CausalLM.mask`; of a text that begins with exercise 03.2, of one that goes on with 08.3."""
        if attention_mask is None and self.config.sliding_window is None:
            if S > T and self.parts.own("positions_and_mask"):
                return self.parts.positions_and_mask(T, S - T)[1].to(self.rope_cos.device)
            if self.parts.own("causal_mask"):
                return self.parts.causal_mask(T, S).to(self.rope_cos.device)
            if S > T and T > 1:
                return causal_mask(T, S, device=self.rope_cos.device)
        return super().mask(T, S, attention_mask)


def why_not(model: nn.Module) -> str:
    """Why the reader's functions of notebooks 02 to 10 cannot compute a model; "" if they can."""
    if is_quantized(model):
        return "the weights are loaded as integers, and your functions multiply by numbers"
    if not is_llama(model.config) or model.config.positions != "rope":
        return "the model is not of Llama's family"
    return ""


def own_model(model: CausalLM, parts: Parts, weights: Mapping[str, Tensor] | None = None) -> CausalLM:
    """A model with the reader's functions; the same one where none of them can be used.

    Args:
        weights: by name, in place of the model's; None: those.
    """
    if why_not(model) or not (weights or parts.own(*MODEL)):
        return model
    with torch.device("meta"):  # shapes without memory, until the weights are put in
        own = OwnModel(model.config, parts)
    own.load_state_dict(weights or model.state_dict(), assign=True)
    own.derive_state()
    if parts.own("logit_lens"):
        own.lm_head, own.norm = OwnHead(own, parts), nn.Identity()
    if own.rope_cos.device.type == "cpu":
        speed_up_few_rows(own)
    return own.eval()
