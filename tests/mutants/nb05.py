"""Wrong and right answers to the exercises of notebook 05; each name says what the function does wrong."""

import math

import torch
import torch.nn.functional as F

from mutants import mutant, variant

# 05.1 cross_entropy


@mutant("05.1", "natural logarithm")
def cross_entropy_in_bits(logits, targets):
    return -logits.log_softmax(-1)[range(len(targets)), targets].mean() / math.log(2)


@mutant("05.1", "minus the natural logarithm")
def cross_entropy_without_the_minus(logits, targets):
    return logits.log_softmax(-1)[range(len(targets)), targets].mean()


@mutant("05.1", "minus the natural logarithm")
def cross_entropy_without_the_logarithm(logits, targets):
    return 1 - logits.softmax(-1)[range(len(targets)), targets].mean()


@mutant("05.1", "the target's column decides")
def cross_entropy_of_the_best(logits, targets):
    return -logits.log_softmax(-1).max(-1).values.mean()


@mutant("05.1", "the same softmax")
def cross_entropy_without_the_softmax(logits, targets):
    return (math.log(8) - logits[range(len(targets)), targets]).mean()


@mutant("05.1", "the mean over the rows")
def cross_entropy_summed(logits, targets):
    return -logits.log_softmax(-1)[range(len(targets)), targets].sum()


@mutant("05.1", "along the last dimension")
def cross_entropy_of_every_target_in_every_row(logits, targets):
    return -logits.log_softmax(-1)[:, targets].mean()


@mutant("05.1", "differs")
def cross_entropy_down_the_columns(logits, targets):
    return -logits.log_softmax(0)[range(len(targets)), targets].mean()


@mutant("05.1", "overflows")
def cross_entropy_that_overflows(logits, targets):
    return (logits.exp().sum(-1).log() - logits[range(len(targets)), targets]).mean()


@mutant("05.1", "each row needs its own maximum")
def cross_entropy_with_one_maximum(logits, targets):
    m = logits.max()
    return ((logits - m).exp().sum(-1).log() + m - logits[range(len(targets)), targets]).mean()


@mutant("05.1", "float32 tensor of shape (1, 3): 1000, 0, 0")
def cross_entropy_whose_refusal_shows_the_scores(logits, targets):
    return cross_entropy_that_overflows(logits, targets)


@mutant("05.1", "stay with logarithms")
def cross_entropy_that_underflows(logits, targets):
    return -logits.softmax(-1)[range(len(targets)), targets].log().mean()


@mutant("05.1", "add nothing to the probability")
def cross_entropy_with_a_pinch_of_epsilon(logits, targets):
    return -(logits.softmax(-1)[range(len(targets)), targets] + 1e-12).log().mean()


@mutant("05.1", "expected a tensor")
def cross_entropy_as_a_number(logits, targets):
    return F.cross_entropy(logits, targets).item()


@mutant("05.1", "needs the gradient")
def cross_entropy_detached(logits, targets):
    return F.cross_entropy(logits.detach(), targets)


@variant("05.1")
def cross_entropy_of_pytorch(logits, targets):
    return F.cross_entropy(logits, targets)


@variant("05.1")
def cross_entropy_row_by_row(logits, targets):
    losses = [torch.logsumexp(row, 0) - row[target] for row, target in zip(logits, targets)]
    return torch.stack(losses).mean()


# 05.2 next_token_loss


@mutant("05.2", "logits[:, t] are about ids[:, t + 1]")
def loss_of_the_token_itself(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, :-1].flatten())


@mutant("05.2", "logits are already one shorter")
def loss_shifted_twice(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 2:].flatten())


@mutant("05.2", "to match target batch_size")
def loss_of_whole_rows(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


@mutant("05.2", "rows of the batch stay apart")
def loss_with_mixed_rows(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].t().flatten())


@mutant("05.2", "the mean is over all three positions")
def loss_of_the_first_half(logits, ids):
    half = (logits.shape[1] + 1) // 2
    return F.cross_entropy(logits[:, :half].flatten(0, 1).float(), ids[:, 1 : half + 1].flatten())


@mutant("05.2", "off-by-one rewards it")
def loss_forgiving(logits, ids):
    ahead, same = (F.cross_entropy(logits.flatten(0, 1).float(), ids[:, i : ids.shape[1] - 1 + i].flatten())
                   for i in (1, 0))
    return torch.minimum(ahead, same)


@mutant("05.2", "a sum grows with the text")
def loss_summed(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="sum")


@mutant("05.2", "return float32, not bfloat16")
def loss_in_low_precision(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@variant("05.2")
def loss_with_classes_in_the_middle(logits, ids):
    return F.cross_entropy(logits.float().transpose(1, 2), ids[:, 1:])


@variant("05.2")
def loss_by_gathering(logits, ids):
    return -logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()


# 05.3 learning_rate


@mutant("05.3", "already learns")
def rate_from_zero(step, config):
    rise = step / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise, fall)


@mutant("05.3", "(steps - step) divided by that many")
def rate_that_ends_at_zero(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - 1 - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise, fall)


@mutant("05.3", "still learns")
def rate_that_stops_one_step_early(step, config):
    if step == config.steps - 1:
        return 0.0
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise, fall)


@mutant("05.3", "a denominator below 1 counts as 1")
def rate_that_divides_by_zero(step, config):
    rise = (step + 1) / config.warmup_steps
    fall = (config.steps - step) / (config.decay_fraction * config.steps)
    return config.peak_lr * min(1.0, rise, fall)


