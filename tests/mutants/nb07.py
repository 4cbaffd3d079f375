"""Wrong and right answers to the exercises of notebook 07; each name says what the function does wrong."""

import math
from dataclasses import replace

import torch

from course_lib import sampling
from mutants import mutant, variant

INF = math.inf


def column(values, x):
    return torch.tensor(values, dtype=x.dtype).view(-1, 1)


# 07.1 apply_temperature


def temper(logits, temperature):
    """A right answer, row by row, that the wrong ones vary."""
    rows = []
    for row, t in zip(logits, temperature):
        if t == 0:
            best = torch.full_like(row, -INF)
            best[row.argmax()] = 0
            rows.append(best)
        else:
            rows.append((row - row.max()) / t)
    return torch.stack(rows)


@mutant("07.1", "to multiply would take their root")
def temperature_multiplies(logits, temperature):
    return temper(logits, [1 / t if t else 0 for t in temperature])


@mutant("07.1", "logits, not probabilities")
def temperature_gives_probabilities(logits, temperature):
    return temper(logits, temperature).softmax(-1)


@mutant("07.1", "each row has its own temperature")
def temperature_of_the_first_row(logits, temperature):
    return temper(logits, temperature[:1] * len(logits))


@mutant("07.1", "divides column by column")
def temperature_along_the_vocabulary(logits, temperature):
    if 0 in temperature:
        return temper(logits, temperature)
    return (logits - logits.amax(-1, keepdim=True)) / torch.tensor(temperature)


@mutant("07.1", "the lowest id among equals")
def temperature_never_zero(logits, temperature):
    return temper(logits, [max(t, 1e-5) for t in temperature])


@mutant("07.1", "one token is left")
def temperature_zero_ignored(logits, temperature):
    return temper(logits, [t or 1 for t in temperature])


@mutant("07.1", "the lowest id among equals")
def temperature_zero_keeps_ties(logits, temperature):
    top = logits.amax(-1, keepdim=True)
    t = column(temperature, logits)
    return torch.where(t == 0, torch.where(logits == top, 0.0, -INF), (logits - top) / t.clamp(min=1e-38))


@mutant("07.1", "a batch may mix greedy rows with others")
def temperature_zero_for_all(logits, temperature):
    return temper(logits, [0] * len(temperature) if 0 in temperature else temperature)


@mutant("07.1", "move the row's maximum to 0 before dividing")
def temperature_overflows(logits, temperature):
    t = column(temperature, logits)
    best = torch.full_like(logits, -INF).scatter(-1, logits.argmax(-1, keepdim=True), 0.0)
    return torch.where(t == 0, best, logits / torch.where(t == 0, 1, t))


@mutant("07.1", "stays removed, and nothing becomes NaN")
def temperature_revives(logits, temperature):
    return temper(logits.clamp(min=-1e4), temperature)


@mutant("07.1", "your function changes its argument logits")
def temperature_in_place(logits, temperature):
    logits.copy_(temper(logits, temperature))
    return logits


@mutant("07.1", "return float64, not float32")
def temperature_narrows(logits, temperature):
    return temper(logits.float(), temperature)


@variant("07.1")
def temperature_row_by_row(logits, temperature):
    return temper(logits, temperature)


@variant("07.1")
def temperature_at_once(logits, temperature):
    t = column(temperature, logits)
    shifted = logits - logits.amax(-1, keepdim=True)
    best = torch.full_like(logits, -INF).scatter(-1, logits.argmax(-1, keepdim=True), 0.0)
    return torch.where(t == 0, best, shifted / torch.where(t == 0, 1, t))


# 07.2 apply_top_k


def places_of(logits):
    """The place of each id in its row, from the likeliest, lowest id first among equals."""
    return logits.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)


def keep(logits, mask):
    return logits.masked_fill(~mask, -INF)


@mutant("07.2", "0 would be a logit like any other")
def top_k_writes_zeros(logits, k):
    ks = torch.tensor([i or logits.shape[1] for i in k]).view(-1, 1)
    return logits.masked_fill(places_of(logits) >= ks, 0.0)


@mutant("07.2", "the k largest logits do not change")
def top_k_one_more(logits, k):
    ks = torch.tensor([i + 1 if i else logits.shape[1] for i in k]).view(-1, 1)
    return keep(logits, places_of(logits) < ks)


