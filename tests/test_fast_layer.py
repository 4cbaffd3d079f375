"""The fast layer against the model's own; whatever is done to one of its parts counts in it too."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from test_checkpoint import make_lm
from test_few_rows import CHANGES, CONFIG, COPIES, decoded, make_model, with_mkl  # noqa: F401
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from course_lib import SamplingParams, few_rows, load, save
from course_lib import model as readable
from course_lib.fast_layer import FastLayer, FastNorm, Joined, packed_weights, speed_up
from course_lib.few_rows import FewRowsLinear
from course_lib.generate import generate
from course_lib.kv_cache import StaticCache
from course_lib.layers import MLP, RMSNorm
from course_lib.model import Attention, CausalLM, DecoderLayer
from course_lib.quantize import quantize, stored_bytes
from course_lib.quantized_linear import Int4Linear, Int8Linear, int4_block, int8_kernel, quantize_linear


@pytest.fixture(params=[True, False], ids=["Intel", "another maker"])
def joined(request, monkeypatch):
    """The names of the maps that were multiplied as one, call by call, on either maker's processor."""
    monkeypatch.setattr(few_rows, "MKL_IS_FAST", request.param)
    names, times = [], Joined.times

    def watched(self, x):
        names.append(tuple(name for name, *_ in self.parts))
        return times(self, x)

    monkeypatch.setattr(Joined, "times", watched)
    return names


def fast_and_plain(config=CONFIG):
    fast, plain = make_model(config), make_model(config)
    speed_up(fast)
    return fast, plain


