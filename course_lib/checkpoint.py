"""Checkpoints: a model and its tokenizer from a Hugging Face folder, and back into one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import regex
import torch
from torch.overrides import TorchFunctionMode

from course_lib.compiled import compile_steps
from course_lib.config import ModelConfig, require
from course_lib.device import device as choose_device
from course_lib.fast_layer import speed_up
from course_lib.hf_config import (
    config_to_hf,
    quantization_to_hf,
    read_config,
    read_ids,
    read_json,
    read_quantization,
)
from course_lib.hf_tokenizer import read_tokenizer, tokenizer_to_hf
from course_lib.model import CausalLM
from course_lib.quantize import is_quantized, stored_bytes
from course_lib.quantized_files import coded_tensors, load_quantized
from course_lib.tokenizer import Tokenizer
from course_lib.weights import CODES, FLOATS, QUANTIZED_FILE, check_sizes, load_weights, require_file, write_weights

MODELS = Path(__file__).parent / "models"
SHIPPED = ("pocket", "pocket-draft")
# Files of an old checkpoint that a new one neither replaces nor needs.
STALE = ("model*.safetensors", "model.safetensors.index.json", QUANTIZED_FILE, "chat_template.jinja",
         "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")


@dataclass(frozen=True, repr=False)
class LanguageModel:
    """What generation needs: weights, tokenizer, and the ids that end a text."""

    model: CausalLM
    tokenizer: Tokenizer
    config: ModelConfig
    eos_token_ids: frozenset[int]
    name: str

    def __repr__(self) -> str:
        weight = next(self.model.parameters())
        if is_quantized(self.model):
            kept = f"{self.model.quantization}, {stored_bytes(self.model):,} bytes"
        else:
            kept = f"{sum(parameter.numel() for parameter in self.model.parameters()):,} parameters"
        return f"LanguageModel({self.name!r}, {kept}, {weight.dtype}, {weight.device})"


def load(name_or_path: str | Path | None = None, device: str | torch.device | None = None,
         dtype: torch.dtype | None = None, *, compile: bool = False) -> LanguageModel:
    """A model ready to generate.

    Args:
        name_or_path: "pocket" or "pocket-draft", which ship with the course; a Hugging Face folder;
            or a hub id. None: the environment's COURSE_MODEL, else "pocket".
        device: None: as `course_lib.device()` says.
        dtype: of the weights; None: float32 on the CPU, bfloat16 elsewhere.
        compile: make the decode step once, for all positions: with a C++ compiler, at the first new token, which then
            takes up to two minutes; as a CUDA graph on a GPU.

    Raises:
        ValueError: there is no such checkpoint, or it is incomplete or of an unknown kind; the
            message names the file and the tensor. `compile` is set and there is no C++ compiler.
    """
    name = str(name_or_path or os.environ.get("COURSE_MODEL") or "pocket")
    folder, device = find_folder(name), choose_device(device)
    dtype = dtype or (torch.float32 if device.type == "cpu" else torch.bfloat16)
    config = read_config(require_file(folder / "config.json"))
    quantization = read_quantization(read_json(folder / "config.json"))
    tokenizer = read_tokenizer(folder, Path(name).name)
    eos_token_ids = read_eos(folder, tokenizer)
    check_sizes(config, folder, FLOATS + CODES if quantization else FLOATS)
    with torch.device("meta"), NoInitialWeights():  # shapes alone; the file's tensors become the weights
        model = CausalLM(config)
    if quantization:
        load_quantized(model, folder, quantization, device, dtype)
    else:
        load_weights(model, folder, device, dtype)
    if device.type == "cpu":
        speed_up(model)
    if compile:
        compile_steps(model)
    return LanguageModel(model.eval(), tokenizer, config, eos_token_ids, name)


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
    try:
        folder = MODELS / name if name in SHIPPED else Path(name).expanduser().absolute()
        heal(folder)
        if folder.is_dir():
            return folder
    except (OSError, RuntimeError) as error:  # a name that is too long, or nobody's home
        raise ValueError(f"model = {name[:80]!r} is not allowed: {error}") from error
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


def read_eos(folder: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end a text: one, several or none; generation_config.json has the first word."""
    files = [path for name in ("generation_config.json", "config.json") if (path := folder / name).is_file()]
    end = tokenizer.special_tokens.get(tokenizer.eos_token)
    candidates = [read_ids(f"{path}: eos_token_id", read_json(path).get("eos_token_id")) for path in files]
    candidates.append(read_ids("eos_token", end))
    return next((ids for ids in candidates if ids is not None), frozenset())


