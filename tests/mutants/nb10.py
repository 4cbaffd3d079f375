"""Wrong and right answers to the exercises of notebook 10; each name says what the function does wrong."""

import math

import torch
import torch.nn.functional as F

from mutants import mutant, variant

# 10.1 merge


def kept(own, m):
    return (own - m.clamp(min=-1e30)).exp()


@mutant("10.1", "with equal maxima nothing is rescaled: the two sums add up")
def merge_that_averages(a, b):
    m = torch.maximum(a[0], b[0])
    return m, (kept(a[0], m) * a[1] + kept(b[0], m) * b[1]) / 2, (kept(a[0], m) * a[2] + kept(b[0], m) * b[2]) / 2


@mutant("10.1", "neither divide nor average them")
def merge_that_divides(a, b):
    m = torch.maximum(a[0], b[0])
    total = kept(a[0], m) * a[1] + kept(b[0], m) * b[1]
    return m, total, (kept(a[0], m) * a[2] + kept(b[0], m) * b[2]) / total.clamp(min=1)


@mutant("10.1", "the sum l: the side with the smaller maximum shrinks")
def merge_without_rescaling_the_sum(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] + b[1], kept(a[0], m) * a[2] + kept(b[0], m) * b[2]


@mutant("10.1", "the accumulator o: the side with the smaller maximum shrinks")
def merge_without_rescaling_the_accumulator(a, b):
    m = torch.maximum(a[0], b[0])
    return m, kept(a[0], m) * a[1] + kept(b[0], m) * b[1], a[2] + b[2]


@mutant("10.1", "now it is b")
def merge_that_rescales_a_only(a, b):
    m = torch.maximum(a[0], b[0])
    return m, kept(a[0], m) * a[1] + b[1], kept(a[0], m) * a[2] + b[2]


@mutant("10.1", "the new maximum is the larger of the two")
def merge_that_takes_the_newer_maximum(a, b):
    m = b[0]
    keep = (a[0] - m.clamp(min=-1e30)).exp()
    return m, keep * a[1] + b[1], keep * a[2] + b[2]


@mutant("10.1", "the new maximum is the larger of the two")
def merge_to_the_smaller_maximum(a, b):
    m = torch.minimum(a[0], b[0])
    return m, kept(a[0], m) * a[1] + kept(b[0], m) * b[1], kept(a[0], m) * a[2] + kept(b[0], m) * b[2]


@mutant("10.1", "which is at most 1; here it is a")
def merge_with_the_factors_upside_down(a, b):
    m = torch.maximum(a[0], b[0])
    return (m, (m - a[0]).exp() * a[1] + (m - b[0]).exp() * b[1],
            (m - a[0]).exp() * a[2] + (m - b[0]).exp() * b[2])


@mutant("10.1", "each row has a maximum of its own")
def merge_with_one_maximum_for_all_rows(a, b):
    m = torch.maximum(a[0], b[0]).amax().expand_as(a[0])
    return m, kept(a[0], m) * a[1] + kept(b[0], m) * b[1], kept(a[0], m) * a[2] + kept(b[0], m) * b[2]


@mutant("10.1", "or exp(m) alone, overflows")
def merge_by_powers_of_e(a, b):
    m = torch.maximum(a[0], b[0])
    power = a[0].exp(), b[0].exp()
    return (m, (power[0] * a[1] + power[1] * b[1]) / m.exp(), (power[0] * a[2] + power[1] * b[2]) / m.exp())


@mutant("10.1", "NaN never goes away")
def merge_with_nan_for_two_empty_ones(a, b):
    m = torch.maximum(a[0], b[0])
    keep = (a[0] - m).exp(), (b[0] - m).exp()
    return m, keep[0] * a[1] + keep[1] * b[1], keep[0] * a[2] + keep[1] * b[2]


@mutant("10.1", "your function changes its argument a")
def merge_into_a(a, b):
    m = torch.maximum(a[0], b[0])
    a[1].mul_(kept(a[0], m)).add_(kept(b[0], m) * b[1])
    a[2].mul_(kept(a[0], m)).add_(kept(b[0], m) * b[2])
    a[0].copy_(m)
    return a


@mutant("10.1", "return three things: m, l, o")
def merge_that_finishes(a, b):
    m = torch.maximum(a[0], b[0])
    total = kept(a[0], m) * a[1] + kept(b[0], m) * b[1]
    return m, (kept(a[0], m) * a[2] + kept(b[0], m) * b[2]) / total


