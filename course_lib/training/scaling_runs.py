"""The family of the scaling laws: which models, trained how, and the log of what they learned.

One number, the size s, is the whole shape: s layers, s heads of 16 numbers, width 16 s, so that the layers hold
2,944 s^3 weights and a little more. Every run reads its tokens once, and its learning rate falls to zero at its own
end (Hoffmann et al. 2022: a run that is cut short is no substitute for a short run).

The vocabulary is the first 1,024 tokens of `pocket`'s: with all 4,096 the table of tokens would outweigh the layers
of most of the family. `course_lib.training.scaling` trains the runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course_lib.config import ModelConfig, require
from course_lib.costs import parameter_count
from course_lib.training.train import TrainConfig

RESULTS = Path(__file__).with_name("scaling.jsonl")
VOCABULARY, HEAD_DIM, CONTEXT, SEQUENCES = 1024, 16, 256, 8
BATCH = SEQUENCES * CONTEXT  # tokens of a step
VALIDATION_WINDOWS, BLOCKS, CURVE_POINTS = 2048, 32, 16

SIZES, TOKENS = (2, 3, 4, 5, 6, 8), (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
LONG = tuple((size, 16_000_000) for size in SIZES[:4])  # the small ones are cheap enough for twice as much
FEWEST_TOKENS = 1_500_000  # before, most sizes gain more by a doubling than by the one before it
HELD_OUT = ((10, 8_000_000), (10, 16_000_000))  # larger than all that are fitted; the second reads more as well
AGAIN, RATE_SIZES = 1_000_000, (2, 6)  # tokens of the runs with other rates and seeds, and sizes with other rates
BASE_RATE = 0.032  # the peak learning rate at size 2
ROLES = ("fit", "held-out", "rate", "seed")


@dataclass(frozen=True)
class Run:
    """One model of the family and how it is trained.

    Args:
        size: layers, heads, and width / 16.
        tokens: to read, rounded down to whole steps of `BATCH`.
        role: "fit"; "held-out", to be predicted; "rate" or "seed", a run of the family again with another learning
            rate or other initial weights, to see what they do.
        rate: the peak learning rate, as a multiple of what `peak_lr` gives.
        seed: of the initial weights.

    Raises:
        ValueError: a size is below 1, there are fewer tokens than one step reads, or the role is unknown.
    """

    size: int
    tokens: int
    role: str = "fit"
    rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.size >= 1, "size", self.size, ">= 1")
        require(self.tokens >= BATCH, "tokens", self.tokens, f">= {BATCH:,}, one step")
        require(self.role in ROLES, "role", self.role, f"one of {ROLES}")
        require(self.rate > 0, "rate", self.rate, "> 0")

    @property
    def name(self) -> str:
        """For files and the log, unique in the family.

        >>> Run(4, 500_000).name
        'size-4-tokens-500k'
        """
        extra = f"-rate-{self.rate:g}" * (self.rate != 1) + f"-seed-{self.seed}" * (self.seed != 0)
        return f"size-{self.size}-tokens-{self.tokens // 1000}k{extra}"

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return self.tokens // BATCH


@dataclass(frozen=True)
class ScalingResult:
    """One finished run: its shape, its training, what it learned.

    Attributes:
        run, role, size, rate, seed: of the `Run`.
        parameters: all of them; layer_parameters: without the table of tokens, which is the head too.
        tokens, steps: read and made in training.
        peak_lr: the highest learning rate.
        loss: in nats per token, on held-out text.
        loss_error: standard error of `loss`, from the spread between the windows of the text.
        bits_per_byte: the same loss in bits per byte of text, which does not depend on the tokenizer.
        blocks: the loss on each of `BLOCKS` equal parts of the held-out text, the same parts for every run.
        curve: step, tokens and training loss since the point before; every token is new, so this is a loss on text
            not seen yet, but at a learning rate that has not fallen. The last point may cover a few steps only.
        seconds: of training; machine: where.
    """

    run: str
    role: str
    size: int
    rate: float
    seed: int
    parameters: int
    layer_parameters: int
    tokens: int
    steps: int
    peak_lr: float
    loss: float
    loss_error: float
    bits_per_byte: float
    blocks: tuple[float, ...]
    curve: tuple[tuple[int, int, float], ...]
    seconds: float
    machine: str


def family() -> list[Run]:
    """All runs: sizes x budgets with other rates and seeds, the cheap ones first, and the held-out ones last."""
    fitted = [Run(size, tokens) for tokens in TOKENS for size in SIZES] + [Run(*pair) for pair in LONG]
    rates = [Run(size, AGAIN, "rate", rate=rate) for size in RATE_SIZES for rate in (0.5, 2)]
    seeds = [Run(SIZES[1], AGAIN, "seed", seed=seed) for seed in (1, 2)]
    held_out = [Run(size, tokens, "held-out") for size, tokens in HELD_OUT]
    return sorted([*fitted, *seeds, *rates], key=work) + held_out


def work(run: Run) -> float:
    """About how much computing a run takes, in multiplications."""
    return 3 * run.tokens * parameter_count(shape(run.size)).total


def shape(size: int) -> ModelConfig:
    """The family's model of this size, with pocket's proportions.

    >>> shape(4).hidden_size, shape(4).num_hidden_layers
    (64, 4)
    """
    require(size >= 1, "size", size, ">= 1")
    width = HEAD_DIM * size
    return ModelConfig(vocab_size=VOCABULARY, hidden_size=width, intermediate_size=5 * width // 2,
                       num_hidden_layers=size, num_attention_heads=size, max_position_embeddings=CONTEXT)


def peak_lr(size: int) -> float:
    """The highest learning rate of a size: it falls with the root of the width.

    >>> peak_lr(8) == peak_lr(2) / 2
    True
    """
    return BASE_RATE * math.sqrt(2 / size)


def recipe(run: Run) -> TrainConfig:
    """How a run is trained: a short rise of the learning rate, then straight down to zero at its end."""
    return TrainConfig(steps=run.steps, sequences=SEQUENCES, length=CONTEXT, long_every=0,
                       peak_lr=run.rate * peak_lr(run.size), warmup_steps=max(10, run.steps // 20),
                       decay_fraction=1.0, seed=run.seed)


def read_results(path: Path = RESULTS) -> list[ScalingResult]:
    """The stored runs, in the order in which they finished.

    Raises:
        ValueError: there is no such file, or a line of it is no result; the message has the number of the line.
    """
    require(path.is_file(), "path", str(path), "a file that python -m course_lib scaling has written")
    return [read_line(path, number, line) for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)]


def read_line(path: Path, number: int, line: str) -> ScalingResult:
    """One line of the file of results."""
    try:
        row = json.loads(line)
        return ScalingResult(**{**row, "blocks": tuple(row["blocks"]), "curve": tuple(map(tuple, row["curve"]))})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}, line {number} is not the result of a run: {error}") from error


def results(role: str | Iterable[str] = "fit", path: Path = RESULTS, *, fewest_tokens: int = 0) -> list[ScalingResult]:
    """The stored runs of a role, or of several, small models first.

    Args:
        fewest_tokens: leave out the runs that read fewer.

    Raises:
        ValueError: the role is unknown.
    """
    wanted = {role} if isinstance(role, str) else set(role)
    require(wanted <= set(ROLES), "role", role, f"one or several of {ROLES}")
    found = [result for result in read_results(path) if result.role in wanted and result.tokens >= fewest_tokens]
    return sorted(found, key=lambda result: (result.size, result.tokens, result.rate, result.seed))
