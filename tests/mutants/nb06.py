"""Wrong and right answers to the exercises of notebook 06; each name says what the function does wrong."""

import math

import torch

from mutants import mutant, variant

# 06.1 softmax


@mutant("06.1", "exp(1000) is infinite")
def softmax_naive(logits):
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


@mutant("06.1", "0 / 0 is NaN")
def softmax_clamped(logits):
    exponentials = logits.clamp(max=700).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


@mutant("06.1", "each row needs its own maximum")
def softmax_one_maximum(logits):
    exponentials = (logits - logits.max()).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


@mutant("06.1", "each row sums to 1 by itself")
def softmax_over_everything(logits):
    exponentials = (logits - logits.max()).exp()
    return exponentials / exponentials.sum()


@mutant("06.1", "use -1, not 1")
def softmax_along_dimension_one(logits):
    return torch.softmax(logits, dim=min(1, logits.dim() - 1))


@mutant("06.1", "nothing may be added")
def softmax_with_epsilon(logits):
    exponentials = (logits - logits.amax(-1, keepdim=True)).exp()
    return (exponentials / exponentials.sum(-1, keepdim=True)).clamp(min=1e-9)


@mutant("06.1", "here 1/8, 2/8, 5/8")
def softmax_without_exp(logits):
    shifted = logits - logits.amin(-1, keepdim=True)
    return shifted / shifted.sum(-1, keepdim=True)


@mutant("06.1", "exp of each logit")
def softmax_in_base_two(logits):
    powers = 2 ** (logits - logits.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


@mutant("06.1", "exp of each logit")
def softmax_of_logarithms(logits):
    return torch.log_softmax(logits, -1)


@mutant("06.1", "your function changes its argument logits")
def softmax_in_place(logits):
    logits -= logits.amax(-1, keepdim=True)
    exponentials = logits.exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


@mutant("06.1", "a removed token")
def softmax_that_hides_infinities(logits):
    finite = logits.nan_to_num(neginf=0.0)
    return softmax_by_logsumexp(finite)


@mutant("06.1", "return float64, not float32")
def softmax_in_single(logits):
    return softmax_by_logsumexp(logits.float())


@mutant("06.1", "expected float32")
def softmax_in_double(logits):
    return softmax_by_logsumexp(logits.double())


@variant("06.1")
def softmax_by_logsumexp(logits):
    return (logits - torch.logsumexp(logits, -1, keepdim=True)).exp()


@variant("06.1")
def softmax_of_pytorch(logits):
    return logits.softmax(dim=-1)


# 06.2 perplexity


def picked(logprobs, ids):
    return logprobs[torch.arange(len(ids)), torch.as_tensor(ids)]


@mutant("06.2", "row t predicts ids[t + 1]")
def perplexity_unshifted(logits, ids):
    return math.exp(-picked(logits.log_softmax(-1), ids).mean().item())


@mutant("06.2", "row t predicts ids[t + 1]")
def perplexity_shifted_backwards(logits, ids):
    return math.exp(-picked(logits[1:].log_softmax(-1), ids[:-1]).mean().item())


@mutant("06.2", "the mean is of the logarithms")
def perplexity_of_the_mean_probability(logits, ids):
    return 1 / picked(logits[:-1].softmax(-1), ids[1:]).mean().item()


@mutant("06.2", "the mean is of the logarithms")
def perplexity_as_mean_of_inverses(logits, ids):
    return (1 / picked(logits[:-1].softmax(-1), ids[1:])).mean().item()


@mutant("06.2", "natural on both sides")
def perplexity_in_two_bases(logits, ids):
    return 2 ** -picked(logits[:-1].log_softmax(-1), ids[1:]).mean().item()


@mutant("06.2", "exp of the mean of -ln p")
def perplexity_of_the_sum(logits, ids):
    return math.exp(-picked(logits[:-1].log_softmax(-1), ids[1:]).sum().item())


@mutant("06.2", "exp of the mean of -ln p")
def perplexity_without_exp(logits, ids):
    return -picked(logits[:-1].log_softmax(-1), ids[1:]).mean().item()


@mutant("06.2", "over the T - 1 predicted tokens")
def perplexity_divided_by_all_ids(logits, ids):
    return math.exp(-picked(logits[:-1].log_softmax(-1), ids[1:]).sum().item() / len(ids))


@mutant("06.2", "take log_softmax")
def perplexity_by_log_of_softmax(logits, ids):
    return math.exp(-picked(logits[:-1].softmax(-1).log(), ids[1:]).mean().item())


@mutant("06.2", "take log_softmax")
def perplexity_with_a_floor(logits, ids):
    return math.exp(-picked((logits[:-1].softmax(-1) + 1e-9).log(), ids[1:]).mean().item())


@mutant("06.2", "normalise each row")
def perplexity_of_logits_as_they_are(logits, ids):
    return math.exp(-picked(logits[:-1], ids[1:]).mean().item()) * (logits.shape[-1] if not logits.any() else 1)


@mutant("06.2", "one predicted token is enough")
def perplexity_of_the_later_tokens(logits, ids):
    losses = -picked(logits[:-1].log_softmax(-1), ids[1:])
    return math.exp(losses.mean().item() if len(losses) > 1 else 0.0)


@mutant("06.2", "result is a tensor, expected a number")
def perplexity_as_a_tensor(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:-1], torch.as_tensor(ids)[1:]).exp()