@mutant("10.1", "return float64, not float32")
def merge_in_single_precision(a, b):
    (m_a, l_a, o_a), (m_b, l_b, o_b) = (tuple(x.float() for x in part) for part in (a, b))
    m = torch.maximum(m_a, m_b)
    return m, kept(m_a, m) * l_a + kept(m_b, m) * l_b, kept(m_a, m) * o_a + kept(m_b, m) * o_b


@variant("10.1")
def merge_by_stacking(a, b):
    m = torch.stack([a[0], b[0]])  # (2, ..., 1)
    top = m.amax(0)
    keep = (m - top).exp().nan_to_num(0.0)
    return top, (keep * torch.stack([a[1], b[1]])).sum(0), (keep * torch.stack([a[2], b[2]])).sum(0)


@variant("10.1")
def merge_by_where(a, b):
    higher = a[0] >= b[0]
    top, low = torch.where(higher, a[0], b[0]), torch.where(higher, b[0], a[0])
    keep = torch.where(low.isinf(), torch.zeros_like(low), (low - top).exp())
    keep_a, keep_b = torch.where(higher, torch.ones_like(keep), keep), torch.where(higher, keep, torch.ones_like(keep))
    return top, keep_a * a[1] + keep_b * b[1], keep_a * a[2] + keep_b * b[2]


# 10.2 one_row


def tiles(q, k, v, block, *, scale=None, m=-math.inf, end=None):
    """The pieces of a loop: for each tile its maximum, sum and accumulator."""
    scale = math.sqrt(len(q)) if scale is None else scale
    for start in range(0, len(k) if end is None else end, block):
        scores = k[start : start + block] @ q / scale
        top = scores.max()
        yield top, (scores - top).exp().sum(), (scores - top).exp() @ v[start : start + block]


def joined(parts, q, m=-math.inf):
    total, mix, m = q.new_zeros(()), torch.zeros_like(q), q.new_tensor(m)
    for top, its_total, its_mix in parts:
        larger = torch.maximum(m, top)
        keep, its = (m - larger).exp(), (top - larger).exp()
        m, total, mix = larger, keep * total + its * its_total, keep * mix + its * its_mix
    return mix / total


@mutant("10.2", "divide the scores by the square root of Dh")
def row_without_scale(q, k, v, block):
    return joined(tiles(q, k, v, block, scale=1.0), q)


@mutant("10.2", "divide o by l at the end")
def row_not_divided(q, k, v, block):
    scores = k @ q / math.sqrt(len(q))
    return (scores - scores.max()).exp() @ v


@mutant("10.2", "the last tile may be shorter")
def row_without_the_last_short_tile(q, k, v, block):
    whole = len(k) // block * block or len(k)
    return joined(tiles(q, k[:whole], v[:whole], block), q)


@mutant("10.2", "divide by l once, after the last tile")
def row_that_adds_results_of_tiles(q, k, v, block):
    return sum(mix / total for _, total, mix in tiles(q, k, v, block))


@mutant("10.2", "a mean of the tiles' results is something else")
def row_as_the_mean_of_its_tiles(q, k, v, block):
    return torch.stack([mix / total for _, total, mix in tiles(q, k, v, block)]).mean(0)


@mutant("10.2", "its own sums shrink in merge")
def row_in_which_every_tile_counts_the_same(q, k, v, block):
    parts = list(tiles(q, k, v, block))
    return sum(mix for *_, mix in parts) / sum(total for _, total, _ in parts)


@mutant("10.2", "merge rescales what came before")
def row_without_rescaling(q, k, v, block):
    total, mix, m = 0.0, 0.0, q.new_tensor(-math.inf)
    for top, its_total, its_mix in tiles(q, k, v, block):
        m = torch.maximum(m, top)
        total, mix = total + (top - m).exp() * its_total, mix + (top - m).exp() * its_mix
    return mix / total


@mutant("10.2", "the maximum starts at -inf, not at 0")
def row_that_starts_at_zero(q, k, v, block):
    return joined(tiles(q, k, v, block), q, m=0.0)


@mutant("10.2", "exp overflows")
def row_without_a_maximum(q, k, v, block):
    total = mix = 0.0
    for start in range(0, len(k), block):
        weights = (k[start : start + block] @ q / math.sqrt(len(q))).exp()
        total, mix = total + weights.sum(), mix + weights @ v[start : start + block]
    return mix / total.clamp(min=1e-30) if total < 1e-30 else mix / total


