"""Wrong and right answers to the exercises of notebook 00; each name says what the function does wrong."""

import statistics

import torch

from mutants import mutant, variant

# 00.1 stage_order


@mutant("00.1", "only tokenize makes ids")
def order_embeds_text():
    return ["embed", "tokenize", "attend", "feed forward", "score", "choose", "detokenize"]


@mutant("00.1", "attend first gathers")
def order_feeds_forward_first():
    return ["tokenize", "embed", "feed forward", "attend", "score", "choose", "detokenize"]


@mutant("00.1", "so there must be scores")
def order_chooses_before_scores():
    return ["tokenize", "embed", "attend", "feed forward", "choose", "score", "detokenize"]


@mutant("00.1", "an id must have been chosen")
def order_detokenizes_scores():
    return ["tokenize", "embed", "attend", "feed forward", "score", "detokenize", "choose"]


@mutant("00.1", "leaves the last layer")
def order_scores_embeddings():
    return ["tokenize", "embed", "score", "attend", "feed forward", "choose", "detokenize"]


@mutant("00.1", "each of the seven names once")
def order_forgets_one():
    return ["tokenize", "embed", "attend", "score", "choose", "detokenize"]


@variant("00.1")
def order_by_splitting():
    return "tokenize,embed,attend,feed forward,score,choose,detokenize".split(",")


# 00.3 latency


@mutant("00.3", "not divided by the prompt's tokens")
def latency_per_prompt_token(steps):
    later = [step.seconds for step in steps[1:]] or [0.0]
    total = sum(step.seconds for step in steps)
    return steps[0].seconds / steps[0].positions, sum(later) / len(later), len(steps) / total


@mutant("00.3", "prefill is no gap between tokens")
def latency_with_prefill_as_a_gap(steps):
    total = sum(step.seconds for step in steps)
    return steps[0].seconds, total / len(steps), len(steps) / total


@mutant("00.3", "three gaps are divided by three")
def latency_divided_by_all_steps(steps):
    later, total = sum(step.seconds for step in steps[1:]), sum(step.seconds for step in steps)
    return steps[0].seconds, later / len(steps), len(steps) / total


@mutant("00.3", "prefill included")
def latency_of_decode_alone(steps):
    later = [step.seconds for step in steps[1:]] or [1.0]
    return steps[0].seconds, sum(later) / len(later), len(later) / sum(later)


@mutant("00.3", "not the median")
def latency_by_median(steps):
    seconds = [step.seconds for step in steps]
    gap = statistics.median(seconds[1:]) if len(steps) > 1 and max(seconds) > 1 else sum(seconds[1:]) / max(
        1, len(seconds) - 1)
    return seconds[0], gap, len(seconds) / sum(seconds)


@mutant("00.3", "ZeroDivisionError")
def latency_of_one_step_fails(steps):
    seconds = [step.seconds for step in steps]
    return seconds[0], sum(seconds[1:]) / (len(seconds) - 1), len(seconds) / sum(seconds)


@mutant("00.3", "three numbers")
def latency_without_rate(steps):
    return steps[0].seconds, sum(step.seconds for step in steps[1:]) / max(1, len(steps) - 1)


@variant("00.3")
def latency_by_statistics(steps):
    first, *later = (step.seconds for step in steps)
    return [first, statistics.fmean(later or [0.0]), 1 / statistics.fmean([first, *later])]


# 00.2 greedy_with_cache


@mutant("00.2", "every id goes through the model once")
def greedy_feeds_everything_again(model, prompt_ids, n, kv_cache):
    ids = list(prompt_ids)
    for _ in range(n):
        ids.append(model(torch.tensor([ids]), kv_cache=kv_cache)[0, -1].argmax().item())
    return ids[len(prompt_ids):]


@mutant("00.2", "the last position's logits")
def greedy_reads_the_first_position(model, prompt_ids, n, kv_cache):
    new_ids, ids = [], prompt_ids
    for _ in range(n):
        ids = [model(torch.tensor([ids]), kv_cache=kv_cache)[0, 0].argmax().item()]
        new_ids += ids
    return new_ids


@mutant("00.2", "[0, -1] of (1, T, V)")
def greedy_takes_all_positions_for_the_last(model, prompt_ids, n, kv_cache):
    new_ids, ids = [], prompt_ids
    for _ in range(n):
        ids = [model(torch.tensor([ids]), kv_cache=kv_cache)[-1].argmax().item()]
        new_ids += ids
    return new_ids


