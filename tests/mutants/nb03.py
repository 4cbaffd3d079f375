"""Wrong and right answers to the exercises of notebook 03; each name says what the function does wrong."""

import math

import numpy
import torch
import torch.nn.functional as F

from mutants import mutant, variant

# 03.1 attention_weights


@mutant("03.1", "divide the scores by the square root of Dh")
def weights_without_scale(q, k, mask):
    weights = (q @ k.transpose(-1, -2)).masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


@mutant("03.1", "divide the scores by the square root of Dh")
def weights_divided_by_the_size(q, k, mask):
    scores = q @ k.transpose(-1, -2) / q.shape[-1]
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


@mutant("03.1", "divide the scores by the square root of Dh")
def weights_scaled_by_the_number_of_keys(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(k.shape[-2])
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


@mutant("03.1", "softmax runs over the keys")
def weights_over_the_queries(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -torch.inf).softmax(-2).masked_fill(~mask, 0.0)


@mutant("03.1", "a score of 0 still weighs exp(0)")
def weights_of_scores_times_mask(q, k, mask):
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) * mask).softmax(-1)


@mutant("03.1", "the rest sum to 1")
def weights_zeroed_after_the_softmax(q, k, mask):
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) * mask


@mutant("03.1", "True in the mask means")
def weights_with_the_mask_inverted(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@mutant("03.1", "a masked key gets weight 0")
def weights_without_mask(q, k, mask):
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)


@mutant("03.1", "not a number that seems large enough")
def weights_masked_with_minus_20(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -20.0).softmax(-1)


@mutant("03.1", "softmax gives NaN there if all scores are -inf")
def weights_with_a_nan_row(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


@mutant("03.1", "equal shares if all are the same large negative number")
def weights_with_a_uniform_row(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)


@mutant("03.1", "equal shares if all are the same large negative number")
def weights_masked_with_minus_a_billion(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -1e9).softmax(-1)


@mutant("03.1", "set no smallest value for it")
def weights_with_a_sum_that_is_never_tiny(q, k, mask):
    powers = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-9)


@mutant("03.1", "add nothing to their sum")
def weights_with_something_added_to_the_sum(q, k, mask):
    powers = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).exp() * mask
    return powers / (powers.sum(-1, keepdim=True) + 1e-12)


@mutant("03.1", "exp of a large score overflows")
def weights_by_a_naive_softmax(q, k, mask):
    powers = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


@mutant("03.1", "every batch row and every head has scores of its own")
def weights_of_the_first_batch_row(q, k, mask):
    scores = (q[:1] @ k[:1].transpose(-1, -2) / math.sqrt(q.shape[-1])).expand(len(q), -1, -1, -1)
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


@variant("03.1")
def weights_by_einsum_and_a_bias(q, k, mask):
    bias = torch.zeros(mask.shape).masked_fill(mask.logical_not(), float("-inf"))
    scores = torch.einsum("bhtd,bhsd->bhts", q * q.shape[-1] ** -0.5, k) + bias
    return torch.softmax(scores, dim=-1).nan_to_num(0.0)


@variant("03.1")
def weights_by_the_fused_kernel(q, k, mask):
    return F.scaled_dot_product_attention(q, k, torch.eye(k.shape[2]).expand(*k.shape[:2], -1, -1), mask)


# 03.2 causal_mask


