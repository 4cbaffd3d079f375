"""Model size and training tokens against loss: trains the family of `course_lib.training.scaling_runs`.

    python -m course_lib scaling            # trains what scaling.jsonl does not hold yet: hours on one CPU core

Every run reads the beginning of one endless text, in order and once. All are measured on the same held-out text, from
another seed of the generator.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.checkpoint import load
from course_lib.command_line import Parser, UsageError, usage_errors
from course_lib.config import require
from course_lib.costs import parameter_count
from course_lib.model import CausalLM
from course_lib.threads import one_thread
from course_lib.tokenizer import Tokenizer
from course_lib.training.corpus import documents
from course_lib.training.first_model import fresh_model
from course_lib.training.machine import machine
from course_lib.training.resume import append_log, cut_log, read_state, start_anew, steps_done
from course_lib.training.scaling_runs import (
    BATCH,
    BLOCKS,
    CONTEXT,
    CURVE_POINTS,
    RESULTS,
    SIZES,
    TOKENS,
    VALIDATION_WINDOWS,
    VOCABULARY,
    Run,
    ScalingResult,
    family,
    read_results,
    recipe,
    shape,
)
from course_lib.training.shapes import first_tokens
from course_lib.training.train import TRAIN_SEED, VALIDATION_SEED, encode_documents, train


class SinglePass:
    """Windows that cover a long token array from its beginning, side by side: no token is predicted twice.

    Args:
        tokens: (N,) ids.
    """

    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens = tokens

    def __call__(self, step: int, sequences: int, length: int) -> Tensor:
        """The windows of a step: (sequences, length + 1) ids, each beginning with the last id of the one before.

        Raises:
            ValueError: the tokens end before this step does.
        """
        start, count = step * sequences * length, sequences * length
        last = (len(self.tokens) - 1) // count - 1
        require(0 <= step <= last, "step", step, f"from 0 to {last:,}: there are {len(self.tokens):,} tokens")
        rows = np.lib.stride_tricks.sliding_window_view(self.tokens[start : start + count + 1], length + 1)[::length]
        return torch.from_numpy(rows.astype(np.int64))  # (sequences, length + 1)


@cache
def tokenizer() -> Tokenizer:
    """The family's vocabulary, the beginning of `pocket`'s."""
    return first_tokens(load("pocket", device="cpu").tokenizer, VOCABULARY)


@cache
def training_text(tokens: int) -> np.ndarray:
    """The first tokens of the training text, one more than `tokens`, as uint16; more of it begins the same way."""
    return encode_documents(tokenizer(), documents(TRAIN_SEED), tokens + 1)[: tokens + 1]


@cache
def validation_text() -> np.ndarray:
    """The held-out text that every run is measured on: `VALIDATION_WINDOWS` windows, from another seed."""
    size = VALIDATION_WINDOWS * CONTEXT + 1
    return encode_documents(tokenizer(), documents(VALIDATION_SEED), size)[:size]


@cache
def bytes_per_token() -> float:
    """Of the held-out text."""
    ids = validation_text()[1:].tolist()
    return len(tokenizer().decode_bytes(ids)) / len(ids)


@torch.inference_mode()
def token_losses(model: CausalLM, *, sequences: int = 32) -> Tensor:
    """(windows, CONTEXT) loss of each token of the held-out text, in nats, computed in float32."""
    batches, losses = SinglePass(validation_text()), []
    for step in range(VALIDATION_WINDOWS // sequences):
        ids = batches(step, sequences, CONTEXT)
        each = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        losses.append(each.view(sequences, CONTEXT))
    return torch.cat(losses)


def window_losses(model: CausalLM, *, sequences: int = 32) -> np.ndarray:
    """Mean loss of each window of the held-out text, in nats per token."""
    return token_losses(model, sequences=sequences).mean(1).numpy().astype(np.float64)


def train_run(run: Run, work: Path | None = None, *, text: np.ndarray | None = None) -> ScalingResult:
    """Train one model of the family on the CPU and measure it.

    Args:
        work: a folder for the state of the run, so that it goes on where it was interrupted; None keeps none.
        text: the training text, if the caller has made more of it than this run needs.

    Raises:
        UsageError: the state in `work` cannot be read, or belongs to another recipe.
    """
    return measured(run, *trained(run, work, text))


def trained(run: Run, work: Path | None = None,
            text: np.ndarray | None = None) -> tuple[CausalLM, list[tuple[int, int, float]], float]:
    """The model that a run ends with, its curve and the seconds it took; the arguments are those of `train_run`."""
    text = training_text(run.steps * BATCH) if text is None else text[: run.steps * BATCH + 1]
    model = fresh_model(shape(run.size), seed=run.seed, device=torch.device("cpu"))
    state = None if work is None else work / f"{run.name}.pt"
    curve, seconds = ([] if state is None else read_curve(state)), 0.0

    def on_log(entry: dict) -> None:
        nonlocal seconds
        seconds = entry["seconds"]
        curve.append(curve_point(entry))
        if state is not None:
            append_log(state.with_suffix(".jsonl"), entry)

    train(model, SinglePass(text), recipe(run), resume=state, on_log=on_log,
          log_every=max(1, run.steps // CURVE_POINTS))
    if state is not None:
        seconds = read_state(state)["progress"]["seconds"]
    return model, curve, seconds


def curve_point(entry: dict) -> tuple[int, int, float]:
    """What the curve keeps of a log entry."""
    return entry["step"], entry["tokens"], round(entry["loss"], 4)


def read_curve(state: Path) -> list[tuple[int, int, float]]:
    """What an interrupted run has logged up to the step at which it goes on."""
    log = state.with_suffix(".jsonl")
    cut_log(log, steps_done(state))
    entries = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
    return [curve_point(entry) for entry in entries]


def measured(run: Run, model: CausalLM, curve: Sequence[tuple[int, int, float]], seconds: float) -> ScalingResult:
    """The result of a run that is trained."""
    count, losses = parameter_count(shape(run.size)), window_losses(model)
    loss = losses.mean().item()
    return ScalingResult(
        run=run.name, role=run.role, size=run.size, rate=run.rate, seed=run.seed, parameters=count.total,
        layer_parameters=count.total - count.embedding, tokens=run.steps * BATCH, steps=run.steps,
        peak_lr=round(recipe(run).peak_lr, 6), loss=round(loss, 5),
        loss_error=round(losses.std(ddof=1).item() / math.sqrt(len(losses)), 5),
        bits_per_byte=round(loss / math.log(2) / bytes_per_token(), 5),
        blocks=tuple(losses.reshape(BLOCKS, -1).mean(1).round(5).tolist()), curve=tuple(curve),
        seconds=round(seconds, 1), machine=machine(torch.device("cpu")))


LIVE = tuple(Run(size, TOKENS[0]) for size in SIZES[:3])
LIVE_TOLERANCE = 0.03  # nats: sums in bfloat16 depend on the machine; two threads instead of one moved it by 0.005


class LiveResult(NamedTuple):
    """A member of the family trained again: its loss now and as stored."""

    run: Run
    loss: float
    stored: float


def train_live(runs: Sequence[Run] = LIVE) -> list[LiveResult]:
    """Train small members of the family here and now; each lands within `LIVE_TOLERANCE` of its stored loss.

    One thread trains them: on a machine that is busy, two that wait for each other can be many times slower.

    Raises:
        ValueError: a run is not in the log.
    """
    stored = {result.run: result.loss for result in read_results()}
    for run in runs:
        require(run.name in stored, "runs", run.name, "runs that the log holds")
    with one_thread():
        losses = [window_losses(trained(run)[0]).mean().item() for run in runs]
    return [LiveResult(run, loss, stored[run.name]) for run, loss in zip(runs, losses)]


def main(argv: Sequence[str] | None = None) -> int:
    """Train the family of the scaling laws; runs that are stored already are skipped, interrupted ones go on."""
    parser = Parser(prog="python -m course_lib scaling", description=main.__doc__)
    parser.add_argument("--work", type=Path, default=Path("scaling-work"), help="folder for the state of interrupted "
                        "runs (default: scaling-work)")
    parser.add_argument("--only", nargs="+", metavar="RUN", help="names of runs, as --list prints them")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that finished runs are added to "
                        "(default: the one in the package)")
    parser.add_argument("--list", action="store_true", help="print the runs and what is done, and train nothing")
    parser.add_argument("--restart", action="store_true", help="start interrupted runs anew")
    args = parser.parse_args(argv)
    with usage_errors():
        done = {result.run: result for result in read_results(args.results)} if args.results.exists() else {}
    runs = chosen(args.only)
    if args.list:
        print("\n".join(listed(run, done.get(run.name)) for run in runs))
        return 0
    finish([run for run in runs if run.name not in done], args.work, args.results, restart=args.restart)
    return 0


def chosen(names: Sequence[str] | None) -> list[Run]:
    """The runs of these names, or all.

    Raises:
        UsageError: there is no run of that name.
    """
    runs = {run.name: run for run in family()}
    for name in names or ():
        if name not in runs:
            raise UsageError(f"there is no run {name!r}: --list prints the names of all {len(runs)}")
    return [runs[name] for name in names] if names else list(runs.values())


def listed(run: Run, result: ScalingResult | None) -> str:
    """A line of the list."""
    state = "to do" if result is None else f"loss {result.loss:.4f}, {result.seconds:,.0f} s"
    return f"{run.name:32} {run.role:9} {parameter_count(shape(run.size)).total:>10,} parameters  {state}"


def finish(runs: Sequence[Run], work: Path, path: Path, *, restart: bool = False) -> None:
    """Train these runs one after another; each adds its line to the file when it ends.

    Args:
        work: a folder for the state of each run.
        path: of the file.
        restart: forget the states of interrupted runs.
    """
    if not runs:
        return
    work.mkdir(parents=True, exist_ok=True)
    text = training_text(max(run.steps for run in runs) * BATCH)
    for run in runs:
        state = work / f"{run.name}.pt"
        if restart:
            start_anew(state, state.with_suffix(".jsonl"))
        print(f"{run.name}: {run.steps:,} steps", flush=True)
        result = train_run(run, work, text=text)
        append_log(path, asdict(result))
        start_anew(state, state.with_suffix(".jsonl"))
        print(f"{run.name}: loss {result.loss:.4f} +- {result.loss_error:.4f}, {result.seconds:,.0f} s", flush=True)
