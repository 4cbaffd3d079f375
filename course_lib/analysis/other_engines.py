"""The same folder in other engines, as commands, and what more machines buy: one model cut up, or many copies of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from course_lib.analysis.roofline import Machine, decode_seconds, dollars_per_million, prefill_seconds
from course_lib.config import ModelConfig, require
from course_lib.costs import kv_bytes_per_token, largest_batch, weight_bytes

PORT = 8001  # beside course_lib's own server on 8000


def transformers_script(folder: str | Path) -> str:
    """Python that loads the folder in `transformers` and answers a question."""
    return f"""\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained({str(folder)!r})
tokenizer = AutoTokenizer.from_pretrained({str(folder)!r})
messages = [{{"role": "user", "content": "What is gravity?"}}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True,
                                       return_tensors="pt", return_dict=True)
output = model.generate(**inputs, max_new_tokens=48, do_sample=False,
                        pad_token_id=tokenizer.eos_token_id)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""


def ctranslate2_script(folder: str | Path, converted: str | Path) -> str:
    """Python that converts the folder for CTranslate2, and answers the same question from integers.

    The converter takes the folder unchanged. What it writes names no token for the beginning of a text, which the
    engine does not accept; the name is put in and never used.
    """
    return f"""\
import json
from pathlib import Path

from ctranslate2 import Generator
from ctranslate2.converters import TransformersConverter
from transformers import AutoTokenizer

TransformersConverter({str(folder)!r}).convert({str(converted)!r}, force=True)
settings = Path({str(converted)!r}, "config.json")
settings.write_text(json.dumps(json.loads(settings.read_text()) | {{"bos_token": "<|endoftext|>"}}))
model, tokenizer = Generator({str(converted)!r}, compute_type="int8"), AutoTokenizer.from_pretrained({str(folder)!r})
messages = [{{"role": "user", "content": "What is gravity?"}}]
ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
[result] = model.generate_batch([tokenizer.convert_ids_to_tokens(ids)], max_length=48, sampling_topk=1,
                                end_token="<|im_end|>", include_prompt_in_result=False)
print(tokenizer.decode(result.sequences_ids[0], skip_special_tokens=True))
"""


def vllm_commands(folder: str | Path, draft: str | Path | None = None, *, gpus: int = 8,
                  tool_parser: str = "hermes") -> dict[str, str]:
    """What to type where there is a GPU and vLLM: one process, with a draft, one model on all GPUs, copies of it.

    Args:
        folder: of the model, or its name on a hub.
        draft: of a smaller model with the same vocabulary; None: no row with one.
        gpus: in one machine, >= 1.
        tool_parser: the form of the model's tool calls, by vLLM's name; that of `pocket` is "hermes".
    """
    require(gpus >= 1, "gpus", gpus, ">= 1")
    serve = ["vllm", "serve", str(folder), "--port", str(PORT), "--enable-auto-tool-choice", "--tool-call-parser",
             tool_parser]
    rows = {"one GPU": serve, f"one model on {gpus} GPUs": [*serve, "--tensor-parallel-size", str(gpus)],
            f"{gpus} copies of it": [*serve, "--data-parallel-size", str(gpus)]}
    if draft is not None:
        config = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3}
        rows["with a draft"] = [*serve, "--speculative-config", json.dumps(config)]
    return {name: join(words) for name, words in rows.items()}


def load_test_command(*, clients: int = 32, seconds: float = 60) -> str:
    """The load test of this course, pointed at that server."""
    words = ["python", "-m", "course_lib", "load-test", "--url", f"http://127.0.0.1:{PORT}", "--clients", str(clients),
             "--seconds", f"{seconds:g}"]
    return join(words)


@dataclass(frozen=True)
class Scaled:
    """Bounds for several machines.

    Attributes:
        how: "one model on all" (tensor parallel) or "a copy on each" (replicas).
        readers: at the same time.
        fits: the most readers whose whole context fits; with fewer than there are, the other numbers mean nothing.
        ttft_s: of a prompt.
        gap_s: between a reader's tokens.
        tokens_per_s: of all readers together.
        dollars_per_million: new tokens.
    """

    how: str
    readers: int
    fits: int
    ttft_s: float
    gap_s: float
    tokens_per_s: float
    dollars_per_million: float

    @property
    def possible(self) -> bool:
        """Whether there is memory for all readers."""
        return self.readers <= self.fits


def scale_out(config: ModelConfig, machine: Machine, n: int, *, readers: int, context: int,
              bytes_per_weight: float = 2) -> list[Scaled]:
    """What n machines do at best, with one model cut up between them and with a copy on each.

    Bounds of the roofline: what the machines tell each other is free here, and it is not. A model that is cut up
    exchanges activations twice in each layer, so that the first row is too kind, the more so the slower the link.

    Args:
        machine: one of them, whose memory and price are known.
        n: machines, >= 1.
        readers: at the same time, shared out evenly; a multiple of n.
        context: positions that each of them has.
    """
    require(n >= 1, "n", n, ">= 1")
    require(readers >= 1 and readers % n == 0, "readers", readers, f"a multiple of n = {n}")
    require(machine.memory_bytes is not None, "memory_bytes", machine.memory_bytes, "known")
    weights, cache = weight_bytes(config, bytes_per_weight), context * kv_bytes_per_token(config)
    rows = []
    for how, one, copies in (("one model on all", machine.times(n), 1), ("a copy on each", machine, n)):
        gap = decode_seconds(config, context, one, batch_size=readers // copies, bytes_per_weight=bytes_per_weight)
        first = prefill_seconds(config, context, one, bytes_per_weight=bytes_per_weight)
        fits = copies * largest_batch(one.memory_bytes, weights, cache)
        price = dollars_per_million(gap, readers, machine.times(n))
        rows.append(Scaled(how, readers, fits, first, gap, readers / gap, price))
    return rows
