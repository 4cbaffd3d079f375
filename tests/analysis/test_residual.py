"""What parts write, against the model's own hidden states; knock-outs against models whose weights are zero."""

import copy

import pytest
import torch
from test_model import make_model

from course_lib.analysis.residual import knocked_out, mean_writes, part_names, stream_writes
from course_lib.analysis.trace import trace

IDS = torch.randint(0, 37, (2, 9), generator=torch.Generator().manual_seed(1))
GPT2 = {"norm": "layernorm", "positions": "learned", "gated_mlp": False, "hidden_act": "gelu_tanh",
        "attention_bias": True, "attention_out_bias": True, "mlp_bias": True}
BOTH = pytest.mark.parametrize("changes", [{"num_hidden_layers": 3}, GPT2], ids=["llama", "gpt2"])


def test_parts_in_the_order_in_which_they_run():
    assert part_names(make_model()) == ["layers.0.self_attn", "layers.0.mlp", "layers.1.self_attn", "layers.1.mlp"]


@BOTH
def test_the_running_sum_of_the_writes_is_the_stream(changes):
    model = make_model(torch.float64, **changes)
    writes = stream_writes(model, IDS)
    assert list(writes) == ["embedding", *part_names(model)]
    running = torch.stack(list(writes.values())).cumsum(0)[::2]
    torch.testing.assert_close(running, trace(model, IDS).hidden_states, rtol=0, atol=1e-10)


@pytest.mark.parametrize("part, weight", [("layers.1.self_attn", "o_proj"), ("layers.0.mlp", "down_proj")])
@torch.no_grad()
def test_a_knocked_out_part_is_one_whose_last_matrix_is_zero(part, weight):
    model = make_model()
    zeroed = copy.deepcopy(model)
    zeroed.get_submodule(f"{part}.{weight}").weight.zero_()
    before = model(IDS)
    with knocked_out(model, [part]):
        without = model(IDS)
    assert without.equal(zeroed(IDS)) and not without.equal(before)
    assert model(IDS).equal(before), "afterwards everything is in place again"


@torch.no_grad()
def test_several_parts_and_a_replacement():
    model = make_model()
    parts = ["layers.0.self_attn", "layers.1.mlp"]
    vectors = {name: torch.arange(20.0) * (i + 1) for i, name in enumerate(part_names(model))}
    with knocked_out(model, parts, instead=vectors):
        writes = stream_writes(model, IDS)
    for name in part_names(model):
        assert (writes[name] == vectors[name]).all() == (name in parts), name


def test_after_an_error_inside_everything_is_in_place_again():
    model = make_model()
    before = model(IDS)
    with pytest.raises(RuntimeError, match="inside"), knocked_out(model, ["layers.0.mlp"]):
        raise RuntimeError("inside")
    assert model(IDS).equal(before)


def test_an_unknown_part_is_refused_by_name():
    with pytest.raises(ValueError, match=r"part = 'layers.2.mlp'.*layers.0.self_attn ... layers.1.mlp"), \
            knocked_out(make_model(), ["layers.2.mlp"]):
        pass


def test_mean_writes_leave_the_first_position_out():
    model = make_model()
    writes, means = stream_writes(model, IDS), mean_writes(model, IDS)
    assert list(means) == part_names(model)
    rows = writes["layers.1.mlp"][:, 1:].reshape(-1, 20).double()
    torch.testing.assert_close(means["layers.1.mlp"].double(), rows.sum(0) / 16, rtol=0, atol=1e-5)