@mutant("10.2", "the row of all scores must never exist")
def row_that_makes_all_scores_first(q, k, v, block):
    scores = k @ q / math.sqrt(len(q))
    return torch.softmax(scores, 0) @ v


@variant("10.2")
def row_that_collects_and_joins(q, k, v, block):
    return joined(list(tiles(q, k, v, block)), q)


@variant("10.2")
def row_key_by_key_in_its_tiles(q, k, v, block):
    m, total, mix = q.new_full((1,), -torch.inf), q.new_zeros(1), torch.zeros_like(q)
    for keys, values in zip(k.split(block), v.split(block)):
        scores = keys @ q * len(q) ** -0.5
        larger = torch.maximum(m, scores.max())
        weights = (scores - larger).exp()
        total, mix = (m - larger).exp() * total + weights.sum(), (m - larger).exp() * mix + weights @ values
        m = larger
    return mix / total


# 10.3 traffic


def counted(T, S, head_dim, causal, block_q, size, *, tiles=None, after=None, queries=1, values=2, store=1):
    ends = [min(first + block_q, T) for first in range(0, T, block_q)] if tiles is None else tiles
    past = S - T if after is None else after
    keys = sum(past + end if causal else S for end in ends)
    return (queries * T + values * keys) * head_dim * size, store * T * head_dim * size


