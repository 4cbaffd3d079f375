"""Speculative decoding with a reader's own pass, the loop around it and a record for the widget; and drafts by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.analysis.acceptance import other_text
from course_lib.checkpoint import load
from course_lib.config import SamplingParams, require
from course_lib.drafts import DraftModel, NGramDraft, check_vocabularies
from course_lib.generate import Draft, LanguageModel, Prompt, encode_prompt, end_ids
from course_lib.kv_cache import StaticCache
from course_lib.sampling import request_generator

DRAFTS = ("pocket-draft", "counts")
COUNTED = 200_000  # tokens of text, two seconds

# ids so far, params, k uniforms to draw proposals with, k + 1 to check them with, and the caches of draft and target;
# to proposal, p_rows, q_rows and tokens
OnePass = Callable[[list[int], SamplingParams, Tensor, Tensor, Sequence[StaticCache]],
                   tuple[list[int], Tensor, Tensor, list[int]]]


def draft_called(name: str, lm: LanguageModel) -> Draft:
    """What proposes to a model: `pocket-draft`, or "counts" of text such as `pocket` learned from.

    Raises:
        ValueError: there is no draft of this name, or it has another vocabulary than the model.
    """
    require(name in DRAFTS, "draft", name, f"one of {', '.join(DRAFTS)}")
    small = load("pocket-draft")
    check_vocabularies(lm.tokenizer, small.tokenizer)
    return DraftModel(small, 3) if name == "pocket-draft" else NGramDraft(other_text(small.tokenizer, COUNTED), 12)


class Round(NamedTuple):
    """What one pass proposed and wrote: ids, and of each proposal the probability for target and draft."""

    proposal: list[int]
    p: list[float]
    q: list[float]
    tokens: list[int]


def speculate(one_pass: OnePass, draft: LanguageModel, lm: LanguageModel, prompt: Prompt, params: SamplingParams,
              k: int) -> list[Round]:
    """Call `one_pass` until an end token, or until `max_tokens` are written; with the random numbers of the library.

    Args:
        k: proposals in a pass, at most.
    """
    ids, generator, rounds = encode_prompt(lm.tokenizer, prompt), request_generator(params.seed), []
    length, ends = min(len(ids) + params.max_tokens, lm.config.max_position_embeddings), end_ids(lm, params)
    caches = [StaticCache.for_model(one.model, length) for one in (draft, lm)]
    while len(ids) < length:
        n = min(k, length - len(ids) - 1)
        uniforms = torch.rand(2 * n + 1, generator=generator, dtype=torch.float64)
        proposal, p_rows, q_rows, tokens = one_pass(ids, params, uniforms[:n], uniforms[n:], caches)
        stops = [i + 1 for i, token in enumerate(tokens) if token in ends]
        tokens = tokens[: min(stops, default=len(tokens))]  # nothing follows an end token
        p, q = ([row[token].item() for row, token in zip(rows, proposal)] for rows in (p_rows, q_rows))
        rounds.append(Round(proposal, p, q, tokens))
        ids = ids + tokens
        if stops:
            break
    return rounds