ONE_LAYER = [("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)]


@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_a_fast_model_gives_the_same_logits(packed, joined):
    """In float32 against float64; 1e-4 is 30 roundings of logits near 10."""
    fast, plain = fast_and_plain()
    exact = plain.double()
    for rows in (1, 2, 5, 8, 17):
        expected = decoded(exact, rows)
        if packed:
            with packed_weights(fast):
                torch.testing.assert_close(decoded(fast, rows).double(), expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(decoded(fast, rows).double(), expected, rtol=0, atol=1e-4)
    assert joined == ONE_LAYER * (len(joined) // 4) and len(joined) == (1 + packed) * 5 * 2 * 2 * 4


@torch.no_grad()
def test_a_padded_batch_decodes_as_each_row_alone(joined):
    fast, plain = fast_and_plain()
    ids, mask = torch.tensor([[0, 0, 5, 6, 7], [9, 8, 7, 6, 5]]), torch.tensor([[0, 0, 1, 1, 1], [1] * 5])
    cache = StaticCache.for_model(fast, 8, batch_size=2)
    fast(ids[:, :4], kv_cache=cache, attention_mask=mask[:, :4])
    last = fast(ids[:, 4:], kv_cache=cache, attention_mask=mask)[:, -1]
    for row, alone in zip(last, (ids[:1, 2:], ids[1:]), strict=True):
        torch.testing.assert_close(row, plain(alone)[0, -1], rtol=0, atol=1e-4)
    assert joined


@torch.no_grad()
def test_a_window_that_the_model_was_trained_with_counts():
    fast, plain = fast_and_plain(replace(CONFIG, sliding_window=3))
    for rows in (1, 4):
        torch.testing.assert_close(decoded(fast, rows), decoded(plain, rows), rtol=0, atol=1e-4)


def test_parameters_stay_and_move_side_by_side():
    model = make_model()
    parameters = dict(model.named_parameters())
    values = {name: value.clone() for name, value in model.state_dict().items()}
    speed_up(model)
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert all(value.equal(values[name]) and value.is_contiguous() for name, value in model.state_dict().items())
    for layer in model.layers:
        attn = layer.self_attn
        assert type(layer) is FastLayer and type(layer.input_layernorm) is FastNorm
        assert attn.q_proj.weight.data_ptr() + attn.q_proj.weight.nbytes == attn.k_proj.weight.data_ptr()
        assert layer.qkv.weight.untyped_storage().data_ptr() == attn.v_proj.weight.untyped_storage().data_ptr()


@pytest.mark.parametrize("changes", [{"norm": "layernorm"}, {"gated_mlp": False}, {"attention_bias": True},
                                     {"mlp_bias": True}, {"positions": "learned"}, {"qk_norm": True}])
@torch.no_grad()
def test_other_families_compute_as_ever(changes, joined):
    fast, plain = fast_and_plain(replace(CONFIG, **changes))
    for rows in (1, 3):
        torch.testing.assert_close(decoded(fast, rows), decoded(plain, rows), rtol=0, atol=1e-4)
    assert bool(joined) == (changes == {"norm": "layernorm"})


# More that can be done to a model, each of which changes what it computes.


def cut_inner_units(model):
    """Structured pruning that leaves the matrices where they are."""
    mlp = model.layers[0].mlp
    for part in (mlp.gate_proj, mlp.up_proj):
        part.weight.data = part.weight.data[:14]
    mlp.down_proj.weight.data = mlp.down_proj.weight.data[:, :14].contiguous()


def hook_the_place_of_a_norm(model):
    model.layers[0].self_attn.q_norm.register_forward_hook(lambda module, args, output: 2 * output)


def replace_projecting(model):
    attn = model.layers[0].self_attn
    project = attn.project
    attn.project = lambda x, rope: project(-x, rope)


def replace_an_activation(model):
    model.layers[1].mlp.activation = torch.tanh


def hook_a_norm(model):
    model.layers[1].input_layernorm.register_forward_hook(lambda module, args, output: output.flip(-1))


def edit_a_norm(model):
    model.layers[0].post_attention_layernorm.weight.data[:5] = -3


def replace_a_layer(model):
    model.layers[0] = nn.Module.__new__(Skip)
    nn.Module.__init__(model.layers[0])


class Skip(nn.Module):
    def forward(self, x, rope, mask, kv_cache):
        shape = (x.shape[0], 3, x.shape[1], 4)
        kv_cache.update(torch.zeros(shape), torch.zeros(shape), 0)
        return x


MORE = [cut_inner_units, hook_the_place_of_a_norm, replace_projecting, replace_an_activation, hook_a_norm,
        edit_a_norm, replace_a_layer]


@pytest.mark.parametrize("change", CHANGES + MORE)
@pytest.mark.parametrize("copied", COPIES)
@torch.no_grad()
def test_what_is_done_to_a_part_counts(change, copied, joined):
    fast, plain = fast_and_plain()
    decoded(fast, 1)  # whatever was kept from before the change would be wrong after it
    fast = COPIES[copied](fast)
    before = decoded(plain, 3)
    change(fast)
    change(plain)
    assert (decoded(plain, 3) - before).abs().max() > 1e-2
    joined.clear()
    for rows in (1, 3):
        torch.testing.assert_close(decoded(fast, rows), decoded(plain, rows), rtol=0, atol=1e-4)
    if copied == "itself" and change.__name__ != "assign_other_weights":  # that one moves every parameter
        assert joined, "the other layer is still fast"


@torch.no_grad()
def test_a_hook_on_all_modules_sees_all_modules():
    fast, _ = fast_and_plain()
    seen = []
    with register_module_forward_hook(lambda module, args, output: seen.append(module)):
        decoded(fast, 1)
    assert {fast.layers[1].self_attn.k_proj, fast.layers[0].mlp.gate_proj} <= set(seen)


OTHERS = {"rope": (readable, "apply_rope", lambda x, cos, sin: x * cos),
          "norm": (RMSNorm, "forward", lambda self, x: x),
          "mlp": (MLP, "forward", lambda self, x: self.down_proj(self.up_proj(x))),
          "attention": (Attention, "project", lambda self, x, rope: (
              x.new_ones(*x.shape[:1], 6, x.shape[1], 4), *[x.new_ones(*x.shape[:1], 3, x.shape[1], 4)] * 2)),
          "layer": (DecoderLayer, "forward", lambda self, x, rope, mask, kv_cache: (
              self.self_attn(x, rope, mask, kv_cache)))}


@pytest.mark.parametrize("owner, name, function", OTHERS.values(), ids=OTHERS)
@torch.no_grad()
def test_a_function_that_the_reader_puts_in_the_models_place_counts(owner, name, function, monkeypatch):
    """As notebook 02 does with RoPE: in the module or the class, for all models at once."""
    fast, plain = fast_and_plain()
    before = decoded(plain, 1)
    monkeypatch.setattr(owner, name, function)
    for rows in (1, 3):
        expected = decoded(plain, rows)
        torch.testing.assert_close(decoded(fast, rows), expected, rtol=0, atol=1e-4 * expected.abs().max().item())
    assert (decoded(plain, 1) - before).abs().max() > 1e-2


@torch.no_grad()
def test_copies_leave_the_joined_matrices_behind_and_can_be_made_fast_again(joined):
    fast, plain = fast_and_plain()
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert copied.layers[0].qkv is None
        decoded(copied, 1)
        assert joined == []
        speed_up(copied)
        torch.testing.assert_close(decoded(copied, 1), decoded(plain, 1), rtol=0, atol=1e-4)
        assert joined
        joined.clear()


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.bfloat16, 0)])
@torch.no_grad()
def test_another_type_is_computed_as_ever(dtype, atol, joined):
    fast, plain = fast_and_plain()
    torch.testing.assert_close(decoded(fast.to(dtype), 1), decoded(plain.to(dtype), 1), rtol=0, atol=atol)
    assert decoded(fast.to("meta"), 2).shape == (2, 38) and joined == []


def test_training_is_left_alone(joined):
    fast, plain = fast_and_plain()
    for model in (fast, plain):
        model(torch.tensor([[5]])).square().sum().backward()
    assert joined == []
    for (name, ours), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert ours.grad.equal(theirs.grad), name


@torch.no_grad()
def test_a_compiler_sees_the_readable_layer(joined):
    fast, plain = fast_and_plain()
    ids = torch.tensor([[5]])
    compiled = torch.compile(fast, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids), plain(ids), rtol=0, atol=1e-4)
    assert joined == []


