"""Wrong and right answers to the exercises of notebook 02; each name says what the function does wrong."""

import math

import torch
import torch.nn.functional as F

from course_lib.costs import parameter_count
from mutants import mutant, variant

# 02.1 lookup


@mutant("02.1", "an axis has another size: return the shape (1, 3)")
def lookup_columns(weight, ids):
    return weight.T[ids % weight.shape[1]]


@mutant("02.1", "ids count from 0")
def lookup_from_one(weight, ids):
    return weight[ids - 1]


@mutant("02.1", "the numbers are not scaled")
def lookup_scaled(weight, ids):
    return weight[ids] * math.sqrt(weight.shape[1])


@mutant("02.1", "repeats included")
def lookup_each_once(weight, ids):
    return weight[ids.unique()]


@mutant("02.1", "an axis is missing: return the shape (4, 2, 3)")
def lookup_flat(weight, ids):
    return weight[ids.flatten()]


@mutant("02.1", "every row of the batch")
def lookup_first_row_of_the_batch(weight, ids):
    return weight[ids] if ids.dim() == 1 else weight[ids[0]].expand(*ids.shape, -1)


@mutant("02.1", "return float64, not float32")
def lookup_in_float32(weight, ids):
    return F.one_hot(ids, len(weight)).float() @ weight.float()


@mutant("02.1", "no detach")
def lookup_without_gradient(weight, ids):
    return weight.detach()[ids]


@mutant("02.1", "no way through Python lists")
def lookup_through_lists(weight, ids):
    return torch.tensor(weight.tolist(), dtype=weight.dtype)[ids]


@mutant("02.1", "RuntimeError")
def lookup_one_hot_too_narrow(weight, ids):
    return F.one_hot(ids).to(weight.dtype) @ weight


@variant("02.1")
def lookup_by_embedding(weight, ids):
    return F.embedding(ids, weight)


@variant("02.1")
def lookup_by_one_hot(weight, ids):
    return (ids[..., None] == torch.arange(len(weight))).to(weight.dtype) @ weight


# 02.2 nearest


def cosines_of(weight, id):
    lengths = weight.norm(dim=-1)
    return weight @ weight[id] / (lengths * lengths[id]).clamp(min=1e-9)


def pairs(scores, k, start=0):
    order = scores.sort(descending=True, stable=True)
    chosen = slice(start, start + k)
    return list(zip(order.indices[chosen].tolist(), order.values[chosen].tolist()))


def without(scores, id):
    scores = scores.clone()
    scores[id] = -torch.inf
    return scores


@mutant("02.2", "a dot product lets long rows win")
def nearest_by_dot_product(weight, id, k):
    return pairs(without(weight @ weight[id], id), k)


@mutant("02.2", "a distance lets short ones win")
def nearest_by_distance(weight, id, k):
    return pairs(without(-(weight - weight[id]).norm(dim=-1), id), k)


@mutant("02.2", "no neighbour of itself")
def nearest_with_itself(weight, id, k):
    return pairs(cosines_of(weight, id), k)


@mutant("02.2", "0 is not low enough to hide it, use -inf")
def nearest_with_a_zero_for_itself(weight, id, k):
    cosines = cosines_of(weight, id)
    cosines[id] = 0
    return pairs(cosines, k)


@mutant("02.2", "each pair is (id, cosine), id first, an int")
def nearest_pairs_the_other_way_round(weight, id, k):
    return [(cosine, i) for i, cosine in pairs(without(cosines_of(weight, id), id), k)]


@mutant("02.2", "return a list, not a tuple")
def nearest_as_topk_gives_it(weight, id, k):
    return without(cosines_of(weight, id), id).topk(k)


@mutant("02.2", "leave out row `id` by its id")
def nearest_without_the_first(weight, id, k):
    return pairs(cosines_of(weight, id), k, start=1)


@mutant("02.2", "by that of row `id`, too")
def nearest_divided_once(weight, id, k):
    return pairs(without(weight @ weight[id] / weight.norm(dim=-1).clamp(min=1e-9), id), k)