def save(lm: LanguageModel, folder: str | Path, *, dtype: torch.dtype | None = None) -> None:
    """Write a Hugging Face folder that `load`, `transformers` and vLLM read; of a quantized model, only `load`.

    The new folder is written beside the old one and takes its place as a whole, so a save that fails or is
    killed leaves the old folder or the new one, never a mixture. Files of other names (a README) stay.

    Args:
        lm: in Llama's layout.
        dtype: of the weights in the file; None: unchanged. Quantized weights keep theirs.

    Raises:
        ValueError: the model cannot be written as a Llama, or `folder` is a file.
    """
    folder = Path(folder).resolve()  # of a link, what it points to
    require(folder.is_dir() or not folder.exists(), "folder", str(folder), "a folder, or a name that nothing has yet")
    dtype = dtype or next(lm.model.parameters()).dtype
    contents = json_files(lm, dtype)
    folder.parent.mkdir(parents=True, exist_ok=True)
    heal(folder)
    half, new, old = beside(folder)
    for leftover in (half, new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        copy_others(folder, half, (*STALE, *contents))
        file = QUANTIZED_FILE if is_quantized(lm.model) else "model.safetensors"
        write_weights(lm.model, half / file, dtype, dict(coded_tensors(lm.model)))
        for name, content in contents.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (half / name).write_text(text + "\n", encoding="utf-8")
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
    half.rename(new)
    if folder.exists():
        folder.rename(old)
    heal(folder)
    shutil.rmtree(old, ignore_errors=True)


def json_files(lm: LanguageModel, dtype: torch.dtype) -> dict[str, dict[str, Any]]:
    """The contents of a checkpoint's files but the weights, by name."""
    tokenizer, tokenizer_config = tokenizer_to_hf(lm.tokenizer)
    ends = {"bos_token_id": lm.tokenizer.special_tokens.get(lm.tokenizer.bos_token),
            "eos_token_id": sorted(lm.eos_token_ids) or None}
    tokenizer_config["model_max_length"] = lm.config.max_position_embeddings
    config = config_to_hf(lm.config, dtype) | ends
    if is_quantized(lm.model):
        config["quantization_config"] = quantization_to_hf(lm.model.quantization)
    return {"config.json": config, "generation_config.json": ends,
            "tokenizer.json": tokenizer, "tokenizer_config.json": tokenizer_config}


def beside(folder: Path) -> tuple[Path, Path, Path]:
    """Where `save` keeps the half-written, the complete new and the old folder for a while."""
    half, new, old = (folder.with_name(f".{folder.name}.{stage}") for stage in ("half", "new", "old"))
    return half, new, old


def heal(folder: Path) -> None:
    """Finish a save that was killed at its last step: the old folder moved away, the new one not yet there."""
    _, new, _ = beside(folder)
    if folder.name and new.is_dir() and not folder.exists():
        with suppress(FileNotFoundError, FileExistsError):  # somebody else was faster
            new.rename(folder)


def copy_others(folder: Path, target: Path, replaced: Sequence[str]) -> None:
    """Make the target folder, with those files of the other that are not replaced; linked where that works."""
    def skipped(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(parent) == folder
                and any(fnmatch(name, pattern) for pattern in replaced)]

    def link_or_copy(source: str, copy: str) -> None:
        try:
            os.link(source, copy)
        except OSError:
            shutil.copy2(source, copy)

    if folder.is_dir():
        shutil.copytree(folder, target, ignore=skipped, copy_function=link_or_copy, symlinks=True)
    else:
        target.mkdir()