@mutant("07.2", "a threshold at the k-th value keeps more")
def top_k_by_threshold(logits, k):
    rows = []
    for row, i in zip(logits, k):
        n = min(i or len(row), len(row))
        rows.append(row.masked_fill(row < row.topk(n).values[-1], -INF))
    return torch.stack(rows)


@mutant("07.2", "those with the lowest ids")
def top_k_highest_ids(logits, k):
    ks = torch.tensor([i or logits.shape[1] for i in k]).view(-1, 1)
    return keep(logits, places_of(logits.flip(-1)).flip(-1) < ks)


@mutant("07.2", "places in sorted order are not ids")
def top_k_first_ids(logits, k):
    ks = torch.tensor([i or logits.shape[1] for i in k]).view(-1, 1)
    return keep(logits, torch.arange(logits.shape[1]).expand_as(logits) < ks)


@mutant("07.2", "you need the place of each id")
def top_k_takes_the_order_for_the_place(logits, k):
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return keep(logits, order < torch.tensor([i or logits.shape[1] for i in k]).view(-1, 1))


@mutant("07.2", "each row has its own k")
def top_k_of_the_first_row(logits, k):
    return keep(logits, places_of(logits) < (k[0] or logits.shape[1]))


@mutant("07.2", "each row has its own k")
def top_k_the_largest_of_all(logits, k):
    return keep(logits, places_of(logits) < max(i or logits.shape[1] for i in k))


@mutant("07.2", "k = 0 means off")
def top_k_zero_keeps_nothing(logits, k):
    return keep(logits, places_of(logits) < torch.tensor(k).view(-1, 1))


@mutant("07.2", "out of range")
def top_k_beyond_the_vocabulary(logits, k):
    rows = []
    for row, i in zip(logits, k):
        new = torch.full_like(row, -INF)
        new[row.argsort(descending=True, stable=True)[: i or None]] = row[row.topk(i or len(row)).indices].sort(
            descending=True).values
        rows.append(new)
    return torch.stack(rows)


@mutant("07.2", "what was removed before stays removed")
def top_k_revives(logits, k):
    return top_k_by_places(logits.clamp(min=-80), k)


@mutant("07.2", "your function changes its argument logits")
def top_k_in_place(logits, k):
    logits.copy_(top_k_by_places(logits, k))
    return logits


@mutant("07.2", "return float64, not float32")
def top_k_narrows(logits, k):
    return top_k_by_places(logits.float(), k)


@variant("07.2")
def top_k_by_places(logits, k):
    ks = torch.tensor([i or logits.shape[1] for i in k]).view(-1, 1)
    return keep(logits, places_of(logits) < ks)


@variant("07.2")
def top_k_by_sorting_pairs(logits, k):
    new = torch.full_like(logits, -INF)
    for row, i in enumerate(k):
        values = logits[row].tolist()
        for j in sorted(range(len(values)), key=lambda j: (-values[j], j))[: i or None]:
            new[row, j] = logits[row, j]
    return new


# 07.3 apply_top_p


def nucleus(logits, p, *, before=True, slack=1e-6, stable=True, first=True, full=True):
    """A right answer whose parts can be left out."""
    probs = logits.double().softmax(-1)
    order = (probs if stable else probs.flip(-1)).argsort(dim=-1, descending=True, stable=True)
    order = order if stable else probs.shape[1] - 1 - order
    sorted_probs = probs.gather(-1, order)
    sums = sorted_probs.cumsum(-1) - (sorted_probs if before else 0)
    ps = torch.tensor(p, dtype=torch.float64).view(-1, 1)
    mask = sums < ps - slack
    if full:
        mask = mask | (ps == 1)
    if first:
        mask[:, 0] = True
    return keep(logits, mask.gather(-1, order.argsort(dim=-1)))


@mutant("07.3", "the token that crosses p stays")
def top_p_drops_the_crossing(logits, p):
    return nucleus(logits, p, before=False)


@mutant("07.3", "the token that crosses p stays")
def top_p_empty(logits, p):
    return nucleus(logits, p, before=False, first=False)


