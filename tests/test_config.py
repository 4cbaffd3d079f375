"""The two records refuse what is out of range, and say what is allowed."""

import math
from dataclasses import FrozenInstanceError, asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.config import ModelConfig, RopeScaling, SamplingParams, is_int, require, to_dict
from course_lib.sampling import request_generator

SIZES = {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 12,
         "num_attention_heads": 8}


def test_model_config_fills_in_what_follows_from_the_rest():
    config = ModelConfig(**SIZES)
    assert (config.num_key_value_heads, config.head_dim) == (8, 32)
    config = ModelConfig(**SIZES, num_key_value_heads=2, head_dim=40)
    assert (config.num_key_value_heads, config.head_dim) == (2, 40), "given values stay"


def test_head_dim_may_be_independent_of_hidden_size():
    """Qwen3-0.6B: 16 heads of 128 on a hidden size of 1,024."""
    assert ModelConfig(**SIZES | {"hidden_size": 100, "num_attention_heads": 8}, head_dim=16).head_dim == 16


@pytest.mark.parametrize(("changes", "message"), [
    ({"vocab_size": 0}, r"vocab_size = 0 .* a positive integer"),
    ({"hidden_size": -1}, r"hidden_size = -1 "),
    ({"intermediate_size": 0}, r"intermediate_size = 0 "),
    ({"num_hidden_layers": 0}, r"num_hidden_layers = 0 "),
    ({"num_attention_heads": 0}, r"num_attention_heads = 0 "),
    ({"num_key_value_heads": 0}, r"num_key_value_heads = 0 "),
    ({"max_position_embeddings": 0}, r"max_position_embeddings = 0 "),
    ({"num_attention_heads": 7}, r"num_attention_heads = 7 .* a divisor of hidden_size = 256"),
    ({"num_key_value_heads": 3}, r"num_key_value_heads = 3 .* a divisor of num_attention_heads = 8"),
    ({"head_dim": 31}, r"head_dim = 31 .* even"),
    ({"hidden_act": "swish"}, r"hidden_act = 'swish' .* one of \('silu', 'relu', 'gelu', 'gelu_tanh'\)"),
    ({"norm": "batchnorm"}, r"norm = 'batchnorm' .* one of \('rmsnorm', 'layernorm'\)"),
    ({"positions": "alibi"}, r"positions = 'alibi' .* one of \('rope', 'learned'\)"),
    ({"sliding_window": 0}, r"sliding_window = 0 .* None or positive"),
])
def test_model_config_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**SIZES | changes)


def test_odd_head_dim_is_fine_where_nothing_is_rotated():
    assert ModelConfig(**SIZES | {"positions": "learned", "head_dim": 31}).head_dim == 31


def test_defaults_are_those_of_vllm():
    assert asdict(SamplingParams()) == {
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "max_tokens": 64, "stop": (), "stop_token_ids": (),
        "ignore_eos": False, "seed": None, "logprobs": None, "structured_outputs": None}


@pytest.mark.parametrize(("name", "allowed", "refused", "message"), [
    ("temperature", [0, 1e-40, 5.5], [-1e-9, math.inf, math.nan], "a finite number >= 0"),
    ("top_k", [0, 1, 10**6], [-1, 1.0, True, None], r"an integer >= 0"),
    ("top_p", [1e-8, 1, 1.0], [0, -0.1, 1.0001, math.nan], r"in \(0, 1\]"),
    ("min_p", [0, 0.5, 1], [-0.01, 1.01, math.nan], r"in \[0, 1\]"),
    ("repetition_penalty", [0.01, 1, 9.0], [0, -1, math.inf, math.nan], "a finite number > 0"),
    ("presence_penalty", [-2, 0, 2], [-2.01, 2.01, math.nan], r"in \[-2, 2\]"),
    ("frequency_penalty", [-2, 0, 2], [-2.01, 2.01, math.nan], r"in \[-2, 2\]"),
    ("max_tokens", [1, 2**20], [0, -1, 1.5, True], "an integer >= 1"),
    ("stop", ["x", ("a", "b"), (), []], ["", ("a", "")], "non-empty strings"),
    ("logprobs", [None, 0, 20], [-1, 2.5, False], "None or an integer >= 0"),
])
def test_sampling_params_ranges(name, allowed, refused, message):
    for value in allowed:
        SamplingParams(**{name: value})
    for value in refused:
        with pytest.raises(ValueError, match=rf"{name} = .* is not allowed: must be .*{message}"):
            SamplingParams(**{name: value})


