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


@mutant("05.2", "take flatten or reshape")
def loss_of_a_view(logits, ids):
    return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), ids[:, 1:].view(-1))


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


@mutant("05.4", "two running means")
def bytes_of_the_weights(trained, frozen):
    return 4 * (trained + frozen)


@mutant("05.4", "two running means")
def bytes_without_gradients(trained, frozen):
    return 12 * trained + 4 * frozen


@mutant("05.4", "four numbers of four bytes each")
def bytes_with_one_running_mean(trained, frozen):
    return 12 * (trained + frozen)


@mutant("05.4", "a frozen parameter is only read")
def bytes_of_training_for_all(trained, frozen):
    return 16 * (trained + frozen)


@mutant("05.4", "a frozen parameter is only read")
def bytes_of_frozen_gradients(trained, frozen):
    return 16 * trained + 8 * frozen


@mutant("05.4", "only its own four bytes")
def bytes_of_the_trained_alone(trained, frozen):
    return 16 * trained


@mutant("05.4", "four numbers of four bytes each")
def bytes_in_half_precision(trained, frozen):
    return 8 * trained + 2 * frozen


@mutant("05.4", "expected an integer")
def bytes_in_float(trained, frozen):
    return 16.0 * trained + 4.0 * frozen


@mutant("05.4", "every digit counts")
def bytes_in_single_precision(trained, frozen):
    return int(torch.tensor(16.0 * trained + 4.0 * frozen).item())


@variant("05.4")
def bytes_part_by_part(trained, frozen):
    weights, gradients = 4 * (trained + frozen), 4 * trained
    return weights + gradients + 2 * 4 * trained


# 05.5 adamw_step


def moved(weight, mean, square, step, lr, eps=1e-8):
    """The weight after its decay and a step along both corrected means."""
    fair_mean, fair_square = mean / (1 - 0.9**step), square / (1 - 0.999**step)
    return weight - 0.01 * lr * weight - lr * fair_mean / (fair_square.sqrt() + eps)


def means(gradient, mean, square):
    return 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2


@mutant("05.5", "both means are divided by 1 - beta**step")
def adamw_without_correction(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return weight - 0.01 * lr * weight - lr * mean / (square.sqrt() + 1e-8), mean, square


@mutant("05.5", "with the number of this step")
def adamw_with_the_correction_of_the_first_step(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return moved(weight, mean, square, 1, lr), mean, square


@mutant("05.5", "the decay is no part of the gradient")
def adam_with_decay_in_the_gradient(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient + 0.01 * weight, mean, square)
    return weight - lr * mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8), mean, square


@mutant("05.5", "the weight only decays")
def adamw_without_decay(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return moved(weight, mean, square, step, lr) + 0.01 * lr * weight, mean, square


@mutant("05.5", "by lr * 0.01 of itself")
def adamw_with_a_decay_that_ignores_the_rate(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return moved(weight, mean, square, step, lr) + (0.01 * lr - 0.01) * weight, mean, square


@mutant("05.5", "taken from the old weight")
def adamw_with_decay_of_the_new_weight(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return (moved(weight, mean, square, step, lr) + 0.01 * lr * weight) * (1 - 0.01 * lr), mean, square


@mutant("05.5", "under a square root")
def adamw_without_the_root(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return weight - 0.01 * lr * weight - lr * mean / (1 - 0.9**step) / (square / (1 - 0.999**step) + 1e-8), mean, square


@mutant("05.5", "after the square root")
def adamw_with_epsilon_under_the_root(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    fair = square / (1 - 0.999**step)
    return weight - 0.01 * lr * weight - lr * mean / (1 - 0.9**step) / (fair + 1e-8).sqrt(), mean, square


@mutant("05.5", "keep a zero out of the denominator")
def adamw_with_a_larger_epsilon(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return moved(weight, mean, square, step, lr, eps=1e-10), mean, square


@mutant("05.5", "0.9 of the old one and 0.1 of the gradient")
def adamw_with_exchanged_shares(weight, gradient, mean, square, step, lr):
    mean, square = 0.1 * mean + 0.9 * gradient, 0.001 * square + 0.999 * gradient**2
    return moved(weight, mean, square, step, lr), mean, square


@mutant("05.5", "of the squared gradient")
def adamw_whose_square_is_of_the_mean(weight, gradient, mean, square, step, lr):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * mean**2
    return moved(weight, mean, square, step, lr), mean, square


@mutant("05.5", "return it without the correction")
def adamw_that_returns_corrected_means(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return moved(weight, mean, square, step, lr), mean / (1 - 0.9**step), square / (1 - 0.999**step)


@mutant("05.5", "the running mean")
def adamw_along_the_gradient_alone(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    usual = (square / (1 - 0.999**step)).sqrt() + 1e-8
    return weight - 0.01 * lr * weight - lr * gradient / usual, mean, square


@mutant("05.5", "as long as the learning rate")
def adamw_uphill(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    return 2 * weight * (1 - 0.01 * lr) - moved(weight, mean, square, step, lr), mean, square


@mutant("05.5", "each weight with its own means")
def adamw_with_one_square_for_all(weight, gradient, mean, square, step, lr):
    mean, square = means(gradient, mean, square)
    shared = square.mean() if square.dim() > 1 else square
    return moved(weight, mean, shared, step, lr), mean, square


@mutant("05.5", "return weight, mean, square")
def adamw_that_forgets(weight, gradient, mean, square, step, lr):
    return moved(weight, *means(gradient, mean, square), step, lr)


@mutant("05.5", "your function changes its argument mean")
def adamw_in_place(weight, gradient, mean, square, step, lr):
    mean.mul_(0.9).add_(0.1 * gradient)
    square.mul_(0.999).add_(0.001 * gradient**2)
    return moved(weight, mean, square, step, lr), mean, square


@variant("05.5")
def adamw_with_lerp(weight, gradient, mean, square, step, lr):
    mean, square = torch.lerp(mean, gradient, 0.1), torch.lerp(square, gradient**2, 0.001)
    size = (square / (1 - 0.999**step)) ** 0.5 + 1e-8
    return (1 - lr / 100) * weight - lr / (1 - 0.9**step) * mean / size, mean, square


@variant("05.5")
def adamw_by_pytorch(weight, gradient, mean, square, step, lr):
    theirs = weight.clone().requires_grad_()
    theirs.grad = gradient.clone()
    optimizer = torch.optim.AdamW([theirs], lr=lr)
    optimizer.state[theirs] = {"step": torch.tensor(step - 1.0), "exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
    optimizer.step()
    state = optimizer.state[theirs]
    return theirs.detach(), state["exp_avg"], state["exp_avg_sq"]


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


@mutant("05.2", "into float32 first")
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