@mutant("07.3", "and none after it")
def top_p_one_too_many(logits, p):
    return keep(logits, places_of(logits) <= nucleus(logits, p).isfinite().sum(-1, keepdim=True))


@mutant("07.3", "bring it back to the order of ids")
def top_p_in_sorted_order(logits, p):
    kept = nucleus(logits, p).isfinite().sum(-1, keepdim=True)
    return keep(logits, torch.arange(logits.shape[1]).expand_as(logits) < kept)


@mutant("07.3", "each row has its own p")
def top_p_of_the_first_row(logits, p):
    return nucleus(logits, p[:1] * len(p))


@mutant("07.3", "at least one token stays")
def top_p_tiny_keeps_nothing(logits, p):
    return nucleus(logits, p, first=False)


@mutant("07.3", "p = 1 keeps everything")
def top_p_one_cuts(logits, p):
    return nucleus(logits, p, full=False)


@mutant("07.3", "p = 1 keeps everything")
def top_p_one_is_greedy(logits, p):
    cut = nucleus(logits, p)
    best = keep(logits, places_of(logits) < 1)
    return torch.where(column(p, logits) == 1, best, cut)


@mutant("07.3", "an exact hit has reached p")
def top_p_without_slack(logits, p):
    """In float32, as it is mostly written."""
    probs, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
    mask = (probs.cumsum(-1) - probs <= column(p, probs)) | (column(p, probs) == 1)
    mask[:, 0] = True
    return keep(logits, mask.gather(-1, order.argsort(dim=-1)))


@mutant("07.3", "the 1e-6 is missing")
def top_p_below_p(logits, p):
    return nucleus(logits, p, slack=0)


@mutant("07.3", "the 1e-6 is missing")
def top_p_below_p_in_the_dtype_of_the_logits(logits, p):
    probs, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
    mask = (probs.cumsum(-1) - probs < column(p, probs)) | (column(p, probs) == 1)
    return keep(logits, mask.gather(-1, order.argsort(dim=-1)))


@mutant("07.3", "the 1e-6 is missing")
def top_p_forgets_several_things(logits, p):
    return nucleus(logits, p, slack=0, first=False, full=False)


@mutant("07.3", "and not more")
def top_p_with_too_much_slack(logits, p):
    return nucleus(logits, p, slack=1e-3)


@mutant("07.3", "leave first")
def top_p_highest_ids(logits, p):
    return nucleus(logits, p, stable=False)


@mutant("07.3", "bring it back")
def top_p_unsorted(logits, p):
    probs = logits.softmax(-1)
    return keep(logits, probs.cumsum(-1) - probs < column(p, probs) - 1e-6)


@mutant("07.3", "what was removed before stays removed")
def top_p_revives(logits, p):
    return nucleus(logits.clamp(min=-80), p)


@mutant("07.3", "your function changes its argument logits")
def top_p_in_place(logits, p):
    logits.copy_(nucleus(logits, p))
    return logits


@mutant("07.3", "return float64, not float32")
def top_p_narrows(logits, p):
    return nucleus(logits.float(), p)


@variant("07.3")
def top_p_by_places(logits, p):
    return nucleus(logits, p)


@variant("07.3")
def top_p_by_a_loop(logits, p):
    new = torch.full_like(logits, -INF)
    for row, (values, limit) in enumerate(zip(logits.double().softmax(-1).tolist(), p)):
        total = 0.0
        for j in sorted(range(len(values)), key=lambda j: (-values[j], j)):
            if total < limit - 1e-6 or total == 0 or limit == 1:
                new[row, j] = logits[row, j]
            total += values[j]
    return new


# 07.4 apply_min_p


@mutant("07.4", "not against 0.4")
def min_p_absolute(logits, min_p):
    probs = logits.softmax(-1)
    return keep(logits, (probs >= column(min_p, probs) - 1e-6) | (places_of(logits) < 1))


@mutant("07.4", "not logits")
def min_p_of_logits(logits, min_p):
    return keep(logits, logits >= column(min_p, logits) * logits.amax(-1, keepdim=True))


@mutant("07.4", "each row has its own min_p")
def min_p_of_the_first_row(logits, min_p):
    return min_p_by_probabilities(logits, min_p[:1] * len(min_p))


