"""The training that made the shipped weights: corpus to tokenizer to `pocket` and `pocket-draft`.

    python -m course_lib train            # everything, resuming what was interrupted
    python -m course_lib train --show     # how the shipped weights were made, and their loss curve
    python -m course_lib evaluate --card  # then write what the model knows into its card
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.checkpoint import MODELS, LanguageModel, save
from course_lib.config import ModelConfig, require
from course_lib.device import device as choose_device
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe
from course_lib.training.corpus import END_OF_TEXT, documents, training_documents
from course_lib.training.guidance import Guide
from course_lib.training.training_log import show_training

SPECIAL_TOKENS = (END_OF_TEXT, "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>",
                  "<tool_response>", "</tool_response>")
VOCAB_SIZE = 4096
TRAIN_SEED, VALIDATION_SEED = 0, 1

POCKET = ModelConfig(vocab_size=VOCAB_SIZE, hidden_size=256, intermediate_size=640, num_hidden_layers=10,
                     num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=1024)
POCKET_DRAFT = ModelConfig(vocab_size=VOCAB_SIZE, hidden_size=128, intermediate_size=352,
                           num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                           max_position_embeddings=1024)


@dataclass(frozen=True)
class TrainConfig:
    """How long and how fast to learn.

    Args:
        steps: optimizer steps; each reads about sequences * length tokens.
        sequences, length: of a short step. Many small steps teach copying sooner than few large ones.
        long_length, long_every: every so-manieth step reads as many tokens in longer sequences, so
            that every position of the context is trained.
        guided: the first step with, and the first one again without, the loss of `course_lib.training.guidance`,
            which is added with guide_weight.
        peak_lr: reached after warmup_steps, held, and brought to zero over the last decay_fraction.
    """

    steps: int
    sequences: int = 6
    length: int = 208
    long_length: int = 1024
    long_every: int = 16
    peak_lr: float = 2e-3
    warmup_steps: int = 200
    decay_fraction: float = 0.35
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    guided: tuple[int, int] = (0, 0)
    guide_weight: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.steps >= 1, "steps", self.steps, ">= 1")
        require(0 <= self.guided[0] <= self.guided[1], "guided", self.guided, "two steps in order")
        require(0 <= self.decay_fraction <= 1, "decay_fraction", self.decay_fraction, "in [0, 1]")


class Recipe(NamedTuple):
    """The shape of a shipped model and how it was trained."""

    model: ModelConfig
    config: TrainConfig


CORPUS_TOKENS = 20_000_000
RECIPES = {"pocket": Recipe(POCKET, TrainConfig(steps=7000, sequences=8, length=256, long_every=10,
                                                guided=(60, 900))),
           "pocket-draft": Recipe(POCKET_DRAFT, TrainConfig(steps=3000, peak_lr=3e-3))}


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear up, flat, linear down to zero, for step 0, 1, ..., steps - 1."""
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise, fall)


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of each token given those before it.

    Args:
        logits: (B, T, V), those of `ids[:, :-1]`.
        ids: (B, T + 1); position t predicts ids[:, t + 1].
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


class Batches:
    """Windows of a long token array that start where documents start, the same ones for the same step."""

    def __init__(self, tokens: np.ndarray, end_of_text: int, seed: int) -> None:
        self.tokens = tokens
        self.starts = np.concatenate(([0], np.flatnonzero(tokens == end_of_text)[:-1] + 1))
        self.seed = seed

    def __call__(self, step: int, sequences: int, length: int) -> Tensor:
        """(sequences, length + 1) ids."""
        rng = np.random.default_rng([self.seed, step])
        last = len(self.tokens) - length - 1
        starts = rng.choice(self.starts[: np.searchsorted(self.starts, last, "right")], sequences)
        windows = np.stack([self.tokens[start : start + length + 1] for start in starts])
        return torch.from_numpy(windows.astype(np.int64))


def train_tokenizer(*, characters: int = 4_000_000) -> Tokenizer:
    """The shipped vocabulary: BPE on the first documents of the training corpus, tags taken out."""
    sample, size = [], 0
    for text in documents(TRAIN_SEED):
        for tag in SPECIAL_TOKENS:
            text = text.replace(tag, "")
        sample.append(text)
        size += len(text)
        if size >= characters:
            break
    ranks = train_bpe(sample, VOCAB_SIZE - len(SPECIAL_TOKENS))
    specials = {tag: len(ranks) + i for i, tag in enumerate(SPECIAL_TOKENS)}
    return Tokenizer("pocket", POCKET_PATTERN, ranks, specials, chat_template=POCKET_CHAT_TEMPLATE,
                     eos_token="<|im_end|>")


