"""Engines that decode the same checkpoint, each in a process of its own: their thread pools would disturb each other.

`python -m course_lib.analysis.engines ENGINE MODEL PROMPT_TOKENS TOKENS THREADS` builds one and then decodes once for
each line that it is sent, and answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from course_lib.analysis.acceptance import other_text
from course_lib.checkpoint import LanguageModel, find_folder, load
from course_lib.compiled import find_compiler
from course_lib.config import SamplingParams
from course_lib.drafts import NGramDraft
from course_lib.fast_layer import packed_weights
from course_lib.generate import Draft, stream
from course_lib.quantize import quantize

COUNTED = 3_000_000  # tokens
Run = Callable[[list[int], int], list[int]]  # prompt ids and how many new ones, to the new ones


@dataclass(frozen=True)
class Engine:
    """One row of the table.

    Attributes:
        build: from a model's name or folder to a function that decodes greedily, in the engine's own process.
        bytes_per_weight: that a step has to read at least.
        ready: whether what it needs is installed.
        only: the one model that it is for.
    """

    build: Callable[[str], Run]
    bytes_per_weight: float = 4
    ready: Callable[[], bool] = lambda: True
    only: str | None = None


def ours(change: Callable[[LanguageModel], LanguageModel] = lambda lm: lm, *,
         draft: Callable[[LanguageModel], Draft] | None = None, **options: Any) -> Callable[[str], Run]:
    """Decoding with `course_lib`, after a change to the model; with a draft the weights are packed for several rows."""
    def build(name: str) -> Run:
        lm = change(load(name, device="cpu", dtype=torch.float32, **options))
        guess, kept = draft(lm) if draft else None, ExitStack()
        if guess:
            kept.enter_context(packed_weights(lm.model))

        def run(prompt_ids: list[int], tokens: int) -> list[int]:
            params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
            running = stream(lm, prompt_ids, params, draft=guess)
            "".join(running)
            return list(running.output.token_ids)

        run.kept = kept  # the weights stay packed for as long as there is a `run`
        return run

    return build


def counts(lm: LanguageModel) -> NGramDraft:
    """Counts of text such as `pocket` learned from, as a draft."""
    return NGramDraft(other_text(lm.tokenizer, COUNTED), num_speculative_tokens=12)


def transformers(name: str) -> Run:
    """The same folder in `transformers`."""
    import transformers as t  # optional, and only for this

    t.utils.logging.disable_progress_bar()
    model = t.AutoModelForCausalLM.from_pretrained(find_folder(name), dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # as ignore_eos

    def run(prompt_ids: list[int], tokens: int) -> list[int]:
        ids = torch.tensor([prompt_ids])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                                pad_token_id=0)
        return output[0, len(prompt_ids):].tolist()

    return run


def ctranslate2(compute_type: str) -> Callable[[str], Run]:
    """The same folder in CTranslate2, an engine of C++ without PyTorch."""
    def build(name: str) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            model, vocabulary = converted(name, folder, compute_type)

        def run(prompt_ids: list[int], tokens: int) -> list[int]:
            prompt = [vocabulary[i] for i in prompt_ids]
            result = model.generate_batch([prompt], max_length=tokens, min_length=tokens, end_token=[],
                                          include_prompt_in_result=False, sampling_topk=1)
            return result[0].sequences_ids[0]

        return run

    return build


def converted(name: str, folder: str, compute_type: str) -> tuple[Any, list[str]]:
    """A model converted for CTranslate2 by way of a folder, and its vocabulary."""
    import ctranslate2 as ct2  # optional, and only for this

    source = Path(shutil.copytree(find_folder(name), Path(folder) / "source"))
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings["bos_token"] = settings.get("bos_token") or settings["eos_token"]  # it takes no null
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    ct2.converters.TransformersConverter(str(source)).convert(str(Path(folder) / "converted"))
    model = ct2.Generator(str(Path(folder) / "converted"), compute_type=compute_type,
                          intra_threads=torch.get_num_threads())
    return model, json.loads((Path(folder) / "converted/vocabulary.json").read_text())


def installed(package: str) -> Callable[[], bool]:
    """Whether there is such a package."""
    return lambda: find_spec(package) is not None


ENGINES: dict[str, Engine] = {
    "course_lib": Engine(ours()),
    "transformers": Engine(transformers, ready=installed("transformers")),
    "+ compile": Engine(ours(compile=True), ready=lambda: find_compiler() is not None),
    "+ int8": Engine(ours(lambda lm: quantize(lm, bits=8)), bytes_per_weight=1),
    "+ int4": Engine(ours(lambda lm: quantize(lm, bits=4, group_size=32)), bytes_per_weight=0.5),
    "+ speculative": Engine(ours(draft=counts), only="pocket"),
    "CTranslate2 float32": Engine(ctranslate2("float32"), ready=installed("ctranslate2")),
    "CTranslate2 int8": Engine(ctranslate2("int8"), bytes_per_weight=1, ready=installed("ctranslate2")),
}


def available(model: str) -> list[str]:
    """The engines that can run a model here."""
    return [name for name, engine in ENGINES.items()
            if (engine.only or model) == model and engine.ready()]


class Process:
    """An engine at work elsewhere: call it to decode once.

    Args:
        engine, model: names.
        threads: that it may use.
        module: whose `main` runs it.
        sizes: further arguments of that, in order.
    """

    def __init__(self, engine: str, model: str, *, threads: int, module: str = __name__, **sizes: int) -> None:
        command = [sys.executable, "-m", module, engine, model, *map(str, (*sizes.values(), threads))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
        try:
            self()  # built and warmed up
        except BaseException:
            self.close()
            raise

    def __call__(self) -> tuple[list[int], float]:
        """The new ids, and the seconds they took.

        Raises:
            ChildProcessError: the engine has failed; the message is the last line of what it said.
        """
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the next line tells why
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().strip().split("\n")[-1]
            raise ChildProcessError(said or f"ended with status {self.process.wait()}")
        answer = json.loads(line)
        return answer["ids"], answer["seconds"]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr, self.process.stdin):
            with suppress(BrokenPipeError):  # what was written and not read
                pipe.close()


@contextmanager
def processes(engines: Sequence[str], model: str, **sizes: Any) -> Iterator[dict[str, Process]]:
    """A process for each engine, one started after the other, and ended whatever happens."""
    running: dict[str, Process] = {}
    try:
        for engine in engines:
            running[engine] = Process(engine, model, **sizes)
        yield running
    finally:
        for process in running.values():
            process.close()


def prompt_of(lm: LanguageModel, length: int) -> list[int]:
    """`length` ids of ordinary text."""
    text = "The force that pulls a dropped ball down to the ground is called gravity. "
    return lm.tokenizer.encode(text * length)[:length]


def main(argv: Sequence[str] | None = None) -> int:
    """Build an engine, then decode once for each line on standard input; the first time is a warm-up."""
    engine, model, *sizes = sys.argv[1:] if argv is None else argv
    prompt_tokens, tokens, threads = map(int, sizes)
    torch.set_num_threads(threads)
    prompt_ids = prompt_of(load(model, device="cpu"), prompt_tokens)
    run = ENGINES[engine].build(model)
    run(prompt_ids, tokens)
    for _ in sys.stdin:
        started = time.perf_counter()
        ids = run(prompt_ids, tokens)
        print(json.dumps({"ids": ids, "seconds": time.perf_counter() - started}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
