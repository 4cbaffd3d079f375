"""Answers to the exercises of notebook 03, Attention."""

import torch


def attention_weights(q, k, mask):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5  # (B, H, T, S)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)  # softmax of nothing but -inf is NaN


def causal_mask(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)  # row t sees 0 ... S - T + t


def split_heads(x, num_heads):
    B, T, _ = x.shape
    return x.view(B, T, num_heads, -1).transpose(1, 2)  # (B, H, T, Dh)


def repeat_kv(x, groups):
    H = groups * x.shape[1]
    return x[:, [h // groups for h in range(H)]]  # (B, H, S, Dh)


def induction_scores(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    looks = attentions[..., i, i - n + 1]  # (L, B, H, n - 1), one entry for each i
    return looks.mean(dim=(1, 3))


def zero_heads(merged, heads, num_heads):
    zeroed, Dh = merged.clone(), merged.shape[-1] // num_heads
    for h in heads:
        zeroed[..., h * Dh:(h + 1) * Dh] = 0
    return zeroed
