"""`python -m course_lib bench`: what each lever is worth on this machine, beside `transformers` and the memory's limit.

Engines that are compared take turns, so that whatever else the machine does meets them alike.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch

from course_lib.analysis import serving_engines
from course_lib.analysis.acceptance import KINDS, write_all
from course_lib.analysis.draft_race import race
from course_lib.analysis.engines import COUNTED, ENGINES, available, counts, processes
from course_lib.analysis.machine_speed import calibrate, seconds_of
from course_lib.analysis.phase_times import SHAPES, timing_model
from course_lib.checkpoint import LanguageModel, find_folder, load, save
from course_lib.command_line import Parser, in_range, usage_errors
from course_lib.config import SamplingParams, require
from course_lib.costs import decode_bytes
from course_lib.drafts import DraftModel, PromptLookup
from course_lib.fast_layer import packed_weights
from course_lib.hf_config import read_config
from course_lib.sampling import request_generator, sample
from course_lib.tokenizer import Tokenizer
from course_lib.training.first_model import FIRST_MODEL, fresh_model, simple_batches
from course_lib.training.machine import machine
from course_lib.training.train import encode_corpus, train
from course_lib.weights import require_file

GIGABYTE = 1e9
BUFFER = 16384 * 1024  # float32 numbers, 67 MB: more than a cache holds
VOCABULARIES = (4_096, 151_936)  # of pocket, and of Qwen2.5
SAMPLING = (SamplingParams(temperature=0.8), SamplingParams(temperature=0.8, top_p=0.95),
            SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02, repetition_penalty=1.1))
DRAFT_TOKENS = 64  # of an answer, at most
REQUESTS, PATIENCE = 64, 60  # of the workload for serving; seconds
Row = tuple[str, ...]


@contextmanager
def checkpoint(model: str) -> Iterator[str]:
    """What `load` takes for a model: its own name, or for one of `SHAPES` a temporary folder with random weights."""
    if model not in SHAPES:
        yield model
        return
    with tempfile.TemporaryDirectory() as folder:
        pocket = load("pocket", device="cpu")
        lm = replace(pocket, model=timing_model(SHAPES[model]), config=SHAPES[model], name=model)
        save(lm, Path(folder) / "model", dtype=torch.bfloat16)
        yield str(Path(folder) / "model")


def engine_rows(model: str, engines: Sequence[str], *, bytes_per_s: float, runs: int, prompt_tokens: int,
                tokens: int, threads: int) -> Iterator[Row]:
    """The table of one model: tokens per second of each engine, beside the first one and beside the memory."""
    with checkpoint(model) as folder:
        config = read_config(find_folder(folder) / "config.json")
        with processes(engines, folder, prompt_tokens=prompt_tokens, tokens=tokens, threads=threads) as running:
            rounds = [{name: process() for name, process in running.items()} for _ in range(runs)]
    first = engines[0]
    for name in engines:
        rate = tokens / median(results[name][1] for results in rounds)
        ratios = spread(results[first][1] / results[name][1] for results in rounds)
        nbytes = decode_bytes(config, prompt_tokens + tokens // 2, bytes_per_element=4,
                              bytes_per_weight=ENGINES[name].bytes_per_weight)
        same = sum(results[name][0] == results[first][0] for results in rounds)
        yield (model, name, f"{rate:.0f}", ratios, f"{rate * nbytes / bytes_per_s:.0%}", f"{same} of {runs}")


def serving_rows(model: str, answers: str, *, runs: int, requests: int, threads: int) -> Iterator[Row]:
    """The table "serving": a ragged workload, its answers of lengths as in `ANSWERS`, by each engine, beside the first.

    An engine that needs more than `PATIENCE` seconds for it takes part in the first round only.
    """
    names = serving_engines.available()
    sizes = {"requests": requests, "answers": answers, "threads": threads, "module": serving_engines.__name__}
    with checkpoint(model) as folder, processes(names, folder, **sizes) as running:
        rounds = [{name: process() for name, process in running.items()}]
        rounds += [{name: process() for name, process in running.items() if rounds[0][name][1] <= PATIENCE}
                   for _ in range(runs - 1)]
    first = names[0]
    for name in names:
        ids, results = rounds[0][name][0], [each for each in rounds if name in each]
        rate = sum(map(len, ids)) / median(each[name][1] for each in results)
        ratios = spread(each[name][1] / each[first][1] for each in results if first in each)
        same = sum(row == other for row, other in zip(ids, rounds[0][first][0], strict=True))
        yield (name, f"{rate:.0f}", ratios, f"{same} of {requests}")


def draft_rows(lm: LanguageModel, runs: int) -> Iterator[Row]:
    """What drafts are worth for `pocket`, by kind of text, with weights packed for the rows of a check."""
    drafts = {"pocket-draft, k = 3": DraftModel(load("pocket-draft", device="cpu"), 3),
              f"counts of {COUNTED:,} tokens, k = 12": counts(lm),
              "look-up in the prompt, k = 8": PromptLookup()}
    with packed_weights(lm.model):
        for temperature in (0, 0.8):
            params = SamplingParams(temperature=temperature, seed=0, max_tokens=DRAFT_TOKENS)
            ratios = race(lm, KINDS, drafts, temperature=temperature, max_tokens=DRAFT_TOKENS, rounds=runs)
            for (kind, name), each in ratios.items():
                written = write_all(lm, KINDS[kind], params, drafts[name])
                yield (kind, f"{temperature:g}", name, f"{written.tokens_per_pass:.2f}", spread(each))


def spread(ratios: Iterable[float]) -> str:
    """The middle of some ratios, and their range."""
    ordered = sorted(ratios)
    return f"{median(ordered):.2f} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def their_sampler(params: SamplingParams, seen: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """The processors that `transformers.generate` would use for these settings, then its draw."""
    import transformers as t  # optional, and only for this

    chain = t.LogitsProcessorList()
    if params.repetition_penalty != 1:
        chain.append(t.RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    chain.append(t.TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        chain.append(t.TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        chain.append(t.TopPLogitsWarper(params.top_p))
    if params.min_p:
        chain.append(t.MinPLogitsWarper(params.min_p))
    return lambda logits: torch.multinomial(chain(seen, logits).softmax(-1), 1).item()


def sampler_rows(V: int, runs: int) -> list[Row]:
    """What choosing one token costs, batch 1, beside `transformers`; logits with a tail like a model's."""
    generator = request_generator(0)
    logits = 2.5 * torch.randn(1, V, generator=generator)
    seen = torch.randint(V, (1, 64), generator=generator)
    rows = []
    for params in SAMPLING:
        calls = [lambda params=params: sample(logits, params, generator, prompt_ids=seen, output_ids=[[]]).item()]
        if find_spec("transformers"):
            theirs = their_sampler(params, seen)
            calls.append(lambda theirs=theirs: theirs(logits))
        rounds = [[seconds_of(call) for call in calls] for _ in range(10 * runs + 3)][3:]  # the first warm up
        times = [median(seconds) for seconds in zip(*rounds)]
        ratio = f"{times[-1] / times[0]:.1f} times as fast as transformers, " if len(times) == 2 else ""
        rows.append((f"choosing a token, V = {V:,}", f"{1e6 * times[0]:.0f} us", f"{ratio}{params!r}"))
    return rows


