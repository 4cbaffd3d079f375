"""Answers to the exercises of notebook 02, Embeddings and positions."""

import torch

from course_lib.costs import parameter_count


def lookup(weight, ids):
    return weight[ids]


def nearest(weight, id, k):
    lengths = weight.norm(dim=-1)
    products = (lengths * lengths[id]).clamp(min=1e-12)  # 0 / 0 becomes 0
    cosines = weight @ weight[id] / products  # (V,)
    cosines[id] = -torch.inf
    top = cosines.topk(k)
    return list(zip(top.indices.tolist(), top.values.tolist()))


def table_share(config):
    tables = 1 if config.tie_word_embeddings else 2
    total = parameter_count(config).total
    return tables * config.vocab_size * config.hidden_size / total


def apply_rope(x, cos, sin):
    h = x.shape[-1] // 2
    first, second = x[..., :h], x[..., h:]  # (B, H, T, Dh / 2) each
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def shift_error(rotate, q, k, shift):
    positions = torch.arange(len(q))
    before = rotate(q, positions) @ rotate(k, positions).T  # (T, T)
    positions = positions + shift
    after = rotate(q, positions) @ rotate(k, positions).T
    return (after - before).abs().max().item()
