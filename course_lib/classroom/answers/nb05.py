"""Answers to the exercises of notebook 05, Training and inference."""

import torch


def cross_entropy(logits, targets):
    rows = torch.arange(len(targets))
    return (logits.logsumexp(dim=-1) - logits[rows, targets]).mean()


def next_token_loss(logits, ids):
    return cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def learning_rate(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1, rise, fall)


def training_bytes(matrices, others):
    muon = 3 * matrices  # weight, gradient, one running mean
    adamw = 4 * others  # weight, gradient, two running means
    return 4 * (muon + adamw)  # four bytes for each