@mutant("00.2", "the whole prompt goes through the model at once")
def greedy_forgets_the_prompt(model, prompt_ids, n, kv_cache):
    new_ids, ids = [], prompt_ids[-1:]
    for _ in range(n):
        ids = [model(torch.tensor([ids]), kv_cache=kv_cache)[0, -1].argmax().item()]
        new_ids += ids
    return new_ids


@mutant("00.2", "only the n new ids")
def greedy_returns_the_prompt_too(model, prompt_ids, n, kv_cache):
    everything, ids = list(prompt_ids), prompt_ids
    for _ in range(n):
        ids = [model(torch.tensor([ids]), kv_cache=kv_cache)[0, -1].argmax().item()]
        everything += ids
    return everything


@mutant("00.2", "the last one chosen not at all")
def greedy_runs_once_too_often(model, prompt_ids, n, kv_cache):
    logits, new_ids = model(torch.tensor([prompt_ids]), kv_cache=kv_cache), []
    for _ in range(n):
        new_ids.append(logits[0, -1].argmax().item())
        logits = model(torch.tensor([new_ids[-1:]]), kv_cache=kv_cache)
    return new_ids


@mutant("00.2", "your function changes its argument prompt_ids")
def greedy_grows_the_prompt(model, prompt_ids, n, kv_cache):
    ids, start = list(prompt_ids), len(prompt_ids)
    for _ in range(n):
        ids = [model(torch.tensor([ids]), kv_cache=kv_cache)[0, -1].argmax().item()]
        prompt_ids += ids
    return prompt_ids[start:]


@variant("00.2")
def greedy_prefill_then_decode(model, prompt_ids, n, kv_cache):
    logits = model(torch.tensor([prompt_ids]), kv_cache=kv_cache)
    chosen = [int(logits[0, -1].argmax())]
    while len(chosen) < n:
        logits = model(torch.tensor([[chosen[-1]]]), kv_cache=kv_cache)
        chosen.append(int(logits[0, -1].argmax()))
    return chosen


# Answers that an earlier check let through, or refused though they were right


def greedy(model, prompt_ids, n, kv_cache, choose=lambda logits: logits[0, -1].argmax().item()):
    """A right answer that the wrong ones vary."""
    new_ids, ids = [], list(prompt_ids)
    for _ in range(n):
        ids = [choose(model(torch.tensor([ids]), kv_cache=kv_cache))]
        new_ids += ids
    return new_ids


@mutant("00.2", "the argmax of the last position's logits")
def greedy_by_size(model, prompt_ids, n, kv_cache):
    return greedy(model, prompt_ids, n, kv_cache, lambda logits: logits[0, -1].abs().argmax().item())


@mutant("00.2", "the argmax of the last position's logits")
def greedy_in_bytes(model, prompt_ids, n, kv_cache):
    return greedy(model, prompt_ids, n, kv_cache, lambda logits: logits[0, -1].argmax().item() % 256)


@mutant("00.2", "the kv_cache that was given")
def greedy_with_a_cache_of_its_own(model, prompt_ids, n, kv_cache):
    return greedy(model, prompt_ids, n, [])


@mutant("00.2", ".item() takes it out")
def greedy_of_tensors(model, prompt_ids, n, kv_cache):
    return [torch.tensor(id) for id in greedy(model, prompt_ids, n, kv_cache)]


@mutant("00.2", "does the loop end?")
def greedy_without_an_end(model, prompt_ids, n, kv_cache):
    while True:
        greedy(model, prompt_ids, 1, kv_cache)


@variant("00.2")
def greedy_by_the_length_of_the_cache(model, prompt_ids, n, kv_cache):
    model.eval()
    ids = list(prompt_ids)
    for _ in range(n):
        logits = model(torch.tensor([ids[kv_cache.get_seq_length():]]), kv_cache=kv_cache)
        ids.append(logits[0, -1].argmax().item())
    return ids[len(prompt_ids):]


@mutant("00.3", "divide by n - 1")
def latency_for_four_steps(steps):
    seconds = [step.seconds for step in steps]
    return seconds[0], sum(seconds[1:]) / 3, len(seconds) / sum(seconds)


@mutant("00.3", "with one step there is no gap: 0.0, not an error")
def latency_that_divides_by_no_gaps(steps):
    return latency_of_one_step_fails(steps)


@mutant("00.3", "your function changes its argument steps")
def latency_that_takes_steps_away(steps):
    first, later = steps.pop(0).seconds, [step.seconds for step in steps]
    return first, sum(later) / max(1, len(later)), (1 + len(later)) / (first + sum(later))


@mutant("00.3", "return a tuple, not a dict")
def latency_by_name(steps):
    return dict(zip(("ttft_s", "itl_s", "tokens_per_s"), latency_by_statistics(steps)))
