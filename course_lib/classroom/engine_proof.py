"""Is an engine made of the reader's functions still the same engine? Runs whose results must not differ, and the part
that is to blame where they do.

Each run is done with the reader's parts and with the finished ones. Ids, texts and greedy tokens have to be equal,
weights up to rounding. (In 16 bits a near tie may fall the other way, and a right part be blamed.) Of sampling the
filtered probabilities have to be equal and the draws have to respect them; which tokens a seed draws is the sampler's
own affair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from course_lib.classroom.declaration import FIRST
from course_lib.classroom.engine_slots import SLOTS, PartFailedError, Parts, Slot
from course_lib.classroom.own_paging import own_engine
from course_lib.classroom.own_sampling import own_filters, own_sample
from course_lib.config import SamplingParams
from course_lib.detokenize import decode_stream
from course_lib.drafts import PromptLookup
from course_lib.generate import LanguageModel, encode_prompt, generate, latency, stream
from course_lib.sampling import filter_logits, request_generator

QUESTION = [{"role": "user", "content": "What is gravity?"}]
TALK = [{"role": "system", "content": "Answer in one sentence."}, *QUESTION,
        {"role": "assistant", "content": "Gravity is the pull that masses have on one another.\n" * 4},
        {"role": "user", "content": "And <|im_end|> what is a  KV cache?"}]  # more than a tile of keys
TEXTS = [*FIRST.values(), "", "  def f(x):\n\treturn x  # 3.14\n\n", "aaaaaaaaaaaaaaab",
         "e\u0301 \U0001f469\u200d\U0001f52c 12345"]
STOPS = ("rights", " Rechten", "が", "\ufffd")
REPEATING = "The cat sat on the mat. The cat sat on the mat. The cat sat on"
SETTINGS = (SamplingParams(temperature=0), SamplingParams(temperature=0.7, top_k=20, top_p=0.9),
            SamplingParams(temperature=1.5, min_p=0.1, repetition_penalty=1.2, presence_penalty=0.5),
            SamplingParams(temperature=0.3, top_p=0.5, frequency_penalty=-0.4), SamplingParams(top_k=3))
DRAWS = 20  # of each setting: a token that the filters removed is caught, whatever it is
CLOSE = 1e-5  # of probabilities and, relatively, of weights: float32 leaves 1e-7 and a few operations
TOKENS = 16
PAGED = ("", "", " a mat and a hat.", "!", " the mat. The cat sat on a hat.", " a mat and a hat.")  # go on after it
PATIENCE_S, PATIENCE = 10, 100  # seconds for a run, and how many times as long as the finished one it may take
Answers = Mapping[str, Callable]
Make = Callable[[Answers], tuple[LanguageModel, Parts]]


def ids_of(lm: LanguageModel, _: Parts) -> Any:
    """Ids of texts in eight languages, and of conversations."""
    return [*map(lm.tokenizer.encode, TEXTS), encode_prompt(lm.tokenizer, QUESTION), encode_prompt(lm.tokenizer, TALK)]


def texts_of(lm: LanguageModel, _: Parts) -> Any:
    """The texts of those ids again, token by token, with and without stop strings."""
    found = []
    for text in TEXTS:
        for stop in ((), STOPS):
            running = decode_stream(lm.tokenizer, stop)
            for token_id in lm.tokenizer.encode(text):
                running.push(token_id)
            running.flush()
            found.append((running.text, running.stopped))
    return found


def greedy(lm: LanguageModel, _: Parts) -> Any:
    """Ids at temperature 0: after a question, and after a conversation."""
    params = SamplingParams(temperature=0, max_tokens=TOKENS)
    return [generate(lm, prompt, params).token_ids for prompt in (QUESTION, TALK)]


def drafted(lm: LanguageModel, _: Parts) -> Any:
    """Ids at temperature 0 where guesses are checked, and as many as are asked for at another temperature."""
    draft, params = PromptLookup(4), SamplingParams(temperature=0, max_tokens=TOKENS)
    warm = replace(params, temperature=0.8, seed=0, ignore_eos=True)
    return generate(lm, REPEATING, params, draft=draft).token_ids, \
        len(generate(lm, REPEATING, warm, draft=draft).token_ids)


def choices(lm: LanguageModel, parts: Parts) -> Any:
    """Probabilities after the filters, for logits of the model; and whether a draw was ever one that they removed."""
    ids = encode_prompt(lm.tokenizer, REPEATING)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([ids], device=next(lm.model.parameters()).device))[0, -len(SETTINGS) :].cpu()
    seen = [ids] * len(SETTINGS), [ids[:3]] * len(SETTINGS)
    probs = own_filters(parts, logits, list(SETTINGS), *seen).double().softmax(-1)
    allowed = filter_logits(logits, list(SETTINGS), *seen).isfinite()
    generators = [request_generator(seed) for seed in range(len(SETTINGS))]
    outside = [i for _ in range(DRAWS) for i, token in
               enumerate(own_sample(parts, logits, SETTINGS, generators, prompt_ids=seen[0],
                                    output_ids=seen[1]).tolist()) if not allowed[i, token]]
    return probs, outside


def paged(lm: LanguageModel, parts: Parts) -> Any:
    """Ids of answers that share their beginnings and have too few pages; what was found, given up and thrown out."""
    engine = own_engine(lm, parts, max_num_seqs=3, max_num_batched_tokens=24, block_size=4, num_blocks=16)
    begin = lm.tokenizer.encode(REPEATING)
    answers: dict[str, list[int]] = {}
    for i, text in enumerate(PAGED):
        answers[str(i)] = []
        engine.add_request(str(i), begin + lm.tokenizer.encode(text),
                           SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True))
    while engine.has_unfinished_requests():
        for output in engine.step():
            answers[output.request_id].append(output.result().token_id)
    stats = engine.stats()
    return answers, stats.prefix_hits, stats.preemptions, engine.blocks.evictions


def weights(lm: LanguageModel, _: Parts) -> Any:
    """The matrices that the quantization has changed."""
    return {name: weight for name, weight in lm.model.named_parameters() if name.endswith("_proj.weight")}


def speed(lm: LanguageModel, parts: Parts) -> Any:
    """Whether the three numbers of a finished generation are those of its steps."""
    running = stream(lm, QUESTION, SamplingParams(temperature=0, max_tokens=4))
    list(running)
    return all(abs(a - b) <= 1e-9 * abs(b) for a, b in
               zip(parts.latency(running.steps), latency(running.steps), strict=True))


PROOFS: dict[str, Callable[[LanguageModel, Parts], Any]] = {
    "ids": ids_of, "greedy": greedy, "choices": choices, "draft": drafted, "text": texts_of, "paged": paged,
    "weights": weights, "speed": speed}


def difference(ours: Any, theirs: Any) -> str:
    """The first place where two results differ, in words; "" where they are equal."""
    if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        gap = (ours.double() - theirs.double()).abs().max().item() if ours.shape == theirs.shape else float("inf")
        scale = max(1.0, theirs.abs().max().item())
        return "" if gap <= CLOSE * scale else f"numbers differ by {gap:.2g}"
    if isinstance(theirs, dict):
        pairs = ((ours[name], theirs[name]) for name in theirs)
    elif isinstance(theirs, list | tuple) and isinstance(ours, list | tuple) and len(ours) == len(theirs):
        pairs = zip(ours, theirs)
    else:
        return "" if ours == theirs else f"it makes {cut_short(ours)}, not {cut_short(theirs)}"
    return next((words for words in (difference(*pair) for pair in pairs) if words), "")


def cut_short(value: Any) -> str:
    """A value in at most sixty characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def prove(make: Make, answers: Answers, *, quantized: bool = False) -> dict[str, str]:
    """Try the reader's functions in whole runs, until every run gives what the finished engine gives.

    Args:
        make: gives an engine's language model, and its parts, for some of these functions; for none, the finished one.
        answers: functions by exercise, all of which have a place.
        quantized: whether the weights are moved to a grid by some of them.

    Returns:
        Of the exercises whose function had to go, why.
    """
    left, problems = dict(answers), {}
    for name, run in PROOFS.items():
        mine = [slot for slot in SLOTS if slot.proof == name and slot.exercise_id in left]
        if not mine or (name == "weights" and not quantized):
            continue
        started = time.perf_counter()
        expected = run(*make({}))
        trial = Trial(run, make, expected, PATIENCE_S + PATIENCE * (time.perf_counter() - started))
        while found := trial.wrong(left):
            slot, why = found if found[0] else trial.blame(left, mine)
            problems[slot.exercise_id] = why
            del left[slot.exercise_id]
    return problems