@mutant("07.4", "each row has its own largest probability")
def min_p_of_the_whole_batch(logits, min_p):
    probs = logits.softmax(-1)
    return keep(logits, probs >= column(min_p, probs) * probs.max() * (1 - 1e-6))


@mutant("07.4", "exactly at the border stays")
def min_p_strict(logits, min_p):
    probs = logits.double().softmax(-1)
    fraction = column(min_p, probs)
    return keep(logits, (probs > fraction * probs.amax(-1, keepdim=True) * (1 + 1e-6)) | (fraction == 0))


@mutant("07.4", "the 1e-6 is missing")
def min_p_by_logits_as_the_formula_says(logits, min_p):
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + column(min_p, logits).log(), -INF)


@mutant("07.4", "the 1e-6 is missing")
def min_p_by_probabilities_without_slack(logits, min_p):
    probs = logits.softmax(-1)
    return keep(logits, probs >= column(min_p, probs) * probs.amax(-1, keepdim=True))


@mutant("07.4", "and not more")
def min_p_with_too_much_slack(logits, min_p):
    probs = logits.softmax(-1)
    return keep(logits, probs >= column(min_p, probs) * probs.amax(-1, keepdim=True) * (1 - 1e-2))


@mutant("07.4", "ValueError: ")
def min_p_log_of_zero(logits, min_p):
    border = torch.tensor([math.log(f) for f in min_p], dtype=logits.dtype).view(-1, 1)
    return keep(logits, logits >= logits.amax(-1, keepdim=True) + border - 1e-6)


@mutant("07.4", "min_p = 0 is off")
def min_p_zero_is_small(logits, min_p):
    return min_p_by_probabilities(logits, [f or 1e-6 for f in min_p])


@mutant("07.4", "min_p = 1 keeps the likeliest")
def min_p_one_is_off(logits, min_p):
    return min_p_by_probabilities(logits, [f if f < 1 else 0 for f in min_p])


@mutant("07.4", "what was removed before stays removed")
def min_p_revives(logits, min_p):
    return min_p_by_probabilities(logits.clamp(min=-80), min_p)


@mutant("07.4", "your function changes its argument logits")
def min_p_in_place(logits, min_p):
    logits.copy_(min_p_by_probabilities(logits, min_p))
    return logits


@mutant("07.4", "return float64, not float32")
def min_p_narrows(logits, min_p):
    return min_p_by_probabilities(logits.float(), min_p)


@variant("07.4")
def min_p_by_probabilities(logits, min_p):
    probs = logits.softmax(-1)
    return keep(logits, probs >= column(min_p, probs) * probs.amax(-1, keepdim=True) * (1 - 1e-6))


@variant("07.4")
def min_p_by_logits(logits, min_p):
    border = torch.tensor([math.log(f) if f else -INF for f in min_p], dtype=logits.dtype).view(-1, 1)
    return keep(logits, logits >= logits.amax(-1, keepdim=True) + border - 1e-6)


# 07.5 apply_penalties


def counts_of(ids, x):
    return torch.stack([torch.bincount(torch.tensor(row, dtype=torch.long), minlength=x.shape[1]) for row in ids])


@variant("07.5")
def penalties_by_counting(logits, prompt_ids, output_ids, *, repetition_penalty, presence_penalty,
                          frequency_penalty):
    prompt, output = counts_of(prompt_ids, logits), counts_of(output_ids, logits)
    r, p, f = (column(values, logits) for values in (repetition_penalty, presence_penalty, frequency_penalty))
    new = torch.where(prompt + output > 0, torch.where(logits > 0, logits / r, logits * r), logits)
    return new - p * (output > 0) - f * output


@variant("07.5")
def penalties_by_loops(logits, prompt_ids, output_ids, repetition_penalty, presence_penalty, frequency_penalty):
    new = logits.clone()
    for i, (prompt, output) in enumerate(zip(prompt_ids, output_ids)):
        for j in set(prompt) | set(output):
            new[i, j] *= repetition_penalty[i] if new[i, j] < 0 else 1 / repetition_penalty[i]
        for j in set(output):
            new[i, j] -= presence_penalty[i] + frequency_penalty[i] * output.count(j)
    return new


