"""The training that made the shipped weights: corpus to tokenizer to `pocket` and `pocket-draft`.

    python -m course_lib train            # everything, resuming what was interrupted
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.config import ModelConfig, require
from course_lib.corpus import END_OF_TEXT, documents
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

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
        peak_lr: reached after warmup_steps, held, and brought to zero over the last decay_fraction.
    """

    steps: int
    sequences: int = 10
    length: int = 208
    long_length: int = 1024
    long_every: int = 16
    peak_lr: float = 1.5e-3
    warmup_steps: int = 200
    decay_fraction: float = 0.35
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.steps >= 1, "steps", self.steps, ">= 1")
        require(0 <= self.decay_fraction <= 1, "decay_fraction", self.decay_fraction, "in [0, 1]")


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
    return Tokenizer("pocket", POCKET_PATTERN, ranks, specials)


def encode_corpus(tokenizer: Tokenizer, tokens: int, seed: int) -> np.ndarray:
    """At least so many tokens of the corpus, as one array of uint16."""
    chunks, size, stream = [], 0, documents(seed)
    while size < tokens:
        ids = tokenizer.encode("".join(islice(stream, 200)), allowed_special="all")
        chunks.append(np.array(ids, dtype=np.uint16))
        size += len(ids)
    return np.concatenate(chunks)


def make_optimizer(model: CausalLM, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019); matrices decay, norms and biases do not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay},
              {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.peak_lr, betas=config.betas, fused=True)


def train(model: CausalLM, batches: Batches, config: TrainConfig, *, validation: Batches | None = None,
          resume: Path | None = None, on_log: Callable[[dict], None] = print, log_every: int = 100,
          compiled: bool = False) -> None:
    """Train `model` in place, on its device, in bfloat16 autocast with float32 weights.

    Args:
        resume: a file that holds model, optimizer and step. It is written every ten logs, and read
            first if it exists, so an interrupted run goes on where it was.
        on_log: called with step, tokens, loss (mean since the last log), lr, seconds and, with
            `validation`, val_loss.
        compiled: run the model through torch.compile.
    """
    device = model.embed_tokens.weight.device
    optimizer, first = make_optimizer(model, config), 0
    if resume is not None and resume.exists():
        state = torch.load(resume, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    forward = torch.compile(model, dynamic=False) if compiled else model
    started, losses, tokens = time.perf_counter(), [], 0
    for step in range(first, config.steps):
        long = config.long_every and step % config.long_every == config.long_every - 1
        length = config.long_length if long else config.length
        sequences = max(1, config.sequences * config.length // length)
        ids = batches(step, sequences, length).to(device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        with torch.autocast(device.type, torch.bfloat16):
            logits = forward(ids[:, :-1])
        loss = next_token_loss(logits, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        tokens += sequences * length
        if (step + 1) % log_every == 0 or step + 1 == config.steps:
            record = {"step": step + 1, "tokens": tokens, "loss": torch.stack(losses).mean().item(),
                      "lr": learning_rate(step, config), "seconds": time.perf_counter() - started}
            if validation is not None:
                record["val_loss"] = validation_loss(model, validation, config)
            on_log(record)
            losses = []
            if resume is not None and ((step + 1) % (10 * log_every) == 0 or step + 1 == config.steps):
                save_resume(resume, model, optimizer, step + 1)


@torch.inference_mode()
def validation_loss(model: CausalLM, batches: Batches, config: TrainConfig) -> float:
    """Loss on the same few windows each time."""
    ids = batches(0, 4, config.length).to(model.embed_tokens.weight.device)
    return next_token_loss(model(ids[:, :-1]), ids).item()


def save_resume(path: Path, model: CausalLM, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write the state of a run; an interruption leaves the file of before."""
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    os.replace(partial, path)