def encode_corpus(tokenizer: Tokenizer, tokens: int, seed: int) -> np.ndarray:
    """At least so many tokens of what the models read, as one array of uint16."""
    return encode_documents(tokenizer, training_documents(seed), tokens)


def encode_documents(tokenizer: Tokenizer, texts: Iterable[str], tokens: int) -> np.ndarray:
    """At least so many tokens of an endless row of documents, control tokens included."""
    chunks, size, stream = [], 0, iter(texts)
    while size < tokens:
        ids = tokenizer.encode("".join(islice(stream, 200)), allowed_special="all")
        chunks.append(np.array(ids, dtype=np.uint16))
        size += len(ids)
    return np.concatenate(chunks)


def make_optimizers(model: CausalLM, config: TrainConfig) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices of the layers, which alone decay; AdamW (Loshchilov & Hutter
    2019) for embeddings, norms and biases. Muon's steps are scaled to the size of AdamW's (Liu et al. 2025),
    so that one learning rate serves both.
    """
    matrices = [p for name, p in model.named_parameters() if is_matrix(name, p)]
    others = [p for name, p in model.named_parameters() if not is_matrix(name, p)]
    return [torch.optim.Muon(matrices, lr=config.peak_lr, weight_decay=config.weight_decay,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=config.peak_lr, weight_decay=0, betas=config.betas, fused=True)]


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter maps vectors to vectors, rather than being a table of them, a scale or a shift."""
    return parameter.dim() == 2 and name.startswith("layers.")


def train(model: CausalLM, batches: Batches, config: TrainConfig, *, validation: Batches | None = None,
          resume: Path | None = None, on_log: Callable[[dict], None] = print, log_every: int = 100,
          compiled: bool = False, schedule: Callable[[int, TrainConfig], float] = learning_rate) -> None:
    """Train `model` in place, on its device, in bfloat16 autocast with float32 weights.

    Args:
        resume: a file that holds model, optimizers and progress. It is written every ten logs and at the
            end, and read first if it exists, so an interrupted run goes on where it was.
        on_log: called with step, tokens, loss (mean since the last log), lr, seconds and, with
            `validation`, val_loss; tokens and seconds are those of the whole run.
        compiled: run the model through torch.compile.
        schedule: the learning rate of a step, called as `learning_rate` is.
    """
    optimizers, forward = make_optimizers(model, config), model
    first, tokens, seconds = 0, 0, 0.0
    if resume is not None and resume.exists():
        first, tokens, seconds = load_resume(resume, model, optimizers)
    if compiled:
        forward = torch.compile(model, dynamic=False)
    started, losses = time.perf_counter() - seconds, []
    for step in range(first, config.steps):
        ids = batches(step, *window(step, config)).to(model.embed_tokens.weight.device)
        lr = schedule(step, config)
        if config.guided[0] <= step < config.guided[1]:
            losses.append(guided_step(model, optimizers, ids, lr, config))
        else:
            losses.append(train_step(forward, optimizers, ids, lr, config.clip))
        tokens += ids.shape[0] * (ids.shape[1] - 1)
        done = step + 1
        if done % log_every and done < config.steps:
            continue
        entry = {"step": done, "tokens": tokens, "loss": torch.stack(losses).mean().item(),
                 "lr": lr, "seconds": time.perf_counter() - started}
        if validation is not None:
            entry["val_loss"] = validation_loss(model, validation, config)
        on_log(entry)
        losses = []
        if resume is not None and (done % log_every == 0 or done == config.steps):
            save_resume(resume, model, optimizers, done, tokens, entry["seconds"])


def window(step: int, config: TrainConfig) -> tuple[int, int]:
    """How many sequences of which length this step reads."""
    if config.long_every and step % config.long_every == config.long_every - 1:
        return max(1, config.sequences * config.length // config.long_length), config.long_length
    return config.sequences, config.length


def train_step(model: Callable[[Tensor], Tensor], optimizers: list[Optimizer], ids: Tensor, lr: float,
               clip: float) -> Tensor:
    """One step on ids (B, T + 1): forward, backward, clip, update. Returns the loss before it."""
    with torch.autocast(ids.device.type, torch.bfloat16):
        logits = model(ids[:, :-1])
    loss = next_token_loss(logits, ids)
    update(optimizers, loss, lr, clip)
    return loss.detach()


def guided_step(model: CausalLM, optimizers: list[Optimizer], ids: Tensor, lr: float,
                config: TrainConfig) -> Tensor:
    """A step whose loss also says where some heads should look. Returns the next-token loss alone."""
    with Guide(model) as guide, torch.autocast(ids.device.type, torch.bfloat16):
        logits = model(ids[:, :-1])
    loss = next_token_loss(logits, ids)
    update(optimizers, loss + config.guide_weight * guide.loss(ids[:, :-1]), lr, config.clip)
    return loss.detach()


def update(optimizers: list[Optimizer], loss: Tensor, lr: float, clip: float) -> None:
    """Backward, clip, step at this learning rate."""
    loss.backward()
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], clip)
    for group in groups:
        group["lr"] = lr
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


