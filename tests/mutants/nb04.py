"""Wrong and right answers to the exercises of notebook 04; each name says what the function does wrong."""

import torch
import torch.nn.functional as F

from mutants import mutant, variant

# 04.1 rms_norm


@mutant("04.1", "nothing is subtracted")
def norm_around_the_mean(x, weight, eps):
    return F.layer_norm(x, x.shape[-1:], weight, None, eps)


@mutant("04.1", "neither from x nor from its squares")
def norm_by_the_standard_deviation(x, weight, eps):
    wide = x.float() if x.dtype == torch.float16 else x
    return weight * (wide * torch.rsqrt(wide.var(-1, keepdim=True, unbiased=False) + eps)).to(x.dtype)


@mutant("04.1", "the mean and not the sum")
def norm_to_length_one(x, weight, eps):
    return weight * x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)


@mutant("04.1", "the weight multiplies what has been normalized")
def norm_forgets_the_weight(x, weight, eps):
    return (x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + eps)).to(x.dtype)


@mutant("04.1", "comes last")
def norm_weighs_first(x, weight, eps):
    x = weight * x
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


@mutant("04.1", "eps belongs under the root")
def norm_adds_eps_to_the_root(x, weight, eps):
    return weight * x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


@mutant("04.1", "over the last dimension alone")
def norm_over_everything(x, weight, eps):
    return weight * x * torch.rsqrt(x.square().mean() + eps)


@mutant("04.1", "over the last dimension alone")
def norm_over_the_positions(x, weight, eps):
    return weight * x * torch.rsqrt(x.square().mean(-2 if x.dim() > 1 else -1, keepdim=True) + eps)


@mutant("04.1", "must match the size")
def norm_without_keepdim(x, weight, eps):
    return weight * x * torch.rsqrt(x.square().mean(-1) + eps)


@mutant("04.1", "the squares were taken in float16")
def norm_squares_in_half_precision(x, weight, eps):
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


@mutant("04.1", "the squares were taken in float16")
def norm_goes_wide_too_late(x, weight, eps):
    mean_square = x.square().float().mean(-1, keepdim=True)
    return weight * (x * torch.rsqrt(mean_square + eps)).to(x.dtype)


@mutant("04.1", "return float16, not float32")
def norm_stays_wide(x, weight, eps):
    wide = x.float() if x.dtype == torch.float16 else x
    return weight.to(wide.dtype) * wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


@mutant("04.1", "the square of 1e-4 is 0")
def norm_scales_large_values_down(x, weight, eps):
    factor = 64 if x.dtype == torch.float16 else 1
    mean_square = (x / factor).square().mean(-1, keepdim=True).double() * factor**2
    return weight * (x.double() * torch.rsqrt(mean_square + eps)).to(x.dtype)


@mutant("04.1", "your function changes its argument x")
def norm_in_place(x, weight, eps):
    wide = x.float() if x.dtype == torch.float16 else x
    wide *= torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


@variant("04.1")
def norm_by_torch(x, weight, eps):
    return weight * F.rms_norm(x.double(), x.shape[-1:], eps=eps).to(x.dtype)


@variant("04.1")
def norm_by_hand(x, weight, eps):
    squares = x.float() ** 2 if x.dtype in (torch.float16, torch.bfloat16) else x**2
    root = (squares.sum(-1, keepdim=True) / x.shape[-1] + eps) ** 0.5
    return (x / root).to(x.dtype) * weight


# 04.2 swiglu


@mutant("04.2", "silu bends the gate alone")
def swiglu_bends_the_other(x, gate, up, down):
    return ((x @ gate.T) * F.silu(x @ up.T)) @ down.T


@mutant("04.2", "silu bends the gate alone")
def swiglu_bends_both(x, gate, up, down):
    return (F.silu(x @ gate.T) * F.silu(x @ up.T)) @ down.T


@mutant("04.2", "silu bends the gate alone")
def swiglu_bends_the_product(x, gate, up, down):
    return F.silu((x @ gate.T) * (x @ up.T)) @ down.T


@mutant("04.2", "multiplied and not added")
def swiglu_adds(x, gate, up, down):
    return (F.silu(x @ gate.T) + x @ up.T) @ down.T


@mutant("04.2", "silu bends the gate")
def swiglu_only_gates(x, gate, up, down):
    return (torch.sigmoid(x @ gate.T) * (x @ up.T)) @ down.T