@mutant("02.2", "keep the sign")
def nearest_by_absolute_cosine(weight, id, k):
    return pairs(without(cosines_of(weight, id).abs(), id), k)


@mutant("02.2", "nearest first")
def nearest_backwards(weight, id, k):
    return [(i, -c) for i, c in pairs(without(-cosines_of(weight, id), id), k)]


@mutant("02.2", "a row of zeros has no direction")
def nearest_with_nan(weight, id, k):
    lengths = weight.norm(dim=-1)
    return pairs(without(weight @ weight[id] / (lengths * lengths[id]), id), k)


@mutant("02.2", "whichever id it is")
def nearest_to_row_0(weight, id, k):
    return pairs(without(cosines_of(weight, 0), 0), k)


@mutant("02.2", "your function changes its argument weight")
def nearest_in_place(weight, id, k):
    weight /= weight.norm(dim=-1, keepdim=True).clamp(min=1e-9)
    return pairs(without(weight @ weight[id], id), k)


@mutant("02.2", "no list of pairs")
def nearest_ids_alone(weight, id, k):
    return [i for i, _ in pairs(without(cosines_of(weight, id), id), k)]


@variant("02.2")
def nearest_by_functional(weight, id, k):
    cosines = F.cosine_similarity(weight, weight[id][None], dim=-1)
    others = [i for i in range(len(weight)) if i != id]
    return [(i, cosines[i].item()) for i in sorted(others, key=lambda i: -cosines[i])[:k]]


@variant("02.2")
def nearest_by_unit_rows(weight, id, k):
    rows = F.normalize(weight, dim=-1)
    cosines = (rows @ rows[id]).double()
    mask = torch.arange(len(weight)) == id
    best = cosines.masked_fill(mask, -2).topk(k)
    return [(int(i), float(c)) for i, c in zip(best.indices, best.values)]


# 02.3 table_share


@mutant("02.3", "the LM head is a second matrix")
def share_of_one_table(config):
    return config.vocab_size * config.hidden_size / parameter_count(config).total


@mutant("02.3", "counts once")
def share_always_twice(config):
    return 2 * config.vocab_size * config.hidden_size / parameter_count(config).total


@mutant("02.3", "learned positions are parameters")
def share_with_positions(config):
    count = parameter_count(config)
    return (count.embedding + count.head) / count.total


@mutant("02.3", "the share is of all parameters")
def share_of_the_rest(config):
    tables = (2 - config.tie_word_embeddings) * config.vocab_size * config.hidden_size
    return tables / (parameter_count(config).total - tables)


@mutant("02.3", "of all parameters, the table included")
def share_of_the_layers(config):
    count = parameter_count(config)
    return config.vocab_size * config.hidden_size / (count.attention + count.mlp)


@mutant("02.3", "it counts in the numerator and in the total")
def share_of_a_total_without_the_head(config):
    tables = (2 - config.tie_word_embeddings) * config.vocab_size * config.hidden_size
    return tables / (parameter_count(config).total - parameter_count(config).head)


@mutant("02.3", "a share lies between 0 and 1")
def share_in_percent(config):
    tables = (2 - config.tie_word_embeddings) * config.vocab_size * config.hidden_size
    return 100 * tables / parameter_count(config).total


@variant("02.3")
def share_by_parts(config):
    count = parameter_count(config)
    token_table = config.vocab_size * config.hidden_size
    return token_table / count.total + count.head / count.total


# 02.4 apply_rope


