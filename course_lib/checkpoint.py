"""Checkpoints: a model and its tokenizer from a Hugging Face folder, and back into one.

Weights are read from safetensors only: a pickle can run code when it is opened.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course_lib.config import ModelConfig, RopeScaling, require
from course_lib.device import device as choose_device
from course_lib.few_rows import speed_up_few_rows
from course_lib.hf_tokenizer import read_json, read_tokenizer, tokenizer_to_hf
from course_lib.model import CausalLM
from course_lib.tokenizer import Tokenizer

MODELS = Path(__file__).parent / "models"
SHIPPED = ("pocket", "pocket-draft")

# What a configuration means where it is silent, by `model_type`; each family has its own defaults.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": 1024, "n_inner": None, "activation_function": "gelu_new",
             "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    "llama": {"max_position_embeddings": 2048, "attention_bias": False},
    "mistral": {"max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
              "max_window_layers": 28},
    "qwen3": {"max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
              "max_window_layers": 28, "head_dim": 128, "attention_bias": False},
}
SIZES = {"gpt2": ("vocab_size", "n_embd", "n_layer", "n_head")}
LLAMA_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
ACTIVATIONS = {"silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh"}

# GPT-2's names for the parts, and tensors that files hold although they can be computed.
GPT2_NAMES = {"wte": "embed_tokens", "wpe": "embed_positions", "h": "layers", "ln_f": "norm",
              "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn": "self_attn",
              "c_fc": "up_proj"}
COMPUTED = regex.compile(r"\.(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)$")


@dataclass(frozen=True, repr=False)
class LanguageModel:
    """What generation needs: weights, tokenizer, and the ids that end a text."""

    model: CausalLM
    tokenizer: Tokenizer
    config: ModelConfig
    eos_token_ids: frozenset[int]
    name: str

    def __repr__(self) -> str:
        weight = self.model.embed_tokens.weight
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f"LanguageModel({self.name!r}, {size:,} parameters, {weight.dtype}, {weight.device})"


def load(name_or_path: str | Path | None = None, device: str | torch.device | None = None,
         dtype: torch.dtype | None = None) -> LanguageModel:
    """A model ready to generate.

    Args:
        name_or_path: "pocket" or "pocket-draft", which ship with the course; a Hugging Face folder;
            or a hub id. None: the environment's COURSE_MODEL, else "pocket".
        device: None: as `course_lib.device()` says.
        dtype: of the weights; None: float32 on the CPU, bfloat16 elsewhere.

    Raises:
        ValueError: there is no such checkpoint, or it is incomplete or of an unknown kind; the
            message names the file and the tensor.
    """
    name = str(name_or_path or os.environ.get("COURSE_MODEL") or "pocket")
    folder, device = find_folder(name), choose_device(device)
    dtype = dtype or (torch.float32 if device.type == "cpu" else torch.bfloat16)
    hf = read_json(require_file(folder / "config.json"))
    try:
        config = config_from_hf(hf)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    tokenizer = read_tokenizer(folder, Path(name).name)
    with torch.device("meta"), NoInitialWeights():  # shapes alone; the file's tensors become the weights
        model = CausalLM(config)
    load_weights(model, folder, device, dtype)
    if device.type == "cpu":
        speed_up_few_rows(model)
    return LanguageModel(model.eval(), tokenizer, config, read_eos(folder, hf, tokenizer), name)


class NoInitialWeights(TorchFunctionMode):
    """While it is entered, modules do not draw the weights that they start training from."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Call `function`, unless it is one of `torch.nn.init`."""
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)


def find_folder(name: str) -> Path:
    """The folder of a shipped model, of a path, or of a hub id that is downloaded if need be."""
    folder = MODELS / name if name in SHIPPED else Path(name).expanduser()
    if folder.is_dir():
        return folder
    local = ", ".join(repr(shipped) for shipped in SHIPPED if (MODELS / shipped).is_dir())
    instead = f"local alternatives: {local or 'none shipped in this copy'}, or a folder's path"
    if name in SHIPPED or not regex.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise ValueError(f"no model in {folder}; {instead}")
    return download(name, instead)


def download(name: str, instead: str) -> Path:
    """The folder of a model from the Hugging Face hub, out of its cache or over the network."""
    try:
        from huggingface_hub import snapshot_download  # optional, and only for this
        from huggingface_hub.errors import HFValidationError, HTTPError
    except ImportError as error:
        raise ValueError(f"{name!r} is no folder, and the hub needs `pip install huggingface_hub`; "
                         f"{instead}") from error
    try:
        return Path(snapshot_download(name, allow_patterns=["*.safetensors", "*.json", "*.jinja"]))
    except (HTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{name!r} is no folder and cannot be had from the hub ({reason}); "
                         f"{instead}") from error


def require_file(path: Path) -> Path:
    """The path itself, if there is a file."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    return path


def read_eos(folder: Path, hf: Mapping[str, Any], tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end a text: one, several or none; generation_config.json has the first word."""
    path = folder / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    candidates = (generation.get("eos_token_id"), hf.get("eos_token_id"),
                  tokenizer.special_tokens.get(tokenizer.eos_token))
    ids = next((ids for ids in candidates if ids is not None), [])
    return frozenset([ids] if isinstance(ids, int) else ids)


