"""Engines that answer the same ragged workload, each in a process of its own, for the benchmark of serving.

`python -m course_lib.analysis.serving_engines ENGINE MODEL REQUESTS ANSWERS THREADS` builds one and then answers the
whole workload once for each line that it is sent; the first line only warms it up.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from course_lib.analysis.acceptance import other_text
from course_lib.analysis.engines import Engine, converted, installed
from course_lib.batch import generate_batch
from course_lib.checkpoint import LanguageModel, find_folder, load
from course_lib.config import SamplingParams
from course_lib.generate import generate

SLOTS = 32  # requests that an engine serves at the same time
PROMPT_TOKENS = (10, 200)
READ = 60_000  # tokens of text that the prompts are cut from
# What `transformers` gets for its continuous batching: as many tokens a pass as our engine, and pages of 256 tokens, a
# third more than the longest requests fill. Unasked it fills nine tenths of the free memory, anew for each workload.
PASS_TOKENS, PAGES = 512, 128


class Job(NamedTuple):
    """One request of the workload: what is read, and how many tokens are written."""

    prompt_ids: list[int]
    new_tokens: int


def even(draw: random.Random) -> int:
    """The length of an answer: 8 to 128 tokens, each as likely as the others."""
    return draw.randint(8, 128)


def long_tail(draw: random.Random) -> int:
    """The length of an answer: log-normal around a median of 32 tokens, so that one in thirty is over 200; at most 512.

    Most answers of a chat are short and a few are very long.
    """
    return min(max(round(draw.lognormvariate(math.log(32), 1)), 1), 512)


ANSWERS: dict[str, Callable[[random.Random], int]] = {"even": even, "long tail": long_tail}
Run = Callable[[Sequence[Job]], list[list[int]]]  # the new ids of each


def workload(lm: LanguageModel, n: int, answers: str = "even", seed: int = 0) -> list[Job]:
    """n requests: pieces of text of every length in `PROMPT_TOKENS`, and the lengths of the answers by `ANSWERS`."""
    text, draw = other_text(lm.tokenizer, READ), random.Random(seed)
    jobs = []
    for _ in range(n):
        length = draw.randint(*PROMPT_TOKENS)
        start = draw.randrange(len(text) - length)
        jobs.append(Job(text[start : start + length], ANSWERS[answers](draw)))
    return jobs


def ours(name: str) -> Run:
    """Continuous batching with `course_lib`."""
    lm = load(name, device="cpu", dtype=torch.float32)

    def run(jobs: Sequence[Job]) -> list[list[int]]:
        params = [SamplingParams(temperature=0, max_tokens=job.new_tokens, ignore_eos=True) for job in jobs]
        answers = generate_batch(lm, [job.prompt_ids for job in jobs], params, max_num_seqs=SLOTS)
        return [list(answer.token_ids) for answer in answers]

    return run


def one_by_one(name: str) -> Run:
    """`course_lib` without any batch."""
    lm = load(name, device="cpu", dtype=torch.float32)

    def run(jobs: Sequence[Job]) -> list[list[int]]:
        return [list(generate(lm, job.prompt_ids, SamplingParams(temperature=0, max_tokens=job.new_tokens,
                                                                 ignore_eos=True)).token_ids) for job in jobs]

    return run


def padded(name: str) -> Run:
    """Static batches in `transformers`: padded on the left, and each as long as its longest answer."""
    import transformers as t  # optional, and only for this

    model = t.AutoModelForCausalLM.from_pretrained(find_folder(name), dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # as ignore_eos

    def run(jobs: Sequence[Job]) -> list[list[int]]:
        answers = []
        for batch in (jobs[i : i + SLOTS] for i in range(0, len(jobs), SLOTS)):
            width = max(len(job.prompt_ids) for job in batch)
            ids = torch.tensor([[0] * (width - len(job.prompt_ids)) + job.prompt_ids for job in batch])
            mask = torch.tensor([[0] * (width - len(job.prompt_ids)) + [1] * len(job.prompt_ids) for job in batch])
            out = model.generate(ids, attention_mask=mask, max_new_tokens=max(job.new_tokens for job in batch),
                                 do_sample=False, pad_token_id=0)
            answers += [row[width : width + job.new_tokens].tolist() for row, job in zip(out, batch)]
        return answers

    return run


def continuous(name: str) -> Run:
    """Continuous batching in `transformers`: what its `generate_batch` does, with a length for each request.

    Answers that are missing, because it has stopped for an error of its own, are a `RuntimeError`.
    """
    import transformers as t  # optional, and only for this

    model = t.AutoModelForCausalLM.from_pretrained(find_folder(name), dtype=torch.float32,
                                                   attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None
    settings = t.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=512)
    sizes = t.ContinuousBatchingConfig(max_requests_per_batch=SLOTS, max_batch_tokens=PASS_TOKENS, num_blocks=PAGES)

    def run(jobs: Sequence[Job]) -> list[list[int]]:
        answers = {}
        with model.continuous_batching_context_manager(settings, continuous_batching_config=sizes) as manager:
            names = [manager.add_request(job.prompt_ids, max_new_tokens=job.new_tokens) for job in jobs]
            while len(answers) < len(jobs) and manager.is_running():
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    answers[result.request_id] = list(result.generated_tokens)
        if len(answers) < len(jobs):
            raise RuntimeError(f"{len(jobs) - len(answers)} of {len(jobs)} requests have no answer")
        return [answers[name] for name in names]

    return run


def ctranslate2(compute_type: str) -> Callable[[str], Run]:
    """CTranslate2's `generate_batch`: the answers of a batch all have the same length, so like lengths go together."""
    def build(name: str) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            model, vocabulary = converted(name, folder, compute_type)

        def run(jobs: Sequence[Job]) -> list[list[int]]:
            answers: list[list[int]] = [[] for _ in jobs]
            order = sorted(range(len(jobs)), key=lambda i: jobs[i].new_tokens)  # alike in length: the least waste
            for batch in (order[i : i + SLOTS] for i in range(0, len(order), SLOTS)):
                longest = max(jobs[i].new_tokens for i in batch)
                results = model.generate_batch([[vocabulary[t] for t in jobs[i].prompt_ids] for i in batch],
                                               max_length=longest, min_length=longest, end_token=[],
                                               include_prompt_in_result=False, sampling_topk=1)
                for i, result in zip(batch, results):
                    answers[i] = result.sequences_ids[0][: jobs[i].new_tokens]
            return answers

        return run

    return build


ENGINES: dict[str, Engine] = {
    "course_lib, continuous batching": Engine(ours),
    "course_lib, one by one": Engine(one_by_one),
    "transformers, static batches": Engine(padded, ready=installed("transformers")),
    "transformers, continuous batching": Engine(continuous, ready=installed("transformers")),
    "CTranslate2 float32, static batches": Engine(ctranslate2("float32"), ready=installed("ctranslate2")),
}


def available() -> list[str]:
    """The engines that can run here."""
    return [name for name, engine in ENGINES.items() if engine.ready()]


def main(argv: Sequence[str] | None = None) -> int:
    """Build an engine, then answer the workload for each line on standard input, and a part of it for the first."""
    engine, model, requests, answers, threads = sys.argv[1:] if argv is None else argv
    torch.set_num_threads(int(threads))
    jobs = workload(load(model, device="cpu"), int(requests), answers)
    run = ENGINES[engine].build(model)
    for line, _ in enumerate(sys.stdin):
        started = time.perf_counter()
        ids = run(jobs if line else jobs[:4])
        print(json.dumps({"ids": ids, "seconds": time.perf_counter() - started}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