@mutant("10.3", "round T / block_q up")
def traffic_rounded_down(T, S, head_dim, causal, block_q, size):
    n = max(1, T // block_q)
    return counted(T, S, head_dim, causal, block_q, size, tiles=[min((i + 1) * block_q, T) for i in range(n)])


@mutant("10.3", "7 · 10 each of k and v")
def traffic_without_the_values(*sizes):
    return counted(*sizes, values=1)


@mutant("10.3", "4 · 10 numbers of q")
def traffic_without_the_queries(*sizes):
    return counted(*sizes, queries=0)


@mutant("10.3", "scores stay on the chip")
def traffic_with_the_scores(T, S, head_dim, causal, block_q, size):
    loaded, stored = counted(T, S, head_dim, causal, block_q, size)
    return loaded + T * S * size, stored + T * S * size


@mutant("10.3", "and no scores")
def traffic_that_stores_the_scores(T, S, head_dim, causal, block_q, size):
    loaded, stored = counted(T, S, head_dim, causal, block_q, size)
    return loaded, stored + T * S * size


@mutant("10.3", "every tile of queries loads all keys and values once")
def traffic_that_loads_the_keys_once(T, S, head_dim, causal, block_q, size):
    return counted(T, S, head_dim, causal, T, size)


@mutant("10.3", "loads its own queries only")
def traffic_that_loads_all_queries_for_each_tile(T, S, head_dim, causal, block_q, size):
    return counted(T, S, head_dim, causal, block_q, size, queries=-(-T // block_q))


@mutant("10.3", "and loads 2 keys, the second loads 4")
def traffic_with_half_of_everything(T, S, head_dim, causal, block_q, size):
    loaded, stored = counted(T, S, head_dim, False, block_q, size)
    return (T * head_dim * size + (loaded - T * head_dim * size) / 2 if causal else loaded), stored


@mutant("10.3", "min(first + block_q, T)")
def traffic_over_the_end(T, S, head_dim, causal, block_q, size):
    return counted(T, S, head_dim, causal, block_q, size, tiles=[first + block_q for first in range(0, T, block_q)])


@mutant("10.3", "a tile sees S - T + end keys")
def traffic_that_forgets_the_cache(*sizes):
    return counted(*sizes, after=0)


@mutant("10.3", "each number takes bytes_per_number")
def traffic_in_numbers(T, S, head_dim, causal, block_q, size):
    return counted(T, S, head_dim, causal, block_q, 1)


@mutant("10.3", "in the output as well")
def traffic_that_stores_numbers(T, S, head_dim, causal, block_q, size):
    return counted(T, S, head_dim, causal, block_q, size)[0], T * head_dim


@mutant("10.3", "return both: loaded, stored")
def traffic_as_one_number(*sizes):
    return sum(counted(*sizes))


@variant("10.3")
def traffic_by_row(T, S, head_dim, causal, block_q, size):
    loaded = 0
    for t in range(T):
        loaded += head_dim
        if t % block_q == block_q - 1 or t == T - 1:
            loaded += 2 * head_dim * (S - T + t + 1 if causal else S)
    return loaded * size, T * head_dim * size


# 10.4 masked_tile


def tile_of(q, k, v, mask, *, fill=-torch.inf, scale=None, finite=True):
    scores = (q @ k.T / (scale or math.sqrt(q.shape[1]))).masked_fill(~mask, fill)
    m = scores.amax(1, keepdim=True)
    weights = (scores - (m.clamp(min=-1e30) if finite else m)).exp()
    return m, weights.sum(1, keepdim=True), weights @ v


@mutant("10.4", "exp(-inf - (-inf)) is NaN")
def tile_with_a_nan_row(q, k, v, mask):
    return tile_of(q, k, v, mask, finite=False)


@mutant("10.4", "makes a maximum out of nothing")
def tile_masked_with_minus_a_billion(q, k, v, mask):
    return tile_of(q, k, v, mask, fill=-1e9)


@mutant("10.4", "a score of 0 would still add exp(0)")
def tile_with_scores_times_mask(q, k, v, mask):
    return tile_of(q, k, v, mask, fill=0.0)


@mutant("10.4", "True in the mask means")
def tile_with_the_mask_inverted(q, k, v, mask):
    return tile_of(q, k, v, ~mask)


@mutant("10.4", "mask first, and take the maximum of what is left")
def tile_masked_after_the_maximum(q, k, v, mask):
    scores = q @ k.T / math.sqrt(q.shape[1])
    m = scores.amax(1, keepdim=True)
    weights = (scores - m).exp() * mask
    return m, weights.sum(1, keepdim=True), weights @ v


@mutant("10.4", "each row has a maximum of its own")
def tile_with_one_maximum(q, k, v, mask):
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -torch.inf)
    weights = (scores - scores.max()).exp()
    return scores.max().expand(len(q), 1).clone(), weights.sum(1, keepdim=True), weights @ v


@mutant("10.4", "divide the scores by the square root of Dh")
def tile_without_scale(q, k, v, mask):
    return tile_of(q, k, v, mask, scale=1.0)


@mutant("10.4", "it is not divided yet")
def tile_already_divided(q, k, v, mask):
    m, total, mix = tile_of(q, k, v, mask)
    return m, total, mix / total.clamp(min=1)


@mutant("10.4", "an axis is missing")
def tile_without_keepdim(q, k, v, mask):
    m, total, mix = tile_of(q, k, v, mask)
    return m[:, 0], total[:, 0], mix


@variant("10.4")
def tile_by_where(q, k, v, mask):
    scores = torch.where(mask, q @ k.T * q.shape[1] ** -0.5, torch.tensor(-math.inf, dtype=q.dtype))
    m = scores.max(dim=1, keepdim=True).values
    weights = (scores - m).exp().nan_to_num(0.0)
    return m, weights.sum(dim=1, keepdim=True), weights @ v


@variant("10.4")
def tile_by_the_fused_kernel(q, k, v, mask):
    """The mean from somebody else, and the sum back from the log-sum-exp."""
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -torch.inf)
    m, log_sum = scores.amax(1, keepdim=True), scores.logsumexp(1, keepdim=True)
    total = (log_sum - m).exp().nan_to_num(0.0)
    mean = F.scaled_dot_product_attention(q[None], k[None], v[None], mask[None])[0].nan_to_num(0.0)
    return m, total, mean * total


# 10.5 diagnosis


@mutant("10.5", "look at A again")
def diagnosis_with_tail_and_rescale_exchanged():
    return {"A": "no rescale", "B": "open diagonal", "C": "no tail"}


@mutant("10.5", "look at B again")
def diagnosis_with_diagonal_and_rescale_exchanged():
    return {"A": "no tail", "B": "no rescale", "C": "open diagonal"}


@mutant("10.5", "look at A again")
def diagnosis_with_tail_and_diagonal_exchanged():
    return {"A": "open diagonal", "B": "no tail", "C": "no rescale"}


@mutant("10.5", "look at C again")
def diagnosis_of_one_mistake_for_all():
    return {"C": "no tail", "B": "no tail", "A": "no tail"}


@mutant("10.5", "name the mistakes as the list above does")
def diagnosis_in_other_words():
    return {"A": "tail", "B": "diagonal", "C": "rescale"}


@mutant("10.5", "return a dict with the letters A, B, C as keys")
def diagnosis_without_c():
    return {"A": "no tail", "B": "open diagonal"}


@variant("10.5")
def diagnosis_in_another_order():
    return dict(zip("CBA", ("no rescale", "open diagonal", "no tail")))
