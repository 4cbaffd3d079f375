"""Rebuilding the shipped weights: the encoded corpus, the runs, the folders that they end in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.checkpoint import LanguageModel, save
from course_lib.model import CausalLM
from course_lib.tokenizer import Tokenizer
from course_lib.training import corpus
from course_lib.training.corpus import END_OF_TEXT, PRETRAINING, TUNING, Mix
from course_lib.training.first_model import fresh_model, held_back_batches
from course_lib.training.held_back import held_back_loss
from course_lib.training.machine import machine
from course_lib.training.resume import append_log, cut_log, steps_done
from course_lib.training.train import (
    CORPUS_TOKENS,
    TRAIN_SEED,
    TUNING_SEED,
    TUNING_TOKENS,
    Batches,
    Recipe,
    TrainConfig,
    encode_corpus,
    train,
)

COUNTED = ("step", "tokens", "seconds")  # what a log counts from the start


class Text(NamedTuple):
    """A part of the corpus: so many tokens of a mix, from a seed."""

    tokens: int
    seed: int
    mix: Mix


PRETRAINING_TEXT = Text(CORPUS_TOKENS, TRAIN_SEED, PRETRAINING)
TUNING_TEXT = Text(TUNING_TOKENS, TUNING_SEED, TUNING)


def corpus_batches(tokenizer: Tokenizer, work: Path, text: Text) -> Batches:
    """Batches of a text to train on; encoded, it is kept in `work` for the next run."""
    return Batches(cached_corpus(tokenizer, work, text), tokenizer.special_tokens[END_OF_TEXT], seed=0)


def cached_corpus(tokenizer: Tokenizer, work: Path, text: Text) -> np.ndarray:
    """The text as uint16, read from `work` if the same one was written there, and written otherwise."""
    path = work / f"corpus-{corpus_digest(tokenizer, text)}.npy"
    if (found := read_array(path)) is not None:
        return found
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, encode_corpus(tokenizer, *text))
    os.replace(partial, path)
    return np.load(path, mmap_mode="r")


def corpus_digest(tokenizer: Tokenizer, text: Text) -> str:
    """A name for all that the encoded text is made from: its size, seed and mix, generator, data files, tokenizer."""
    digest = hashlib.sha256(repr((text, POCKET_CHAT_TEMPLATE, tokenizer.pat_str, tokenizer.special_tokens,
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


def make_model(name: str, tokenizer: Tokenizer, recipe: Recipe, work: Path, folder: Path, *, device: torch.device,
               compiled: bool, note: str = "") -> None:
    """Train one of the shipped models, tune it if its recipe says so, and save it with its log and checksums."""
    model = fresh_model(recipe.model, seed=recipe.config.seed, device=device)
    held_back = held_back_batches(tokenizer)
    run(name, model, recipe.config, corpus_batches(tokenizer, work, PRETRAINING_TEXT), held_back, work, compiled)
    if recipe.tuning:
        run(tuned(name), model, recipe.tuning, corpus_batches(tokenizer, work, TUNING_TEXT), held_back, work, compiled)
    ends = frozenset(tokenizer.special_tokens[tag] for tag in (END_OF_TEXT, "<|im_end|>"))
    save(LanguageModel(model, tokenizer, recipe.model, ends, name), folder, dtype=torch.bfloat16)
    val_loss = held_back_loss(model, held_back.tokens, recipe.model.max_position_embeddings)
    logs = [run_files(work, one)[1] for one in (name, *[tuned(name)] * bool(recipe.tuning))]
    write_facts(folder, logs, recipe.config, machine(device), tuning=recipe.tuning, val_loss=val_loss, note=note)
    write_checksums(folder)


def run(name: str, model: CausalLM, config: TrainConfig, text: Batches, held_back: Batches, work: Path,
        compiled: bool) -> None:
    """Train a model in place, or go on where it was interrupted, with a log in `work` and a line for each entry."""
    resume, log = run_files(work, name)
    cut_log(log, steps_done(resume))

    def on_log(entry: dict) -> None:
        append_log(log, entry)
        print(f"{name} step {entry['step']}/{config.steps}  loss {entry['loss']:.3f}  "
              f"val {entry['val_loss']:.3f}  {entry['seconds']:.0f} s", flush=True)

    train(model, text, config, validation=held_back, resume=resume, on_log=on_log, compiled=compiled)


def run_files(work: Path, name: str) -> tuple[Path, Path]:
    """Where a run keeps its state and its log."""
    return work / f"{name}.pt", work / f"{name}.jsonl"


def tuned(name: str) -> str:
    """What the files of a model's tuning are called."""
    return f"{name}-tuning"


def write_facts(folder: Path, logs: Sequence[Path], config: TrainConfig, where: str, *, val_loss: float,
                tuning: TrainConfig | None = None, command: str = "python -m course_lib train", note: str = "") -> None:
    """Put the log of a training and the facts about it beside its weights, as `training_log` reads them.

    Args:
        logs: of the run, and of the tuning after it.
        where: the run took place, in words.
        val_loss: of the finished model, by `held_back_loss`.
    """
    entries = joined(logs)
    (folder / "training_log.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")
    facts = {"config": asdict(config), "tuning": asdict(tuning) if tuning else None, "last": entries[-1],
             "val_loss": val_loss, "machine": where, "command": command, "note": note}
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def joined(logs: Sequence[Path]) -> list[dict[str, float]]:
    """The entries of runs that followed each other; steps, tokens and seconds go on counting."""
    entries: list[dict[str, float]] = []
    for log in logs:
        before = entries[-1] if entries else dict.fromkeys(COUNTED, 0)
        entries += [entry | {name: before[name] + entry[name] for name in COUNTED}
                    for entry in map(json.loads, log.read_text("utf-8").splitlines())]
    return entries


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of the files that make the checkpoint."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")
                   and path.name != "training.json")
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))