@mutant("04.2", "neither 0 (relu)")
def swiglu_with_relu(x, gate, up, down):
    bent = torch.where(x @ gate.T > 0, F.silu(x @ gate.T), torch.zeros((), dtype=x.dtype))
    return (bent * (x @ up.T)) @ down.T


@mutant("04.2", "value of gelu")
def swiglu_with_gelu_below_zero(x, gate, up, down):
    z = x @ gate.T
    return (torch.where(z > 0, F.silu(z), F.gelu(z)) * (x @ up.T)) @ down.T


@mutant("04.2", "mat1 and mat2 shapes cannot be multiplied")
def swiglu_without_transposes(x, gate, up, down):
    return (F.silu(x @ gate) * (x @ up)) @ down


@mutant("04.2", "is right for a single vector")
def swiglu_multiplies_from_the_left(x, gate, up, down):
    return down @ (F.silu(gate @ x) * (up @ x))


@mutant("04.2", "with square matrices")
def swiglu_transposes_by_shape(x, gate, up, down):
    def fit(x, matrix):
        return x @ matrix if matrix.shape[0] == x.shape[-1] else x @ matrix.T
    return fit(F.silu(fit(x, gate)) * fit(x, up), down)


@variant("04.2")
def swiglu_by_linear(x, gate, up, down):
    z = F.linear(x, gate)
    return F.linear(z * torch.sigmoid(z) * F.linear(x, up), down)


@variant("04.2")
def swiglu_by_einsum(x, gate, up, down):
    z, u = torch.einsum("...d,fd->...f", x, gate), torch.einsum("...d,fd->...f", x, up)
    return torch.einsum("...f,df->...d", z / (1 + torch.exp(-z)) * u, down)


# 04.3 decoder_layer


