"""Rounding against loops and PyTorch's own; packed products against plain ones; whole models, in memory and on disk."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from test_checkpoint import make_lm
from torch import nn

from course_lib import quantized_linear
from course_lib.checkpoint import LanguageModel, load, save
from course_lib.config import ModelConfig, SamplingParams
from course_lib.generate import generate
from course_lib.gptq import error_feedback, gptq
from course_lib.kv_cache import StaticCache
from course_lib.model import CausalLM
from course_lib.quantize import Quantization, is_quantized, matrices, quantize, stored_bytes
from course_lib.quantized_cache import QuantizedCache
from course_lib.quantized_linear import (
    Int4Linear,
    Int8Linear,
    from_kernel_order,
    int4_block,
    int8_kernel,
    quantize_linear,
    to_kernel_order,
)
from course_lib.rounding import (
    BITS,
    asymmetric_scale,
    dequantize,
    pack_int4,
    quantize_tensor,
    round_to_nearest,
    round_weights,
    split_groups,
    stored_grid,
    symmetric_scale,
    unpack_int4,
)

FINITE = st.floats(-1e6, 1e6, width=32)
ROWS = st.lists(st.lists(FINITE, min_size=6, max_size=6), min_size=1, max_size=5)
PER = ("tensor", "channel", 3)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- scales and codes ---------------------------------------------------------------------------


@given(rows=ROWS, bits=st.sampled_from(BITS), per=st.sampled_from(PER), symmetric=st.booleans())
def test_no_weight_moves_further_than_half_a_step(rows, bits, per, symmetric):
    """Half a step, plus what the float32 division and product may add: a few units in the last place."""
    weight = torch.tensor(rows)
    groups = split_groups(weight, per)
    scale, zero_point = (symmetric_scale(groups, bits), 0) if symmetric else asymmetric_scale(groups, bits)
    codes = quantize_tensor(groups, scale, bits, zero_point=zero_point)
    moved = (dequantize(codes, scale, zero_point=zero_point) - groups).abs()
    assert (moved <= scale / 2 * (1 + 1e-4) + 1e-6 * groups.abs().amax()).all()
    assert codes.min() >= -(2 ** (bits - 1)) and codes.max() <= 2 ** (bits - 1) - 1


@given(rows=ROWS, bits=st.sampled_from(BITS), per=st.sampled_from(PER))
def test_rounding_twice_is_rounding_once(rows, bits, per):
    """The largest value is on the grid, so the second grid is the first, up to float32's rounding of the scale."""
    once = round_weights(torch.tensor(rows), bits, per)
    torch.testing.assert_close(round_weights(once, bits, per), once, rtol=1e-5, atol=0)


@given(rows=ROWS, bits=st.sampled_from(BITS), factor=st.sampled_from([0.25, 2.0, 1024.0]))
def test_codes_do_not_depend_on_the_unit(rows, bits, factor):
    weight = torch.tensor(rows)
    codes, scaled = (quantize_tensor(w, symmetric_scale(w, bits), bits) for w in (weight, weight * factor))
    normal = weight.abs().amax(-1) > 1e-30  # below, float32 has fewer digits
    assert codes[normal].equal(scaled[normal])