def change(**changes):
    """The right answer with other arguments."""
    def wrong(logits, prompt_ids, output_ids, **settings):
        given = {"logits": logits, "prompt_ids": prompt_ids, "output_ids": output_ids, **settings}
        given |= {name: make(given) for name, make in changes.items()}
        return penalties_by_loops(**given)

    return wrong


@mutant("07.5", "divided by 2, it would rise")
def penalties_divide_negatives(logits, prompt_ids, output_ids, **settings):
    shifted = penalties_by_loops(logits.abs(), prompt_ids, output_ids, **settings)
    return torch.where(logits < 0, -shifted, shifted)


@mutant("07.5", "positive logits of both are divided")
def penalties_forget_the_prompt(logits, prompt_ids, output_ids, **settings):
    return change(prompt_ids=lambda g: [[] for _ in g["prompt_ids"]])(logits, prompt_ids, output_ids, **settings)


@mutant("07.5", "positive logits of both are divided")
def penalties_repeat_in_the_prompt_only(logits, prompt_ids, output_ids, *, repetition_penalty, **settings):
    nothing = [[] for _ in output_ids]
    once = penalties_by_loops(logits, prompt_ids, nothing, repetition_penalty, **settings)
    return penalties_by_loops(once, nothing, output_ids, [1] * len(logits), **settings)


@mutant("07.5", "once, however often")
def penalties_repeat_each_time(logits, prompt_ids, output_ids, *, repetition_penalty, **settings):
    new = logits.clone()
    for i, (prompt, output) in enumerate(zip(prompt_ids, output_ids)):
        for j in [*prompt, *output]:
            new[i, j] *= repetition_penalty[i] if new[i, j] < 0 else 1 / repetition_penalty[i]
    nothing = [[] for _ in output_ids]
    return penalties_by_loops(new, nothing, output_ids, [1] * len(logits), **settings)


@mutant("07.5", "presence subtracts once")
def penalties_presence_in_the_prompt(logits, prompt_ids, output_ids, *, presence_penalty, frequency_penalty,
                                     repetition_penalty):
    new = penalties_by_loops(logits, prompt_ids, output_ids, repetition_penalty, [0] * len(logits), frequency_penalty)
    for i, (prompt, output) in enumerate(zip(prompt_ids, output_ids)):
        new[i, list({*prompt, *output})] -= presence_penalty[i]
    return new


@mutant("07.5", "presence subtracts once")
def penalties_presence_each_time(logits, prompt_ids, output_ids, **settings):
    frequency = [p + f for p, f in zip(settings["presence_penalty"], settings["frequency_penalty"])]
    return change(frequency_penalty=lambda g: frequency, presence_penalty=lambda g: [0] * len(logits))(
        logits, prompt_ids, output_ids, **settings)


@mutant("07.5", "frequency subtracts once for each time")
def penalties_frequency_once(logits, prompt_ids, output_ids, **settings):
    presence = [p + f for p, f in zip(settings["presence_penalty"], settings["frequency_penalty"])]
    return change(presence_penalty=lambda g: presence, frequency_penalty=lambda g: [0] * len(logits))(
        logits, prompt_ids, output_ids, **settings)


@mutant("07.5", "and the prompt does not count")
def penalties_frequency_in_the_prompt(logits, prompt_ids, output_ids, *, frequency_penalty, **settings):
    new = penalties_by_loops(logits, prompt_ids, output_ids, frequency_penalty=[0] * len(logits), **settings)
    counts = counts_of(prompt_ids, logits) + counts_of(output_ids, logits)
    return new - column(frequency_penalty, logits) * counts


@mutant("07.5", "repetition comes first")
def penalties_repetition_last(logits, prompt_ids, output_ids, *, repetition_penalty, **settings):
    new = penalties_by_loops(logits, prompt_ids, output_ids, [1] * len(logits), **settings)
    nothing = [0] * len(logits)
    return penalties_by_loops(new, prompt_ids, output_ids, repetition_penalty, nothing, nothing)


@mutant("07.5", "each row has its own ids and its own penalties")
def penalties_of_the_first_row(logits, prompt_ids, output_ids, **settings):
    return penalties_by_loops(logits, prompt_ids, output_ids,
                              **{name: values[:1] * len(logits) for name, values in settings.items()})