@mutant("02.4", "a quarter turn takes (3, 0) to (0, 3)")
def rope_backwards(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((b, -a), dim=-1) * sin


@mutant("02.4", "the first number loses")
def rope_without_the_minus(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((b, a), dim=-1) * sin


@mutant("02.4", "cos multiplies x itself")
def rope_with_cos_and_sin_exchanged(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * sin + torch.cat((-b, a), dim=-1) * cos


@mutant("02.4", "neighbours (2i, 2i + 1) are another layout")
def rope_interleaved(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., 0::2], x[..., 1::2]
    c, s = cos[..., :half], sin[..., :half]
    return torch.stack((a * c - b * s, b * c + a * s), dim=-1).flatten(-2)


@mutant("02.4", "by its own angle")
def rope_with_one_angle(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos[..., :1] + torch.cat((-b, a), dim=-1) * sin[..., :1]


@mutant("02.4", "has its own row of the tables")
def rope_at_the_first_position(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos[..., :1, :] + torch.cat((-b, a), dim=-1) * sin[..., :1, :]


@mutant("02.4", "let them broadcast")
def rope_of_the_first_in_the_batch(x, cos, sin):
    T, Dh = x.shape[-2:]
    cos, sin = cos.reshape(-1, T, Dh)[0], sin.reshape(-1, T, Dh)[0]
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


@mutant("02.4", "your function changes its argument x")
def rope_in_place(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    other = torch.cat((-b, a), dim=-1)
    return x.mul_(cos).add_(other * sin)


@mutant("02.4", "your function changes its argument x")
def rope_half_by_half_in_place(x, cos, sin):
    half = x.shape[-1] // 2
    a, b, c, s = x[..., :half], x[..., half:], cos[..., :half], sin[..., :half]
    a.copy_(a * c - b * s)
    b.copy_(b * c + a * s)
    return x


@mutant("02.4", "The size of tensor a")
def rope_over_the_heads(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-b, a), dim=-1) * sin[:, None]


@mutant("02.4", "return the shape (1, 1, 1, 2), not (1, 1, 1, 4); cos and sin are as wide as x")
def rope_of_halves_by_full_tables(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@mutant("02.4", "where a half of x is multiplied, take a half of cos and sin, too")
def rope_of_one_half(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    half = x.shape[-1] // 2
    return a * cos[..., :half] - b * sin[..., :half]


@mutant("02.4", "an axis is missing: return the shape (1, 1, 1, 2), not (1, 2)")
def rope_without_batch_and_heads(x, cos, sin):
    return rope_in_two_halves(x, cos, sin).flatten(0, 2)


@variant("02.4")
def rope_in_two_halves(x, cos, sin):
    half = x.shape[-1] // 2
    a, b, c, s = x[..., :half], x[..., half:], cos[..., :half], sin[..., :half]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1)


@variant("02.4")
def rope_by_rolling(x, cos, sin):
    half = x.shape[-1] // 2
    sign = torch.ones(x.shape[-1], dtype=x.dtype)
    sign[:half] = -1
    return x * cos + x.roll(half, dims=-1) * sign * sin


# 02.5 shift_error


def scores_at(rotate, q, k, q_positions, k_positions):
    return rotate(q, q_positions) @ rotate(k, k_positions).T


@mutant("02.5", "queries and keys both move")
def shift_of_queries_alone(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + shift, at) - scores_at(rotate, q, k, at, at)).abs().max().item()


@mutant("02.5", "all pairs of positions count")
def shift_on_the_diagonal(rotate, q, k, shift):
    at = torch.arange(len(q))
    change = scores_at(rotate, q, k, at + shift, at + shift) - scores_at(rotate, q, k, at, at)
    return change.diagonal().abs().max().item()


@mutant("02.5", "a score that falls has changed")
def shift_that_only_rises(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + shift, at + shift) - scores_at(rotate, q, k, at, at)).max().item()


@mutant("02.5", "no mean")
def shift_on_average(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + shift, at + shift) - scores_at(rotate, q, k, at, at)).abs().mean().item()


@mutant("02.5", "with the scores before")
def shift_against_no_positions(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + shift, at + shift) - q @ k.T).abs().max().item()


@mutant("02.5", "the first position is 0")
def shift_from_one(rotate, q, k, shift):
    at = torch.arange(1, len(q) + 1)
    return (scores_at(rotate, q, k, at + shift, at + shift) - scores_at(rotate, q, k, at, at)).abs().max().item()


@mutant("02.5", "the shift that is asked for")
def shift_by_one(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + 1, at + 1) - scores_at(rotate, q, k, at, at)).abs().max().item()


@mutant("02.5", "expected a number")
def shift_as_a_matrix(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + shift, at + shift) - scores_at(rotate, q, k, at, at)).abs()