@mutant("03.2", "a single one sees everything")
def mask_at_the_top_left(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


@mutant("03.2", "each sees itself")
def mask_without_oneself(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T - 1)


@mutant("03.2", "nothing later")
def mask_of_the_future(T, S):
    return torch.ones(T, S, dtype=torch.bool).triu(S - T)


@mutant("03.2", "nothing later")
def mask_of_everything(T, S):
    return torch.ones(T, S, dtype=torch.bool)


@mutant("03.2", "return bool, not float32")
def mask_of_numbers(T, S):
    return torch.ones(T, S).tril(S - T)


@mutant("03.2", "the triangle sits at the bottom right")
def mask_that_opens_for_one_query_only(T, S):
    return torch.ones(T, S, dtype=torch.bool) if T == 1 else torch.ones(T, S, dtype=torch.bool).tril()


@mutant("03.2", "the triangle sits at the bottom right")
def mask_open_for_every_query_with_a_cache(T, S):
    return torch.ones(T, S, dtype=torch.bool) if T < S else torch.ones(T, S, dtype=torch.bool).tril()


@variant("03.2")
def mask_by_the_second_argument(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


@variant("03.2")
def mask_by_the_last_rows(T, S):
    return torch.ones(S, S, dtype=torch.bool).tril()[S - T:]


# 03.3 split_heads


@mutant("03.3", "mixes tokens")
def split_by_a_view_alone(x, num_heads):
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


@mutant("03.3", "Dh neighbouring numbers")
def split_interleaved(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


@mutant("03.3", "the result is (B, H, T, Dh)")
def split_without_exchanging_axes(x, num_heads):
    return x.unflatten(-1, (num_heads, -1))


@mutant("03.3", "the result is (B, H, T, Dh)")
def split_into_heads_of_that_size(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).transpose(1, 2)


@mutant("03.3", "the result is (B, H, T, Dh)")
def split_transposed_too_far(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).permute(0, 2, 3, 1)


@mutant("03.3", "batch rows stay apart")
def split_the_first_row_only(x, num_heads):
    return x[:1].unflatten(-1, (num_heads, -1)).transpose(1, 2).expand(len(x), -1, -1, -1)


@variant("03.3")
def split_by_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


@variant("03.3")
def split_by_a_view_and_a_permutation(x, num_heads):
    B, T, D = x.shape
    return x.view(B, T, num_heads, D // num_heads).permute(0, 2, 1, 3).contiguous()


# 03.4 repeat_kv


@mutant("03.4", "tiling gives")
def repeat_by_tiling(x, groups):
    return x.repeat(1, groups, 1, 1)


@mutant("03.4", "there is an axis too many: return the shape (1, 6, 1, 1)")
def repeat_with_an_axis_too_many(x, groups):
    return x[:, :, None].expand(-1, -1, groups, -1, -1)


@mutant("03.4", "four axes")
def repeat_along_the_positions(x, groups):
    return x.repeat_interleave(groups, dim=2)


@mutant("03.4", "Hkv * groups heads in all")
def repeat_twice_always(x, groups):
    return x.repeat_interleave(2, dim=1)


@mutant("03.4", "only the axis of heads grows")
def repeat_with_positions_and_sizes_exchanged(x, groups):
    B, Hkv, S, Dh = x.shape
    return x[:, :, None].expand(-1, -1, groups, -1, -1).reshape(B, Hkv * groups, Dh, S).transpose(2, 3)


@mutant("03.4", "only the axis of heads grows")
def repeat_the_first_batch_row(x, groups):
    return x[:1].repeat_interleave(groups, dim=1).expand(len(x), -1, -1, -1)


@variant("03.4")
def repeat_by_expanding(x, groups):
    return x[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)


@variant("03.4")
def repeat_by_indexing(x, groups):
    return x[:, [h // groups for h in range(x.shape[1] * groups)]]


# 03.5 induction_scores


@mutant("03.5", "two slices take a block")
def induction_over_a_block(attentions, n):
    return attentions[:, :, :, n : 2 * n - 1, 1:n].mean((1, 3, 4))


@mutant("03.5", "two slices take a block")
def induction_summed_over_a_block(attentions, n):
    return attentions[..., n : 2 * n - 1, 1:n].sum(-1).mean((1, 3))


@mutant("03.5", "the query's own token")
def induction_at_the_same_token(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i, i - n].mean((1, 3))


@mutant("03.5", "looking at the previous token is no induction")
def induction_at_the_previous_token(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i, i - 1].mean((1, 3))


@mutant("03.5", "does not count")
def induction_over_all_queries(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i, i - n + 1].sum(3).mean(1) / (2 * n)


@mutant("03.5", "nor the last position")
def induction_with_the_last_position(attentions, n):
    return attentions.diagonal(1 - n, -2, -1)[..., 1:].mean((1, 3))


@mutant("03.5", "rows are queries, columns are keys")
def induction_of_the_transposed(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i - n + 1, i].mean((1, 3))


@mutant("03.5", "the result is (L, H)")
def induction_heads_by_layers(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i, i - n + 1].mean((1, 3)).T


@mutant("03.5", "the mean over the n - 1 queries")
def induction_at_the_best_query(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[..., i, i - n + 1].amax(3).mean(1)


@mutant("03.5", "the mean over the batch")
def induction_of_the_first_row(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return attentions[:, 0][..., i, i - n + 1].mean(-1)


@mutant("03.5", "the share of attention")
def induction_by_the_largest_weight(attentions, n):
    i = torch.arange(n, 2 * n - 1)
    return (attentions.argmax(-1)[..., i] == i - n + 1).float().mean((1, 3))


@variant("03.5")
def induction_by_loops(attentions, n):
    L, B, H = attentions.shape[:3]
    rows = [[sum(attentions[layer, b, h, i, i - n + 1].item() for b in range(B) for i in range(n, 2 * n - 1))
             / (B * (n - 1)) for h in range(H)] for layer in range(L)]
    return torch.tensor(rows)


@variant("03.5")
def induction_along_a_diagonal(attentions, n):
    return attentions.diagonal(1 - n, -2, -1)[..., 1:-1].mean(-1).mean(1)


# 03.6 zero_heads


def zeroed(merged, heads, num_heads, *, parts=lambda y, H: y.unflatten(-1, (H, -1)), value=0.0):
    y = merged.clone()
    parts(y, num_heads)[:, :, heads] = value
    return y


@mutant("03.6", "your function changes its argument merged")
def zero_in_the_input_itself(merged, heads, num_heads):
    merged.view(*merged.shape[:2], num_heads, -1)[:, :, heads] = 0
    return merged


@mutant("03.6", "head h has Dh neighbouring numbers")
def zero_every_hth_number(merged, heads, num_heads):
    return zeroed(merged, heads, num_heads, parts=lambda y, H: y.unflatten(-1, (-1, H)).transpose(2, 3))


@mutant("03.6", "head h has Dh neighbouring numbers")
def zero_one_number_per_head(merged, heads, num_heads):
    y = merged.clone()
    y[..., heads] = 0
    return y


@mutant("03.6", "head h has Dh neighbouring numbers")
def zero_the_heads_that_should_stay(merged, heads, num_heads):
    return zeroed(merged, [h for h in range(num_heads) if h not in heads], num_heads)


@mutant("03.6", "Dh follows from it")
def zero_for_heads_of_four(merged, heads, num_heads):
    return zeroed(merged, heads, merged.shape[-1] // 4)


@mutant("03.6", "the list may name several heads")
def zero_the_first_of_the_list_only(merged, heads, num_heads):
    return zeroed(merged, heads[:1], num_heads)


@mutant("03.6", "the list may name several heads")
def zero_all_from_the_first_to_the_last(merged, heads, num_heads):
    return zeroed(merged, range(min(heads), max(heads) + 1) if heads else [], num_heads)


@mutant("03.6", "with an empty list nothing changes")
def zero_head_0_if_none_is_named(merged, heads, num_heads):
    return zeroed(merged, heads or [0], num_heads)


@mutant("03.6", "in every text and at every token")
def zero_in_the_first_text_only(merged, heads, num_heads):
    y = merged.clone()
    y[:1] = zeroed(y[:1], heads, num_heads)
    return y


@mutant("03.6", "in every text and at every token")
def zero_by_a_view_that_mixes_tokens(merged, heads, num_heads):
    B, T, _ = merged.shape
    y = merged.clone().view(B, num_heads, T, -1)
    y[:, heads] = 0
    return y.view(B, T, -1)


@mutant("03.6", "there is an axis too many: return the shape (1, 1, 12)")
def zero_and_leave_the_heads_apart(merged, heads, num_heads):
    y = merged.unflatten(-1, (num_heads, -1)).clone()
    y[:, :, heads] = 0
    return y


@mutant("03.6", "to the last bit")
def zero_in_single_precision(merged, heads, num_heads):
    return zeroed(merged.float(), heads, num_heads).to(merged.dtype)


@mutant("03.6", "0 times an infinity or a NaN is NaN")
def zero_by_a_product(merged, heads, num_heads):
    stays = torch.tensor([float(h not in heads) for h in range(num_heads)], dtype=merged.dtype)
    return merged * stays.repeat_interleave(merged.shape[-1] // num_heads)


@variant("03.6")
def zero_by_where(merged, heads, num_heads):
    owner = torch.arange(merged.shape[-1], device=merged.device) // (merged.shape[-1] // num_heads)
    gone = torch.tensor([int(h) in heads for h in owner], device=merged.device)
    return merged.masked_fill(gone, 0.0)


@variant("03.6")
def zero_by_chunks(merged, heads, num_heads):
    parts = merged.chunk(num_heads, dim=-1)
    return torch.cat([torch.zeros_like(part) if h in heads else part for h, part in enumerate(parts)], dim=-1)


# Answers that an earlier check let through, or refused though they were right


@mutant("03.1", "k.T reverses all four")
def weights_with_every_axis_reversed(q, k, mask):
    return (q @ k.T / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@mutant("03.1", "k alone still has Dh last")
def weights_without_transposing(q, k, mask):
    return (q @ k / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@mutant("03.1", "your function changes its argument q")
def weights_that_scale_the_queries(q, k, mask):
    q /= math.sqrt(q.shape[-1])
    return (q @ k.transpose(-1, -2)).masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@mutant("03.1", "may be a masked one")
def weights_after_the_largest_of_all(q, k, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


@mutant("03.1", "Dh, T and S come from the shapes")
def weights_for_a_size_of_nine(q, k, mask):
    return (q @ k.transpose(-1, -2) / 3).masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@mutant("03.2", "however long the text is")
def mask_of_short_texts(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T if S < 100 else S)


@variant("03.2")
def mask_by_numpy(T, S):
    return torch.from_numpy(numpy.tri(T, S, S - T, dtype=bool))


@mutant("03.3", "to the last bit")
def split_in_half_precision(x, num_heads):
    return split_by_chunks(x.half(), num_heads).to(x.dtype)


@mutant("03.3", "the number of heads is an argument")
def split_into_five(x, num_heads):
    return split_by_chunks(x, 5)


@mutant("03.4", "to the last bit")
def repeat_through_float32(x, groups):
    return repeat_by_expanding(x.float(), groups).to(x.dtype)


@mutant("03.5", "whatever n is")
def induction_on_lines_of_four(attentions, n):
    i = torch.arange(4, 7)
    return attentions[..., i, i - 3].mean((1, 3))


@variant("03.5")
def induction_by_numpy(attentions, n):
    i = numpy.arange(n, 2 * n - 1)
    return torch.from_numpy(attentions.numpy()[..., i, i - n + 1].mean((1, 3)))
