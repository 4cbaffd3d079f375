"""Where the time of one decode step goes: every layer and the LM head of a real shape, timed one by one."""

from __future__ import annotations

from functools import partial

import torch

from course_lib.analysis.machine_speed import seconds_of
from course_lib.config import ModelConfig, require
from course_lib.few_rows import speed_up_few_rows
from course_lib.model import CausalLM
from course_lib.threads import one_thread


@torch.inference_mode()
def decode_parts(config: ModelConfig, *, rounds: int = 15) -> tuple[list[float], float]:
    """Seconds of each layer and of the LM head, for one token without context, on one CPU thread in float32.

    The weights are all the same number, since time depends on the shape alone. The parts take turns, so each finds
    its weights in memory and not in a cache; of the rounds the fastest counts, part by part. One thread waits for no
    other, so other programs hardly disturb the result.

    Args:
        config: the shape to build; 4 bytes of memory for each of its parameters.
        rounds: how often each part is timed, at least once.
    """
    require(rounds >= 1, "rounds", rounds, ">= 1")
    with torch.device("meta"):
        model = CausalLM(config)
    model.to_empty(device="cpu").derive_state()
    for parameter in model.parameters():
        parameter.fill_(0.01)
    speed_up_few_rows(model)
    state, rope = torch.ones(1, 1, config.hidden_size), model.rope(slice(0, 1), torch.float32)
    parts = [*(partial(layer, state, rope, None, None) for layer in model.layers), partial(model.lm_head, state)]
    with one_thread():
        timed = [[seconds_of(part) for part in parts] for _ in range(rounds)]
    *layers, head = (min(times) for times in zip(*timed))
    return layers, head
