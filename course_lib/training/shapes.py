"""Width and depth against loss: one small model for each shape, all trained on the same text by the same recipe.

    python -m course_lib.training.shapes     # trains them all and writes shapes.csv anew: about half an hour

The text is that of `first_model`, simple stories and sentences. The vocabulary is the first 512 tokens of `pocket`'s,
so that the layers, and not the table of tokens, are the larger part of all but the smallest models.

Which learning rate is best depends on the shape: narrow models want larger steps, deep ones smaller. A single rate
would measure that as well. So the rate falls with the root of the width, every shape is trained with two such rates,
one twice the other, and the better run counts. The deep ones take the smaller rate and might like a smaller one still.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from statistics import median

import torch

from course_lib.checkpoint import load
from course_lib.config import ModelConfig, require
from course_lib.costs import flops_per_token, parameter_count
from course_lib.model import CausalLM
from course_lib.tokenizer import Tokenizer
from course_lib.training.corpus import END_OF_TEXT
from course_lib.training.first_model import fresh_model, simple_documents
from course_lib.training.machine import machine
from course_lib.training.train import (
    TRAIN_SEED,
    VALIDATION_SEED,
    Batches,
    TrainConfig,
    encode_documents,
    next_token_loss,
    train,
)

RESULTS = Path(__file__).with_name("shapes.csv")
COMMAND = "python -m course_lib.training.shapes"
VOCABULARY, HEAD_DIM, CONTEXT = 512, 16, 128
TRAIN_TOKENS, VALIDATION_TOKENS, VALIDATION_WINDOWS = 3_000_000, 200_000, 512
RECIPE = TrainConfig(steps=600, sequences=16, length=CONTEXT, long_every=0, warmup_steps=40, decay_fraction=0.5,
                     peak_lr=0.016)  # at a width of 128
RATES = (RECIPE.peak_lr, RECIPE.peak_lr / 2)
GRID = tuple(sorted([(width, depth) for width in (32, 64, 128) for depth in (1, 2, 4, 8)]
                    + [(32, 16), (256, 1), (256, 2)]))
AGAIN = (64, 4)  # the shape that is trained from three seeds, to see what chance alone does
CHECK = replace(RECIPE, steps=20)  # a run short enough for a test


@dataclass(frozen=True)
class ShapeResult:
    """One trained model: its shape, what it costs, what it learned.

    Attributes:
        width, depth: numbers in a vector, and layers.
        parameters: all of them; layer_parameters: those of the layers.
        flops_per_token: of a forward pass, averaged over the positions of a window.
        steps, peak_lr, seed: of the training, which is otherwise `RECIPE`; the rate is that of a width of 128.
        tokens: read in training.
        loss: in nats per token, on text from another seed than the training text.
    """

    width: int
    depth: int
    parameters: int
    layer_parameters: int
    flops_per_token: int
    steps: int
    peak_lr: float
    seed: int
    tokens: int
    loss: float


def shape(width: int, depth: int) -> ModelConfig:
    """A model with pocket's proportions: heads of 16 numbers, an MLP two and a half times as wide, tied embedding."""
    require(width % (2 * HEAD_DIM) == 0, "width", width, f"a multiple of {2 * HEAD_DIM}")
    return ModelConfig(vocab_size=VOCABULARY, hidden_size=width, intermediate_size=5 * width // 2,
                       num_hidden_layers=depth, num_attention_heads=width // HEAD_DIM,
                       max_position_embeddings=CONTEXT)


