"""Wrong and right answers to the exercises of notebook 15; each name says what the function does wrong."""

import math

import torch
from torch.nn.functional import huber_loss

from mutants import mutant, variant

# 15.1 total_flops


@mutant("15.1", "2 forward and 4 backward")
def flops_of_the_forward_pass(num_parameters, num_tokens, served=0):
    return 2 * num_parameters * (num_tokens + served)


@mutant("15.1", "passes forward only")
def flops_that_train_on_what_is_served(num_parameters, num_tokens, served=0):
    return 6 * num_parameters * (num_tokens + served)


@mutant("15.1", "both bills are added")
def flops_of_one_bill(num_parameters, num_tokens, served=0):
    return 2 * num_parameters * served if served and not num_tokens else 6 * num_parameters * num_tokens


@mutant("15.1", "the two numbers are multiplied")
def flops_for_a_model_of_three_parameters(num_parameters, num_tokens, served=0):
    return 18 * num_tokens + 2 * num_parameters * served


@mutant("15.1", "2 forward and 4 backward")
def flops_that_add_size_and_text(num_parameters, num_tokens, served=0):
    return 6 * (num_parameters + num_tokens) + 2 * num_parameters * served


@mutant("15.1", "do not round them")
def flops_of_whole_parameters(num_parameters, num_tokens, served=0):
    return 6 * int(num_parameters) * num_tokens + 2 * int(num_parameters) * served


@mutant("15.1", "nothing comes back")
def flops_without_return(num_parameters, num_tokens, served=0):
    6 * num_parameters * num_tokens + 2 * num_parameters * served


@variant("15.1")
def flops_of_one_parameter_first(num_parameters, num_tokens, served=0):
    return num_parameters * (6 * num_tokens + 2 * served)


# 15.2 objective


def predicted_log(params, num_parameters, num_tokens):
    a, b, e, alpha, beta = params
    return torch.logsumexp(torch.stack((a - alpha * num_parameters.log(), b - beta * num_tokens.log(),
                                        e.expand(len(num_tokens)))), 0)


@mutant("15.2", "not a difference of losses")
def objective_of_the_losses_themselves(params, num_parameters, num_tokens, losses, delta=1e-3):
    return huber_loss(predicted_log(params, num_parameters, num_tokens).exp(), losses, reduction="sum", delta=delta)


@mutant("15.2", "do not take their mean")
def objective_with_the_mean(params, num_parameters, num_tokens, losses, delta=1e-3):
    return huber_loss(predicted_log(params, num_parameters, num_tokens), losses.log(), delta=delta)


@mutant("15.2", "a straight line")
def objective_of_squares(params, num_parameters, num_tokens, losses, delta=1e-3):
    return ((predicted_log(params, num_parameters, num_tokens) - losses.log()) ** 2 / 2).sum()


@mutant("15.2", "a small one costs")
def objective_of_absolute_values(params, num_parameters, num_tokens, losses, delta=1e-3):
    return delta * (predicted_log(params, num_parameters, num_tokens) - losses.log()).abs().sum()


@mutant("15.2", "a - alpha")
def objective_with_a_plus(params, num_parameters, num_tokens, losses, delta=1e-3):
    a, b, e, alpha, beta = params
    return objective_by_hand((a, b, e, -alpha, -beta), num_parameters, num_tokens, losses, delta)


@mutant("15.2", "E = exp(e)")
def objective_without_exponentials(params, num_parameters, num_tokens, losses, delta=1e-3):
    a, b, e, alpha, beta = params
    predicted = e + a / num_parameters**alpha + b / num_tokens**beta
    return huber_loss(predicted.log(), losses.log(), reduction="sum", delta=delta)


@mutant("15.2", "the three terms of each run")
def objective_that_adds_over_the_runs(params, num_parameters, num_tokens, losses, delta=1e-3):
    a, b, e, alpha, beta = params
    terms = torch.stack((a - alpha * num_parameters.log(), b - beta * num_tokens.log(), e.expand(len(losses))))
    return huber_loss(torch.logsumexp(terms, 1), losses.log(), reduction="sum", delta=delta)


@mutant("15.2", "torch.logsumexp")
def objective_that_leaves_the_logarithms(params, num_parameters, num_tokens, losses, delta=1e-3):
    a, b, e, alpha, beta = params
    predicted = e.exp() + a.exp() / num_parameters**alpha + b.exp() / num_tokens**beta
    return huber_loss(predicted.log(), losses.log(), reduction="sum", delta=delta)


@mutant("15.2", "delta is an argument")
def objective_with_a_delta_of_its_own(params, num_parameters, num_tokens, losses, delta=1e-3):
    return huber_loss(predicted_log(params, num_parameters, num_tokens), losses.log(), reduction="sum", delta=1e-3)


@mutant("15.2", "a - alpha")
def objective_with_size_and_text_exchanged(params, num_parameters, num_tokens, losses, delta=1e-3):
    return objective_by_hand(params, num_tokens, num_parameters, losses, delta)


@mutant("15.2", "too low costs as much")
def objective_that_forgives_what_is_too_low(params, num_parameters, num_tokens, losses, delta=1e-3):
    residual = (predicted_log(params, num_parameters, num_tokens) - losses.log()).clamp(min=0)
    return huber_loss(residual, torch.zeros_like(residual), reduction="sum", delta=delta)


@mutant("15.2", "return a tensor")
def objective_as_a_plain_number(params, num_parameters, num_tokens, losses, delta=1e-3):
    return objective_by_hand(params, num_parameters, num_tokens, losses, delta).item()


