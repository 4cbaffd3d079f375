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


def training_bytes(trained, frozen):
    # weight, gradient and two running means; of a frozen one the weight alone
    return 4 * (4 * trained + frozen)


def adamw_step(weight, gradient, mean, square, step, lr):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    fair_mean = mean / (1 - 0.9**step)
    fair_square = square / (1 - 0.999**step)
    decayed = weight - lr * 0.01 * weight
    return decayed - lr * fair_mean / (fair_square.sqrt() + 1e-8), mean, square