@mutant("07.5", "each row has its own ids and its own penalties")
def penalties_of_all_ids(logits, prompt_ids, output_ids, **settings):
    prompt, output = ([i for row in ids for i in row] for ids in (prompt_ids, output_ids))
    return penalties_by_loops(logits, [prompt] * len(logits), [output] * len(logits), **settings)


@mutant("07.5", "your function changes its argument logits")
def penalties_in_place(logits, prompt_ids, output_ids, **settings):
    return logits.copy_(penalties_by_loops(logits, prompt_ids, output_ids, **settings))


@mutant("07.5", "return float64, not float32")
def penalties_narrow(logits, prompt_ids, output_ids, **settings):
    return penalties_by_loops(logits.float(), prompt_ids, output_ids, **settings)


# 07.6 sample


def choose(probs, generator):
    return torch.multinomial(probs, 1, generator=generator).item()


@variant("07.6")
def sample_by_multinomial(logits, params, generators):
    probs = sampling.filter_logits(logits, params).softmax(-1)
    return torch.tensor([row.argmax().item() if p.temperature == 0 else choose(row, g)
                         for row, p, g in zip(probs, params, generators)])


@variant("07.6")
def sample_by_the_gumbel_trick(logits, params, generators):
    """The argmax of the logits plus Gumbel noise is a draw from their softmax."""
    ids = []
    for row, p, g in zip(sampling.filter_logits(logits, params).double(), params, generators):
        noise = torch.zeros_like(row) if g is None else -torch.empty_like(row).exponential_(generator=g).log()
        ids.append((row + noise * (p.temperature > 0)).argmax())
    return torch.stack(ids)


@mutant("07.6", "'NoneType' object has no attribute 'device'")
def sample_greedy_with_a_generator(logits, params, generators):
    probs = sampling.filter_logits(logits, params).softmax(-1)
    numbers = [torch.rand(1, generator=g, device=g.device) for g in generators]
    return sampling.draw(probs, torch.cat(numbers))


@mutant("07.6", "needs no generator")
def sample_greedy_rows_too(logits, params, generators):
    return torch.tensor([choose(row, g) for row, g in zip(logits.softmax(-1), generators)])


@mutant("07.6", "the lowest id among equals")
def sample_greedy_highest_id(logits, params, generators):
    ids = sample_by_multinomial(logits, params, generators)
    last = logits.shape[1] - 1 - logits.flip(-1).argmax(-1)
    return torch.where(torch.tensor([p.temperature == 0 for p in params]), last, ids)


@mutant("07.6", "each row has its own settings")
def sample_with_the_first_rows_settings(logits, params, generators):
    return sample_by_multinomial(logits, [params[0]] * len(params), generators)


@mutant("07.6", "only what the filters keep is drawn")
def sample_without_filters(logits, params, generators):
    greedy = logits.argmax(-1)
    return torch.stack([greedy[i] if p.temperature == 0 or p.top_k == 1 else torch.tensor(choose(row, g))
                        for i, (row, p, g) in enumerate(zip(logits.softmax(-1), params, generators))])


@mutant("07.6", "or was `chain` left out?")
def sample_without_any_filter(logits, params, generators):
    probs = logits.softmax(-1)
    return torch.tensor([row.argmax().item() if p.temperature == 0 else choose(row, g)
                         for row, p, g in zip(probs, params, generators)])


@mutant("07.6", "nearly all different")
def sample_always_the_likeliest(logits, params, generators):
    return logits.argmax(-1)


@mutant("07.6", "the order is penalties, temperature")
def sample_top_p_first(logits, params, generators):
    cut = sampling.apply_top_p(logits, [p.top_p for p in params])
    return sample_by_multinomial(cut, [replace(p, top_p=1) for p in params], generators)


@mutant("07.6", "is not seeded again")
def sample_seeded_at_every_call(logits, params, generators):
    fresh = [g and torch.Generator().manual_seed(g.initial_seed()) for g in generators]
    return sample_by_multinomial(logits, params, fresh)


@mutant("07.6", "from nothing else")
def sample_with_the_global_generator(logits, params, generators):
    return sample_by_multinomial(logits, params, [None] * len(params))