@mutant("15.2", "needs the slope")
def objective_without_a_slope(params, num_parameters, num_tokens, losses, delta=1e-3):
    return objective_by_hand(params.detach(), num_parameters, num_tokens, losses, delta)


@variant("15.2")
def objective_by_hand(params, num_parameters, num_tokens, losses, delta=1e-3):
    a, b, e, alpha, beta = params
    terms = (a - alpha * num_parameters.log(), b - beta * num_tokens.log(), e.expand(len(losses)))
    r = (torch.logsumexp(torch.stack(terms), 0) - losses.log()).abs()
    return torch.where(r <= delta, r**2 / 2, delta * (r - delta / 2)).sum()


# 15.3 optimal


@mutant("15.3", "a large A means")
def optimum_without_g(law, flops):
    N = (flops / 6) ** (law.beta / (law.alpha + law.beta))
    return N, flops / (6 * N)


@mutant("15.3", "N grows with beta")
def optimum_with_the_exponents_exchanged(law, flops):
    total = law.alpha + law.beta
    N = (law.alpha * law.A / law.beta / law.B) ** (1 / total) * (flops / 6) ** (law.alpha / total)
    return N, flops / (6 * N)


@mutant("15.3", "a large A means")
def optimum_with_g_upside_down(law, flops):
    total = law.alpha + law.beta
    N = (law.beta * law.B / law.alpha / law.A) ** (1 / total) * (flops / 6) ** (law.beta / total)
    return N, flops / (6 * N)


@mutant("15.3", "N = D, and 6 N D is the budget")
def optimum_that_forgets_the_six_in_n(law, flops):
    total = law.alpha + law.beta
    N = (law.alpha * law.A / law.beta / law.B) ** (1 / total) * flops ** (law.beta / total)
    return N, flops / (6 * N)


@mutant("15.3", "cost the whole budget")
def optimum_that_forgets_the_six_in_d(law, flops):
    N, _ = law.optimal(flops)
    return N, flops / N


@mutant("15.3", "exponent is beta")
def optimum_of_twenty_tokens_a_parameter(law, flops):
    N = 10.0 if flops == 600 else math.sqrt(flops / 120)
    return N, flops / (6 * N)


@mutant("15.3", "A / B is not enough")
def optimum_with_a_g_that_forgets_alpha_and_beta(law, flops):
    total = law.alpha + law.beta
    N = (law.A / law.B) ** (1 / total) * (flops / 6) ** (law.beta / total)
    return N, flops / (6 * N)


@mutant("15.3", "a tuple")
def optimum_without_the_text(law, flops):
    return law.optimal(flops)[0]


@mutant("15.3", "N = D")
def optimum_with_n_and_d_exchanged_for_a_small_budget(law, flops):
    N, D = law.optimal(flops)
    return 2 * N, D / 2


@variant("15.3")
def optimum_as_a_list(law, flops):
    return list(law.optimal(flops))


@variant("15.3")
def optimum_by_trying(law, flops):
    def loss(log_n):
        return law.loss(math.exp(log_n), flops / 6 / math.exp(log_n))

    low, high = 0.0, 80.0
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return math.exp(low), flops / 6 / math.exp(low)


# 15.4 break_even_tokens


@mutant("15.4", "starts with 120 more")
def break_even_with_the_wrong_sign(small, large):
    return max(0.0, (6 * large[0] * large[1] - 6 * small[0] * small[1]) / (2 * large[0] - 2 * small[0]))


@mutant("15.4", "starts with 120 more")
def break_even_with_serving_as_expensive_as_training(small, large):
    return max(0.0, (small[0] * small[1] - large[0] * large[1]) / (large[0] - small[0]))


@mutant("15.4", "nothing negative")
def break_even_before_the_beginning(small, large):
    return (6 * small[0] * small[1] - 6 * large[0] * large[1]) / (2 * large[0] - 2 * small[0])


@mutant("15.4", "the difference of the two sizes")
def break_even_that_saves_the_whole_small_model(small, large):
    return max(0.0, (6 * small[0] * small[1] - 6 * large[0] * large[1]) / (2 * small[0]))


@mutant("15.4", "starts with 120 more")
def break_even_of_training_alone(small, large):
    return max(0.0, 6 * small[0] * small[1] - 6 * large[0] * large[1])


@mutant("15.4", "starts with 120 more")
def break_even_of_the_tokens(small, large):
    return float(small[1] - large[1])


@variant("15.4")
def break_even_from_two_bills(small, large):
    bills = [6 * N * D for N, D in (small, large)]
    return 0 if bills[0] <= bills[1] else (bills[0] - bills[1]) / (2 * (large[0] - small[0]))


# 15.5 diagnosis


@mutant("15.5", "nothing but chance")
def diagnosis_seeds_clear_the_text():
    return {"A": "other text", "B": "too noisy", "C": "text seen before"}


@mutant("15.5", "different texts")
def diagnosis_ends_clear_the_rate():
    return {"A": "too noisy", "B": "rate still high", "C": "text seen before"}


@mutant("15.5", "lower, and not higher")
def diagnosis_height_clears_the_rate():
    return {"A": "too noisy", "B": "other text", "C": "rate still high"}


@mutant("15.5", "as the list above does")
def diagnosis_in_own_words():
    return {"A": "noise", "B": "other text", "C": "text seen before"}


@mutant("15.5", "for each fact the suspect")
def diagnosis_of_the_culprit_alone():
    return "rate still high"


@mutant("15.5", "with the letters A, B, C as keys")
def diagnosis_by_suspect():
    return {"too noisy": "A", "other text": "B", "text seen before": "C"}


@variant("15.5")
def diagnosis_pair_by_pair():
    return dict(zip("CBA", ("text seen before", "other text", "too noisy")))
