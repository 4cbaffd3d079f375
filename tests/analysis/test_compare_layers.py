"""Models of `transformers` against ours, equal and with one fault each: the helper names the place."""

import json

import pytest
import torch
from test_model import SHAPE, make_model
from tiny_checkpoints import make_model as make_reference

from course_lib.analysis.compare_layers import Gap, compare_layers, gap
from course_lib.config import ModelConfig
from course_lib.hf_config import config_from_hf
from course_lib.model import CausalLM, DecoderLayer
from course_lib.weights import load_weights

IDS = torch.randint(0, 37, (2, 9), generator=torch.Generator().manual_seed(1))


def verdict(change):
    """What the helper says of a model after `change(model)`, compared with the same model as it was."""
    model = make_model(num_hidden_layers=3)
    return compare_layers(change(model) or model, make_model(num_hidden_layers=3), IDS).verdict()


@pytest.mark.parametrize("name, rows", [("gpt2", 27), ("llama", 39), ("qwen3", 45)])
def test_every_module_of_transformers_agrees(name, rows, tmp_path):
    reference = make_reference(name, tmp_path)
    model = CausalLM(config_from_hf(json.loads((tmp_path / "config.json").read_text())))
    load_weights(model, tmp_path, torch.device("cpu"), torch.float32)
    found = compare_layers(model.eval(), reference, IDS)
    assert found.first is None and found.culprit is None and len(found.rows) == rows
    assert str(found).splitlines()[-1] == f"No difference in {rows} modules."
    names = [row.name for row in found.rows]
    assert names[0] == "embed_tokens" and names[-2:] == ["norm", "lm_head"]
    assert names.index("layers.1.self_attn.o_proj") < names.index("layers.1.self_attn") < names.index("layers.1")
    with torch.no_grad():
        model.layers[1].mlp.down_proj.weight[3, 5] += 0.5
    found = compare_layers(model, reference, IDS)
    assert found.verdict() == "First difference: layers.1.mlp.down_proj, on the same input. " \
                              "Look into layers.1.mlp.down_proj."
    lines = str(found).splitlines()
    assert [line.endswith("differs") for line in lines if line.startswith("layers.")] == [False, True, True]


@torch.no_grad()
def wrong_weight(model):
    model.layers[1].self_attn.k_proj.weight[0, 0] += 1


@torch.no_grad()
def nan_weight(model):
    model.layers[2].mlp.gate_proj.weight[0, 0] = torch.nan


def wrong_angles(model):
    model.rope_cos.copy_(model.rope_cos.roll(1, 0))


def gate_and_up_exchanged(model):
    mlp = model.layers[1].mlp
    mlp.forward = lambda x: mlp.down_proj(mlp.activation(mlp.up_proj(x)) * mlp.gate_proj(x))


class Parallel(DecoderLayer):
    """Both parts read the same stream."""

    def forward(self, x, rope, mask, kv_cache):
        """The MLP does not see what attention added."""
        h = x + self.self_attn(self.input_layernorm(x), rope, mask, kv_cache)
        return h + self.mlp(self.post_attention_layernorm(x))


def parallel_layer(model):
    layer = Parallel(model.config, 1)
    layer.load_state_dict(model.layers[1].state_dict())
    model.layers[1] = layer


class NoSum(DecoderLayer):
    """The residual connection is missing."""

    def forward(self, x, rope, mask, kv_cache):
        """What the MLP returns replaces the stream."""
        h = x + self.self_attn(self.input_layernorm(x), rope, mask, kv_cache)
        return self.mlp(self.post_attention_layernorm(h))


def no_sum(model):
    layer = NoSum(model.config, 0)
    layer.load_state_dict(model.layers[0].state_dict())
    model.layers[0] = layer


def scaled_embeddings(model):
    class Scaled(CausalLM):
        """Gemma multiplies its embeddings outside the table."""

        def forward(self, input_ids):
            """Without mask and cache."""
            x, rope = 3 * self.embed_tokens(input_ids), self.rope(slice(0, input_ids.shape[1]), torch.float32)
            for layer in self.layers:
                x = layer(x, rope, None, None)
            return self.lm_head(self.norm(x))
    scaled = Scaled(model.config).eval()
    scaled.load_state_dict(model.state_dict())
    return scaled


@pytest.mark.parametrize("fault, said", [
    (wrong_weight, "layers.1.self_attn.k_proj, on the same input. Look into layers.1.self_attn.k_proj."),
    (nan_weight, "layers.2.mlp.gate_proj, on the same input. Look into layers.2.mlp.gate_proj."),
    (wrong_angles, "layers.0.self_attn.o_proj, and its input differs already. Look into layers.0.self_attn."),
    (gate_and_up_exchanged, "layers.1.mlp.down_proj, and its input differs already. Look into layers.1.mlp."),
    (parallel_layer, "layers.1.post_attention_layernorm, and its input differs already. Look into layers.1."),
    (no_sum, "layers.0, on the same input. Look into layers.0."),
    (scaled_embeddings, "layers.0.self_attn.q_proj, and its input differs already. Look into the model itself."),
], ids=lambda value: getattr(value, "__name__", ""))
def test_the_place_of_a_fault_is_named(fault, said):
    # A norm takes a factor out of its input, so scaled embeddings show in the first sum, or by eps in a projection.
    told = verdict(fault)
    if fault is scaled_embeddings:
        assert told.endswith("its input differs already. Look into the model itself.")
    else:
        assert told == f"First difference: {said}"


def test_another_shape_is_a_difference():
    narrow = CausalLM(ModelConfig(**SHAPE | {"vocab_size": 40})).eval()
    found = compare_layers(narrow, make_model(), IDS)
    assert found.rows[-1].note == " (shape (2, 9, 40), not (2, 9, 37))"
    assert found.rows[-1].output.max_abs == float("inf")


def test_models_without_a_common_module_are_refused():
    with pytest.raises(ValueError, match="a model with modules of the same names"):
        compare_layers(make_model(), torch.nn.Sequential(torch.nn.Embedding(37, 4)), IDS)


def test_gap_is_absolute_and_sees_nan_and_the_scale_of_the_reference():
    one, other = torch.tensor([1.0, -8.0]), torch.tensor([1.0, -4.0])
    assert gap(one, other) == Gap(4.0, 4.0) and gap(other, one) == Gap(4.0, 8.0)
    assert gap(torch.tensor([torch.nan, 1.0]), other).max_abs == float("inf")
    assert gap(torch.ones(1, 2), torch.ones(2, 2)).max_abs == float("inf")
    assert Gap(0.1, 1000.0).within(1e-3) and not Gap(0.1, 1.0).within(1e-3)
    assert Gap(0.0, 0.0).within(1e-3) and not Gap(float("inf"), 1.0).within(1e-3)
    assert gap(torch.tensor([1.0]), torch.tensor([torch.nan])).within(1e-3) is False