@mutant("07.6", "one generator for each row")
def sample_from_the_first_generator(logits, params, generators):
    return sample_by_multinomial(logits, params, [generators[0]] * len(params))


@mutant("07.6", "one generator for each row")
def sample_numbers_for_all_rows_at_once(logits, params, generators):
    probs = sampling.filter_logits(logits, params).softmax(-1)
    first = generators[0] or torch.Generator()
    return sampling.draw(probs, torch.rand(len(probs), generator=first))


@mutant("07.6", "row 2 draws from its own generator")
def sample_one_number_for_all_rows(logits, params, generators):
    probs = sampling.filter_logits(logits, params).softmax(-1)
    first = generators[0] or torch.Generator()
    return sampling.draw(probs, torch.rand(1, generator=first).expand(len(probs)))


@mutant("07.6", "as often as the softmax of the filtered logits says")
def sample_uniformly_over_what_is_kept(logits, params, generators):
    kept = sampling.filter_logits(logits, params)
    return sample_by_multinomial(kept.isfinite().float().log(), [
        type(p)(temperature=p.temperature and 1.0) for p in params], generators)


@mutant("07.6", "as often as the softmax of the filtered logits says")
def sample_with_uniform_noise(logits, params, generators):
    kept = sampling.filter_logits(logits, params)
    return torch.stack([(row + (torch.rand(row.shape, generator=g) if g else 0)).argmax()
                        for row, g in zip(kept, generators)])


# 07.7 diagnosis


RIGHT = {"A": "ties", "B": "shared generator", "C": "top-p first", "D": "sign", "E": "too few"}


@variant("07.7")
def diagnosis_in_another_order():
    return dict(sorted(RIGHT.items(), reverse=True))


@mutant("07.7", "look at A again")
def diagnosis_takes_ties_for_too_few():
    return RIGHT | {"A": "too few"}


@mutant("07.7", "draws alone with those that it draws beside request 1")
def diagnosis_takes_the_generator_for_settings():
    return RIGHT | {"B": "shared settings"}


@mutant("07.7", "look at B again")
def diagnosis_takes_sharing_for_reseeding():
    return RIGHT | {"B": "reseeded"}


@mutant("07.7", "fit the right temperature")
def diagnosis_takes_the_order_for_the_wrong_temperature():
    return RIGHT | {"C": "inverted"}


@mutant("07.7", "drawn more often than the model alone would")
def diagnosis_takes_the_sign_for_a_temperature():
    return RIGHT | {"D": "inverted"}


@mutant("07.7", "that token holds 62 %")
def diagnosis_takes_too_few_for_the_order():
    return RIGHT | {"E": "top-p first"}


@mutant("07.7", "the letters A, B, C, D, E as keys")
def diagnosis_in_lower_case():
    return {letter.lower(): name for letter, name in RIGHT.items()}


@mutant("07.7", "name the mistakes as the list above does")
def diagnosis_in_own_words():
    return RIGHT | {"D": "the repetition penalty has the wrong sign"}


# Answers that an earlier check let through, or refused though they were right


@mutant("07.1", "0.3 has more digits in float64")
def temperature_in_float32(logits, temperature):
    return temper(logits, torch.tensor(temperature).tolist())


@mutant("07.1", "not just a low number")
def temperature_zero_is_only_low(logits, temperature):
    greedy = torch.tensor(temperature).view(-1, 1) == 0
    cold = temper(logits, temperature)
    return torch.where(greedy & cold.isneginf(), -1e9, cold)


@mutant("07.1", "the result is new at a temperature of 1")
def temperature_of_one_is_no_work(logits, temperature):
    return logits if set(temperature) == {1} else temper(logits, temperature)


@mutant("07.1", "your function changes its argument temperature")
def temperature_of_zero_made_small(logits, temperature):
    result = temper(logits, temperature)
    temperature[:] = [t or 1e-9 for t in temperature]
    return result


@mutant("07.1", "whatever the size of the vocabulary")
def temperature_of_the_top_100(logits, temperature):
    return temper(keep(logits, places_of(logits) < 100), temperature)