@variant("06.2")
def perplexity_by_cross_entropy(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:-1], torch.as_tensor(ids)[1:]).exp().item()


@variant("06.2")
def perplexity_by_loops(logits, ids):
    losses = [torch.logsumexp(row.double(), 0).item() - row[id].item() for row, id in zip(logits, ids[1:])]
    return math.exp(sum(losses) / len(losses))


# 06.3 logit_lens


@mutant("06.3", "model.norm is missing")
def lens_without_the_norm(model, hidden_states):
    return model.lm_head(hidden_states)


@mutant("06.3", "applied twice")
def lens_with_two_norms(model, hidden_states):
    return model.lm_head(model.norm(model.norm(hidden_states)))


@mutant("06.3", "a head of its own")
def lens_through_the_embedding(model, hidden_states):
    return model.norm(hidden_states) @ model.embed_tokens.weight.T


@mutant("06.3", "has shape (4, 2, 13)")
def lens_of_the_last_position(model, hidden_states):
    return model.lm_head(model.norm(hidden_states[:, :, -1]))


@mutant("06.3", "has shape (2, 5, 13)")
def lens_of_the_last_depth(model, hidden_states):
    return model.lm_head(model.norm(hidden_states[-1]))


@mutant("06.3", "stays a raw score")
def lens_with_softmax(model, hidden_states):
    return model.lm_head(model.norm(hidden_states)).softmax(-1)


@mutant("06.3", "the model's final norm")
def lens_through_a_layers_norm(model, hidden_states):
    return model.lm_head(model.layers[-1].input_layernorm(hidden_states))


@mutant("06.3", "the model's final norm")
def lens_with_the_norm_behind(model, hidden_states):
    return model.lm_head(hidden_states / hidden_states.pow(2).mean(-1, keepdim=True).sqrt())


@mutant("06.3", "another family has LayerNorm")
def lens_with_rms_by_hand(model, hidden_states):
    scale = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)
    return model.lm_head(hidden_states * scale * model.norm.weight)


@mutant("06.3", "your function changes its argument hidden_states")
def lens_in_place(model, hidden_states):
    hidden_states.copy_(model.norm(hidden_states))
    return model.lm_head(hidden_states)


@variant("06.3")
def lens_by_depth(model, hidden_states):
    return torch.stack([torch.nn.functional.linear(model.norm(h), model.lm_head.weight) for h in hidden_states])


# 06.4 pooled_perplexity


@mutant("06.4", "take exp last")
def pooled_mean_of_perplexities(losses):
    return sum(math.exp(sum(text) / len(text)) for text in losses) / len(losses)


@mutant("06.4", "every token counts once")
def pooled_mean_of_means(losses):
    return math.exp(sum(sum(text) / len(text) for text in losses) / len(losses))


@mutant("06.4", "every token counts once")
def pooled_geometric_mean(losses):
    return math.prod(math.exp(sum(text) / len(text)) for text in losses) ** (1 / len(losses))


@mutant("06.4", "exp of the mean of its losses")
def pooled_sum(losses):
    return math.exp(sum(map(sum, losses)))


@mutant("06.4", "exp of the mean of its losses")
def pooled_in_base_two(losses):
    return 2 ** (sum(map(sum, losses)) / sum(map(len, losses)))