def first_tokens(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """The tokenizer with its first merges alone, and its special tokens after them: `size` tokens in all."""
    kept = size - len(tokenizer.special_tokens)
    require(kept >= 256, "size", size, f"at least {256 + len(tokenizer.special_tokens)}: every byte is a token")
    ranks = {piece: rank for piece, rank in tokenizer.mergeable_ranks.items() if rank < kept}
    specials = {tag: kept + i for i, tag in enumerate(tokenizer.special_tokens)}
    return Tokenizer(f"{tokenizer.name}-{size}", tokenizer.pat_str, ranks, specials)


@cache
def texts() -> tuple[Batches, Batches]:
    """Windows to train and to validate on; both begin where documents begin, and come from different seeds."""
    tokenizer = first_tokens(load(device="cpu").tokenizer, VOCABULARY)
    end = tokenizer.special_tokens[END_OF_TEXT]
    return tuple(Batches(encode_documents(tokenizer, simple_documents(seed), tokens), end, seed=0)
                 for seed, tokens in ((TRAIN_SEED, TRAIN_TOKENS), (VALIDATION_SEED, VALIDATION_TOKENS)))


@torch.inference_mode()
def window_loss(model: CausalLM, batches: Batches) -> float:
    """Mean loss, in nats per token, over the same `VALIDATION_WINDOWS` windows for every model."""
    parts = batches(0, VALIDATION_WINDOWS, CONTEXT).split(64)
    return sum(next_token_loss(model(ids[:, :-1]), ids).item() for ids in parts) / len(parts)


def run_shape(width: int, depth: int, recipe: TrainConfig = RECIPE) -> ShapeResult:
    """Train one shape on the CPU from its recipe, and measure it."""
    config, (training, validation) = shape(width, depth), texts()
    model = fresh_model(config, seed=recipe.seed, device=torch.device("cpu"))
    log: list[dict] = []
    scaled = replace(recipe, peak_lr=recipe.peak_lr * math.sqrt(128 / width))
    train(model, training, scaled, on_log=log.append, log_every=recipe.steps)
    count = parameter_count(config)
    return ShapeResult(width, depth, count.total, count.attention + count.mlp + count.norm - width,
                       flops_per_token(config, (CONTEXT + 1) // 2).total, recipe.steps, recipe.peak_lr, recipe.seed,
                       log[-1]["tokens"], round(window_loss(model, validation), 4))


@torch.inference_mode()
def token_seconds(shapes: Iterable[tuple[int, int]], runs: int = 30) -> dict[tuple[int, int], float]:
    """Wall-clock time of one token through an untrained model of each (width, depth), the median of many runs.

    The shapes alternate, so that whatever else the machine does meets them alike.
    """
    require(runs >= 1, "runs", runs, ">= 1")
    ids = torch.zeros(1, 1, dtype=torch.long)
    models = {pair: CausalLM(shape(*pair)).eval() for pair in shapes}
    seconds: dict[tuple[int, int], list[float]] = {pair: [] for pair in models}
    for run in range(runs + 1):  # the first is a warm-up
        for pair, model in models.items():
            start = time.perf_counter()
            model(ids)
            if run:
                seconds[pair].append(time.perf_counter() - start)
    return {pair: median(times) for pair, times in seconds.items()}


def read_results(path: Path = RESULTS) -> list[ShapeResult]:
    """All stored runs, those with other seeds and fewer steps too."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    kinds = {field.name: float if field.type == "float" else int for field in fields(ShapeResult)}
    return [ShapeResult(**{name: kinds[name](text) for name, text in row.items()}) for row in csv.DictReader(lines)]


def grid_results() -> dict[tuple[int, int], ShapeResult]:
    """The stored runs of the grid by (width, depth): all steps, the first seed, the better of the two rates."""
    best: dict[tuple[int, int], ShapeResult] = {}
    for run in sorted(read_results(), key=lambda run: run.loss, reverse=True):
        if run.steps == RECIPE.steps and run.seed == RECIPE.seed:
            best[run.width, run.depth] = run
    return {pair: best[pair] for pair in GRID}


def write_results(results: Iterable[ShapeResult], path: Path = RESULTS) -> None:
    """The file: how it was made and where, then one line for each run."""
    rows = [asdict(run) for run in results]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {COMMAND}\n# {machine(torch.device('cpu'))}\n# {RECIPE}\n")
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(shapes: Sequence[tuple[int, int]] = GRID) -> None:
    """Train the grid, one shape from two more seeds, and a short run for the test; write what came out."""
    runs = [(*shapes[0], CHECK), *((*pair, replace(RECIPE, peak_lr=rate)) for pair in shapes for rate in RATES),
            *((*AGAIN, replace(RECIPE, seed=seed)) for seed in (1, 2))]
    results = []
    for width, depth, recipe in runs:
        results.append(run_shape(width, depth, recipe))
        print(results[-1], flush=True)
    write_results(results)


if __name__ == "__main__":
    main()