def test_a_refusal_names_the_value():
    with pytest.raises(ValueError, match=r"^top_p = 1\.5 is not allowed: must be in \(0, 1\]$"):
        SamplingParams(top_p=1.5)


def test_stop_becomes_a_tuple_and_one_string_is_not_taken_apart():
    assert SamplingParams(stop="END").stop == ("END",)
    params = SamplingParams(stop=["a", "b"], stop_token_ids=[3, 4])
    assert (params.stop, params.stop_token_ids) == (("a", "b"), (3, 4))
    assert hash(params) == hash(SamplingParams(stop=("a", "b"), stop_token_ids=(3, 4)))


@pytest.mark.parametrize("record", [SamplingParams(), ModelConfig(**SIZES), RopeScaling(8.0, 1.0, 4.0, 8192)])
def test_records_are_frozen(record):
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, 1)


@given(st.builds(SamplingParams, temperature=st.floats(0, 5), top_k=st.integers(0, 9),
                 stop=st.text(min_size=1), seed=st.none() | st.integers(0, 9), ignore_eos=st.booleans()))
def test_repr_can_be_copied(params):
    assert eval(repr(params)) == params
    assert "top_p" not in repr(params), "defaults are left out"


def test_to_dict_is_plain_data():
    scaling = RopeScaling(8.0, 1.0, 4.0, 8192)
    config = ModelConfig(**SIZES, rope_scaling=scaling)
    data = to_dict(config)
    assert data["rope_scaling"] == {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 8192}
    assert ModelConfig(**data | {"rope_scaling": scaling}) == config
    assert to_dict(SamplingParams(stop="x"))["stop"] == ("x",)


def test_is_int_and_require():
    assert [is_int(value) for value in (3, -1, True, 3.0, "3", None)] == [True, True] + [False] * 4
    require(True, "x", 1, "anything")
    with pytest.raises(ValueError, match=r"^x = 'y' is not allowed: must be z$"):
        require(False, "x", "y", "z")


@pytest.mark.parametrize("setting", [{"stop": (1,)}, {"stop_token_ids": ("a",)}, {"stop_token_ids": (-1,)},
                                     {"seed": 0.5}, {"seed": "x"}])
def test_settings_of_the_wrong_type_are_refused(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"^{name} = .* is not allowed"):
        SamplingParams(**setting)


@pytest.mark.parametrize("head_dim", [0, -2])
def test_a_head_has_a_size(head_dim):
    with pytest.raises(ValueError, match=f"head_dim = {head_dim} is not allowed"):
        ModelConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                    head_dim=head_dim)


@pytest.mark.parametrize("name, values", [
    ("temperature", ["1", None, True, math.nan, math.inf, [1], 10**400]), ("top_p", ["0.5", None, math.nan]),
    ("min_p", ["0", None]), ("repetition_penalty", ["1", None, 0, math.inf]), ("presence_penalty", [None, "x"]),
    ("frequency_penalty", [[], math.nan]), ("top_k", ["5", 1.0, None, -1]), ("max_tokens", ["5", 2.0, None]),
    ("seed", [2**64, -(2**63) - 1, "1", 1.0, True]), ("stop", [5, [1], [None], b"a", [""], 1.5]),
    ("stop_token_ids", ["ab", [1.5], [-1], 1.5, [True]]), ("logprobs", ["1", -1, 1.0]),
])
def test_sampling_params_of_another_kind_are_refused_by_name(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            SamplingParams(**{name: value})


def test_what_asks_for_nothing_or_for_one():
    assert SamplingParams(stop=None, stop_token_ids=None) == SamplingParams()
    assert SamplingParams(stop="a", stop_token_ids=7) == SamplingParams(stop=["a"], stop_token_ids=[7])
    for seed in (-(2**63), 2**64 - 1):
        assert request_generator(SamplingParams(seed=seed).seed).initial_seed() == seed % 2**64


@pytest.mark.parametrize("name, values", [
    ("vocab_size", ["5", 5.0, True, None, 2**63]), ("num_key_value_heads", [2.0, "2"]), ("head_dim", ["8", 8.0, 0]),
    ("rms_norm_eps", [None, "1", math.nan, -1]), ("rope_theta", [None, 0, math.inf, "1"]), ("hidden_act", [None, []]),
    ("tie_word_embeddings", [None, 1, "true"]), ("qk_norm", [0]), ("initializer_range", [None, -0.1]),
    ("sliding_window", [1.5, True, "4"]),
])
def test_model_config_of_another_kind_is_refused_by_name(name, values):
    shape = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
             "num_attention_heads": 2}
    for value in values:
        with pytest.raises(ValueError, match=name):
            ModelConfig(**shape | {name: value})
