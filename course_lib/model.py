"""A decoder-only language model, GPT-2 and the Llama family alike, in the order in which it is understood.

Parameters carry the names of Hugging Face's Llama, so such a checkpoint loads without renaming.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from course_lib.config import ModelConfig
from course_lib.layers import MLP, apply_rope, causal_mask, fused_attention, make_norm, rope_tables


class KVCache(Protocol):
    """What attention asks of a cache; `course_lib.kv_cache` holds several.

    One whose `update` returns other keys than positions 0 to S - 1 in order also has a method `mask`, which stands in
    for the model's: `mask(T, attention_mask)`, called before the first `update` of a pass. One that holds several
    texts, whose new tokens lie one after another in one row, has a method `attend` (`course_lib.paged_cache`).
    """

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Append (B, Hkv, T, Dh) of new positions; return all of them so far, (B, Hkv, S, Dh)."""

    def get_seq_length(self) -> int:
        """Positions seen: the next one has this number."""


class Attention(nn.Module):
    """Causal self-attention with grouped key/value heads (Ainslie et al. 2023)."""

    def __init__(self, config: ModelConfig, layer_idx: int) -> None:
        super().__init__()
        D, H, Hkv, Dh = (config.hidden_size, config.num_attention_heads,
                         config.num_key_value_heads, config.head_dim)
        self.layer_idx, self.head_dim = layer_idx, Dh
        self.q_proj = nn.Linear(D, H * Dh, bias=config.attention_bias)
        self.k_proj = nn.Linear(D, Hkv * Dh, bias=config.attention_bias)
        self.v_proj = nn.Linear(D, Hkv * Dh, bias=config.attention_bias)
        self.o_proj = nn.Linear(H * Dh, D, bias=config.attention_out_bias)
        self.q_norm = make_norm(Dh, config) if config.qk_norm else nn.Identity()
        self.k_norm = make_norm(Dh, config) if config.qk_norm else nn.Identity()

    def project(self, x: Tensor, rope: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, D) to queries (B, H, T, Dh), keys and values (B, Hkv, T, Dh), positions applied."""
        heads = (*x.shape[:-1], -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2)  # (B, H, T, Dh)
        k = self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2)  # (B, Hkv, T, Dh)
        v = self.v_proj(x).view(heads).transpose(1, 2)  # (B, Hkv, T, Dh)
        if rope is not None:  # all heads turn alike, so queries and keys turn together
            turned = apply_rope(torch.cat((q, k), dim=1), *rope)
            q, k = turned.split_with_sizes((q.shape[1], k.shape[1]), dim=1)
        return q, k, v

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None,
                kv_cache: KVCache | None) -> Tensor:
        """(B, T, D) to (B, T, D); `mask` None means that every key may be seen or T == S, causal."""
        q, k, v = self.project(x, rope)
        if hasattr(kv_cache, "attend"):  # each text sees its own keys
            y = kv_cache.attend(q, k, v, self.layer_idx, fused_attention)
        else:
            if kv_cache is not None:
                k, v = kv_cache.update(k, v, self.layer_idx)  # (B, Hkv, S, Dh)
            y = fused_attention(q, k, v, mask)  # (B, H, T, Dh)
        return self.o_proj(y.transpose(1, 2).flatten(2))  # (B, T, D)


class DecoderLayer(nn.Module):
    """Two steps added to the residual stream: attention moves information, the MLP works on it."""

    def __init__(self, config: ModelConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer_idx)
        self.mlp = MLP(config)
        self.input_layernorm = make_norm(config.hidden_size, config)
        self.post_attention_layernorm = make_norm(config.hidden_size, config)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None,
                kv_cache: KVCache | None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        x = x + self.self_attn(self.input_layernorm(x), rope, mask, kv_cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class CausalLM(nn.Module):
    """Token ids in, one score per vocabulary entry and position out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        V, D = config.vocab_size, config.hidden_size
        self.embed_tokens = nn.Embedding(V, D)
        if config.positions == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, D)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = make_norm(D, config)
        self.lm_head = nn.Linear(D, V, bias=False)
        self.derive_state()

    def derive_state(self) -> None:
        """Set what follows from the rest: the RoPE tables, in float32, and the head that is the embedding."""
        if self.config.positions == "rope":
            self.extend_rope(0)
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    @torch.inference_mode(False)  # tables made while text is generated can be trained with later
    def extend_rope(self, S: int) -> None:
        """Make the RoPE tables for S positions or more, at least 4,096 and doubled: few models use all they may."""
        length = min(max(4096, 2 * S), self.config.max_position_embeddings)
        for name, table in zip(("rope_cos", "rope_sin"), rope_tables(self.config, length)):
            self.register_buffer(name, table.to(self.embed_tokens.weight.device), persistent=False)

    def forward(self, input_ids: Tensor, *, kv_cache: KVCache | None = None, attention_mask: Tensor | None = None,
                position_ids: Tensor | None = None, logits_to_keep: int | Tensor = 0) -> Tensor:
        """Logits of the token that follows each position: (B, T, V), raw scores.

        Args:
            input_ids: (B, T), the positions that the cache does not hold yet, on any device.
            kv_cache: extended by T positions; None computes everything afresh.
            attention_mask: (B, S), False or 0 on padding, for ragged batches padded on the left;
                positions are counted over the rest.
            position_ids: (B, T), where each token stands in its text; None: one after another, after those cached.
            logits_to_keep: this many last positions reach the LM head, 0 means all T; or their places, (n,).

        Raises:
            ValueError: the text outgrows `max_position_embeddings`.
        """
        past = 0 if kv_cache is None else kv_cache.get_seq_length()
        T, S = input_ids.shape[1], past + input_ids.shape[1]
        length = S if position_ids is None else int(position_ids.max()) + 1
        if length > self.config.max_position_embeddings:
            raise ValueError(f"{length} positions ({past} cached + {T} new) do not fit: "
                             f"max_position_embeddings = {self.config.max_position_embeddings}")
        positions = slice(past, S) if position_ids is None else position_ids
        if attention_mask is not None and position_ids is None:
            positions = (attention_mask.cumsum(-1)[:, past:] - 1).clamp(min=0)  # (B, T)
        x = self.embed_tokens(input_ids.to(self.embed_tokens.weight.device))  # (B, T, D)
        rope = None
        if self.config.positions == "learned":
            x = x + self.embed_positions.weight[positions]
        else:
            if length > len(self.rope_cos):
                self.extend_rope(length)
            rope = self.rope(positions, x.dtype)
        own_mask = getattr(kv_cache, "mask", None)
        mask = own_mask(T, attention_mask) if own_mask else self.mask(T, S, attention_mask)
        for layer in self.layers:
            x = layer(x, rope, mask, kv_cache)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return self.lm_head(self.norm(x[:, kept]))  # (B, T or logits_to_keep or n, V)

    def rope(self, positions: slice | Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions, broadcastable over heads: (T, Dh) or (B, 1, T, Dh)."""
        cos, sin = self.rope_cos[positions].to(dtype), self.rope_sin[positions].to(dtype)
        return (cos, sin) if isinstance(positions, slice) else (cos.unsqueeze(1), sin.unsqueeze(1))

    def mask(self, T: int, S: int, attention_mask: Tensor | None) -> Tensor | None:
        """(T, S) or (B, 1, T, S), True where a query may see a key; None where SDPA needs no mask."""
        window = self.config.sliding_window
        if attention_mask is None and T in (1, S) and (window is None or S <= window):
            return None
        mask = causal_mask(T, S, window=window, device=self.embed_tokens.weight.device)
        return mask if attention_mask is None else mask & attention_mask[:, None, None, :].bool()

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw the weights for training: normal, with the two layers that write to the stream smaller."""
        small = self.config.initializer_range / (2 * self.config.num_hidden_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = small if name.endswith(("o_proj.weight", "down_proj.weight")) else self.config.initializer_range
                parameter.normal_(0.0, std, generator=generator)