@dataclass(frozen=True)
class Trial:
    """One run, what has to come of it, and how many seconds it may take."""

    run: Callable[[LanguageModel, Parts], Any]
    make: Make
    expected: Any
    patience: float

    def wrong(self, answers: Answers) -> tuple[Slot | None, str] | None:
        """What is wrong with the run on these functions, and whose fault it is if that is known; None: nothing."""
        try:
            lm, parts = self.make(answers)
            parts.give_time(self.patience)
            try:
                words = difference(self.run(lm, parts), self.expected)
            finally:
                parts.give_time(None)
        except PartFailedError as failed:
            return failed.slot, failed.why
        except Exception as error:  # something that a part returned was of no use to the next
            words = f"what it returns makes the engine fail: {type(error).__name__}: {cut_short(str(error))}"
        return (None, words) if words else None

    def blame(self, answers: Answers, mine: Sequence[Slot]) -> tuple[Slot, str]:
        """The first function with which the run goes wrong when they are added one at a time, those of the run last."""
        first = {key: answers[key] for key in answers.keys() - {slot.exercise_id for slot in mine}}
        some, order = (first, mine) if not self.wrong(first) else ({}, SLOTS)
        order = [slot for slot in order if slot.exercise_id in answers]
        for slot in order:
            some = {**some, slot.exercise_id: answers[slot.exercise_id]}
            if found := self.wrong(some):
                return found[0] or slot, found[1]
        return order[-1], "it does not do the same every time"
