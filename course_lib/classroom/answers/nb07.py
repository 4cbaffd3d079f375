"""Answers to the exercises of notebook 07, Sampling."""

import torch

# The notebook's own function of this name gives the same.
from course_lib.sampling import filter_logits as chain


def apply_temperature(logits, temperature):
    t = torch.tensor(temperature, dtype=logits.dtype).view(-1, 1)  # (B, 1)
    shifted = logits - logits.amax(-1, keepdim=True)  # the largest of a row is 0
    largest = torch.full_like(logits, -torch.inf)
    largest = largest.scatter(-1, logits.argmax(-1, keepdim=True), 0.0)
    return torch.where(t == 0, largest, shifted / torch.where(t == 0, 1, t))


def apply_top_k(logits, k):
    order = logits.argsort(dim=-1, descending=True, stable=True)  # ids by place
    place = order.argsort(dim=-1)  # (B, V), the place of each id
    limit = torch.tensor([n or logits.shape[1] for n in k]).view(-1, 1)  # 0: all
    return logits.masked_fill(place >= limit, -torch.inf)


def apply_top_p(logits, p):
    order = logits.argsort(dim=-1, descending=True, stable=True)  # ids by place
    probs = logits.double().softmax(-1).gather(-1, order)  # (B, V), by place
    before = probs.cumsum(-1) - probs
    limit = torch.tensor(p, dtype=torch.float64).view(-1, 1)
    kept = (before < limit - 1e-6) | (limit == 1)
    kept[:, 0] = True
    kept = kept.gather(-1, order.argsort(dim=-1))  # from places back to ids
    return logits.masked_fill(~kept, -torch.inf)


def apply_min_p(logits, min_p):
    probs = logits.double().softmax(-1)
    limit = torch.tensor(min_p, dtype=torch.float64).view(-1, 1)
    limit = limit * probs.amax(-1, keepdim=True) * (1 - 1e-6)
    return logits.masked_fill(probs < limit, -torch.inf)


def apply_penalties(logits, prompt_ids, output_ids, *,
                    repetition_penalty, presence_penalty, frequency_penalty):
    result = logits.clone()
    for b, (prompt, output) in enumerate(zip(prompt_ids, output_ids)):
        r, p, f = repetition_penalty[b], presence_penalty[b], frequency_penalty[b]
        for i in {*prompt, *output}:
            x = logits[b, i]
            result[b, i] = x / r if x > 0 else x * r
        for i in set(output):
            result[b, i] -= p + f * output.count(i)
    return result


def sample(logits, params, generators):
    probs = chain(logits, params).softmax(-1)  # (B, V)
    ids = probs.argmax(-1)  # (B,)
    for b, settings in enumerate(params):
        if settings.temperature > 0:
            sums = probs[b].double().cumsum(-1)  # the last is 1 up to rounding
            u = torch.rand(1, generator=generators[b], dtype=torch.float64)
            ids[b] = (sums <= u * sums[-1]).sum()  # the first id whose sum exceeds u
    return ids


def diagnosis() -> dict[str, str]:
    return {
        "A": "ties",  # with top-k 2 it draws three tokens: two of them tie
        "B": "shared generator",  # the shares are right; in company the ids are not
        "C": "top-p first",  # before the temperature it takes three to reach 80 %
        "D": "sign",  # logits below 0: what the prompt held is drawn more often
        "E": "too few",  # at T=0.5 and top-p 0.8 one token, which holds 62 %
    }