def bandwidth(runs: int) -> dict[str, float]:
    """Bytes per second that memory delivers to three simple operations."""
    matrix, vector = torch.ones(BUFFER // 1024, 1024), torch.ones(1024)
    columns, copy = matrix.t().contiguous().t(), torch.empty_like(matrix)
    nbytes = matrix.nbytes
    calls = {"memory, copy": (2 * nbytes, lambda: copy.copy_(matrix)),
             "memory, matrix by rows times vector": (nbytes, lambda: matrix @ vector),
             "memory, matrix by columns times vector": (nbytes, lambda: columns @ vector)}
    return {name: size / median(seconds_of(call) for _ in range(2 * runs)) for name, (size, call) in calls.items()}


def first_model_row(tokenizer: Tokenizer, steps: int = 20) -> Row:
    """How long the training of notebook 05 takes, from the time of a few of its steps."""
    shape, config = FIRST_MODEL
    batches, model = simple_batches(tokenizer, tokens=50_000)[0], fresh_model(shape, device="cpu")
    short, log = replace(config, steps=steps + 1), []
    train(model, batches, short, on_log=log.append, log_every=1)  # the first step is a warm-up
    seconds = (log[-1]["seconds"] - log[0]["seconds"]) / steps * config.steps
    return ("train the model of notebook 05", f"{seconds:.0f} s", f"{config.steps} steps, from {steps}")


def detail_rows(lm: LanguageModel, runs: int) -> list[Row]:
    """What else a reader waits for: memory, choosing a token, training."""
    rows = [(name, f"{speed / GIGABYTE:.1f} GB/s", f"{4 * BUFFER / 1e6:.0f} MB")
            for name, speed in bandwidth(runs).items()]
    rows += [row for V in VOCABULARIES for row in sampler_rows(V, runs)]
    seconds = seconds_of(lambda: encode_corpus(lm.tokenizer, 50_000, seed=0)) * 10e6 / 50_000
    rows.append(("10 M tokens of corpus", f"{seconds:.0f} s", "written and encoded, from 50,000"))
    return [*rows, first_model_row(lm.tokenizer)]


def print_table(head: Sequence[str], rows: Iterable[Row]) -> None:
    """In Markdown, each row as soon as it is known."""
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure this machine: one request at a time, greedy, on the CPU, each engine in a process of its own."""
    parser = Parser(prog="python -m course_lib bench", description=main.__doc__)
    parser.add_argument("--model", action="append",
                        help=f"a shipped name, a folder, or one of {', '.join(SHAPES)}, of random weights; may be "
                             "given several times (default: pocket and 124M)")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only these (default: all there are)")
    parser.add_argument("--threads", type=in_range(1, 1024), default=2, help="of each engine (default: 2)")
    parser.add_argument("--runs", type=in_range(1), default=5, help="the table shows medians of this many (default: 5)")
    parser.add_argument("--tokens", type=in_range(1), default=128, help="new tokens in a run (default: 128)")
    parser.add_argument("--prompt-tokens", type=in_range(1), default=64, help="tokens of the prompt (default: 64)")
    parser.add_argument("--serving", action="store_true", help="only these: 64 requests, 32 at a time")
    parser.add_argument("--details", action="store_true", help="also memory, samplers and training")
    args = parser.parse_args(argv)
    models, size = args.model or ["pocket", "124M"], args.prompt_tokens + args.tokens
    with usage_errors():
        for model in models:
            config = SHAPES.get(model) or read_config(require_file(find_folder(model) / "config.json"))
            most = config.max_position_embeddings
            require(size <= most, "--prompt-tokens + --tokens", size, f"<= {most:,}, the context of {model}")
    before = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        found = calibrate().machine
        print(f"{machine(torch.device('cpu'))}; memory {found.bytes_per_s / GIGABYTE:.1f} GB/s; batch 1, greedy, "
              f"{args.prompt_tokens} + {args.tokens} tokens, prefill included; medians of {args.runs} rounds\n")
        if args.serving or (models == ["pocket", "124M"] and not args.engine):
            for lengths in serving_engines.ANSWERS:
                rows = serving_rows(models[0], lengths, runs=args.runs, requests=REQUESTS, threads=args.threads)
                print_table((f"{models[0]}, {REQUESTS} requests, {serving_engines.SLOTS} at a time, answers: {lengths}",
                             "tokens/s", "times the seconds of the first", "same ids"), rows)
                print()
        if args.serving:
            return 0
        sizes = {"prompt_tokens": args.prompt_tokens, "tokens": args.tokens, "threads": args.threads}
        for model in models:
            engines = [name for name in available(model) if name in (args.engine or ENGINES)]
            head = ("model", "engine", "tokens/s", f"beside {engines[0]}", "of the memory's limit", "same ids")
            rows = engine_rows(model, engines, bytes_per_s=found.bytes_per_s, runs=args.runs, **sizes)
            print_table(head, rows)
            print()
        if "pocket" in models and (not args.engine or "+ speculative" in args.engine):
            head = ("text", "temperature", "draft", "tokens a pass", "times as fast as without")
            print_table(head, draft_rows(load("pocket", device="cpu"), args.runs))
            print()
        if args.details:
            print_table(("measured", "", "conditions"), detail_rows(load("pocket", device="cpu"), args.runs))
    finally:
        torch.set_num_threads(before)
    return 0