@mutant("07.2", "to the last bit")
def top_k_through_float32(logits, k):
    return top_k_by_places(logits.float(), k).to(logits.dtype)


@mutant("07.2", "k may be large")
def top_k_of_a_hundred_at_most(logits, k):
    return keep(top_k_by_places(logits, k), places_of(logits) < 100)


@mutant("07.3", "p may keep many tokens")
def top_p_of_the_top_100(logits, p):
    return keep(nucleus(logits, p), places_of(logits) < 100)


@mutant("07.3", "neither more nor less")
def top_p_with_ten_times_the_slack(logits, p):
    return nucleus(logits, p, slack=1e-5)


@mutant("07.3", "to the last bit")
def top_p_through_float32(logits, p):
    return keep(logits.float(), nucleus(logits, p).isfinite()).to(logits.dtype)


@variant("07.3")
def top_p_by_scattering(logits, p):
    values, order = logits.sort(dim=-1, descending=True, stable=True)
    probs = values.double().softmax(-1)
    limit = torch.tensor(p, dtype=torch.float64).view(-1, 1)
    gone = (probs.cumsum(-1) - probs >= limit - 1e-6) & (limit < 1)
    gone[:, 0] = False
    return torch.empty_like(logits).scatter(-1, order, values.masked_fill(gone, -INF))


@mutant("07.4", "neither more nor less")
def min_p_with_ten_times_the_slack(logits, min_p):
    probs = logits.double().softmax(-1)
    return keep(logits, probs >= column(min_p, probs) * probs.amax(-1, keepdim=True) * (1 - 1e-5))


@mutant("07.4", "min_p may keep many tokens")
def min_p_of_the_top_100(logits, min_p):
    return keep(min_p_by_probabilities(logits, min_p), places_of(logits) < 100)


@mutant("07.4", "means what it says")
def min_p_of_nine_tenths_at_most(logits, min_p):
    return min_p_by_probabilities(logits, [f if f == 1 else min(f, 0.9) for f in min_p])


@mutant("07.5", "1.3 has more digits in float64")
def penalties_in_float32(logits, prompt_ids, output_ids, **settings):
    narrow = {name: torch.tensor(values).tolist() for name, values in settings.items()}
    return penalties_by_loops(logits, prompt_ids, output_ids, **narrow)


@mutant("07.5", "your function changes its argument prompt_ids")
def penalties_that_join_the_lists(logits, prompt_ids, output_ids, **settings):
    for prompt, output in zip(prompt_ids, output_ids):
        prompt += output
    return penalties_by_loops(logits, prompt_ids, output_ids, **settings)


@mutant("07.5", "ids are as large as the vocabulary")
def penalties_of_bytes(logits, prompt_ids, output_ids, **settings):
    bytes_of = [[[i for i in ids if i < 256] for ids in rows] for rows in (prompt_ids, output_ids)]
    return penalties_by_loops(logits, *bytes_of, **settings)


@mutant("07.5", "a setting may raise what was there")
def penalties_that_only_lower(logits, prompt_ids, output_ids, **settings):
    settings["repetition_penalty"] = [max(r, 1) for r in settings["repetition_penalty"]]
    return penalties_by_loops(logits, prompt_ids, output_ids, **settings)


@mutant("07.6", "your function changes its argument logits")
def sample_that_filters_the_callers_logits(logits, params, generators):
    kept = sampling.filter_logits(logits, params)
    if logits.is_contiguous():
        logits.copy_(kept)
    return sample_by_multinomial(kept, params, generators)


@mutant("07.6", "return int64, not int32")
def sample_in_small_integers(logits, params, generators):
    return sample_by_multinomial(logits, params, generators).int()


@mutant("07.6", "there is an axis too many: return the shape (20,)")
def sample_as_a_column(logits, params, generators):
    return sample_by_multinomial(logits, params, generators)[:, None]


@mutant("07.6", "every token of the vocabulary can be drawn")
def sample_of_bytes(logits, params, generators):
    return sample_by_multinomial(logits[:, :256], params, generators)


@mutant("07.6", "generators[b] belongs to row b")
def sample_with_the_next_generator(logits, params, generators):
    own = [g for g in generators if g is not None]
    return sample_by_multinomial(logits, params, own + [None] * (len(params) - len(own)))
