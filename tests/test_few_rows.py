"""The product with few rows against float64 and `nn.Linear`; whatever is done to a model counts in it too."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from course_lib import few_rows
from course_lib.config import ModelConfig
from course_lib.few_rows import (
    FewRowsLinear,
    Packed,
    few_rows_product,
    is_few,
    product,
    speed_up_few_rows,
    suits,
    weight_first,
)
from course_lib.kv_cache import DynamicCache
from course_lib.layers import MLP
from course_lib.model import Attention, CausalLM

CONFIG = ModelConfig(vocab_size=38, hidden_size=20, intermediate_size=28, num_hidden_layers=2, num_attention_heads=6,
                     num_key_value_heads=3, head_dim=4, max_position_embeddings=32)
PARTS = {f"layers.{i}.{part}" for i in range(2) for part in (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")} | {"lm_head"}


@pytest.fixture(autouse=True)
def with_mkl(monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)


@pytest.fixture(params=[True, False], ids=["Intel", "another maker"])
def products(request, monkeypatch):
    """The shapes that `few_rows_product` was called with, (R, K) and (N, K)."""
    shapes = []
    monkeypatch.setattr(few_rows, "MKL_IS_FAST", request.param)
    monkeypatch.setattr(few_rows, "few_rows_product", lambda x, weight: (
        shapes.append((tuple(x.shape), tuple(weight.shape))), few_rows_product(x, weight))[1])
    return shapes


def make_model(config=CONFIG):
    model, generator = CausalLM(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (parameter.dim() == 1))
    return model.eval()


def fast_and_plain(config=CONFIG):
    fast, plain = make_model(config), make_model(config)
    speed_up_few_rows(fast)
    return fast, plain


def decoded(model, rows):
    """The logits (rows, V) of the last positions, decoded in one step after six others."""
    cache = DynamicCache()
    ids = torch.arange(6 + rows, device=model.embed_tokens.weight.device)[None]
    model(ids[:, :6], kv_cache=cache)
    return model(ids[:, 6:], kv_cache=cache)[0]


@pytest.mark.parametrize("N, K", [(2, 1), (6, 4), (384, 256), (1280, 256), (256, 640), (512, 3072)])
@pytest.mark.parametrize("R", [1, 2, 3, 5, 8])
def test_the_product_is_that_of_einsum_in_float64(N, K, R):
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, K, generator=generator) for size in (R, N))
    result, exact = weight_first(x, weight), torch.einsum("rk,nk->rn", x.double(), weight.double())
    assert result.shape == (R, N) and result.is_contiguous()
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=1e-5 * K**0.5)
    torch.testing.assert_close(weight_first(x.double(), weight.double()), exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5), (2, 3, 5), (9, 5), (0, 5)])
@pytest.mark.parametrize("N", [4, 3])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_a_map_is_a_linear_map_for_an_input_of_any_shape(shape, N, bias):
    part = nn.Linear(5, N, bias=bias)
    x = torch.randn(shape)
    expected = part(x)
    speed_up_few_rows(part)
    torch.testing.assert_close(part(x), expected, rtol=0, atol=1e-6)


def test_few_rows_are_one_of_any_width_or_four_of_up_to_1024():
    def fits(R, K, N=4):
        return is_few(torch.zeros(R, K), torch.zeros(N, K))

    assert fits(1, 3) and fits(1, 11_008) and fits(4, 1024) and fits(2, 2048)
    assert not fits(5, 3) and not fits(4, 1025) and not fits(2, 3072)
    assert not fits(1, 4, N=3), "an odd number of rows has no halves"


def test_what_neither_product_can_multiply_is_left_to_pytorch(monkeypatch):
    def fits(R, K, N=4, dtype=torch.float32):
        return suits(torch.zeros(R, K, dtype=dtype), torch.zeros(N, K, dtype=dtype))

    assert fits(1, 3) and fits(1, 3, N=5) and fits(300, 3072)
    assert not fits(0, 3)
    assert not fits(1, 4, dtype=torch.bfloat16), "slower there"
    assert not suits(torch.zeros(1, 4), torch.zeros(4, 6).t()), "a matrix that lies column by column"
    assert not suits(torch.zeros(1, 4, device="meta"), torch.zeros(6, 4, device="meta"))
    monkeypatch.setattr(few_rows, "ONEDNN", None)
    assert fits(4, 3) and not fits(5, 3) and not fits(1, 3, N=5)


@pytest.mark.parametrize("N, K", [(6, 4), (5, 3), (384, 256), (256, 640)])
@pytest.mark.parametrize("R", [1, 2, 5, 16, 70])
@pytest.mark.parametrize("intel", [True, False])
def test_each_product_is_that_of_float64(intel, N, K, R, monkeypatch):
    monkeypatch.setattr(few_rows, "MKL_IS_FAST", intel)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, K, generator=generator) for size in (R, N))
    exact = x.double() @ weight.double().T
    for packed in (None, Packed(weight, (weight,))):
        result = product(x, weight, (weight,), packed)
        assert result.shape == (R, N) and result.is_contiguous()
        torch.testing.assert_close(result.double(), exact, rtol=0, atol=1e-5 * K**0.5)


def test_a_packed_product_meets_few_numbers_of_rows(monkeypatch):
    """For each, oneDNN keeps code for good."""
    met, onednn = set(), few_rows.ONEDNN
    monkeypatch.setattr(few_rows, "ONEDNN", lambda x, *rest: met.add(len(x)) or onednn(x, *rest))
    weight = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
    packed = Packed(weight, (weight,))
    for R in range(2, 513):
        x = torch.randn(R, 16, generator=torch.Generator().manual_seed(R))
        y = product(x, weight, (weight,), packed)
        assert y.shape == (R, 24) and y.is_contiguous()
        torch.testing.assert_close(y, x @ weight.T, rtol=1e-5, atol=1e-5)
    assert sorted(met) == [*range(2, 33), *range(48, 513, 16)]


def test_a_copy_counts_until_its_matrix_changes():
    weight = torch.ones(4, 3)
    packed = Packed(weight, (weight,))
    assert packed.is_current((weight,))
    other = torch.ones(4, 3)
    assert not packed.is_current((other,))
    weight.mul_(2)
    assert not packed.is_current((weight,))
    torch.testing.assert_close(product(torch.ones(2, 3), weight, (weight,), packed), torch.full((2, 4), 6.0))


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_keeps_its_modules_parameters_names_and_tie(tied):
    model = make_model(replace(CONFIG, tie_word_embeddings=tied))
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    values = {name: value.clone() for name, value in model.state_dict().items()}
    speed_up_few_rows(model)
    assert {name for name, module in model.named_modules() if type(module) is FewRowsLinear} == PARTS
    assert all(module is modules[name] for name, module in model.named_modules())
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert list(model.state_dict()) == list(values)
    assert all(value.equal(values[name]) and value.is_contiguous() for name, value in model.state_dict().items())
    assert type(model.layers[0].self_attn) is Attention and type(model.layers[0].mlp) is MLP


def test_without_mkl_and_in_other_classes_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    model = make_model()
    speed_up_few_rows(model)
    assert type(model.lm_head) is nn.Linear
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    model.lm_head = nn.modules.linear.NonDynamicallyQuantizableLinear(20, 38)
    speed_up_few_rows(model)
    assert type(model.lm_head) is nn.modules.linear.NonDynamicallyQuantizableLinear


@torch.no_grad()
def test_few_rows_take_the_other_product_and_many_do_not(products):
    fast, _ = fast_and_plain()
    fast(torch.arange(9)[None])
    assert products == []
    for rows, ids in ((1, torch.tensor([[5]])), (4, torch.arange(4).view(2, 2))):
        fast(ids)
        assert len(products) == len(PARTS) and {x[0] for x, _ in products} == {rows}
        products.clear()


# Each of these is done to the fast model and to a plain one, and changes what both compute.


def edit_in_place(model):
    with torch.no_grad():
        model.layers[0].self_attn.k_proj.weight.mul_(-1)


def edit_through_data(model):
    model.layers[0].self_attn.o_proj.weight.data[:, 4:8] = 0


def edit_through_numpy(model):
    model.layers[1].mlp.down_proj.weight.detach().numpy()[3] = 2


def give_new_data(model):
    weight = model.layers[1].mlp.up_proj.weight
    weight.data = weight.data * 2


def give_data_by_columns(model):
    weight = model.layers[1].mlp.up_proj.weight
    weight.data = (2 * weight.data).t().contiguous().t()


def give_a_parameter(model):
    model.layers[0].mlp.gate_proj.weight = nn.Parameter(torch.ones(28, 20))


def give_a_bias(model):
    model.layers[0].mlp.down_proj.bias = nn.Parameter(torch.arange(20.0))


def load_other_weights(model):
    model.load_state_dict({name: value.flip(0) for name, value in model.state_dict().items()})


def assign_other_weights(model):
    state = {name: value.flip(0) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    model.derive_state()


def replace_a_projection(model):
    attn = model.layers[0].self_attn
    attn.v_proj = nn.Sequential(attn.v_proj, nn.ReLU())


def replace_attention(model):
    other = Attention(CONFIG, 0)
    other.load_state_dict({name: value.flip(0) for name, value in model.layers[0].self_attn.state_dict().items()})
    model.layers[0].self_attn = other


def replace_an_mlp(model):
    model.layers[1].mlp = nn.Sequential(nn.Tanh(), model.layers[1].mlp.up_proj, model.layers[1].mlp.down_proj)


def replace_a_forward(model):
    part = model.layers[1].mlp.down_proj
    part.forward = lambda x: x[..., :20] * 2


def hook_a_projection(model):
    model.layers[1].mlp.gate_proj.register_forward_hook(lambda module, args, output: output.clamp(max=0.1))


def hook_before_a_projection(model):
    model.layers[1].self_attn.q_proj.register_forward_pre_hook(lambda module, args: (2 * args[0],))


def hook_attention(model):
    model.layers[0].self_attn.register_forward_hook(lambda module, args, output: 0 * output)


def hook_before_an_mlp(model):
    model.layers[1].mlp.register_forward_pre_hook(lambda module, args: (args[0].flip(-1),))


def prune_a_projection(model):
    prune.l1_unstructured(model.layers[0].self_attn.v_proj, "weight", amount=0.5)


def reparametrize_a_projection(model):
    parametrizations.orthogonal(model.layers[0].self_attn.o_proj)


CHANGES = [edit_in_place, edit_through_data, edit_through_numpy, give_new_data, give_data_by_columns,
           give_a_parameter, give_a_bias, load_other_weights, assign_other_weights, replace_a_projection,
           replace_attention, replace_an_mlp, replace_a_forward, hook_a_projection, hook_before_a_projection,
           hook_attention, hook_before_an_mlp, prune_a_projection, reparametrize_a_projection]
COPIES = {"itself": lambda model: model, "a copy": copy.deepcopy,
          "a pickle": lambda model: pickle.loads(pickle.dumps(model))}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("copied", COPIES)
@torch.no_grad()
def test_what_is_done_to_a_part_counts(change, copied, products):
    fast, plain = fast_and_plain()
    decoded(fast, 1)  # whatever was kept from before the change would be wrong after it
    fast = COPIES[copied](fast)
    before = decoded(plain, 3)
    change(fast)
    change(plain)
    assert (decoded(plain, 3) - before).abs().max() > 1e-2
    products.clear()
    for rows in (1, 3):
        torch.testing.assert_close(decoded(fast, rows), decoded(plain, rows), rtol=0, atol=1e-4)
    assert products, "the other parts are still fast"


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@torch.no_grad()
def test_a_fast_model_gives_the_same_logits(bias, tied):
    config = replace(CONFIG, attention_bias=bias, mlp_bias=bias, tie_word_embeddings=tied)
    fast, plain = fast_and_plain(config)
    assert (fast.lm_head.weight is fast.embed_tokens.weight) == tied
    exact = plain.double()
    for rows in (1, 2, 5, 8, 9, 16):
        torch.testing.assert_close(decoded(fast, rows).double(), decoded(exact, rows), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.bfloat16, 0)])
@torch.no_grad()
def test_another_type_is_multiplied_as_ever(dtype, atol, products):
    fast, plain = fast_and_plain()
    torch.testing.assert_close(decoded(fast.to(dtype), 1), decoded(plain.to(dtype), 1), rtol=0, atol=atol)
    assert products == []


@torch.no_grad()
def test_another_device_is_left_alone(products):
    fast, _ = fast_and_plain()
    assert decoded(fast.to("meta"), 2).shape == (2, 38) and products == []


def test_training_is_left_alone(products):
    fast, plain = fast_and_plain()
    for model in (fast, plain):
        model(torch.tensor([[5]])).square().sum().backward()
    assert products == []
    for (name, ours), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert ours.grad.equal(theirs.grad), name


@torch.no_grad()
def test_a_compiler_sees_sums_for_one_row_and_linear_maps_for_more(products):
    fast, plain = fast_and_plain()
    operators = []

    def read(graph, inputs):
        operators.extend(str(node.target) for node in graph.graph.nodes if node.op in ("call_function", "call_method"))
        return graph.forward

    for ids, operator in ((torch.tensor([[5]]), "sum"), (torch.tensor([[5, 6]]), "linear")):
        operators.clear()
        torch.compiler.reset()
        torch.testing.assert_close(torch.compile(fast, backend=read)(ids), plain(ids), rtol=0, atol=1e-4)
        assert sum(operator in name for name in operators) == len(PARTS) and products == []
