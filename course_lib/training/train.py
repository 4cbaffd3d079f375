"""The training that made the shipped weights: their shapes and recipes, the tokenizer, the loop.

`course_lib.training.rebuild` puts them together, which is `python -m course_lib train`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.config import ModelConfig, require
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe
from course_lib.training.corpus import END_OF_TEXT, PRETRAINING, Mix, documents, training_documents
from course_lib.training.guidance import Guide
from course_lib.training.mixed_precision import mixed_precision
from course_lib.training.resume import Progress, load_resume, run_settings, save_resume

SPECIAL_TOKENS = (END_OF_TEXT, "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>",
                  "<tool_response>", "</tool_response>")
VOCAB_SIZE = 4096
TRAIN_SEED, VALIDATION_SEED, TUNING_SEED = 0, 1, 3
SAVE_SECONDS = 300  # a run that is cut off loses no more than that

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
        long_length, long_every: every `long_every`-th step reads as many tokens in longer sequences, so
            that every position of the context is trained; 0: no step does.
        guided: the first step with, and the first one again without, the loss of `course_lib.training.guidance`,
            which is added with guide_weight.
        peak_lr: reached after warmup_steps, held, and brought to zero over the last decay_fraction.
        weight_decay: of the matrices alone.
        betas: of AdamW.
        clip: the largest norm of all gradients together; longer ones are scaled down to it.
        seed: of the initial weights.
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
    """The shape of a shipped model and how it was trained; if it was tuned afterwards, how."""

    model: ModelConfig
    config: TrainConfig
    tuning: TrainConfig | None = None


CORPUS_TOKENS, TUNING_TOKENS, VALIDATION_TOKENS = 24_000_000, 7_000_000, 60_000
RECIPES = {"pocket": Recipe(POCKET,
                            TrainConfig(steps=11_000, sequences=8, length=256, long_every=10, peak_lr=4e-3,
                                        guided=(60, 900)),
                            TrainConfig(steps=2500, sequences=8, length=256, long_every=10, peak_lr=1.5e-3,
                                        warmup_steps=50, decay_fraction=0.9)),
           "pocket-draft": Recipe(POCKET_DRAFT, TrainConfig(steps=8000, peak_lr=3e-3))}


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear up, flat, linear down to zero, for step 0, 1, ..., steps - 1."""
    rise = (step + 1) / max(config.warmup_steps, 1)
    fall = (config.steps - step) / max(config.decay_fraction * config.steps, 1)
    return config.peak_lr * min(1.0, rise, fall)


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of each token given those before it.

    Args:
        logits: (B, T, V), what the model makes of `ids[:, :-1]`.
        ids: (B, T + 1); position t predicts ids[:, t + 1].
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


class Batches:
    """Windows of a long token array that start where documents start, the same ones for the same step.

    Args:
        tokens: (N,) ids, each document closed by end_of_text.
        end_of_text: the id after which a document starts.
        seed: of the choice of windows.
    """

    def __init__(self, tokens: np.ndarray, end_of_text: int, seed: int) -> None:
        self.tokens = tokens
        self.starts = np.concatenate(([0], np.flatnonzero(tokens == end_of_text)[:-1] + 1))
        self.seed = seed

    def __call__(self, step: int, sequences: int, length: int) -> Tensor:
        """The windows of a step: (sequences, length + 1) ids.

        Raises:
            ValueError: there are too few tokens for a window of this length.
        """
        last = len(self.tokens) - length - 1
        require(last >= 0, "length", length, f"from 1 to {len(self.tokens) - 1:,}, one less than there are tokens")
        rng = np.random.default_rng([self.seed, step])
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


def encode_corpus(tokenizer: Tokenizer, tokens: int, seed: int, mix: Mix = PRETRAINING) -> np.ndarray:
    """At least `tokens` tokens of what the models read, as one array of uint16."""
    return encode_documents(tokenizer, training_documents(seed, mix), tokens)


def encode_documents(tokenizer: Tokenizer, texts: Iterable[str], tokens: int) -> np.ndarray:
    """At least `tokens` tokens of an endless row of documents, control tokens included."""
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
        resume: a file that holds model, optimizers and progress. It is written every ten logs, every
            `SAVE_SECONDS` and at the end, and read first if it exists, so an interrupted run goes on
            where it was.
        on_log: called with step, tokens, loss (mean since the last log), lr, seconds and, with
            `validation`, val_loss; tokens and seconds count the whole run.
        compiled: run the model through torch.compile.
        schedule: the learning rate of a step, called as `learning_rate` is.

    Raises:
        UsageError: `resume` cannot be read, or is of a run with another config, shape or text.
    """
    optimizers, forward = make_optimizers(model, config), model
    progress, settings = Progress(), {}
    if resume is not None:
        settings = run_settings(model, batches.tokens, config)
        progress = load_resume(resume, model, optimizers, settings)
    if compiled:
        forward = torch.compile(model, dynamic=False)
    saved = time.perf_counter()
    started = saved - progress.seconds
    for step in range(progress.step, config.steps):
        ids = batches(step, *window(step, config)).to(model.embed_tokens.weight.device)
        lr = schedule(step, config)
        if config.guided[0] <= step < config.guided[1]:
            progress.losses.append(guided_step(model, optimizers, ids, lr, config))
        else:
            progress.losses.append(train_step(forward, optimizers, ids, lr, config.clip))
        progress.step, progress.tokens = step + 1, progress.tokens + ids.shape[0] * (ids.shape[1] - 1)
        progress.seconds = time.perf_counter() - started
        last = progress.step == config.steps
        if last or progress.step % log_every == 0:
            entry = log_entry(progress, lr)
            if validation is not None:
                entry["val_loss"] = validation_loss(model, validation, config)
            on_log(entry)
            progress.losses = []
        due = last or progress.step % (10 * log_every) == 0 or time.perf_counter() - saved >= SAVE_SECONDS
        if resume is not None and due:
            save_resume(resume, model, optimizers, progress, settings)
            saved = time.perf_counter()


def log_entry(progress: Progress, lr: float) -> dict[str, float]:
    """What the log says of the steps since the last entry."""
    return {"step": progress.step, "tokens": progress.tokens, "loss": torch.stack(progress.losses).mean().item(),
            "lr": lr, "seconds": progress.seconds}


def window(step: int, config: TrainConfig) -> tuple[int, int]:
    """How many sequences of which length this step reads."""
    if config.long_every and step % config.long_every == config.long_every - 1:
        return max(1, config.sequences * config.length // config.long_length), config.long_length
    return config.sequences, config.length


def train_step(model: Callable[[Tensor], Tensor], optimizers: list[Optimizer], ids: Tensor, lr: float,
               clip: float) -> Tensor:
    """One step on ids (B, T + 1): forward, backward, clip, update. Returns the loss before it."""
    with mixed_precision(ids.device.type):
        logits = model(ids[:, :-1])
    loss = next_token_loss(logits, ids)
    update(optimizers, loss, lr, clip)
    return loss.detach()


def guided_step(model: CausalLM, optimizers: list[Optimizer], ids: Tensor, lr: float,
                config: TrainConfig) -> Tensor:
    """A step whose loss also says where some heads should look. Returns the next-token loss alone."""
    with Guide(model) as guide, mixed_precision(ids.device.type):
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
    """Loss on the same four windows each time: it shows a trend, not a level (for that, `held_back_loss`)."""
    ids = batches(0, 4, config.length).to(model.embed_tokens.weight.device)
    return next_token_loss(model(ids[:, :-1]), ids).item()
