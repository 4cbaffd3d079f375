"""A small model of a reader's own text: its shape, its recipe, and the run that ends in a Hugging Face folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from course_lib.checkpoint import LanguageModel, save
from course_lib.config import ModelConfig, SamplingParams
from course_lib.costs import parameter_count
from course_lib.generate import generate
from course_lib.model import CausalLM
from course_lib.tokenizer import Tokenizer
from course_lib.training.corpus import END_OF_TEXT
from course_lib.training.first_model import fresh_model
from course_lib.training.held_back import held_back_loss
from course_lib.training.machine import machine
from course_lib.training.own_text import Windows, encode_texts, hold_back, learn_tokenizer
from course_lib.training.progress_line import ProgressLine, duration
from course_lib.training.rebuild import run_files, write_facts
from course_lib.training.resume import append_log, cut_log, steps_done
from course_lib.training.train import TrainConfig, make_optimizers, train, train_step

LENGTH, SEQUENCES = 256, 4
SHAPE = ModelConfig(vocab_size=4096, hidden_size=128, intermediate_size=352, num_hidden_layers=4,
                    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH)
PASSES, STEPS = 8, (300, 3000)  # how often the text is read, and the steps that make it, at least and at most
LOG_EVERY, SAMPLES = 10, 5
TIMED_STEPS = 4
PROMPT = 24  # characters of the held-back text from which the samples go on


@dataclass(frozen=True)
class OwnRun:
    """What a reader asks for.

    Args:
        name: of the model.
        texts: what it reads; the last tenth of each is held back.
        folder: where the model goes.
        work: where the state of the run is kept until then.
        steps, minutes: how long to train, at most one of them; none: `PASSES` readings of the text.
        vocab_size: the most tokens the vocabulary may have; None: by the size of the text.
    """

    name: str
    texts: tuple[str, ...]
    folder: Path
    work: Path
    steps: int | None = None
    minutes: float | None = None
    vocab_size: int | None = None


@dataclass(frozen=True)
class Prepared:
    """What a run starts from.

    Args:
        tokenizer: learned from the text.
        batches, validation: of the text that is trained on, and of what is held back.
        model: with random weights.
        prompt: the beginning of the held-back text, from which the samples go on.
    """

    tokenizer: Tokenizer
    batches: Windows
    validation: Windows
    model: CausalLM
    prompt: str

    def language_model(self, name: str) -> LanguageModel:
        """The model with its tokenizer, ready to generate or to be saved."""
        end = self.tokenizer.special_tokens[END_OF_TEXT]
        return LanguageModel(self.model, self.tokenizer, self.model.config, frozenset({end}), name)


def prepare(run: OwnRun, device: torch.device) -> Prepared:
    """All that comes before the first step.

    Raises:
        UsageError: the text is too short.
    """
    training, held_back = hold_back(run.texts)
    tokenizer = learn_tokenizer(run.name, training, run.vocab_size)
    batches, validation = (Windows(encode_texts(tokenizer, part), LENGTH) for part in (training, held_back))
    model = fresh_model(replace(SHAPE, vocab_size=tokenizer.n_vocab), device=device)
    return Prepared(tokenizer, batches, validation, model, "".join(held_back)[:PROMPT])


def recipe(steps: int) -> TrainConfig:
    """How to train for a number of steps."""
    return TrainConfig(steps=steps, sequences=SEQUENCES, length=LENGTH, long_every=0, peak_lr=4e-3,
                       warmup_steps=min(100, steps // 10), decay_fraction=0.5)


def usual_steps(tokens: int) -> int:
    """The steps in which a text of this length is read `PASSES` times, within the bounds of `STEPS`."""
    return max(STEPS[0], min(STEPS[1], PASSES * tokens // (SEQUENCES * LENGTH)))


def planned_steps(run: OwnRun, ready: Prepared, plan: Path) -> int:
    """How many steps this run has. Those that fit into `minutes` are measured once and kept in the file `plan`,
    so that an interrupted run goes on with the same number.
    """
    if run.minutes is None:
        return run.steps or usual_steps(len(ready.batches.tokens))
    try:
        kept = json.loads(plan.read_text("utf-8"))
    except (OSError, ValueError):
        kept = {}
    minutes = str(float(run.minutes))
    if minutes not in kept:
        kept[minutes] = max(1, int(60 * run.minutes / seconds_per_step(ready)))
        plan.write_text(json.dumps(kept), encoding="utf-8")
    return kept[minutes]


def seconds_per_step(ready: Prepared) -> float:
    """How long a step takes here, from a few on a model that is thrown away; the first one is a warm-up."""
    model = fresh_model(ready.model.config, device=ready.model.embed_tokens.weight.device)
    optimizers = make_optimizers(model, recipe(TIMED_STEPS))
    ends = []
    for step in range(TIMED_STEPS + 1):
        ids = ready.batches(step, SEQUENCES, LENGTH).to(model.embed_tokens.weight.device)
        train_step(model, optimizers, ids, 1e-3, 1.0).item()
        ends.append(time.perf_counter())
    return (ends[-1] - ends[0]) / TIMED_STEPS


def train_own(run: OwnRun, device: torch.device, say: Callable[[str], None] = print) -> float:
    """Train, showing progress and now and then a sample, and write the folder.

    Returns:
        The loss on the held-back text, in nats per token.

    Raises:
        UsageError: the text is too short, or an interrupted run of this name had other settings or another text.
    """
    run.work.mkdir(parents=True, exist_ok=True)
    say(f"{sum(map(len, run.texts)):,} characters; learning a vocabulary ...")
    ready = prepare(run, device)
    config = recipe(planned_steps(run, ready, run.work / f"{run.name}.json"))
    resume, log = run_files(run.work, run.name)
    first = steps_done(resume)
    cut_log(log, first)
    say(f"{ready.tokenizer.n_vocab:,} tokens in the vocabulary, {len(ready.batches.tokens):,} in the text, "
        f"{len(ready.validation.tokens):,} more held back; {parameter_count(ready.model.config).total:,} parameters, "
        f"{config.steps:,} steps" + (f", going on after step {first:,}" if first else ""))
    train(ready.model, ready.batches, config, validation=ready.validation, resume=resume,
          on_log=logger(ready, log, ProgressLine(config.steps, first)), log_every=LOG_EVERY)
    loss = held_back_loss(ready.model, ready.validation.tokens, LENGTH)
    save(ready.language_model(run.name), run.folder)
    write_facts(run.folder, log, config, machine(device), val_loss=loss,
                command="python -m course_lib train --text")
    return loss


def logger(ready: Prepared, log: Path, line: ProgressLine) -> Callable[[dict[str, float]], None]:
    """What to do at each log entry: keep it, move the progress, and `SAMPLES` times in a run show a sample."""
    lm = ready.language_model("sample")

    def on_log(entry: dict[str, float]) -> None:
        append_log(log, entry)
        line.show(entry)
        part = SAMPLES * entry["step"] / line.steps
        if int(part) > int(part - SAMPLES * LOG_EVERY / line.steps):
            line.say(f"  after step {entry['step']:,}: {sample(lm, ready.prompt)}")

    return on_log


def sample(lm: LanguageModel, prompt: str) -> str:
    """What the model makes of a prompt, in one line."""
    text = generate(lm, prompt, SamplingParams(temperature=0.8, seed=0, max_tokens=40)).text
    return " ".join(f"{prompt}{text}".split())


def farewell(run: OwnRun, loss: float, seconds: float) -> str:
    """What came of it, and how to use it."""
    return (f"loss on the held-back text: {loss:.2f} nats per token; {duration(seconds)}\n"
            f"written to {run.folder}; in Python: lm = load({str(run.folder)!r}), then stream(lm, \"...\")")
