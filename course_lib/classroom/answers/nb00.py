"""Answers to the exercises of notebook 00, From Enter to the first word."""

import torch


def stage_order() -> list[str]:
    return ["tokenize", "embed", "attend", "feed forward",
            "score", "choose", "detokenize"]


def greedy_with_cache(model, prompt_ids, n, kv_cache) -> list[int]:
    new_ids, ids = [], prompt_ids
    for _ in range(n):
        logits = model(torch.tensor([ids]), kv_cache=kv_cache)  # (1, T, V)
        ids = [logits[0, -1].argmax().item()]  # all before it is in the cache
        new_ids += ids
    return new_ids


def latency(steps) -> tuple[float, float, float]:
    t = [step.seconds for step in steps]
    itl_s = sum(t[1:]) / (len(t) - 1) if len(t) > 1 else 0.0
    return t[0], itl_s, len(t) / sum(t)
