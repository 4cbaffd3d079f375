"""Rebuilding the shipped weights: the encoded corpus, the runs, the folders that they end in."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.checkpoint import LanguageModel, save
from course_lib.tokenizer import Tokenizer
from course_lib.training import corpus
from course_lib.training.corpus import END_OF_TEXT
from course_lib.training.first_model import fresh_model, held_back_batches
from course_lib.training.held_back import held_back_loss
from course_lib.training.machine import machine
from course_lib.training.resume import append_log, cut_log, steps_done
from course_lib.training.train import (
    RECIPES,
    TRAIN_SEED,
    Batches,
    TrainConfig,
    encode_corpus,
    train,
)


def corpus_batches(tokenizer: Tokenizer, work: Path, tokens: int) -> tuple[Batches, Batches]:
    """Training and validation batches; the encoded corpus is kept in `work` for the next run."""
    training = Batches(cached_corpus(tokenizer, work, tokens), tokenizer.special_tokens[END_OF_TEXT], seed=0)
    return training, held_back_batches(tokenizer)


def cached_corpus(tokenizer: Tokenizer, work: Path, tokens: int) -> np.ndarray:
    """The training corpus as uint16, read from `work` if the same one was written there, and written otherwise."""
    path = work / f"corpus-{corpus_digest(tokenizer, tokens)}.npy"
    if (found := read_array(path)) is not None:
        return found
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, encode_corpus(tokenizer, tokens, TRAIN_SEED))
    os.replace(partial, path)
    return np.load(path, mmap_mode="r")


def corpus_digest(tokenizer: Tokenizer, tokens: int) -> str:
    """A name for all that the encoded corpus is made from: seed, size, generator, data files, template, tokenizer."""
    digest = hashlib.sha256(repr((TRAIN_SEED, tokens, POCKET_CHAT_TEMPLATE, tokenizer.pat_str, tokenizer.special_tokens,
                                  sorted(tokenizer.mergeable_ranks.items()))).encode())
    source = files(corpus)
    for folder in (source, source / "data"):
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.name.endswith((".py", ".toml")):
                digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()} ".encode())
    return digest.hexdigest()[:16]


def read_array(path: Path) -> np.ndarray | None:
    """The array in a file; None if there is no file, or if it is not whole."""
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None


def make_model(name: str, tokenizer: Tokenizer, batches: tuple[Batches, Batches], config: TrainConfig,
               work: Path, folder: Path, *, device: torch.device, compiled: bool, note: str = "") -> None:
    """Train one of the shipped models and save it as a checkpoint with its log and checksums."""
    shape = RECIPES[name].model
    model = fresh_model(shape, seed=config.seed, device=device)
    resume, log = run_files(work, name)
    cut_log(log, steps_done(resume))

    def on_log(entry: dict) -> None:
        append_log(log, entry)
        print(f"{name} step {entry['step']}/{config.steps}  loss {entry['loss']:.3f}  "
              f"val {entry['val_loss']:.3f}  {entry['seconds']:.0f} s", flush=True)

    train(model, batches[0], config, validation=batches[1], resume=resume, on_log=on_log,
          compiled=compiled)
    ends = frozenset(tokenizer.special_tokens[tag] for tag in (END_OF_TEXT, "<|im_end|>"))
    save(LanguageModel(model, tokenizer, shape, ends, name), folder, dtype=torch.bfloat16)
    val_loss = held_back_loss(model, batches[1].tokens, shape.max_position_embeddings)
    write_facts(folder, log, config, machine(device), val_loss=val_loss, note=note)
    write_checksums(folder)


def run_files(work: Path, name: str) -> tuple[Path, Path]:
    """Where a run keeps its state and its log."""
    return work / f"{name}.pt", work / f"{name}.jsonl"


def write_facts(folder: Path, log: Path, config: TrainConfig, where: str, *, val_loss: float,
                command: str = "python -m course_lib train", note: str = "") -> None:
    """Put the log of a run and the facts about it beside its weights, as `training_log` reads them.

    Args:
        where: the run took place, in words.
        val_loss: of the finished model, by `held_back_loss`.
    """
    (folder / "training_log.jsonl").write_bytes(log.read_bytes())
    facts = {"config": asdict(config), "last": json.loads(log.read_text("utf-8").splitlines()[-1]),
             "val_loss": val_loss, "machine": where, "command": command, "note": note}
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of the files that make the checkpoint."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")
                   and path.name != "training.json")
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))
