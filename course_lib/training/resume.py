"""The state of a training run on disk: written while it runs, read when the run is started again."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from course_lib.command_line import UsageError
from course_lib.model import CausalLM

UNREADABLE = (OSError, RuntimeError, EOFError, LookupError, TypeError, pickle.UnpicklingError)


@dataclass
class Progress:
    """How far a run is.

    Args:
        step, tokens, seconds: made, read and spent so far.
        losses: of the steps since the last log entry.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)


def run_settings(model: CausalLM, tokens: np.ndarray, config: Any) -> dict[str, Any]:
    """What must not change within a run: the fields of both configurations, and a digest of the text as `text`."""
    text = hashlib.sha256(np.ascontiguousarray(tokens)).hexdigest()[:16]
    return asdict(model.config) | asdict(config) | {"text": text}


def save_resume(path: Path, model: CausalLM, optimizers: Sequence[Optimizer], progress: Progress,
                settings: Mapping[str, Any]) -> None:
    """Write the state of a run; an interruption leaves the previous file intact."""
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "progress": vars(progress), "settings": dict(settings)}, partial)
    os.replace(partial, path)


def load_resume(path: Path, model: CausalLM, optimizers: Sequence[Optimizer],
                settings: Mapping[str, Any]) -> Progress:
    """Give model and optimizers the state of a run, and return its progress; without a file, nothing has happened yet.

    Raises:
        UsageError: the file cannot be read, or belongs to a run with other settings; the message names both.
    """
    if not path.exists():
        return Progress()
    state = read_state(path, model.embed_tokens.weight.device)
    if state["settings"] != settings:
        theirs, ours = (describe(one, other) for one, other in
                        ((state["settings"], settings), (settings, state["settings"])))
        raise UsageError(f"{path} is of a run with {theirs}, and this one has {ours}: "
                         "go on with the same settings, or start anew with --restart")
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return Progress(**state["progress"])


def describe(settings: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The settings that differ from the others, as `name = value`."""
    return ", ".join(f"{name} = {settings.get(name)!r}" for name in sorted({*settings, *other})
                     if settings.get(name) != other.get(name))


def read_state(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save_resume` wrote.

    Raises:
        UsageError: the file holds something else.
    """
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        return {name: state[name] for name in ("model", "optimizers", "progress", "settings")}
    except UNREADABLE as error:
        raise UsageError(f"{path} cannot be read as the state of a run: start anew with --restart") from error


def steps_done(path: Path) -> int:
    """The step at which the run of this file goes on; 0 where there is none."""
    return read_state(path)["progress"]["step"] if path.exists() else 0


def start_anew(*files: Path) -> None:
    """Remove the state and the log of a run."""
    for file in files:
        file.unlink(missing_ok=True)


def append_log(path: Path, entry: Mapping[str, float]) -> None:
    """Write one entry as a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def cut_log(path: Path, step: int) -> None:
    """Remove the log entries of later steps, which a resumed run makes again, and a line that was never finished."""
    if path.exists():
        kept = [line for line in path.read_text("utf-8").splitlines() if entry_step(line) <= step]
        partial = path.with_suffix(".partial-log")
        partial.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        os.replace(partial, path)


def entry_step(line: str) -> float:
    """The step of a log entry; infinity for a line that is no entry."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return float("inf")
