"""Many texts under several sampling settings in one batch, and how right, how varied and how broken they are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.config import SamplingParams, require
from course_lib.generate import LanguageModel, Prompt, encode_prompt
from course_lib.kv_cache import StaticCache
from course_lib.sampling import filter_logits, request_generator
from course_lib.sampling import sample as library_sample
from course_lib.tokenizer import Tokenizer
from course_lib.training.corpus import TOOLS, documents

Sample = Callable[[Tensor, Sequence[SamplingParams], Sequence[torch.Generator]], Tensor]
WORD = re.compile(r"[A-Za-z]+")
CALL = '<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{}"}}}}\n</tool_call>'
SIGNS = {"plus": "+", "minus": "-", "times": "*"}
# Of these the training text says nothing.
STATES = {"Texas": "Austin", "California": "Sacramento", "Florida": "Tallahassee", "Ohio": "Columbus",
          "Nevada": "Carson City", "Colorado": "Denver", "Oregon": "Salem", "Alaska": "Juneau", "Hawaii": "Honolulu",
          "Kansas": "Topeka", "Wisconsin": "Madison", "Michigan": "Lansing"}


class Written(NamedTuple):
    """What was written under one setting.

    Attributes:
        ids: (copies, n_tokens).
        logprobs: of each token under the model itself, before any filter: (copies, n_tokens).
        likeliest: whether each token was the model's likeliest: (copies, n_tokens).
        texts: the ids as text.
    """

    ids: Tensor
    logprobs: Tensor
    likeliest: Tensor
    texts: list[str]


@torch.inference_mode()
def write(lm: LanguageModel, prompt: Prompt, settings: Sequence[SamplingParams], *, copies: int, n_tokens: int,
          sample: Sample | None = None) -> list[Written]:
    """Continue a prompt `copies` times under each setting, all of them in one batch.

    Copy i draws from a generator with seed i, under every setting. A text goes on after an end token, so that
    all have the same length.

    Args:
        sample: chooses the next tokens, called with logits (B, V), B settings and B generators; left out, the
            library's, which also knows the ids that penalties look at.

    Returns:
        One `Written` for each setting, in order.
    """
    require(copies >= 1 and n_tokens >= 1, "copies, n_tokens", (copies, n_tokens), "at least 1")
    params = [p for p in settings for _ in range(copies)]
    generators = [request_generator(seed) for _ in settings for seed in range(copies)]
    prompt_ids, device = encode_prompt(lm.tokenizer, prompt), lm.model.embed_tokens.weight.device
    ids = torch.tensor([prompt_ids] * len(params), device=device)  # (B, T)
    cache = StaticCache.for_model(lm.model, ids.shape[1] + n_tokens, batch_size=len(params))
    record, output = [], [[] for _ in params]
    for _ in range(n_tokens):
        logits = lm.model(ids, kv_cache=cache, logits_to_keep=1)[:, -1].float().cpu()  # (B, V)
        if sample is None:
            drawn = library_sample(logits, params, generators, prompt_ids=[prompt_ids] * len(params),
                                   output_ids=output)
        else:
            drawn = sample(logits, params, generators)
        output = [[*row, i] for row, i in zip(output, drawn.tolist())]
        logprobs = logits.log_softmax(-1).gather(-1, drawn[:, None])[:, 0]
        record.append((drawn, logprobs, drawn == logits.argmax(-1)))
        ids = drawn[:, None].to(device)
    columns = [torch.stack(column, 1).split(copies) for column in zip(*record)]
    return [Written(*rows, [lm.tokenizer.decode(row) for row in rows[0].tolist()]) for rows in zip(*columns)]


def distinct_pairs(written: Written) -> float:
    """Distinct-2: different pairs of neighbouring tokens over all pairs, of all copies together (Li et al. 2016)."""
    pairs = [pair for row in written.ids.tolist() for pair in zip(row, row[1:])]
    return len(set(pairs)) / len(pairs)


def perplexity(written: Written) -> float:
    """How many equally likely tokens the model, at temperature 1, would have seen for each token it wrote."""
    return (-written.logprobs.mean()).exp().item()


def known_words(n_documents: int = 4000) -> set[str]:
    """Every word of the first `n_documents` documents of the training text, in lower case."""
    return {word for text in islice(documents(seed=0), n_documents) for word in WORD.findall(text.lower())}


def share_unknown(texts: Sequence[str], known: Collection[str]) -> float:
    """The share of words that are none of the known ones; the last word of a text, maybe cut, does not count.

    >>> share_unknown(["the cat lafter all", "the c"], {"the", "cat", "all"})
    0.25
    """
    words = [word for text in texts for word in WORD.findall(text.lower())[:-1]]
    return sum(word not in known for word in words) / max(1, len(words))


def unknown_words(texts: Sequence[str], known: Collection[str]) -> tuple[float, float]:
    """The share of unknown words in independent texts, and its standard error: what other texts would change.

    >>> share, error = unknown_words(["one two end", "one twx end"], {"one", "two"})
    >>> share, round(error, 3)
    (0.25, 0.25)
    """
    share, counts = share_unknown(texts, known), [max(0, len(WORD.findall(text)) - 1) for text in texts]
    off = [(share_unknown([text], known) - share) * n for text, n in zip(texts, counts)]  # from the mean, in words
    return share, math.sqrt(sum(x * x for x in off) * len(texts) / max(1, len(texts) - 1)) / max(1, sum(counts))


def right_and_different(lm: LanguageModel, answers: Mapping[str, str], settings: Sequence[SamplingParams], *,
                        copies: int = 4, n_tokens: int = 8, sample: Sample | None = None) -> list[tuple[float, float]]:
    """For each setting, the share of texts that hold the answer, and how many of the copies differ, on average.

    A text counts up to its first full stop.

    Args:
        answers: the beginning of a sentence, and what has to come in the next `n_tokens` tokens.
    """
    right, different = [0.0] * len(settings), [0.0] * len(settings)
    for prompt, answer in answers.items():
        rows = write(lm, prompt, settings, copies=copies, n_tokens=n_tokens, sample=sample)
        for i, written in enumerate(rows):
            said = [text.split(".")[0] for text in written.texts]
            right[i] += sum(answer in text for text in said) / copies / len(answers)
            different[i] += len(set(said)) / len(answers)
    return list(zip(right, different))


def calculator_call(tokenizer: Tokenizer, a: int, word: str, b: int) -> tuple[list[int], str]:
    """A question such as "What is 12 times 34?" as a prompt, and the one right call of the calculator."""
    messages = [{"role": "user", "content": f"What is {a} {word} {b}?"}]
    ids = tokenizer.apply_chat_template(messages, tools=list(TOOLS.values()), add_generation_prompt=True)
    return ids, CALL.format(f"{a} {SIGNS[word]} {b}")


@torch.inference_mode()
def chances_of_calls(lm: LanguageModel, sums: Sequence[tuple[int, str, int]],
                     settings: Sequence[SamplingParams]) -> list[float]:
    """For each setting, the chance that a calculator call is right to the last character, on average over the sums.

    Nothing is drawn: it is the product of the chances of the call's tokens, each after the right ones before it.
    The same text in other tokens counts as wrong.

    Args:
        sums: such as (12, "times", 34), which asks "What is 12 times 34?".
    """
    chances, device = [0.0] * len(settings), lm.model.embed_tokens.weight.device
    for numbers in sums:
        prompt, call = calculator_call(lm.tokenizer, *numbers)
        ids = lm.tokenizer.encode(call, allowed_special="all")
        logits = lm.model(torch.tensor([prompt + ids], device=device))[0, len(prompt) - 1:-1].double().cpu()  # (T, V)
        before = [ids[:i] for i in range(len(ids))]
        for i, params in enumerate(settings):
            filtered = filter_logits(logits, params, [prompt] * len(ids), before)
            logprobs = filtered.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])
            chances[i] += logprobs.sum().exp().item()
    return [chance / len(sums) for chance in chances]


def table(rows: Mapping[str, Sequence[float]], *, width: int = 8) -> str:
    """Named rows of numbers under each other; a row whose name ends in "right" is in percent.

    >>> print(table({"temperature": [0, 1.5], "right": [1, 0.75]}, width=6))
    temperature   0.0   1.5
    right        100%   75%
    """
    name = max(map(len, rows))
    lines = (f"{row:{name}}" + "".join(f"{x:{width}{'.0%' if row.endswith('right') else '.1f'}}" for x in values)
             for row, values in rows.items())
    return "\n".join(lines)


def tales_table(broken: Mapping[str, float], tales: Sequence[Written], known: Collection[str]) -> str:
    """What texts under several settings are like, a setting in a line: how many differ, distinct-2, unknown words.

    Args:
        broken: how many calls break, by the name of the setting.
        tales: what was written under these settings, in the same order.
        known: words that count as known.
    """
    lines = ["temperature       broken  texts  distinct-2  unknown words"]
    for (name, n), written in zip(broken.items(), tales, strict=True):
        share, error = unknown_words(written.texts, known)
        lines.append(f"{name:16} {n:7.0f} {len(set(written.texts)):6} {distinct_pairs(written):11.2f} "
                     f"{share:8.1%} ± {error:.1%}")
    return "\n".join(lines)
