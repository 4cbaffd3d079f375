"""How long each run of the model takes in one generation: prefill first, then the decode steps."""

from __future__ import annotations

from statistics import median

from course_lib.config import SamplingParams, require
from course_lib.generate import LanguageModel, Prompt, stream


def step_seconds(lm: LanguageModel, prompt: Prompt, params: SamplingParams, *, runs: int = 5) -> list[float]:
    """Seconds of each step, the median over repeated generations; one more before them warms up.

    Args:
        prompt: as `stream` takes it.
        params: with a seed or a temperature of 0, so that every generation has the same steps.
        runs: generations that count, at least one.
    """
    require(runs >= 1, "runs", runs, ">= 1")
    require(params.temperature == 0 or params.seed is not None, "params", params, "with a seed or temperature 0")
    measured = []
    for _ in range(runs + 1):
        running = stream(lm, prompt, params)
        "".join(running)
        measured.append([step.seconds for step in running.steps])
    return [median(times) for times in zip(*measured[1:], strict=True)]