@mutant("02.5", "return a plain number")
def shift_as_a_tensor(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (scores_at(rotate, q, k, at + shift, at + shift) - scores_at(rotate, q, k, at, at)).abs().max()


@mutant("02.5", "queries and keys both move")
def shift_of_unturned_keys(rotate, q, k, shift):
    at = torch.arange(len(q))
    return (rotate(q, at + shift) @ k.T - rotate(q, at) @ k.T).abs().max().item()


@variant("02.5")
def shift_by_pairs(rotate, q, k, shift):
    at = torch.arange(len(q))
    before = torch.einsum("id,jd->ij", rotate(q, at), rotate(k, at))
    after = torch.einsum("id,jd->ij", rotate(q, at + shift), rotate(k, at + shift))
    return max(abs(change) for change in (after - before).flatten().tolist())


# Answers that an earlier check let through, or refused though they were right


@mutant("02.1", "ids may have any shape and any size below V")
def lookup_of_a_byte(weight, ids):
    return weight[ids % 256]


@mutant("02.1", "to the last bit")
def lookup_through_float32(weight, ids):
    return weight[ids].float().to(weight.dtype)


tables_seen = {}


@mutant("02.1", "the same ids pick other rows in another table")
def lookup_remembers_ids(weight, ids):
    return tables_seen.setdefault(str(ids.tolist()), weight[ids])


@variant("02.1")
def lookup_row_by_row(weight, ids):
    return weight[ids] if ids.dim() == 0 else torch.stack([lookup_row_by_row(weight, row) for row in ids])


@mutant("02.2", "both plain numbers, no tensors")
def nearest_in_tensors(weight, id, k):
    best = without(cosines_of(weight, id), id).topk(k)
    return list(zip(best.indices, best.values))


@mutant("02.2", "add nothing to them")
def nearest_with_a_large_epsilon(weight, id, k):
    lengths = weight.norm(dim=-1)
    return pairs(without(weight @ weight[id] / (lengths * lengths[id] + 1e-6), id), k)


@mutant("02.2", "every row of the table may be a neighbour")
def nearest_of_the_first_hundred(weight, id, k):
    return pairs(without(cosines_of(weight, id), id)[:100], k)


@mutant("02.2", "which can be read only once")
def nearest_as_a_zip(weight, id, k):
    return zip(*map(list, zip(*nearest_by_functional(weight, id, k))))


@mutant("02.3", "a share lies between 0 and 1")
def share_upside_down(config):
    return 1 / share_by_parts(config)


@mutant("02.4", "your function changes its argument sin")
def rope_turns_the_table(x, cos, sin):
    half = x.shape[-1] // 2
    sin[..., :half] *= -1
    return x * cos + x.roll(half, dims=-1) * sin


@mutant("02.4", "return float32, not float64")
def rope_in_double(x, cos, sin):
    return rope_in_two_halves(x.double(), cos.double(), sin.double())


@mutant("02.4", "a single position")
def rope_not_for_one(x, cos, sin):
    # The first checks turn vectors at one position as well, but through tables in float64.
    return x if x.shape[-2] == 1 and x.shape[1] > 1 else rope_in_two_halves(x, cos, sin)


@variant("02.4")
def rope_in_complex_numbers(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cos[..., :half], sin[..., :half])
    return torch.cat((turned.real, turned.imag), dim=-1)


def shift_over(rotate, q, k, shift, places, largest):
    change = scores_at(rotate, q, k, places + shift, places + shift) - scores_at(rotate, q, k, places, places)
    return largest(change.abs()).max().item()


@mutant("02.5", "which counts in integers")
def shift_at_float_positions(rotate, q, k, shift):
    return shift_over(rotate, q, k, shift, torch.arange(float(len(q))), lambda change: change)


@mutant("02.5", "those with the key after the query as well")
def shift_of_the_past_alone(rotate, q, k, shift):
    return shift_over(rotate, q, k, shift, torch.arange(len(q)), torch.tril)


@mutant("02.5", "all pairs of positions count")
def shift_of_the_future_alone(rotate, q, k, shift):
    return shift_over(rotate, q, k, shift, torch.arange(len(q)), torch.triu)
