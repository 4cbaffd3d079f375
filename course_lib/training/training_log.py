"""How a model was trained, from the files beside its weights: `training.json` and `training_log.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib.checkpoint import MODELS, SHIPPED
from course_lib.config import require
from course_lib.costs import parameter_count
from course_lib.hf_config import config_from_hf
from course_lib.hf_tokenizer import read_json
from course_lib.training.guidance import GUIDED_HEADS

ROWS, BAR = 20, 30  # lines of the table at most; characters of its longest bar


def checkpoint_folder(folder: Path | str) -> Path:
    """The folder of a shipped model for its name, and any other folder itself."""
    return MODELS / folder if str(folder) in SHIPPED else Path(folder)


def read_log(folder: Path | str) -> list[dict[str, float]]:
    """The stored entries of a run: step, tokens, loss, lr, seconds, val_loss.

    Args:
        folder: of the checkpoint, or the name of a shipped one.

    Raises:
        ValueError: the checkpoint has no log.
    """
    path = checkpoint_folder(folder) / "training_log.jsonl"
    require(path.is_file(), "folder", str(folder), "a checkpoint with a training_log.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def show_training(folder: Path | str) -> str:
    """The recipe in sentences, and the loss curve as a table with bars. Takes the arguments of `read_log`."""
    log = read_log(folder)
    facts, shape = (read_json(checkpoint_folder(folder) / f"{name}.json") for name in ("training", "config"))
    return "\n".join([*recipe_lines(Path(folder).name, facts, config_from_hf(shape)), "", *curve_lines(log), ""])


def recipe_lines(name: str, facts: dict[str, Any], shape: Any) -> list[str]:
    """What was trained, how long, at which learning rate, and with which help."""
    config, last, tuning = facts["config"], facts["last"], facts.get("tuning")
    tuned = tuning["steps"] if tuning else 0
    lines = [f"{name}: {parameter_count(shape).total:,} parameters, {last['step']:,} steps, {last['tokens']:,} tokens, "
             f"{last['seconds']:,.0f} s",
             f"machine: {facts['machine']}",
             f"command: {facts['command']}, seed {config['seed']}",
             f"learning rate: up to {config['peak_lr']:g} in {config['warmup_steps']:,} steps, "
             f"down to zero over the last {config['decay_fraction']:.0%} of {last['step'] - tuned:,} steps"]
    first, end = config["guided"]
    if end > first:
        heads = ", ".join(f"{layer}.{head}" for layer, heads in GUIDED_HEADS.items() for head in heads)
        lines.append(f"guided: from step {first:,} to {end:,} a second loss showed the heads {heads} "
                     "(layer.head) where to look")
    if tuning:
        lines.append(f"tuning: the last {tuned:,} steps read mostly conversations, at a rate of up to "
                     f"{tuning['peak_lr']:g}")
    if "val_loss" in facts:
        lines.append(f"validation loss of the finished model: {facts['val_loss']:.3f} nats per token")
    return lines + ([f"note: {facts['note']}"] if facts.get("note") else [])


def curve_lines(log: Sequence[dict[str, float]]) -> list[str]:
    """A table of at most `ROWS` entries, evenly chosen, the last one included; bars are validation loss."""
    count = min(ROWS, len(log))
    chosen = [log[(i + 1) * len(log) // count - 1] for i in range(count)]
    scale = BAR / max(entry["val_loss"] for entry in chosen)
    rows = [f"{entry['step']:7,} {entry['tokens']:11,} {entry['lr']:9.5f} {entry['loss']:6.2f} "
            f"{entry['val_loss']:6.2f}  {'#' * round(scale * entry['val_loss'])}" for entry in chosen]
    return ["   step      tokens      rate   loss    val", *rows]