def config_from_hf(hf: Mapping[str, Any]) -> ModelConfig:
    """The shape that a Hugging Face config.json describes.

    Raises:
        ValueError: the family, or something it asks for, is not supported; the message names it.
    """
    family = hf.get("model_type")
    require(family in DEFAULTS, "model_type", family, f"one of {', '.join(DEFAULTS)}")
    for name in SIZES.get(family, LLAMA_SIZES):
        require(hf.get(name) is not None, name, hf.get(name), "in config.json")
    require(not hf.get("quantization_config"), "quantization_config", hf.get("quantization_config"),
            "absent: quantized checkpoints are not read")
    hf = DEFAULTS[family] | dict(hf)
    activation = hf.get("hidden_act", hf.get("activation_function", "silu"))
    require(activation in ACTIVATIONS, "hidden_act", activation, f"one of {', '.join(ACTIVATIONS)}")
    common = {"vocab_size": hf["vocab_size"], "hidden_act": ACTIVATIONS[activation],
              "initializer_range": hf.get("initializer_range", 0.02),
              "tie_word_embeddings": hf.get("tie_word_embeddings", False)}
    return ModelConfig(**common, **(gpt2_shape(hf) if family == "gpt2" else llama_shape(hf, family)))


def gpt2_shape(hf: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ModelConfig` under GPT-2's names, and what GPT-2 does differently."""
    for name, usual in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        require(hf.get(name, usual) == usual, name, hf.get(name), str(usual))
    return {
        "hidden_size": hf["n_embd"], "intermediate_size": hf["n_inner"] or 4 * hf["n_embd"],
        "num_hidden_layers": hf["n_layer"], "num_attention_heads": hf["n_head"],
        "max_position_embeddings": hf["n_positions"], "rms_norm_eps": hf["layer_norm_epsilon"],
        "norm": "layernorm", "positions": "learned", "gated_mlp": False,
        "attention_bias": True, "attention_out_bias": True, "mlp_bias": True,
    }


def llama_shape(hf: Mapping[str, Any], family: str) -> dict[str, Any]:
    """The fields of `ModelConfig` for Llama and the families that vary it."""
    theta, scaling = read_rope(hf)
    bias = hf.get("attention_bias", False)  # not a setting of Mistral, nor of Qwen2, which has q, k and v
    return {
        **{name: hf[name] for name in LLAMA_SIZES if name != "vocab_size"},
        "num_key_value_heads": hf.get("num_key_value_heads"), "head_dim": hf.get("head_dim"),
        "max_position_embeddings": hf["max_position_embeddings"],
        "rms_norm_eps": hf.get("rms_norm_eps", 1e-6), "rope_theta": theta, "rope_scaling": scaling,
        "sliding_window": read_window(hf, family),
        "attention_bias": family == "qwen2" or (bias and family != "mistral"),
        "attention_out_bias": bias and family not in ("mistral", "qwen2"),
        "mlp_bias": family == "llama" and hf.get("mlp_bias", False), "qk_norm": family == "qwen3",
    }


def read_rope(hf: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Base and stretch of the RoPE frequencies, under the keys of `transformers` 4 or 5."""
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    require(kind in ("default", "llama3"), "rope_type", kind, "default or llama3")
    partial = rope.get("partial_rotary_factor", hf.get("partial_rotary_factor", 1.0))
    require(partial == 1.0, "partial_rotary_factor", partial, "1.0")
    require(not any(isinstance(value, dict) for value in rope.values()), "rope_parameters", rope,
            "the same in every layer")
    theta = rope.get("rope_theta", hf.get("rope_theta", 10_000.0))
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    for name in names if kind == "llama3" else ():
        require(name in rope, f"rope_scaling[{name!r}]", None, "a number")
    return theta, RopeScaling(*(rope[name] for name in names)) if kind == "llama3" else None


def read_window(hf: Mapping[str, Any], family: str) -> int | None:
    """How many keys each query sees, which must be the same in every layer; None: all.

    Qwen's window is off unless `use_sliding_window`, and only from layer `max_window_layers` on.
    """
    layers, window = hf["num_hidden_layers"], hf.get("sliding_window")
    if family == "llama" or window is None or ("qwen" in family and not hf.get("use_sliding_window")):
        return None
    first = hf["max_window_layers"] if "qwen" in family else 0
    kinds = hf.get("layer_types") or ["sliding_attention" if i >= first else "full_attention"
                                      for i in range(layers)]
    require(len(set(kinds)) == 1, "layer_types", kinds, "the same in every layer")
    return window if kinds[0] == "sliding_attention" else None


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


def load_weights(model: CausalLM, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
    """Give a model that lies on the meta device the weights of a folder, one tensor at a time.

    Raises:
        ValueError: a file cannot be read, or a tensor is missing, unknown or of another shape.
    """
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    weights: dict[str, Tensor] = {}
    for file, name, tensor in read_tensors(folder):
        for ours, value in rename(name, tensor, model.config).items():
            if ours not in shapes:
                raise ValueError(f"{file}: unexpected tensor {name}")
            if value.shape != shapes[ours]:
                raise ValueError(f"{file}: tensor {name} gives {ours} the shape {tuple(value.shape)}, "
                                 f"expected {tuple(shapes[ours])}")
            weights[ours] = value.to(device, dtype).contiguous()
    if model.config.tie_word_embeddings:  # the file may hold the one matrix under either name, or both
        head = weights.pop("lm_head.weight", None)
        if head is not None and not weights.setdefault("embed_tokens.weight", head).equal(head):
            raise ValueError(f"{folder}: lm_head.weight is not embed_tokens.weight, but the config ties them")
        del shapes["lm_head.weight"]
    if missing := sorted(shapes.keys() - weights.keys()):
        raise ValueError(f"{folder}: {len(missing)} missing tensors: {', '.join(missing[:8])}")
    model.load_state_dict(weights, strict=False, assign=True)
    model.derive_state()


def read_tensors(folder: Path) -> Iterator[tuple[Path, str, Tensor]]:
    """Every tensor of a folder's safetensors files, with its file and name."""
    for file in weight_files(folder):
        try:
            with safe_open(require_file(file), framework="pt") as tensors:
                for name in tensors.keys():
                    yield file, name, tensors.get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{file} is no complete safetensors file: {error}") from error


def weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the files that its index names."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file() or not index.is_file():
        pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        if not single.is_file() and pickled:
            raise ValueError(f"{folder} holds weights only as pickles ({', '.join(pickled)}), which can run "
                             "code when opened; only safetensors files are read")
        return [require_file(single)]
    return [folder / Path(name).name for name in sorted(set(read_json(index)["weight_map"].values()))]


def rename(name: str, tensor: Tensor, config: ModelConfig) -> dict[str, Tensor]:
    """Our names for a checkpoint's tensor, with what each holds; none for one that can be computed."""
    if COMPUTED.search(f".{name}"):
        return {}
    return {name.removeprefix("model."): tensor} if config.norm == "rmsnorm" else rename_gpt2(name, tensor)


def rename_gpt2(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """GPT-2's names, its (in, out) matrices turned to (out, in), and `c_attn` cut into q, k and v."""
    *path, leaf = name.removeprefix("transformer.").split(".")
    if path[-2:] in (["attn", "c_proj"], ["mlp", "c_proj"]):
        path[-1] = "o_proj" if path[-2] == "attn" else "down_proj"
    conv1d = path[-1] in ("c_attn", "c_fc", "o_proj", "down_proj") and leaf == "weight"
    matrix = tensor.mT if conv1d else tensor
    ours = [GPT2_NAMES.get(part, part) for part in path]
    if path[-1] != "c_attn":
        return {".".join([*ours, leaf]): matrix}
    thirds = zip(("q_proj", "k_proj", "v_proj"), matrix.chunk(3))
    return {".".join([*ours[:-1], part, leaf]): third for part, third in thirds}


def save(lm: LanguageModel, folder: str | Path, *, dtype: torch.dtype | None = None) -> None:
    """Write a Hugging Face folder that `load`, `transformers` and vLLM read.

    All files are written in full before the first one replaces an old one, so a save that fails
    leaves the old folder; files of other names (a README) stay.

    Args:
        lm: in Llama's layout.
        dtype: of the weights in the file; None: as they are.

    Raises:
        ValueError: the model cannot be written as a Llama.
    """
    folder = Path(folder)
    dtype = dtype or lm.model.embed_tokens.weight.dtype
    tokenizer, tokenizer_config = tokenizer_to_hf(lm.tokenizer)
    ends = {"bos_token_id": lm.tokenizer.special_tokens.get(lm.tokenizer.bos_token),
            "eos_token_id": sorted(lm.eos_token_ids) or None}
    tokenizer_config["model_max_length"] = lm.config.max_position_embeddings
    contents = {"config.json": config_to_hf(lm.config, dtype) | ends, "generation_config.json": ends,
                "tokenizer.json": tokenizer, "tokenizer_config.json": tokenizer_config}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        write_weights(lm.model, Path(temporary) / "model.safetensors", dtype)
        for name, content in contents.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (Path(temporary) / name).write_text(text + "\n", encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for name in ("model.safetensors", *contents):
            os.replace(Path(temporary) / name, folder / name)
    for stale in ("model.safetensors.index.json", "chat_template.jinja", "special_tokens_map.json"):
        (folder / stale).unlink(missing_ok=True)


def write_weights(model: CausalLM, path: Path, dtype: torch.dtype) -> None:
    """One safetensors file under Hugging Face's names; a tied head is written once, as the embedding."""
    tensors = {name if name.startswith("lm_head.") else f"model.{name}": parameter.detach().to("cpu", dtype)
               for name, parameter in model.named_parameters()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})