@pytest.mark.parametrize("x", [torch.zeros(1, 20), torch.full((1, 20), 1e-30), torch.full((1, 20), 1e18),
                               torch.full((1, 20), torch.nan), torch.arange(20.0)[None]])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@torch.no_grad()
def test_a_norm_is_the_norm(x, eps):
    norm = RMSNorm(20, eps)
    norm.weight.copy_(torch.arange(20.0))
    expected = norm(x)
    norm.__class__ = FastNorm
    torch.testing.assert_close(norm(x), expected, rtol=1e-6, atol=0, equal_nan=True)


def change_in_place(model):
    model.layers[0].mlp.gate_proj.weight.mul_(-1)
    model.lm_head.weight.mul_(2)


def change_the_object(model):
    model.layers[1].self_attn.k_proj.weight = nn.Parameter(torch.ones(12, 20))
    model.lm_head.weight = nn.Parameter(torch.ones(38, 20))


def change_the_data(model):
    for part in (model.layers[1].self_attn.o_proj, model.lm_head):
        part.weight.data = part.weight.data * 2


@pytest.mark.parametrize("change", [change_in_place, change_the_object, change_the_data])
@torch.no_grad()
def test_while_packed_a_change_that_pytorch_counts_counts(change):
    fast, plain = fast_and_plain()
    with packed_weights(fast):
        decoded(fast, 3)
        change(fast)
        change(plain)
        torch.testing.assert_close(decoded(fast, 3), decoded(plain, 3), rtol=0, atol=1e-4)


def packed_copies(model):
    """How many matrices have a second copy."""
    layers = [joined for layer in model.layers for joined in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    maps = [module for module in model.modules() if type(module) is FewRowsLinear]
    return sum(owner is not None and owner.packed is not None for owner in layers + maps)


@torch.no_grad()
def test_the_second_copy_is_gone_after_the_block_also_after_an_error():
    fast, plain = fast_and_plain()
    with pytest.raises(KeyboardInterrupt), packed_weights(fast):
        assert packed_copies(fast) == 2 * 4 + 1, "a joined matrix is not copied part by part as well"
        with packed_weights(fast):
            pass
        assert packed_copies(fast) == 9, "an inner block leaves the outer one's"
        assert packed_copies(copy.deepcopy(fast)) == packed_copies(pickle.loads(pickle.dumps(fast))) == 0
        raise KeyboardInterrupt
    assert packed_copies(fast) == 0
    with packed_weights(plain), packed_weights(fast.double()):
        assert packed_copies(fast) == 0


@torch.no_grad()
def test_a_block_that_outlives_the_one_before_it_keeps_the_second_copy():
    """As an engine does that is made again under the same name: the new one is there before the old one goes."""
    fast, _ = fast_and_plain()
    old, new = packed_weights(fast), packed_weights(fast)
    old.__enter__()
    new.__enter__()
    assert packed_copies(fast) == 9
    old.__exit__(None, None, None)
    assert packed_copies(fast) == 9
    new.__exit__(None, None, None)
    assert packed_copies(fast) == 0
    with packed_weights(fast):
        change_in_place(fast)
        with packed_weights(fast):  # whose copies are of the new weights
            assert all(part.packed.is_current(part.weights) for layer in fast.layers
                       for part in (layer.qkv, layer.out, layer.gate_up, layer.down))
    assert packed_copies(fast) == 0


@pytest.mark.parametrize("name", ["pocket", "pocket-draft"])
def test_the_shipped_models_write_the_same_text(name):
    lm, params = load(name, device="cpu", dtype=torch.float32), SamplingParams(temperature=0, max_tokens=48)
    plain = CausalLM(lm.config).eval()
    plain.load_state_dict(lm.model.state_dict())
    for prompt in ("What is gravity?", [{"role": "user", "content": "Tell me a story about a dragon."}]):
        expected = generate(replace(lm, model=plain), prompt, params).token_ids
        assert generate(lm, prompt, params).token_ids == expected and len(expected) > 3
        with packed_weights(lm.model):
            assert generate(lm, prompt, params).token_ids == expected


def test_layers_of_other_classes_are_left_alone():
    model = make_model()
    model.layers[0].mlp = nn.Sequential(nn.Tanh())
    speed_up(model)
    assert type(model.layers[0]) is DecoderLayer and type(model.layers[1]) is FastLayer


# --- quantized maps -----------------------------------------------------------------------------------

KERNELS = pytest.mark.skipif(not int8_kernel() or int4_block() is None, reason="no packed products for this processor")
QUANTIZED = {"int8": {}, "int4": {"bits": 4, "group_size": 32, "embedding_bits": 4}, "2 bits": {"bits": 2}}


def wide_lm(**changes):
    """Of matrices that fit the packed products."""
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 16,
             "num_key_value_heads": 4}
    return make_lm(**shape | changes)


