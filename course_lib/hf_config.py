"""Hugging Face's `config.json`: what each family of models can say in it, read in full or refused.

A setting that nobody reads would change the numbers in silence. So every key is on one of two lists, of what
is read and of what cannot change a logit, or its value must be one that asks for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from course_lib.config import ModelConfig, RopeScaling, is_int, require
from course_lib.quantize import Quantization

# What a configuration means where it is silent, by `model_type`; each family has its own defaults.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": 1024, "n_inner": None, "activation_function": "gelu_new",
             "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    "llama": {"max_position_embeddings": 2048, "attention_bias": False, "mlp_bias": False},
    "mistral": {"max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
              "max_window_layers": 28, "use_sliding_window": False},
    "qwen3": {"max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
              "max_window_layers": 28, "use_sliding_window": False, "head_dim": 128, "attention_bias": False},
}
GPT2_SIZES = ("vocab_size", "n_embd", "n_layer", "n_head")
LLAMA_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
ACTIVATIONS = {"silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh"}

# The keys that are read: by every family, by the relatives of Llama, and by one.
READ = "model_type vocab_size tie_word_embeddings initializer_range eos_token_id quantization_config"
READ_LLAMA = (f"{READ} hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
              "max_position_embeddings rms_norm_eps hidden_act rope_theta rope_scaling rope_parameters "
              "partial_rotary_factor original_max_position_embeddings")
READ_QWEN = f"{READ_LLAMA} use_sliding_window sliding_window max_window_layers layer_types"
READ_BY = {
    "gpt2": f"{READ} n_embd n_layer n_head n_positions n_inner activation_function layer_norm_epsilon",
    "llama": f"{READ_LLAMA} head_dim attention_bias mlp_bias",
    "mistral": f"{READ_LLAMA} head_dim sliding_window",
    "qwen2": READ_QWEN,
    "qwen3": f"{READ_QWEN} head_dim attention_bias",
}
# Keys that cannot change a logit: names and versions, training, labels, outputs, settings of `generate`.
HARMLESS = """
    architectures transformers_version torch_dtype dtype name_or_path _name_or_path _commit_hash tokenizer_class
    unsloth_version unsloth_fixed bos_token_id pad_token_id sep_token_id decoder_start_token_id use_cache
    attn_implementation _attn_implementation _attn_implementation_autoset attention_dropout hidden_dropout resid_pdrop
    embd_pdrop attn_pdrop classifier_dropout pretraining_tp torchscript gradient_checkpointing use_bfloat16
    output_attentions output_hidden_states return_dict output_scores return_dict_in_generate problem_type id2label
    label2id num_labels _num_labels finetuning_task task_specific_params transformers.js_config is_llama_config
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k
    top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens prefix chunk_size_feed_forward""".split()
HARMLESS_IN = {"gpt2": "n_ctx n_special predict_special_tokens summary_type summary_use_proj summary_activation "
                       "summary_proj_to_labels summary_first_dropout"}
# Keys with one value that asks for nothing; of all others those values are null, false and empty ones.
USUAL = {"is_causal": True, "scale_attn_weights": True}
QUANT_METHOD = "course_lib"  # of which `transformers` only warns: see QUANTIZED_FILE in weights.py
GPT2_ALIASES = {"hidden_size": "n_embd", "max_position_embeddings": "n_positions",
                "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
ROPE_KEYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
             "high_freq_factor", "original_max_position_embeddings")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: the file cannot be read, is no JSON, or holds something else than one object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds {type(data).__name__}, not a JSON object")
    return data


def read_config(path: Path) -> ModelConfig:
    """The shape that a config.json describes; the arguments of its errors begin with the path."""
    hf = read_json(path)
    try:
        return config_from_hf(hf)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def config_from_hf(hf: Mapping[str, Any]) -> ModelConfig:
    """The shape that a Hugging Face config.json describes.

    Raises:
        ValueError: the family, or something it asks for, is not supported; the message names it.
    """
    family = hf.get("model_type")
    require(isinstance(family, str) and family in DEFAULTS, "model_type", family, f"one of {', '.join(DEFAULTS)}")
    check_keys(hf, family)
    for name in GPT2_SIZES if family == "gpt2" else LLAMA_SIZES:
        require(hf.get(name) is not None, name, hf.get(name), "in config.json")
    hf = DEFAULTS[family] | dict(hf)
    act = "activation_function" if family == "gpt2" else "hidden_act"
    activation = hf.get(act, "silu")
    require(isinstance(activation, str) and activation in ACTIVATIONS, act, activation,
            f"one of {', '.join(ACTIVATIONS)}")
    common = {"vocab_size": hf["vocab_size"], "hidden_act": ACTIVATIONS[activation],
              "initializer_range": hf.get("initializer_range", 0.02),
              "tie_word_embeddings": hf.get("tie_word_embeddings", False)}
    return ModelConfig(**common, **(gpt2_shape(hf) if family == "gpt2" else llama_shape(hf, family)))


def check_keys(hf: Mapping[str, Any], family: str) -> None:
    """Refuse what would change the numbers and is read by nobody.

    Raises:
        ValueError: a key is on no list, and its value is neither null, false nor the usual one.
    """
    read_quantization(hf)
    aliases = GPT2_ALIASES if family == "gpt2" else {}
    known = {*READ_BY[family].split(), *HARMLESS, *HARMLESS_IN.get(family, "").split(), *aliases}
    for key in hf.keys() - known:
        value = hf[key]
        nothing = same(value, USUAL[key]) if key in USUAL else value is None or value is False or value in ({}, [])
        require(nothing, key, value, f"absent in a {family}: it is read by nobody here, and may change the numbers")
    for alias, name in aliases.items():
        require(alias not in hf or same(hf[alias], hf.get(name, DEFAULTS[family].get(name))), alias, hf.get(alias),
                f"absent in a gpt2, or what {name} is")


def read_quantization(hf: Mapping[str, Any]) -> Quantization | None:
    """How the weights of a checkpoint lie in few bits; None: they are plain numbers.

    Raises:
        ValueError: another library quantized them, or a setting is missing, unknown or out of range.
    """
    found = hf.get("quantization_config")
    if not found:
        return None
    method = found.get("quant_method") if isinstance(found, Mapping) else None
    require(method == QUANT_METHOD, "quantization_config", found,
            f"absent, or with quant_method {QUANT_METHOD!r}: other quantized checkpoints are not read")
    settings = {key: value for key, value in found.items() if key != "quant_method"}
    names = [field.name for field in fields(Quantization)]
    require(settings.keys() == set(names), "quantization_config", found, f"an object with {', '.join(names)}")
    return Quantization(**settings)


def quantization_to_hf(quantization: Quantization) -> dict[str, Any]:
    """The `quantization_config` of a config.json."""
    return {"quant_method": QUANT_METHOD, **asdict(quantization)}


def same(a: Any, b: Any) -> bool:
    """Whether two values of JSON are one: 1 is not true."""
    return type(a) is type(b) and a == b


def gpt2_shape(hf: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ModelConfig` under GPT-2's names, and what GPT-2 does differently."""
    width = hf["n_inner"] if hf["n_inner"] is not None or not is_int(hf["n_embd"]) else 4 * hf["n_embd"]
    return {
        "hidden_size": hf["n_embd"], "intermediate_size": width,
        "num_hidden_layers": hf["n_layer"], "num_attention_heads": hf["n_head"],
        "max_position_embeddings": hf["n_positions"], "rms_norm_eps": hf["layer_norm_epsilon"],
        "norm": "layernorm", "positions": "learned", "gated_mlp": False,
        "attention_bias": True, "attention_out_bias": True, "mlp_bias": True,
    }


