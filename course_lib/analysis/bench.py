"""`python -m course_lib bench`: how fast this machine decodes, beside `transformers` and beside its memory.

Runs that are compared alternate in one process, so that whatever else the machine does meets them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from statistics import median

import torch

from course_lib.checkpoint import LanguageModel, find_folder, load
from course_lib.command_line import Parser, in_range, usage_errors
from course_lib.config import SamplingParams, require
from course_lib.costs import decode_bytes
from course_lib.generate import stream
from course_lib.sampling import request_generator, sample
from course_lib.tokenizer import Tokenizer
from course_lib.training.first_model import FIRST_MODEL, fresh_model, simple_batches
from course_lib.training.machine import machine
from course_lib.training.train import encode_corpus, train

GIGABYTE = 1e9
BUFFER = 16384 * 1024  # float32 numbers, 67 MB: more than a cache holds
VOCABULARIES = (4_096, 151_936)  # of pocket, and of Qwen2.5
SAMPLING = (SamplingParams(temperature=0.8), SamplingParams(temperature=0.8, top_p=0.95),
            SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02, repetition_penalty=1.1))
Row = tuple[str, str, str]


def seconds_of(call: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def prompt_of(lm: LanguageModel, length: int) -> list[int]:
    """`length` ids of ordinary text."""
    text = "The force that pulls a dropped ball down to the ground is called gravity. "
    ids = lm.tokenizer.encode(text * length)
    return ids[:length]


def ours(lm: LanguageModel, prompt_ids: list[int], tokens: int) -> tuple[list[int], float, float]:
    """Greedy decoding with `course_lib`: the ids, all the seconds, and those to the first token."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    running = stream(lm, prompt_ids, params)
    seconds = seconds_of(lambda: list(running))
    return list(running.output.token_ids), seconds, running.steps[0].seconds


def theirs(name: str, prompt_ids: list[int], tokens: int) -> Callable[[], tuple[list[int], float]]:
    """Load the same folder with `transformers`; the function decodes greedily: the ids and the seconds."""
    import transformers  # optional, and only for this

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(find_folder(name), dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # as ignore_eos
    ids = torch.tensor([prompt_ids])

    def run() -> tuple[list[int], float]:
        start = time.perf_counter()
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens,
                                do_sample=False, pad_token_id=0)
        return output[0, len(prompt_ids):].tolist(), time.perf_counter() - start

    return run


def decode_rows(lm: LanguageModel, prompt_ids: list[int], tokens: int, runs: int) -> tuple[list[Row], float]:
    """The table's rows on decoding, and our tokens per second."""
    other = theirs(lm.name, prompt_ids, tokens) if find_spec("transformers") else None
    own, first, pairs, same = [], [], [], 0
    for run in range(runs + 1):  # the first is a warm-up
        ids, seconds, to_first = ours(lm, prompt_ids, tokens)
        their_ids, their_seconds = other() if other else (ids, seconds)
        if run:
            own.append(seconds)
            first.append(to_first)
            pairs.append(their_seconds)
            same += ids == their_ids
    rate = tokens / median(own)
    rows = [("time to first token", f"{1e3 * median(first):.1f} ms", f"prompt of {len(prompt_ids)} tokens"),
            ("course_lib", f"{rate:.0f} tokens/s", f"{tokens} new tokens, prefill included")]
    if other:
        ratios = sorted(b / a for a, b in zip(own, pairs))
        rows += [("transformers", f"{tokens / median(pairs):.0f} tokens/s",
                  f"the same ids in {same} of {runs} runs"),
                 ("course_lib / transformers", f"{median(ratios):.2f}",
                  f"per pair of runs, from {ratios[0]:.2f} to {ratios[-1]:.2f}")]
    return rows, rate


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


def measure(lm: LanguageModel, *, prompt_tokens: int, tokens: int, runs: int) -> list[Row]:
    """Every row of the table: what, how much, under which conditions."""
    rows, rate = decode_rows(lm, prompt_of(lm, prompt_tokens), tokens, runs)
    speeds = bandwidth(runs)
    rows += [(name, f"{speed / GIGABYTE:.1f} GB/s", f"{4 * BUFFER / 1e6:.0f} MB") for name, speed in speeds.items()]
    nbytes = decode_bytes(lm.config, prompt_tokens + tokens // 2, bytes_per_weight=4, bytes_per_element=4)
    limit = max(speeds.values()) / nbytes
    rows += [("bytes read per token", f"{nbytes / 1e6:.1f} MB", "every weight once, and the cache"),
             ("limit of the memory", f"{limit:.0f} tokens/s", f"course_lib reaches {rate / limit:.0%}")]
    rows += [row for V in VOCABULARIES for row in sampler_rows(V, runs)]
    if lm.name == "pocket":
        seconds = seconds_of(lambda: encode_corpus(lm.tokenizer, 50_000, seed=0)) * 10e6 / 50_000
        rows.append(("10 M tokens of corpus", f"{seconds:.0f} s", "written and encoded, from 50,000"))
        rows.append(first_model_row(lm.tokenizer))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure this machine: one request at a time, float32, on the CPU. Prints a Markdown table."""
    parser = Parser(prog="python -m course_lib bench", description=main.__doc__)
    parser.add_argument("--model", default="pocket", help="a shipped name or a folder (default: pocket)")
    parser.add_argument("--threads", type=in_range(1, 1024), default=2, help="of PyTorch (default: 2)")
    parser.add_argument("--runs", type=in_range(1), default=7, help="the table shows medians of this many (default: 7)")
    parser.add_argument("--tokens", type=in_range(1), default=128, help="new tokens in a run (default: 128)")
    parser.add_argument("--prompt-tokens", type=in_range(1), default=64, help="tokens of the prompt (default: 64)")
    args = parser.parse_args(argv)
    with usage_errors():
        lm = load(args.model, device="cpu", dtype=torch.float32)
        size, most = args.prompt_tokens + args.tokens, lm.config.max_position_embeddings
        require(size <= most, "--prompt-tokens + --tokens", size, f"<= {most:,}, the context of {lm.name}")
    before = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        print(f"{lm!r}; {machine(torch.device('cpu'))}; batch 1, greedy; medians of {args.runs}\n")
        print("| measured | | conditions |\n|---|---:|---|", flush=True)
        for row in measure(lm, prompt_tokens=args.prompt_tokens, tokens=args.tokens, runs=args.runs):
            print("| " + " | ".join(row) + " |")
    finally:
        torch.set_num_threads(before)
    return 0