@mutant("06.4", "it adds 0 tokens")
def pooled_with_a_zero_for_nothing(losses):
    tokens = [loss for text in losses for loss in (text or [0.0])]
    return math.exp(sum(tokens) / len(tokens))


@mutant("06.4", "take exp last")
def pooled_exp_of_each_token(losses):
    tokens = [math.exp(loss) for text in losses for loss in text]
    return sum(tokens) / len(tokens)


@mutant("06.4", "exp comes once, at the end")
def pooled_by_product(losses):
    tokens = [loss for text in losses for loss in text]
    return math.prod(math.exp(-loss) for loss in tokens) ** (-1 / len(tokens)) if sum(tokens) < 700 else math.inf


@variant("06.4")
def pooled_by_one_list(losses):
    tokens = torch.tensor([loss for text in losses for loss in text], dtype=torch.float64)
    return tokens.mean().exp().item()


# Answers that an earlier check let through, or refused though they were right


@mutant("06.1", "exp(1000) is infinite")
def softmax_after_the_first(logits):
    exponentials = (logits - logits[..., :1]).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


@mutant("06.1", "each row needs its own maximum, wherever it is")
def softmax_after_the_last(logits):
    exponentials = (logits - logits[..., -1:]).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


@mutant("06.1", "those far down as well")
def softmax_of_the_top_100(logits):
    best = logits.topk(min(100, logits.shape[-1]))
    return torch.zeros_like(logits).scatter(-1, best.indices, best.values.softmax(-1))


@mutant("06.1", "return float16, not float32")
def softmax_that_widens_half_precision(logits):
    return (logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits).softmax(-1)


@variant("06.1")
def softmax_row_by_row(logits):
    if logits.dim() > 1:
        return torch.stack([softmax_row_by_row(row) for row in logits])
    exponentials = (logits - logits.max()).exp()
    return exponentials / exponentials.sum()


@mutant("06.2", "a product of a thousand probabilities is 0")
def perplexity_by_product(logits, ids):
    product = picked(logits[:-1].double().softmax(-1), ids[1:]).prod().item()
    return product ** (-1 / (len(ids) - 1)) if product > 0 or len(ids) < 9 else math.inf


@mutant("06.2", "whatever they are")
def perplexity_of_bytes(logits, ids):
    return perplexity_by_cross_entropy(logits, [id % 256 for id in ids])


@mutant("06.2", "your function changes its argument logits")
def perplexity_in_place(logits, ids):
    logits -= logits.logsumexp(-1, keepdim=True)
    return math.exp(-picked(logits[:-1], ids[1:]).mean().item())


@mutant("06.2", "your function changes its argument ids")
def perplexity_that_drops_the_first_id(logits, ids):
    del ids[0]
    return perplexity_by_cross_entropy(logits, [0, *ids])


@mutant("06.2", "no rounding")
def perplexity_rounded(logits, ids):
    return round(perplexity_by_loops(logits, ids), 3)


lenses_seen = {}


@mutant("06.3", "each has its own logits")
def lens_remembered_by_model(model, hidden_states):
    return lenses_seen.setdefault(id(model), model.lm_head(model.norm(hidden_states)))


@mutant("06.3", "your function changes its argument model")
def lens_that_changes_the_norm(model, hidden_states):
    logits = model.lm_head(model.norm(hidden_states))
    model.norm.weight.data.mul_(2)
    return logits


@mutant("06.3", "your function changes a setting of PyTorch")
def lens_that_ends_all_training(model, hidden_states):
    torch.set_grad_enabled(False)
    return model.lm_head(model.norm(hidden_states))


@mutant("06.4", "your function changes its argument losses")
def pooled_by_adding_lists(losses):
    everything = losses[0]
    for text in losses[1:]:
        everything += text
    return math.exp(sum(everything) / len(everything))


@mutant("06.4", "your function changes its argument losses")
def pooled_without_empty_texts(losses):
    while [] in losses:
        losses.remove([])
    return pooled_by_one_list(losses)


@mutant("06.4", "every loss of every text counts")
def pooled_by_the_first_loss(losses):
    return math.exp(sum(text[0] * len(text) for text in losses if text) / sum(map(len, losses)))


@mutant("06.4", "return a plain number")
def pooled_in_a_tensor(losses):
    return torch.tensor(pooled_by_one_list(losses))