@pytest.mark.parametrize("bits", BITS)
def test_symmetric_codes_are_those_of_pytorch(bits):
    weight = randn(5, 12)
    scale = symmetric_scale(weight, bits)
    theirs = torch.fake_quantize_per_channel_affine(weight, scale[:, 0], torch.zeros(5, dtype=torch.int32), 0,
                                                    -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    torch.testing.assert_close(round_weights(weight, bits, "channel"), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bits", BITS)
def test_asymmetric_codes_are_those_of_pytorch(bits):
    weight = randn(5, 12) + 0.7
    scale, zero_point = asymmetric_scale(weight, bits)
    theirs = torch.fake_quantize_per_channel_affine(weight, scale[:, 0], zero_point[:, 0].int(), 0,
                                                    -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    torch.testing.assert_close(round_weights(weight, bits, "channel", symmetric=False), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_loop_in_float64_finds_the_same(per, bits):
    weight = randn(4, 6)
    G = {"tensor": 24, "channel": 6}.get(per, per)
    flat, top, expected = weight.flatten().double().tolist(), 2 ** (bits - 1) - 1, []
    for start in range(0, 24, G):
        group = flat[start : start + G]
        step = max(abs(w) for w in group) / top
        expected += [step * round(w / step) for w in group]
    torch.testing.assert_close(round_weights(weight, bits, per).flatten(), torch.tensor(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("values", [[0.0] * 4, [3.0] * 4, [-3.0] * 4, [1e-30, 0, 0, 0], [3e38, -3e38, 1, 0],
                                    [0.0, 0.0, 0.0, 5.0]], ids=str)
def test_zeros_constants_and_extremes(bits, symmetric, values):
    """A group of zeros stays zero, a constant and the two ends keep their values, nothing becomes NaN."""
    weight = torch.tensor([values])
    if not symmetric and max(values) > 1e38:
        weight = weight / 4  # high - low has to fit float32
    result = round_weights(weight, bits, "channel", symmetric=symmetric)
    assert result.isfinite().all()
    largest = weight.abs().amax()
    ends = weight.abs() == largest
    slack = 0 if symmetric else largest / (2**bits - 1)  # the two ends may lie between codes by half a step
    assert ((result - weight).abs()[ends] <= slack + 1e-5 * largest).all()
    assert (result[weight == 0] == 0).all(), "code 0 or the zero point is exact"


def test_no_cast_wraps():
    """128 as int8 would be -128: the largest weight would change its sign."""
    codes = quantize_tensor(torch.tensor([1e9, -1e9, 128.4, -128.6]), torch.tensor(1.0), 8)
    assert codes.tolist() == [127, -128, 127, -128]
    assert quantize_tensor(torch.tensor([8.0, -9.0]), torch.tensor(1.0), 4).tolist() == [7, -8]


@pytest.mark.parametrize("bits", BITS)
def test_stored_grids_are_bfloat16_and_keep_the_bound(bits):
    """Symmetric, the last code may lie a quarter of a step too low, still within half a step.

    An integer zero point alone may put an end half a step away; bfloat16's rounding of step and offset, 2^-9 each,
    adds at most (16 + 8) 2^-9 steps with 16 codes.
    """
    weight = randn(64, 128) * torch.logspace(-6, 3, 64)[:, None] + torch.linspace(-1, 1, 64)[:, None]
    codes, scales, zeros = round_to_nearest(weight, bits, 32)
    for grid in (scales, zeros):
        assert grid.equal(grid.bfloat16().float())
    groups = split_groups(weight, 32)
    back = dequantize(codes.view_as(groups), scales) + zeros
    bound = scales / 2 + (0.047 * scales if bits <= 4 else 0)
    assert ((back - groups).abs() <= bound * 1.001 + 1e-6 * groups.abs().amax(-1, keepdim=True)).all()


def test_one_outlier_costs_those_that_share_its_scale():
    weight = randn(4, 8)
    weight[1, 2] = 100.0
    moved = {per: (round_weights(weight, 4, per) - weight).abs() for per in ("tensor", "channel", 4)}
    assert (moved["tensor"][0] == weight[0].abs()).all(), "every small weight is lost"
    assert (moved["channel"][0] < 0.3).all() and (moved["channel"][1, 4:] == weight[1, 4:].abs()).all()
    assert (moved[4][1, 4:] < 0.3).all()


# --- two in a byte --------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(-8, 7), min_size=6, max_size=6), min_size=0, max_size=4))
def test_packing_and_unpacking(rows):
    codes = torch.tensor(rows, dtype=torch.int8).view(-1, 6)
    packed = pack_int4(codes)
    assert packed.dtype == torch.uint8 and packed.shape == (len(rows), 3) and packed.nbytes == codes.nbytes // 2
    assert unpack_int4(packed).equal(codes)


@given(st.binary(max_size=20))
def test_every_byte_is_two_codes(data):
    packed = torch.tensor(list(data), dtype=torch.uint8)
    assert pack_int4(unpack_int4(packed)).equal(packed)


def test_the_first_code_lies_low():
    assert pack_int4(torch.tensor([[3, -2]], dtype=torch.int8)).tolist() == [[0xE3]]


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("call, message", [
    (lambda: symmetric_scale(torch.ones(2), 9), r"bits = 9.*\[2, 8\]"),
    (lambda: asymmetric_scale(torch.ones(2), 1), r"bits = 1.*\[2, 8\]"),
    (lambda: quantize_tensor(torch.ones(2), torch.ones(1), True), r"bits = True.*\[2, 8\]"),
    (lambda: split_groups(torch.ones(2, 6), 4), r"per = 4.*divides 6"),
    (lambda: split_groups(torch.ones(2, 6), "row"), r"per = 'row'.*'tensor', 'channel'"),
    (lambda: split_groups(torch.ones(6), 3), r"shape = \(6,\).*\(N, K\)"),
    (lambda: pack_int4(torch.zeros(2, 5, dtype=torch.int8)), "= 5 .*even"),
    (lambda: pack_int4(torch.tensor([8, 0], dtype=torch.int8)), r"codes = 'from 0 to 8'.*\[-8, 7\]"),
    (lambda: quantize_linear(torch.full((2, 4), math.nan), 8, name="layers.0.x.weight"),
     "layers.0.x.weight cannot be quantized: 8 of its 8 numbers are NaN"),
    (lambda: quantize_linear(torch.zeros(2, 6), 4, 4, name="w"), "group_size = 4.*divisor of the 6 inputs of w"),
    (lambda: quantize_linear(torch.zeros(2, 6), 4, 0, name="w"), "group_size = 0.*divisor"),
    (lambda: quantize_linear(torch.zeros(2, 5), 4, name="w"), r"w.shape\[1\] = 5.*even"),
    (lambda: gptq(torch.zeros(2, 4), torch.eye(3), 4), r"hessian.shape = \(3, 3\).*\(4, 4\)"),
    (lambda: gptq(torch.zeros(2, 4), torch.full((4, 4), math.nan), 4), "NaN"),
    (lambda: gptq(torch.zeros(2, 4), torch.eye(4), 4, damping=0), "damping = 0.*> 0"),
    (lambda: Quantization(embedding_bits=1), r"embedding_bits = 1.*\[2, 8\]"),
    (lambda: Quantization(group_size=1.5), "group_size = 1.5.*positive integer"),
])
def test_what_is_out_of_range_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- linear maps ------------------------------------------------------------------------------------

SHAPES = [(64, 64, None), (128, 256, 32), (128, 256, None), (192, 128, 64), (30, 36, None), (30, 36, 6),
          (64, 48, None), (31, 32, 32), (640, 256, 128)]
KERNELS = int8_kernel() and int4_block() is not None


@pytest.mark.parametrize("N, K, group_size", SHAPES)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("rows", [1, 3, 20, 70])
@torch.no_grad()
def test_the_product_is_that_with_the_dequantized_weights(N, K, group_size, bits, rows):
    """Against float64. The packed products take x and give y in bfloat16, and the int4 one rounds each weight to it:
    2^-8 of the largest sum of absolute products covers all three roundings of 2^-9 each, which add at random.
    """
    part = quantize_linear(randn(N, K), bits, group_size, bias=randn(N, seed=2))
    x = randn(rows, K, seed=1)
    weight = part.dequantize(torch.float32).double()
    exact = x.double() @ weight.T + part.bias.double()
    room = (x.abs().double() @ weight.abs().T).amax() * 2**-8
    assert (part(x).double() - exact).abs().max() <= room
    part.has_kernel = False
    torch.testing.assert_close(part(x).double(), exact, rtol=0, atol=1e-5 * K**0.5 * 4)


@pytest.mark.skipif(not KERNELS, reason="this build of PyTorch has no packed products for this processor")
@pytest.mark.parametrize("bits, group_size, runs", [(8, None, True), (5, None, True), (8, 32, False), (4, 32, True),
                                                    (2, 64, True), (4, None, True), (4, 16, False)])
def test_which_products_run_on_packed_weights(bits, group_size, runs, monkeypatch):
    part = quantize_linear(randn(64, 128), bits, group_size)
    seen = []
    monkeypatch.setattr(type(part), "packed_product", lambda self, rows: (
        seen.append(rows.dtype), rows.new_zeros(len(rows), 64))[1])
    with torch.no_grad():
        part(randn(1, 128))
        part(randn(2, 3, 128))
    assert seen == [torch.bfloat16] * 2 * runs and part.has_kernel == runs


@pytest.mark.skipif(int4_block() is None, reason="no int4 product here")
def test_the_order_of_the_int4_product_is_read_back():
    codes = torch.randint(-8, 8, (192, 96), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    assert from_kernel_order(to_kernel_order(codes), int4_block()).equal(codes)


@pytest.mark.parametrize("bits, group_size", [(8, None), (8, 8), (6, None), (4, 32), (3, None), (4, 8)])
@pytest.mark.parametrize("N", [64, 31])
def test_rows_are_looked_up_where_they_lie(bits, group_size, N):
    part = quantize_linear(randn(N, 64), bits, group_size)
    ids = torch.tensor([[0, N - 1, 7], [29, 30, 30]])
    whole = part.dequantize(torch.float32)
    assert part.dequantize(torch.float32, ids).equal(whole[ids])


@pytest.mark.parametrize("bits, group_size", [(8, None), (4, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@torch.no_grad()
def test_any_shape_type_and_lie_of_the_input(bits, group_size, dtype):
    """Also numbers cut out of others: the int8 product crashes on addresses that are no multiples of 32."""
    part, x = quantize_linear(randn(64, 64), bits, group_size), randn(5, 200).to(dtype)
    for piece in (x[:, 1:65], x[2:3, 3:67], x[0, 8:72], x[:0, :64], x[:, :64].view(1, 5, 64)):
        y = part(piece)
        assert y.shape == (*piece.shape[:-1], 64) and y.dtype == dtype
        if piece.numel():
            exact = piece.double() @ part.dequantize(torch.float64).T
            assert (y.double() - exact).abs().max() <= 2**-7 * exact.abs().max()


@pytest.mark.parametrize("bits", [8, 4])
def test_gradients_go_through_to_the_input(bits):
    part, x = quantize_linear(randn(64, 64), bits), randn(2, 64).requires_grad_()
    part(x).sum().backward()
    torch.testing.assert_close(x.grad, part.dequantize(torch.float32).sum(0).expand(2, -1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("bits, group_size, nbytes", [
    (8, None, 128 * 256 + 2 * 128), (5, None, 128 * 256 + 2 * 128), (8, 64, 128 * 256 + 2 * 4 * 128),
    (4, 32, 128 * 128 + 4 * 8 * 128), (2, 32, 128 * 128 + 4 * 8 * 128), (4, None, 128 * 128 + 4 * 128)])
def test_bytes_are_those_of_codes_and_scales(bits, group_size, nbytes):
    part = quantize_linear(randn(128, 256), bits, group_size)
    assert sum(buffer.nbytes for buffer in part.buffers()) == nbytes == stored_bytes(part)


def test_a_copy_of_another_type_keeps_its_codes():
    for bits in (8, 4):
        part = quantize_linear(randn(64, 64), bits, None)
        exact = part.dequantize(torch.float32)
        for other in (copy.deepcopy(part).double().bfloat16(), copy.deepcopy(part).float()):
            assert other.dequantize(torch.float32).equal(exact) and other.weight.dtype == part.weight.dtype
            assert other(randn(1, 64)).isfinite().all()


# --- GPTQ -------------------------------------------------------------------------------------------


def correlated_inputs(n=400, K=32):
    """Inputs that move together, as activations do."""
    return randn(n, 6) @ randn(6, K, seed=1) + 0.1 * randn(n, K, seed=2)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group_size", [None, 8])
def test_error_feedback_brings_the_output_closer(bits, group_size):
    x, weight = correlated_inputs(), randn(24, 32, seed=3)
    wrong = []
    for codes, scales, zeros in (round_to_nearest(weight, bits, group_size),
                                 gptq(weight, x.T @ x, bits, group_size)):
        back = dequantize(codes.unflatten(-1, (scales.shape[1], -1)), scales) + zeros
        wrong.append((x @ (back.flatten(1) - weight).T).square().mean().item())
    assert wrong[1] < 0.7 * wrong[0]


def test_inputs_that_have_nothing_in_common_leave_rounding_to_nearest():
    weight = randn(8, 16)
    for ours, plain in zip(gptq(weight, torch.eye(16), 3), round_to_nearest(weight, 3)):
        assert ours.equal(plain)


def test_error_feedback_is_optimal_brain_surgery_column_by_column():
    """Frantar's closed form against the textbook: after column k, the best update of the others by least squares."""
    x, weight, bits = correlated_inputs(K=6).double(), randn(3, 6, seed=3), 3
    damping = 0.01 * (x.T @ x).diagonal().mean()
    H = x.T @ x + damping * torch.eye(6, dtype=torch.float64)
    w = weight.double()
    scale, zero = (part.double() for part in stored_grid(weight, bits))
    for k in range(5):
        rounded = dequantize(quantize_tensor(w[:, k : k + 1], scale, bits, zero_point=-zero / scale), scale) + zero
        moved = rounded - w[:, k : k + 1]  # the best answer of later columns to this
        w[:, k + 1 :] -= moved * torch.linalg.solve(H[k + 1 :, k + 1 :], H[k + 1 :, k])
        w[:, k : k + 1] = rounded
    w[:, 5:] = dequantize(quantize_tensor(w[:, 5:], scale, bits, zero_point=-zero / scale), scale) + zero
    codes, *_ = gptq(weight, x.T @ x, bits)
    torch.testing.assert_close(dequantize(codes, scale) + zero, w, rtol=0, atol=1e-5)


def test_shares_of_an_error_are_those_of_least_squares():
    """Row k of the shares against a plain solve over the columns that are still to come."""
    x = correlated_inputs(K=5).double()
    H = x.T @ x
    shares = error_feedback(H, damping=1e-9)
    for k in range(4):
        best = torch.linalg.solve(H[k + 1 :, k + 1 :], H[k + 1 :, k])
        torch.testing.assert_close(shares[k, k + 1 :].double(), best, rtol=1e-4, atol=1e-5)
    assert not shares.tril().any()


def test_a_singular_hessian_is_damped():
    for hessian in (torch.zeros(4, 4), torch.ones(4, 4)):
        assert error_feedback(hessian).isfinite().all()


# --- whole models -----------------------------------------------------------------------------------

SETTINGS = {"int8": {}, "int4": {"bits": 4, "group_size": 2}, "int4, all": {"bits": 4, "embedding_bits": 4},
            "6 bits in groups": {"bits": 6, "group_size": 2, "embedding_bits": 6},
            "layers only": {"bits": 3, "embedding_bits": None}}
CONFIGS = {"tied": {}, "untied, biased": {"tie_word_embeddings": False, "attention_bias": True,
                                          "attention_out_bias": True, "mlp_bias": True}}
IDS = torch.arange(40).view(2, 20)


def wide_lm():
    """A model whose matrices fit the packed products."""
    return make_lm(hidden_size=64, intermediate_size=128, num_attention_heads=4, head_dim=16, num_key_value_heads=4)


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS)
def lm(request):
    return make_lm(**request.param)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@torch.no_grad()
def test_a_quantized_model_computes_with_its_dequantized_weights(lm, settings):
    """None of these shapes fits a packed product of int4; int8's is allowed its bfloat16."""
    quantized, plain = quantize(lm, **settings), copy.deepcopy(lm.model)
    for name in matrices(lm.model):
        part = quantized.model.get_submodule(name)
        part = getattr(part, "table", part)
        if hasattr(part, "bits"):
            plain.get_submodule(name).weight.copy_(part.dequantize(torch.float32))
    expected = plain(IDS)
    torch.testing.assert_close(quantized.model(IDS), expected, rtol=0, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_original_is_left_untouched(lm, settings):
    before, kinds = copy.deepcopy(lm.model.state_dict()), [type(module) for module in lm.model.modules()]
    quantized = quantize(lm, **settings)
    shared = {p.data_ptr() for p in lm.model.parameters()} & {p.data_ptr() for p in quantized.model.parameters()}
    assert not shared and kinds == [type(module) for module in lm.model.modules()]
    assert all(tensor.equal(before[name]) for name, tensor in lm.model.state_dict().items())
    assert not is_quantized(lm.model) and is_quantized(quantized.model) and isinstance(quantized, LanguageModel)


def test_head_and_embedding_share_their_bytes():
    lm = quantize(make_lm())
    assert lm.model.embed_tokens.table is lm.model.lm_head
    assert lm.model.embed_tokens.weight is lm.model.lm_head.weight
    untied = quantize(make_lm(tie_word_embeddings=False))
    assert untied.model.embed_tokens.table is not untied.model.lm_head


@pytest.mark.parametrize("bits, group_size, embedding_bits", [(8, None, 8), (4, 32, 8), (4, 32, 4), (3, 32, None)])
def test_stored_bytes_are_counted_from_the_shape(bits, group_size, embedding_bits):
    lm = wide_lm()
    V, D, layers = lm.config.vocab_size, 64, 2
    inner = layers * (4 * D * D + 3 * D * 128)
    norms = 4 * (2 * layers * D + D)

    def kept(numbers, K, bits, group_size):
        rows = numbers // K
        return 4 * numbers if bits is None else (numbers + 2 * rows * (K // (group_size or K)) if bits > 4
                                                 else numbers // 2 + 4 * rows * (K // (group_size or K)))

    by_width = inner - layers * D * 128, layers * D * 128  # inputs of D, and of 128 in down_proj
    expected = norms + sum(kept(n, K, bits, group_size) for n, K in zip(by_width, (D, 128)))
    expected += kept(V * D, D, embedding_bits, group_size if embedding_bits == bits else None)
    assert stored_bytes(quantize(lm, bits, group_size, embedding_bits=embedding_bits).model) == expected


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("params", [SamplingParams(temperature=0, max_tokens=12, ignore_eos=True),
                                    SamplingParams(temperature=0.8, seed=3, max_tokens=12, ignore_eos=True)], ids=str)
def test_generate_works(lm, settings, params):
    quantized = quantize(lm, **settings)
    first, second = (generate(quantized, [5, 7, 11], params) for _ in range(2))
    assert first == second and len(first.token_ids) == 12


@torch.no_grad()
def test_in_eight_bits_the_logits_hardly_change():
    lm = wide_lm()
    exact = lm.model(IDS)
    errors = [(quantize(lm, bits, embedding_bits=bits).model(IDS) - exact).abs().mean().item() for bits in (8, 6, 4, 2)]
    assert errors[0] < 0.05 * exact.abs().mean() and errors == sorted(errors)


@pytest.mark.parametrize("bits", [8, 4])
@torch.no_grad()
def test_a_cache_gives_what_the_whole_text_gives(bits):
    """Every product rounds to bfloat16, so one token more or less in a call is the same up to its last bit."""
    lm = quantize(wide_lm(), bits, 32 if bits == 4 else None)
    cache = StaticCache.for_model(lm.model, 20, batch_size=2)
    steps = torch.cat([lm.model(chunk, kv_cache=cache) for chunk in IDS.split([12, 1, 7], dim=1)], dim=1)
    whole = lm.model(IDS)
    assert (steps - whole).abs().max() <= 0.03 * whole.abs().max()


def test_activations_follow_the_type_of_the_model():
    lm = quantize(make_lm())
    lm.model.to(torch.bfloat16)
    with torch.no_grad():
        assert lm.model.embed_tokens(IDS).dtype == torch.bfloat16 == lm.model(IDS).dtype
    assert StaticCache.for_model(lm.model, 4).keys.dtype == torch.bfloat16


def test_what_cannot_be_quantized_is_refused():
    lm = make_lm()
    with pytest.raises(ValueError, match=r"bits = 9.*\[2, 8\]"):
        quantize(lm, 9)
    with pytest.raises(ValueError, match=r"group_size = 32.*divisor of the 36 inputs of layers.0.self_attn.q_proj"):
        quantize(lm, 4, 32)
    with pytest.raises(ValueError, match="not quantized yet"):
        quantize(quantize(lm))
    with pytest.raises(ValueError, match=r"hessians = \['layers.9.x'\]"):
        quantize(lm, 4, hessians={"layers.9.x": torch.eye(3)})
    with torch.no_grad():
        lm.model.layers[1].mlp.up_proj.weight[3, 4] = math.inf
    with pytest.raises(ValueError, match=r"layers.1.mlp.up_proj.weight cannot be quantized: 1 of its 1800"):
        quantize(lm)


def test_hessians_reach_their_matrices():
    lm, name = make_lm(), "layers.1.mlp.down_proj"
    x = correlated_inputs(K=50)
    weight = lm.model.get_submodule(name).weight.detach()
    codes = quantize(lm, 4, 2, hessians={name: x.T @ x}).model.get_submodule(name).codes()
    assert codes.equal(gptq(weight, x.T @ x, 4, 2)[0]) and not codes.equal(round_to_nearest(weight, 4, 2)[0])


def test_the_description_says_bits_and_bytes():
    lm = quantize(wide_lm(), 4, 32)
    assert f"4 bits in groups of 32, embedding in 8, {stored_bytes(lm.model):,} bytes" in repr(lm)
    assert "64 to 64, 4 bits, groups of 32" in repr(lm.model.layers[0].self_attn.q_proj)


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@torch.no_grad()
def test_saved_and_loaded_the_logits_are_the_same(lm, settings, tmp_path):
    quantized = quantize(lm, **settings)
    save(quantized, tmp_path / "q")
    again = load(tmp_path / "q", device="cpu")
    assert again.model(IDS).equal(quantized.model(IDS)) and again.model.quantization == quantized.model.quantization
    save(again, tmp_path / "again")
    for name in ("quantized.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "q" / name).read_bytes()


@torch.no_grad()
def test_packed_products_give_the_same_after_loading(tmp_path):
    """A file's bytes are mapped at any address; the int8 product needs an even one."""
    for settings in ({}, {"bits": 4, "group_size": 32}):
        quantized = quantize(wide_lm(), **settings)
        save(quantized, tmp_path)
        again = load(tmp_path, device="cpu")
        for ids in (IDS, IDS[:1, :1]):
            assert again.model(ids).equal(quantized.model(ids))


def test_the_file_is_as_small_as_it_is_said_to_be(tmp_path):
    lm = quantize(wide_lm(), 4, 32)
    save(lm, tmp_path)
    tensors = load_file(tmp_path / "quantized.safetensors")
    assert sum(tensor.nbytes for tensor in tensors.values()) == stored_bytes(lm.model)
    codes = unpack_int4(tensors["model.layers.0.self_attn.q_proj.weight"])
    assert codes.equal(lm.model.layers[0].self_attn.q_proj.codes()), "two in a byte, row by row"
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["quantization_config"] == {"quant_method": "course_lib", "bits": 4, "group_size": 32,
                                             "embedding_bits": 8}


def test_saving_another_form_leaves_no_weights_of_the_old(tmp_path):
    lm = make_lm()
    for one in (lm, quantize(lm), lm):
        save(one, tmp_path)
        assert [path.name for path in tmp_path.glob("*.safetensors")] == [
            "quantized.safetensors" if is_quantized(one.model) else "model.safetensors"]
        assert is_quantized(load(tmp_path).model) == is_quantized(one.model)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    lm = quantize(make_lm())
    save(lm, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*args):
        raise OSError("no space left")

    monkeypatch.setattr("course_lib.weights.save_file", fail)
    with pytest.raises(OSError, match="no space"):
        save(quantize(make_lm(), 4), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_transformers_refuses_it(tmp_path):
    """It warns of the method and finds no file of weights, so that nobody takes codes for weights."""
    import transformers

    save(quantize(make_lm()), tmp_path)
    with pytest.raises(OSError, match=r"no file named model.safetensors"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= changes
    path.write_text(json.dumps(config))


def change_tensors(folder, change):
    path = folder / "quantized.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


Q = "model.layers.1.self_attn.q_proj"
FAULTS = {
    "another method": (lambda f: change_config(f, quant_method="gptq"), "quantization_config.*'course_lib'"),
    "bits": (lambda f: change_config(f, bits=16), r"bits = 16.*\[2, 8\]"),
    "other bits": (lambda f: change_config(f, bits=4), r"missing tensor .*scales_and_zeros|torch.int8, expected"),
    "unknown setting": (lambda f: change_config(f, desc_act=True), "an object with bits"),
    "group size": (lambda f: change_config(f, group_size=7), "group_size = 7.*divisor of 36"),
    "missing scales": (lambda f: change_tensors(f, lambda t: t.pop(f"{Q}.scales")), "missing tensor .*q_proj.scales"),
    "missing norm": (lambda f: change_tensors(f, lambda t: t.pop("model.norm.weight")), "missing tensors: norm.weight"),
    "shape": (lambda f: change_tensors(f, lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"][:-1].clone()})),
              r"q_proj.weight is \(23, 36\) of torch.int8, expected \(24, 36\)"),
    "type": (lambda f: change_tensors(f, lambda t: t.update({f"{Q}.scales": t[f"{Q}.scales"].float()})),
             "q_proj.scales is .*float32, expected .*bfloat16"),
    "stranger": (lambda f: change_tensors(f, lambda t: t.update(more=torch.zeros(2))), "unexpected tensor more"),
    "no file": (lambda f: (f / "quantized.safetensors").unlink(), "model.safetensors is missing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_in_a_file_is_named(fault, tmp_path):
    save(quantize(make_lm()), tmp_path)
    change, message = FAULTS[fault]
    change(tmp_path)
    with pytest.raises(ValueError, match=message):
        load(tmp_path, device="cpu")


def test_codes_without_a_configuration_are_no_weights(tmp_path):
    save(quantize(make_lm()), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"dtype of .* 'I8' is not allowed"):
        load(tmp_path, device="cpu")


# --- the cache --------------------------------------------------------------------------------------

SMALL = ModelConfig(vocab_size=37, hidden_size=20, intermediate_size=28, num_hidden_layers=2, num_attention_heads=6,
                    num_key_value_heads=3, head_dim=4, max_position_embeddings=32)


def small_model(dtype=torch.float32):
    model, generator = CausalLM(SMALL), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (parameter.dim() == 1))
    return model.to(dtype).eval().requires_grad_(False)


def test_what_the_cache_returns_is_within_half_a_step():
    """Of each vector's own scale, and bfloat16 may make that scale 1/256 smaller: half a step covers both."""
    cache = QuantizedCache(SMALL, 9, batch_size=2)
    states = [randn(2, 3, 5, 4, seed=seed) * torch.logspace(-3, 3, 5)[:, None] for seed in (0, 1)]
    for kept, exact in zip(cache.update(*states, 0), states):
        step = exact.abs().amax(-1, keepdim=True) / 127
        assert ((kept - exact).abs() <= step * 0.51).all() and kept.shape == (2, 3, 5, 4)


def test_a_position_is_rounded_once_however_it_comes():
    model = small_model()
    ids = torch.arange(24).view(2, 12)
    whole, cut = (QuantizedCache.for_model(model, 12, batch_size=2) for _ in range(2))
    expected = model(ids, kv_cache=whole)
    steps = torch.cat([model(chunk, kv_cache=cut) for chunk in ids.split([5, 1, 6], dim=1)], dim=1)
    torch.testing.assert_close(steps, expected, rtol=0, atol=2e-2)  # a key beside a border may fall to either side
    assert ((whole.keys[0] - cut.keys[0]).abs() <= 1).all() and cut.get_seq_length() == 12
    exact = model(ids)
    assert 0 < (expected - exact).abs().max() < 0.03 * exact.abs().max()


def test_crop_reset_and_a_full_cache():
    cache, model = QuantizedCache.for_model(small_model(), 8), small_model()
    model(torch.arange(6)[None], kv_cache=cache)
    cache.crop(3)
    keys, _ = cache.update(*torch.ones(2, 1, 3, 1, 4), 0)
    assert keys.shape == (1, 3, 4, 4)
    for length in (-1, 5):
        with pytest.raises(ValueError, match=rf"length = {length}"):
            cache.crop(length)
    cache.reset()
    assert cache.get_seq_length() == 0
    with pytest.raises(ValueError, match=r"9 positions.*max_length = 8"):
        model(torch.arange(9)[None], kv_cache=cache)
    with pytest.raises(ValueError, match="NaN or infinite in layer 0"):
        cache.update(torch.full((1, 3, 1, 4), math.nan), torch.ones(1, 3, 1, 4), 0)
    for max_length in (0, 33):
        with pytest.raises(ValueError, match=rf"max_length = {max_length}.*\[1, max_position_embeddings = 32\]"):
            QuantizedCache(SMALL, max_length)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_cache_takes_a_byte_a_number_and_two_a_vector(dtype):
    cache = QuantizedCache.for_model(small_model(dtype), 11, batch_size=2)
    numbers, vectors = 2 * 2 * 2 * 3 * 11 * 4, 2 * 2 * 2 * 3 * 11
    assert cache.nbytes == numbers + 2 * vectors
    assert cache.update(*torch.ones(2, 2, 3, 1, 4, dtype=dtype), 0)[0].dtype == dtype


def test_zero_keys_stay_zero():
    cache = QuantizedCache(SMALL, 4)
    keys, values = cache.update(torch.zeros(1, 3, 2, 4), torch.ones(1, 3, 2, 4), 0)
    assert (keys == 0).all() and torch.allclose(values, torch.ones_like(values), rtol=4e-3)


# --- modules that the rest of the package sees -------------------------------------------------------


def test_other_modules_stay_what_they_are():
    lm = make_lm()
    quantized = quantize(lm).model
    assert type(quantized.norm) is type(lm.model.norm) and isinstance(quantized.lm_head, Int8Linear)
    assert not any(isinstance(module, nn.Linear) for module in quantized.modules())
    four = quantize(lm, 4, embedding_bits=None).model
    assert isinstance(four.layers[0].mlp.up_proj, Int4Linear) and four.lm_head.weight is four.embed_tokens.weight


def test_kernels_are_looked_for_and_not_presumed(monkeypatch):
    """Where the products are missing, everything is dequantized and multiplied."""
    monkeypatch.setattr(quantized_linear, "int8_kernel", lambda: False)
    monkeypatch.setattr(quantized_linear, "int4_block", lambda: None)
    lm = wide_lm()
    for settings in ({}, {"bits": 4, "group_size": 32, "embedding_bits": 4}):
        quantized = quantize(lm, **settings)
        assert not any(getattr(module, "has_kernel", False) for module in quantized.model.modules())
        out = generate(quantized, [3, 4], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
        assert len(out.token_ids) == 4
    assert replace(lm, name="x").name == "x"