def quantized_lm(settings="int8", **changes):
    return quantize(wide_lm(**changes), **QUANTIZED[settings])


@KERNELS
@pytest.mark.parametrize("settings", QUANTIZED)
@torch.no_grad()
def test_quantized_maps_are_joined_and_give_the_same_logits(settings, joined):
    """Each output is summed as before; only for rows that are multiplied in bfloat16 may PyTorch choose another order:
    2^-7 is one rounding of each of two layers' outputs to bfloat16.
    """
    fast = quantized_lm(settings).model
    plain = copy.deepcopy(fast)
    for rows in (1, 2, 8, 33):
        joined.clear()
        expected = decoded(plain, rows)
        assert joined == []
        y = decoded(fast, rows)
        assert joined == ONE_LAYER * 4
        exact = rows <= 8
        torch.testing.assert_close(y, expected, rtol=0, atol=0 if exact else 2**-7 * expected.abs().max().item())


@KERNELS
@pytest.mark.parametrize("settings", QUANTIZED)
def test_codes_and_scales_stay_and_move_side_by_side(settings):
    fast = quantized_lm(settings).model
    plain = copy.deepcopy(fast)
    buffers, nbytes = dict(plain.named_buffers()), stored_bytes(plain)
    speed_up(plain)
    assert all(buffer is buffers[name] for name, buffer in plain.named_buffers())
    for name, buffer in plain.state_dict().items():
        assert buffer.equal(fast.state_dict()[name])
    assert stored_bytes(plain) == nbytes == stored_bytes(fast)
    for model in (fast, plain):
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
                    for tensor in model.state_dict().values()}
        assert sum(storages.values()) == nbytes, "no second copy, and nothing that is not needed"
        attn = model.layers[0].self_attn
        assert attn.q_proj.weight.data_ptr() + attn.q_proj.weight.nbytes == attn.k_proj.weight.data_ptr()


@KERNELS
@pytest.mark.parametrize("settings", QUANTIZED)
@torch.no_grad()
def test_a_quantized_folder_is_joined_when_it_is_loaded(settings, tmp_path, joined):
    lm = quantized_lm(settings)
    save(lm, tmp_path)
    again = load(tmp_path, device="cpu", dtype=torch.float32)
    joined.clear()
    torch.testing.assert_close(decoded(again.model, 3), decoded(lm.model, 3), rtol=0, atol=0)
    assert joined == ONE_LAYER * 8
    torch.testing.assert_close(pickle.loads(pickle.dumps(lm.model))(torch.tensor([[5]])),
                               lm.model(torch.tensor([[5]])), rtol=0, atol=0)


def edit_codes(part):
    part.weight.bitwise_not_()


def edit_scales(part):
    scales = part.scales if hasattr(part, "scales") else part.scales_and_zeros
    scales.data *= 2


