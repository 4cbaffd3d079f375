"""A checkpoint's tensors: from safetensors files into a model, and back.

Weights are read from safetensors only: a pickle can run code when it is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import regex
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from course_lib.config import ModelConfig, require
from course_lib.hf_config import read_json
from course_lib.model import CausalLM

# GPT-2's names for the parts, and tensors that files hold although they can be computed.
GPT2_NAMES = {"wte": "embed_tokens", "wpe": "embed_positions", "h": "layers", "ln_f": "norm",
              "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn": "self_attn",
              "c_fc": "up_proj"}
COMPUTED = regex.compile(r"\.(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)$")
FLOATS = ("F64", "F32", "F16", "BF16")
CODES = ("I8", "U8")  # in the files of quantized models
# Of another name than model.safetensors, which `transformers` would read as if codes were weights.
QUANTIZED_FILE = "quantized.safetensors"


def check_sizes(config: ModelConfig, folder: Path, dtypes: Collection[str] = FLOATS) -> None:
    """Refuse a configuration that the tensors of a folder cannot have, before a model of its size is built.

    Only the files' headers are read. Each size of a matrix is the length of some tensor's side, and each
    layer has a tensor of its own.

    Raises:
        ValueError: a size is larger than that, or a file cannot be read.
    """
    shapes = [shape for file in weight_files(folder) for shape in header(file, dtypes).values()]
    longest = max((side for shape in shapes for side in shape), default=0)
    for name in ("vocab_size", "hidden_size", "intermediate_size", "head_dim", "num_attention_heads"):
        require(getattr(config, name) <= longest, name, getattr(config, name),
                f"at most {longest}, the longest side of a tensor in {folder}")
    if config.positions == "learned":
        require(config.max_position_embeddings <= longest, "max_position_embeddings",
                config.max_position_embeddings, f"at most {longest}, the longest side of a tensor in {folder}")
    require(config.num_hidden_layers <= len(shapes), "num_hidden_layers", config.num_hidden_layers,
            f"at most {len(shapes)}, the number of tensors in {folder}")


def header(file: Path, dtypes: Collection[str] = FLOATS) -> dict[str, list[int]]:
    """The shape of every tensor in a safetensors file; one of another type is refused."""
    with opened(file) as tensors:
        slices = {name: tensors.get_slice(name) for name in tensors.keys()}
        for name, part in slices.items():
            require(part.get_dtype() in dtypes, f"{file}: dtype of {name}", part.get_dtype(), f"one of {dtypes}")
        return {name: part.get_shape() for name, part in slices.items()}


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """A safetensors file for reading; what is wrong with it becomes a ValueError with its name."""
    try:
        with file.open("rb"):  # which says why it cannot, where safetensors says that there is no file
            pass
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except SafetensorError as error:
        raise ValueError(f"{file} is no complete safetensors file: {error}") from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error


def load_weights(model: CausalLM, folder: Path, device: torch.device, dtype: torch.dtype,
                 tensors: Iterable[tuple[Path, str, Tensor]] | None = None) -> None:
    """Give the parameters of a model, which may lie on the meta device, the weights of a folder, one at a time.

    Args:
        tensors: with their files and names; None: all those of the folder.

    Raises:
        ValueError: a file cannot be read, or a tensor is missing, unknown, there twice or of another shape.
    """
    shapes = {name: tensor.shape for name, tensor in model.named_parameters(remove_duplicate=False)}
    weights: dict[str, Tensor] = {}
    for file, name, tensor in read_tensors(folder) if tensors is None else tensors:
        for ours, value in rename(name, tensor, model.config).items():
            if ours not in shapes:
                raise ValueError(f"{file}: unexpected tensor {name}")
            if ours in weights:
                raise ValueError(f"{file}: tensor {name} gives {ours} for the second time")
            if value.shape != shapes[ours]:
                raise ValueError(f"{file}: tensor {name} gives {ours} the shape {tuple(value.shape)}, "
                                 f"expected {tuple(shapes[ours])}")
            weights[ours] = value.to(device, dtype).contiguous()
    if model.config.tie_word_embeddings:  # the file may hold the one matrix under either name, or both
        head = weights.pop("lm_head.weight", None)
        if head is not None and not weights.setdefault("embed_tokens.weight", head).equal(head):
            raise ValueError(f"{folder}: lm_head.weight is not embed_tokens.weight, but the config ties them")
        shapes.pop("lm_head.weight", None)
    if missing := sorted(shapes.keys() - weights.keys()):
        raise ValueError(f"{folder}: {len(missing)} missing tensors: {', '.join(missing[:8])}")
    model.load_state_dict(weights, strict=False, assign=True)
    model.derive_state()


def read_tensors(folder: Path, dtypes: Collection[str] = FLOATS) -> Iterator[tuple[Path, str, Tensor]]:
    """Every tensor of a folder's safetensors files, with its file and name."""
    for file in weight_files(folder):
        header(file, dtypes)  # refuses what is no floating-point number, or here no code
        with opened(file) as tensors:
            for name in tensors.keys():
                yield file, name, tensors.get_tensor(name)


def weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the files that its index names; of a quantized model, its one file.

    Raises:
        ValueError: one of them is missing, or there are only pickles.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if not single.is_file() and (folder / QUANTIZED_FILE).is_file():
        return [folder / QUANTIZED_FILE]
    if single.is_file() or not index.is_file():
        pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        if not single.is_file() and pickled:
            raise ValueError(f"{folder} holds weights only as pickles ({', '.join(pickled)}), which can run "
                             "code when opened; only safetensors files are read")
        return [require_file(single)]
    files = read_json(index).get("weight_map")
    named = isinstance(files, dict) and all(isinstance(file, str) and Path(file).name for file in files.values())
    require(named and len(files) > 0, f"{index}: weight_map", files, "an object with a file for each tensor")
    return [require_file(folder / name) for name in sorted({Path(file).name for file in files.values()})]


def require_file(path: Path) -> Path:
    """The path itself, if there is a file."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    return path


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
    conv1d = path[-1:] in (["c_attn"], ["c_fc"], ["o_proj"], ["down_proj"]) and leaf == "weight" and tensor.dim() == 2
    matrix = tensor.mT if conv1d else tensor
    ours = [GPT2_NAMES.get(part, part) for part in path]
    if path[-1:] != ["c_attn"] or tensor.dim() == 0:
        return {".".join([*ours, leaf]): matrix}
    thirds = zip(("q_proj", "k_proj", "v_proj"), matrix.chunk(3))
    return {".".join([*ours[:-1], part, leaf]): third for part, third in thirds}


def write_weights(model: CausalLM, path: Path, dtype: torch.dtype, coded: Mapping[str, Tensor] | None = None) -> None:
    """One safetensors file under Hugging Face's names; a tied head is written once, as the embedding.

    Args:
        coded: further tensors by our names, written in the type that they have.
    """
    tensors = {name: parameter.detach().to("cpu", dtype) for name, parameter in model.named_parameters()}
    tensors |= {name: tensor.cpu() for name, tensor in (coded or {}).items()}
    save_file({name if name.startswith("lm_head.") else f"model.{name}": tensor.contiguous()
               for name, tensor in tensors.items()}, path, {"format": "pt"})