@torch.inference_mode()
def validation_loss(model: CausalLM, batches: Batches, config: TrainConfig) -> float:
    """Loss on the same few windows each time."""
    ids = batches(0, 4, config.length).to(model.embed_tokens.weight.device)
    return next_token_loss(model(ids[:, :-1]), ids).item()


def save_resume(path: Path, model: CausalLM, optimizers: list[Optimizer], step: int, tokens: int,
                seconds: float) -> None:
    """Write the state of a run; an interruption leaves the file of before."""
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "step": step, "tokens": tokens, "seconds": seconds}, partial)
    os.replace(partial, path)


def load_resume(path: Path, model: CausalLM, optimizers: list[Optimizer]) -> tuple[int, int, float]:
    """Put the state of a run back; return its steps, tokens and seconds so far."""
    state = torch.load(path, map_location=model.embed_tokens.weight.device, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return state["step"], state["tokens"], state["seconds"]


def corpus_batches(tokenizer: Tokenizer, work: Path, tokens: int) -> tuple[Batches, Batches]:
    """Training and validation batches; the encoded corpus is kept in `work` for the next run."""
    end, path = tokenizer.special_tokens[END_OF_TEXT], work / f"corpus-{tokens}.npy"
    if not path.exists():
        np.save(path, encode_corpus(tokenizer, tokens, TRAIN_SEED))
    validation = encode_corpus(tokenizer, 60_000, VALIDATION_SEED)
    return Batches(np.load(path, mmap_mode="r"), end, seed=0), Batches(validation, end, seed=0)


def make_model(name: str, tokenizer: Tokenizer, batches: tuple[Batches, Batches], config: TrainConfig,
               work: Path, folder: Path, *, device: torch.device, compiled: bool, note: str = "") -> None:
    """Train one of the shipped models and save it as a checkpoint with its log and checksums."""
    shape = RECIPES[name].model
    model = CausalLM(shape)
    model.init_weights(torch.Generator().manual_seed(config.seed))
    log = work / f"{name}.jsonl"

    def on_log(entry: dict) -> None:
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"{name} step {entry['step']}/{config.steps}  loss {entry['loss']:.3f}  "
              f"val {entry['val_loss']:.3f}  {entry['seconds']:.0f} s", flush=True)

    train(model.to(device), batches[0], config, validation=batches[1], resume=work / f"{name}.pt",
          on_log=on_log, compiled=compiled)
    ends = frozenset(tokenizer.special_tokens[tag] for tag in (END_OF_TEXT, "<|im_end|>"))
    save(LanguageModel(model, tokenizer, shape, ends, name), folder, dtype=torch.bfloat16)
    (folder / "training_log.jsonl").write_bytes(log.read_bytes())
    facts = {"config": asdict(config), "last": json.loads(log.read_text().splitlines()[-1]),
             "machine": machine(device), "command": "python -m course_lib train", "note": note}
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    write_checksums(folder)


def machine(device: torch.device) -> str:
    """Where a run took place, in words."""
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return f"{chip}, threads: {torch.get_num_threads()}, PyTorch {torch.__version__.partition('+')[0]}"


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of the files that make the checkpoint."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")
                   and path.name != "training.json")
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))


def main(argv: Sequence[str] | None = None) -> int:
    """Rebuild the tokenizer and both models."""
    parser = argparse.ArgumentParser(prog="python -m course_lib train", description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path, default=MODELS, help="where the checkpoints go")
    parser.add_argument("--work", type=Path, default=Path("build/train"), help="corpus, logs, resume files")
    parser.add_argument("--only", choices=RECIPES, help="one model instead of both")
    parser.add_argument("--steps", type=int, help="optimizer steps instead of the recipe's")
    parser.add_argument("--no-compile", action="store_true", help="run without torch.compile")
    parser.add_argument("--note", default="", help="what the model card should say about this run")
    parser.add_argument("--show", action="store_true", help="train nothing: say how the shipped models were trained")
    args = parser.parse_args(argv)
    if args.show:
        for name in [args.only] if args.only else RECIPES:
            print(show_training(args.models / name))
        return 0
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    for name in [args.only] if args.only else RECIPES:
        config = RECIPES[name].config
        config = replace(config, steps=args.steps or config.steps)
        batches = corpus_batches(tokenizer, args.work, CORPUS_TOKENS)
        make_model(name, tokenizer, batches, config, args.work, args.models / name,
                   device=choose_device(), compiled=not args.no_compile, note=args.note)
    return 0
