"""Answers to the exercises of notebook 06, LM head and softmax."""

import math

import torch

from course_lib.model import CausalLM


def softmax(logits: torch.Tensor) -> torch.Tensor:
    powers = (logits - logits.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def perplexity(logits: torch.Tensor, ids: list[int]) -> float:
    logprobs = logits[:-1].log_softmax(-1)  # (T - 1, V), row t about ids[t + 1]
    chosen = logprobs[torch.arange(len(ids) - 1), ids[1:]]  # (T - 1,)
    return math.exp(-chosen.mean().item())


def logit_lens(model: CausalLM, hidden_states: torch.Tensor) -> torch.Tensor:
    return model.lm_head(model.norm(hidden_states))


def pooled_perplexity(losses: list[list[float]]) -> float:
    tokens = [loss for text in losses for loss in text]
    return math.exp(sum(tokens) / len(tokens))