def give_new_codes(part):
    part.weight.data = part.weight.flip(0)


def give_other_codes(part):
    part.weight = part.weight.bitwise_not()


def give_a_quantized_bias(part):
    part.bias = nn.Parameter(torch.ones(64))


def hook(part):
    part.register_forward_hook(lambda module, args, output: 2 * output)


def hook_before(part):
    part.register_forward_pre_hook(lambda module, args: (args[0].flip(-1),))


def replace_forward(part):
    part.forward = lambda x: x


def replace_its_product(part):
    part.packed_product = lambda rows: rows


def load_other_codes(part):
    part.load_state_dict({name: value.flip(0) for name, value in part.state_dict().items()})


@KERNELS
@pytest.mark.parametrize("change", [edit_codes, edit_scales, give_new_codes, give_other_codes, give_a_quantized_bias,
                                    hook, hook_before, replace_forward, replace_its_product, load_other_codes])
@pytest.mark.parametrize("settings", ["int8", "int4"])
@torch.no_grad()
def test_what_is_done_to_a_quantized_part_counts(change, settings, joined):
    fast = quantized_lm(settings).model
    plain = copy.deepcopy(fast)
    before = decoded(fast, 1)
    for model in (fast, plain):
        change(model.layers[0].self_attn.k_proj)
        change(model.layers[1].self_attn.o_proj)
    assert not decoded(plain, 1).allclose(before, rtol=0, atol=1e-3)
    for rows in (1, 3):
        torch.testing.assert_close(decoded(fast, rows), decoded(plain, rows), rtol=0, atol=0)


@KERNELS
@torch.no_grad()
def test_a_quantized_part_without_its_product_is_dequantized(joined):
    model = quantized_lm().model
    for layer in model.layers:
        layer.mlp.up_proj.has_kernel = False
    decoded(model, 1)
    assert joined == []


@KERNELS
@pytest.mark.parametrize("kind, name", [(Int8Linear, "packed_product"), (Int8Linear, "forward"),
                                        (Int4Linear, "packed_product")])
@torch.no_grad()
def test_another_product_for_a_class_of_maps_counts(kind, name, monkeypatch, joined):
    model = quantized_lm("int8" if kind is Int8Linear else "int4").model
    before, own = decoded(model, 1), getattr(kind, name)
    joined.clear()
    monkeypatch.setattr(kind, name, lambda self, x: 2 * own(self, x))
    assert not decoded(model, 1).allclose(before, rtol=0, atol=1e-3) and joined == []


@KERNELS
def test_maps_that_differ_or_have_no_product_are_left_alone(joined):
    for lm in (quantized_lm(num_key_value_heads=2, settings="int4"), quantized_lm(attention_bias=True),
               quantize(wide_lm(), 8, 32)):
        assert not any(isinstance(layer, FastLayer) and layer.qkv is not None for layer in lm.model.layers)
    model = quantized_lm().model
    attn, mlp = model.layers[0].self_attn, model.layers[1].mlp
    attn.v_proj = quantize_linear(torch.ones(64, 64), 4, 32)
    mlp.gate_proj, mlp.up_proj = (quantize_linear(torch.ones(128, 64), 4, size) for size in (32, 64))
    with torch.no_grad():
        decoded(model, 1)
        speed_up(model)
        assert decoded(model, 1).isfinite().all()
    assert joined == []


@KERNELS
def test_a_quantized_model_in_another_type_or_with_gradients_is_computed_as_ever(joined):
    model = quantized_lm().model
    x = model.embed_tokens(torch.tensor([[5]])).requires_grad_()
    model.layers[0](x, model.rope(slice(0, 1), x.dtype), None, None).sum().backward()
    assert x.grad.abs().sum() > 0
    with torch.no_grad():
        assert decoded(model.to(torch.bfloat16), 1).dtype == torch.bfloat16
    assert joined == []


@KERNELS
@pytest.mark.parametrize("settings", [{}, {"bits": 4, "group_size": 32}])
def test_quantized_pocket_writes_the_same_64_tokens(settings, joined):
    fast = quantize(load("pocket", device="cpu", dtype=torch.float32), **settings)
    plain = replace(fast, model=copy.deepcopy(fast.model))
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    prompt = [{"role": "user", "content": "Tell me a story about a dragon."}]
    expected = generate(plain, prompt, params).token_ids
    assert joined == []
    assert generate(fast, prompt, params).token_ids == expected and joined