def llama_shape(hf: Mapping[str, Any], family: str) -> dict[str, Any]:
    """The fields of `ModelConfig` for Llama and the families that vary it."""
    theta, scaling = read_rope(hf)
    # not a setting of Mistral, nor of Qwen2, where q, k and v have one
    bias = hf["attention_bias"] if family in ("llama", "qwen3") else False
    return {
        **{name: hf[name] for name in LLAMA_SIZES if name != "vocab_size"},
        "num_key_value_heads": hf.get("num_key_value_heads"),
        "head_dim": None if family == "qwen2" else hf.get("head_dim"),
        "max_position_embeddings": hf["max_position_embeddings"],
        "rms_norm_eps": hf.get("rms_norm_eps", 1e-6), "rope_theta": theta, "rope_scaling": scaling,
        "sliding_window": None if family == "llama" else read_window(hf, family),
        "attention_bias": True if family == "qwen2" else bias, "attention_out_bias": bias,
        "mlp_bias": hf["mlp_bias"] if family == "llama" else False, "qk_norm": family == "qwen3",
    }


def read_rope(hf: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Base and stretch of the RoPE frequencies, under the keys of `transformers` 4 or 5.

    Where the old length is given outside the stretch as well, `transformers` takes that one.
    """
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    require(isinstance(rope, Mapping), "rope_scaling", rope, "an object")
    require(not any(isinstance(value, dict) for value in rope.values()), "rope_parameters", rope,
            "the same in every layer")
    for key in rope.keys() - set(ROPE_KEYS):
        require(rope[key] in (None, False), f"rope_scaling[{key!r}]", rope[key], f"absent; read are {ROPE_KEYS}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    require(kind in ("default", "llama3"), "rope_type", kind, "default or llama3")
    partial = rope.get("partial_rotary_factor", hf.get("partial_rotary_factor"))
    require(partial is None or partial == 1.0, "partial_rotary_factor", partial, "1.0")
    theta = rope.get("rope_theta", hf.get("rope_theta", 10_000.0))
    if kind == "default":
        return theta, None
    original = "original_max_position_embeddings"
    stretch = dict(rope) | ({original: hf[original]} if original in hf else {})
    names = ("factor", "low_freq_factor", "high_freq_factor", original)
    for name in names:
        require(name in stretch, f"rope_scaling[{name!r}]", None, "a number")
    return theta, RopeScaling(*(stretch[name] for name in names))


def read_window(hf: Mapping[str, Any], family: str) -> int | None:
    """How many keys each query sees, which must be the same in every layer; None: all.

    Qwen's window is off unless `use_sliding_window`, and only from layer `max_window_layers` on.
    """
    window = hf["sliding_window"]
    if family == "mistral":
        return window
    layers, first = hf["num_hidden_layers"], hf["max_window_layers"]
    on = bool(hf["use_sliding_window"]) and window is not None
    kinds = hf.get("layer_types")
    if kinds is None:
        require(is_int(layers) and is_int(first), "max_window_layers", first, "an integer")
        kinds = window_kinds(on, first, layers)
    require(isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds), "layer_types", kinds,
            "a list of names")
    require(len(set(kinds)) == 1, "layer_types", sorted(set(kinds)), "the same in every layer")
    require(hf.get("layer_types") is None or len(kinds) == layers, "len(layer_types)", len(kinds),
            f"num_hidden_layers = {layers}")
    allowed = ("full_attention", "sliding_attention") if on else ("full_attention",)
    require(kinds[0] in allowed, "layer_types", kinds[0], f"one of {allowed} here")
    return window if kinds[0] == "sliding_attention" else None


def window_kinds(on: bool, first: int, layers: int) -> list[str]:
    """The kinds of attention that occur where nothing but the first layer with a window is told."""
    slide, full = "sliding_attention", "full_attention"
    return [full] if not on or first >= layers else [slide] if first <= 0 else [full, slide]


def read_ids(name: str, value: Any) -> frozenset[int] | None:
    """One id or several as a set; None for null.

    Raises:
        ValueError: it is something else.
    """
    if value is None:
        return None
    ids = value if isinstance(value, list) else [value]
    require(all(is_int(id) and id >= 0 for id in ids), name, value, "an integer >= 0, or a list of them")
    return frozenset(ids)


def config_to_hf(config: ModelConfig, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The config.json of a model in Llama's layout.

    Raises:
        ValueError: LlamaForCausalLM cannot be this shape.
    """
    llama = {"norm": "rmsnorm", "positions": "rope", "gated_mlp": True, "qk_norm": False,
             "sliding_window": None, "attention_out_bias": config.attention_bias}
    for name, value in llama.items():
        require(getattr(config, name) == value, name, getattr(config, name), f"{value!r} in a Llama")
    hf = {name: getattr(config, name) for name in (
        *LLAMA_SIZES, "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps",
        "rope_theta", "tie_word_embeddings", "attention_bias", "mlp_bias", "initializer_range")}
    scaling = config.rope_scaling and {"rope_type": "llama3", **vars(config.rope_scaling)}
    activation = {"gelu_tanh": "gelu_pytorch_tanh"}.get(config.hidden_act, config.hidden_act)
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": activation, **hf,
            "rope_scaling": scaling, "torch_dtype": str(dtype).removeprefix("torch.")}