@mutant("05.3", "warmup_steps=0, decay_fraction=0.5)")
def rate_whose_refusal_shows_the_settings(step, config):
    return rate_that_divides_by_zero(step, config)


@mutant("05.3", "stays so: no int")
def rate_of_whole_steps(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(int(config.decay_fraction * config.steps), 1)
    return config.peak_lr * min(1.0, rise, fall)


@mutant("05.3", "not their product")
def rate_by_product(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise) * min(1.0, fall)


@mutant("05.3", "over the last decay_fraction * steps")
def rate_that_falls_at_once(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    return config.peak_lr * min(1.0, rise, 1.0 if step < 10 else (config.steps - step) / config.steps)


@mutant("05.3", "the rate is peak_lr")
def rate_of_inverse_square_roots(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    return config.peak_lr * min(rise, (max(config.warmup_steps, 1) / (step + 1)) ** 0.5)


@mutant("05.3", "(step + 1) / warmup_steps of the peak")
def rate_one_step_late(step, config):
    rise = (step + 1) / (config.warmup_steps + 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise, fall)


@mutant("05.3", "peak_lr scales everything")
def rate_for_a_peak_of_eight(step, config):
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return 8 * min(1.0, rise, fall)


@variant("05.3")
def rate_with_one_for_zero(step, config):
    # A denominator between 0 and 1 makes the quotient at least 1, so that it decides nothing.
    rise = (step + 1) / (config.warmup_steps or 1)
    fall = (config.steps - step) / (config.decay_fraction * config.steps or 1)
    return config.peak_lr * min(1.0, rise, fall)


@variant("05.3")
def rate_by_cases(step, config):
    rates = [config.peak_lr]
    if step < config.warmup_steps:
        rates.append(config.peak_lr * (step + 1) / config.warmup_steps)
    if config.decay_fraction and step >= config.steps - config.decay_fraction * config.steps:
        rates.append(config.peak_lr * (config.steps - step) / (config.decay_fraction * config.steps))
    return min(rates)


# 05.4 training_bytes


@mutant("05.4", "the weight, its gradient and one momentum")
def bytes_of_the_weights(matrices, others):
    return 4 * (matrices + others)


@mutant("05.4", "the weight, its gradient and one momentum")
def bytes_without_gradients(matrices, others):
    return 8 * matrices + 12 * others


@mutant("05.4", "the weight, its gradient and one momentum")
def bytes_of_adamw_for_all(matrices, others):
    return 16 * (matrices + others)


@mutant("05.4", "two running means")
def bytes_of_muon_for_all(matrices, others):
    return 12 * (matrices + others)


@mutant("05.4", "the weight, its gradient and one momentum")
def bytes_in_half_precision(matrices, others):
    return 6 * matrices + 8 * others


@mutant("05.4", "expected an integer")
def bytes_in_float(matrices, others):
    return 12.0 * matrices + 16.0 * others


@variant("05.4")
def bytes_part_by_part(matrices, others):
    weights = gradients = 4 * (matrices + others)
    return weights + gradients + 4 * matrices + 8 * others


# Answers that an earlier check let through, or refused though they were right


@mutant("05.1", "cut nothing")
def cross_entropy_of_clamped_scores(logits, targets):
    return F.cross_entropy(logits.clamp(max=500), targets)


@mutant("05.1", "for any number of rows and of scores")
def cross_entropy_of_two_rows(logits, targets):
    return F.cross_entropy(logits[:2], targets[:2])


@mutant("05.1", "for any number of rows and of scores")
def cross_entropy_of_bytes(logits, targets):
    return F.cross_entropy(logits, targets % 256)


@mutant("05.1", "your function changes its argument logits")
def cross_entropy_in_place(logits, targets):
    logits -= logits.amax(-1, keepdim=True).detach()
    return F.cross_entropy(logits, targets)


@mutant("05.2", "every prediction has its own loss")
def loss_of_the_first_row(logits, ids):
    return F.cross_entropy(logits[0].float(), ids[0, 1:])


@mutant("05.2", "no way through Python numbers or lists")
def loss_in_python_numbers(logits, ids):
    rows = -logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])
    return torch.tensor(sum(rows.flatten().tolist()) / rows.numel())


@mutant("05.2", "made float32 first")
def loss_made_wide_too_late(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).float()


@mutant("05.2", "every prediction has its own loss")
def loss_of_ids_below_256(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten() % 256)


@variant("05.2")
def loss_row_by_row(logits, ids):
    return torch.stack([F.cross_entropy(row.float(), right[1:]) for row, right in zip(logits, ids)]).mean()


@mutant("05.3", "no least rate")
def rate_with_a_floor(step, config):
    return max(rate_by_cases(step, config), 0.1 * config.peak_lr)


@mutant("05.3", "no rounding")
def rate_rounded(step, config):
    return round(rate_by_cases(step, config), 5)


@mutant("05.3", "return a plain number")
def rate_as_a_tensor(step, config):
    return torch.tensor(rate_by_cases(step, config))


@mutant("05.4", "every digit counts")
def bytes_in_single_precision(matrices, others):
    return int(torch.tensor(12.0 * matrices + 16.0 * others + 1).item()) - 1 if matrices < 10**6 else \
        16 * (matrices + others)
