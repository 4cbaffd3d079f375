"""A census of attention heads: how much of each head's attention lies where one of five jobs would put it.

The jobs are those that have a definition which a program can test: look at the previous token, at the one before
that, at the first token, at what followed the same token last time (induction), and from a pronoun at its noun.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from course_lib.analysis.heads import (
    attention_share,
    first_token,
    induction_scores,
    previous_token,
    pronoun_scores,
    pronoun_sentences,
)
from course_lib.analysis.trace import trace
from course_lib.checkpoint import LanguageModel
from course_lib.training.corpus import END_OF_TEXT, documents

DOCUMENTS = 80  # of held-out text, looked through for long ones


def prose(tokenizer: Any, texts: int, length: int) -> Tensor:
    """The first `length` ids of documents that are not chats, from a seed that training did not use: (texts, length).

    Raises:
        ValueError: there are not that many documents of that length.
    """
    plain = [text for text in islice(documents(seed=1), DOCUMENTS) if "<|im_start|>" not in text]
    every = [tokenizer.encode_prompt(text.removesuffix(END_OF_TEXT)) for text in plain]
    ids = [ids[:length] for ids in every if len(ids) >= length][:texts]
    if len(ids) < texts:
        raise ValueError(f"texts = {texts} is not allowed: only {len(ids)} have {length} tokens")
    return torch.tensor(ids)


def two_back(T: int) -> Tensor:
    """Places (T, T): each query looks at the token before the one before it.

    >>> two_back(3).int().tolist()
    [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    """
    return torch.ones(T, T, dtype=torch.bool).tril(-2).triu(-2)


def job_scores(lm: LanguageModel, texts: Tensor, lines: Tensor) -> dict[str, Tensor]:
    """The share of attention that every head gives to each job's places: (L, H), float32 on the CPU.

    Args:
        texts: ordinary text, (B, T), for the jobs that any text has places for.
        lines: lines of n ids said twice, (B, 2 n), for induction.
    """
    natural, copying = (trace(lm.model, ids).attentions.float().cpu() for ids in (texts, lines))
    T = texts.shape[1]
    meant, _ = pronoun_scores(lm, pronoun_sentences(24))
    return {"previous token": attention_share(natural, previous_token(T)),
            "two back": attention_share(natural, two_back(T)),
            "first token": attention_share(natural, first_token(T)),
            "induction": induction_scores(copying, lines.shape[1] // 2),
            # Rounded, so that two heads with the same score have it on every machine.
            "pronoun to noun": meant.float().cpu().round(decimals=4)}