@mutant("04.3", "what attention returns is added")
def layer_replaced_by_attention(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = self_attn(input_layernorm(x))
    return x + mlp(post_attention_layernorm(x))


@mutant("04.3", "what the MLP returns is added")
def layer_replaced_by_the_mlp(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = x + self_attn(input_layernorm(x))
    return mlp(post_attention_layernorm(x))


@mutant("04.3", "never normalized")
def layer_with_the_norms_after(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = input_layernorm(x + self_attn(x))
    return post_attention_layernorm(x + mlp(x))


@mutant("04.3", "never normalized")
def layer_that_adds_to_the_copy(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = input_layernorm(x)
    x = x + self_attn(x)
    x = post_attention_layernorm(x)
    return x + mlp(x)


@mutant("04.3", "attention reads input_layernorm(x)")
def layer_with_the_norms_exchanged(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = x + self_attn(post_attention_layernorm(x))
    return x + mlp(input_layernorm(x))


@mutant("04.3", "attention reads input_layernorm(x)")
def layer_that_normalizes_the_output(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = x + input_layernorm(self_attn(x))
    return x + post_attention_layernorm(mlp(x))


@mutant("04.3", "the MLP reads post_attention_layernorm")
def layer_with_one_norm(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = x + self_attn(input_layernorm(x))
    return x + mlp(input_layernorm(x))


@mutant("04.3", "attention comes first")
def layer_with_both_at_once(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    return x + self_attn(input_layernorm(x)) + mlp(post_attention_layernorm(x))


@mutant("04.3", "attention comes first")
def layer_with_the_mlp_first(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x = x + mlp(post_attention_layernorm(x))
    return x + self_attn(input_layernorm(x))


@mutant("04.3", "the second half starts from h, not from x")
def layer_that_forgets_attention(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    h = x + self_attn(input_layernorm(x))
    return x + mlp(post_attention_layernorm(h))


@mutant("04.3", "your function changes its argument x")
def layer_in_place(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    x += self_attn(input_layernorm(x))
    x += mlp(post_attention_layernorm(x))
    return x


@variant("04.3")
def layer_in_one_line(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    return (h := x.add(self_attn(input_layernorm(x)))) + mlp(post_attention_layernorm(h))


# 04.4 count_parameters


def counted(config, *, norms=None, kv_heads=None, head_dim=None, matrices=3, tables=None, layers=None):
    D, V, L = config.hidden_size, config.vocab_size, layers or config.num_hidden_layers
    head_dim = head_dim or config.head_dim
    query, kv = config.num_attention_heads * head_dim, (kv_heads or config.num_key_value_heads) * head_dim
    layer = 2 * D * query + 2 * D * kv + matrices * D * config.intermediate_size
    norms = 2 * L + 1 if norms is None else norms
    tables = (1 if config.tie_word_embeddings else 2) if tables is None else tables
    return tables * V * D + L * layer + norms * D


@mutant("04.4", "one norm is missing")
def count_without_the_final_norm(config):
    return counted(config, norms=2 * config.num_hidden_layers)


@mutant("04.4", "two norms are missing")
def count_without_the_norms_of_the_layers(config):
    return counted(config, norms=1)


@mutant("04.4", "fewer than q has")
def count_with_a_kv_head_for_every_query_head(config):
    return counted(config, kv_heads=config.num_attention_heads)


@mutant("04.4", "three matrices, and one is missing")
def count_without_the_gate(config):
    return counted(config, matrices=2)


@mutant("04.4", "a head has head_dim numbers")
def count_with_heads_that_divide_the_width(config):
    return counted(config, head_dim=max(1, config.hidden_size // config.num_attention_heads))


@mutant("04.4", "a tied head is the embedding itself")
def count_with_every_head(config):
    return counted(config, tables=2)


@mutant("04.4", "the embedding of the vocabulary is missing")
def count_the_layers_alone(config):
    return counted(config, tables=0)


@mutant("04.4", "the head is a second matrix")
def count_no_head(config):
    return counted(config, tables=1)


@mutant("04.4", "every layer has parameters of its own")
def count_one_layer(config):
    return counted(config, layers=1)


@mutant("04.4", "RoPE has no parameters")
def count_with_positions(config):
    return counted(config) + config.max_position_embeddings * config.head_dim


@mutant("04.4", "expected an integer")
def count_in_floats(config):
    return float(counted(config))


@variant("04.4")
def count_by_shapes(config):
    D, F_, Dh = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = (config.num_attention_heads * Dh, D), (config.num_key_value_heads * Dh, D)
    shapes = [q, kv, kv, q[::-1], (F_, D), (F_, D), (D, F_), (D,), (D,)] * config.num_hidden_layers
    shapes += [(D,), (config.vocab_size, D)] + [(config.vocab_size, D)] * (not config.tie_word_embeddings)
    return sum(torch.Size(shape).numel() for shape in shapes)


# 04.5 first_differing


def first(ours, theirs, wrong):
    return next((name for name in theirs if wrong(ours[name], theirs[name])), None)


@mutant("04.5", "the largest difference, not the mean")
def differing_on_average(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: not (a - b).mean().abs() <= 1000 * tolerance * b.abs().max())


@mutant("04.5", "take the absolute difference")
def differing_upwards(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: (a - b).max() > tolerance * b.abs().max())


@mutant("04.5", "not the last and not the largest")
def differing_last(ours, theirs, tolerance):
    wrong = [n for n in theirs if not (ours[n] - theirs[n]).abs().max() <= tolerance * theirs[n].abs().max()]
    return wrong[-1] if wrong else None


@mutant("04.5", "not the last and not the largest")
def differing_most(ours, theirs, tolerance):
    gaps = {name: (ours[name] - theirs[name]).abs().max() for name in theirs}
    name = max(gaps, key=gaps.get)
    return name if gaps[name] > tolerance * theirs[name].abs().max() else None


@mutant("04.5", "NaN went unnoticed")
def differing_blind_to_nan(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: (a - b).abs().max() > tolerance * b.abs().max())


@mutant("04.5", "subtract to zero")
def differing_blind_to_shapes(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: not (a - b).abs().max() <= tolerance * b.abs().max())


@mutant("04.5", "up to 10,000 is rounding")
def differing_by_an_absolute_amount(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape or not (a - b).abs().max() <= tolerance)


@mutant("04.5", "not of each value")
def differing_by_a_share_of_each_value(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape or a.isnan().any()
                 or not torch.allclose(a, b, rtol=tolerance))


@mutant("04.5", "that are all 0 are wrong")
def differing_with_a_floor(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape
                 or not (a - b).abs().max() <= tolerance * b.abs().max().clamp(min=1))


@mutant("04.5", "no difference is None")
def differing_returns_an_empty_name(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape
                 or not (a - b).abs().max() <= tolerance * b.abs().max()) or ""


@variant("04.5")
def differing_by_numbers(ours, theirs, tolerance):
    for name in theirs:
        if ours[name].shape != theirs[name].shape:
            return name
        limit = tolerance * theirs[name].abs().max().item()
        gaps = (ours[name] - theirs[name]).flatten().tolist()
        if not all(abs(gap) <= limit for gap in gaps):
            return name


# Answers that an earlier check let through, or refused though they were right


@mutant("04.1", "your function changes its argument x")
def norm_in_place_in_float32(x, weight, eps):
    wide = x.float()
    wide /= (wide.square().mean(-1, keepdim=True) + eps).sqrt()
    return weight * wide.to(x.dtype)


@mutant("04.1", "bfloat16 is narrower than float32, too")
def norm_knows_one_narrow_type(x, weight, eps):
    wide = x.float() if x.dtype == torch.float16 else x
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


@variant("04.1")
def norm_in_float32_always(x, weight, eps):
    wide = x.to(torch.float32)
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


@mutant("04.2", "silu(1000) is 1000")
def swiglu_that_overflows(x, gate, up, down):
    z = x @ gate.T
    return (z * z.exp() / (1 + z.exp()) * (x @ up.T)) @ down.T


@mutant("04.3", "every part is called once")
def layer_that_attends_twice(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    return x + self_attn(input_layernorm(x)) + mlp(post_attention_layernorm(x + self_attn(input_layernorm(x))))


@mutant("04.3", "on any numbers")
def layer_that_averages_positions(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    h = x + self_attn(input_layernorm(x))
    return h.mean(1, keepdim=True) + mlp(post_attention_layernorm(h))


@variant("04.3")
def layer_on_a_copy(x, self_attn, mlp, input_layernorm, post_attention_layernorm):
    stream = x.clone()
    stream += self_attn(input_layernorm(x))
    stream += mlp(post_attention_layernorm(stream))
    return stream


@mutant("04.4", ".item() takes it out")
def count_in_a_tensor(config):
    return torch.tensor(count_by_shapes(config))


def off(a, b, tolerance, limit=None, gap=None):
    """A right comparison of two tensors, or one with another limit or another gap."""
    limit = b.abs().max() if limit is None else limit
    return a.shape != b.shape or not (a - b if gap is None else gap).abs().max() <= tolerance * limit


@mutant("04.5", "the same numbers in another order")
def differing_sorted(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape or off(
        a.flatten().sort().values, b.flatten().sort().values, tolerance))


@mutant("04.5", "values with the wrong sign")
def differing_in_size(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape or off(a.abs(), b.abs(), tolerance))


@mutant("04.5", "not even with NaN")
def differing_where_one_is_nan(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape or off(a.nan_to_num(9), b.nan_to_num(9), tolerance))


@mutant("04.5", "whatever the order of ours")
def differing_in_our_order(ours, theirs, tolerance):
    return next((name for name in ours if off(ours[name], theirs[name], tolerance)), None)


@mutant("04.5", "each tensor has its own limit")
def differing_beside_the_largest_of_all(ours, theirs, tolerance):
    limit = max(value.abs().max().nan_to_num(1) for value in theirs.values())
    return first(ours, theirs, lambda a, b: b.isnan().any() or off(a, b, tolerance, limit))


@mutant("04.5", "and -1000 is large")
def differing_beside_the_maximum(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: off(a, b, tolerance, b.max()))


@mutant("04.5", "a share of theirs, not of ours")
def differing_beside_our_own(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: off(a, b, tolerance, a.abs().max()))


@mutant("04.5", "no mean and no norm")
def differing_by_the_norm(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.shape != b.shape or not (a - b).norm() <= tolerance * b.norm())


@mutant("04.5", "max |ours - theirs| <= limit agrees")
def differing_at_the_limit(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: off(a, b, tolerance)
                 or 0 < (a - b).abs().max() == tolerance * b.abs().max())


@mutant("04.5", "the same numbers in another shape")
def differing_flattened(ours, theirs, tolerance):
    return first(ours, theirs, lambda a, b: a.numel() != b.numel() or off(a.flatten(), b.flatten(), tolerance))


@mutant("04.4", "every digit counts")
def count_in_single_precision(config):
    return int(torch.tensor(float(count_by_shapes(config))).item())
