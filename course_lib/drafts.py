"""What proposes in speculative decoding: a smaller model, the text itself, or counts of other text.

Each is an argument `draft` of `stream` and `generate`; `course_lib.speculative` checks what it proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.config import SamplingParams, is_int, is_number, require
from course_lib.generate import LanguageModel, check_logits, end_ids, next_logits
from course_lib.kv_cache import StaticCache
from course_lib.sampling import draw
from course_lib.speculative import Proposer, Run, distributions


@dataclass(frozen=True)
class DraftModel(Proposer):
    """A smaller model with the same vocabulary proposes.

    Args:
        lm: as `load("pocket-draft")` returns it.
        num_speculative_tokens: proposals in a pass at most, >= 0; 0 is plain decoding.
        min_confidence: propose no more in this pass once the product of the probabilities of the draft's likeliest
            tokens (before temperature and filters), about the chance that all of them are accepted, is below this;
            in [0, 1]. 0: never stop early. The worth of another proposal: what it costs, in tokens of plain decoding.

    Raises:
        ValueError: a setting is out of range. In `stream` and `generate`: the vocabularies differ.
    """

    lm: LanguageModel
    num_speculative_tokens: int = 4
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        check_count("num_speculative_tokens", self.num_speculative_tokens, 0)
        check_share("min_confidence", self.min_confidence)

    def start(self, lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, length: int) -> Run:
        """As `Proposer.start`."""
        check_vocabularies(lm.tokenizer, self.lm.tokenizer)
        return DraftRun(self, lm, prompt_ids, params, length)


class DraftRun:
    """A draft model, and its cache, at work on one request."""

    def __init__(self, draft: DraftModel, lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams,
                 length: int) -> None:
        self.model, self.min_confidence = draft.lm.model, draft.min_confidence
        self.prompt_ids, self.params, self.vocab_size = prompt_ids, params, lm.config.vocab_size
        self.ends = end_ids(lm, params)
        self.config, self.context = draft.lm.config, draft.lm.config.max_position_embeddings
        self.kv_cache = StaticCache.for_model(self.model, min(length, self.context))

    def propose(self, ids: Sequence[int], uniforms: Tensor) -> tuple[list[int], Tensor]:
        """As `Run.propose`; nothing once the text has outgrown the draft's context, or holds an id that it lacks."""
        output_ids, proposal, rows, confidence = ids[len(self.prompt_ids) :], [], [], 1.0
        pending = ids[self.kv_cache.get_seq_length() :]
        room = self.context - len(ids) + 1 if max(pending) < self.config.vocab_size else 0
        for i in range(min(len(uniforms), room)):
            logits = same_width(next_logits(self.model, pending, self.kv_cache), self.vocab_size)
            check_logits(self.model, logits, "the draft")
            if self.min_confidence:
                confidence *= logits.softmax(-1).max().item()
                if confidence < self.min_confidence:
                    break
            rows.append(distributions(logits, self.params, self.prompt_ids, [*output_ids, *proposal]))
            pending = draw(rows[-1], uniforms[i : i + 1]).tolist()
            proposal += pending
            if pending[0] in self.ends:  # nothing will follow it
                break
        return proposal, torch.cat(rows) if rows else torch.zeros(0, self.vocab_size)

    def crop(self, length: int) -> None:
        """As `Run.crop`; the last proposal never went into the cache."""
        self.kv_cache.crop(min(length, self.kv_cache.get_seq_length()))


@dataclass(frozen=True)
class PromptLookup(Proposer):
    """The text itself proposes: what followed the last time that its latest tokens stood there (Saxena 2023).

    It costs no model, and guesses well where an answer repeats its prompt: quotation, correction, code.

    Args:
        num_speculative_tokens: proposals in a pass at most, >= 0.
        max_ngram: look for this many latest tokens first, then for fewer, down to 1; >= 1.

    Raises:
        ValueError: a setting is out of range.
    """

    num_speculative_tokens: int = 8
    max_ngram: int = 3

    def __post_init__(self) -> None:
        check_count("num_speculative_tokens", self.num_speculative_tokens, 0)
        check_count("max_ngram", self.max_ngram, 1)

    def start(self, lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, length: int) -> Run:
        """As `Proposer.start`."""
        return GuessRun(lambda ids, k: look_up(ids, k, self.max_ngram), lm.config.vocab_size, end_ids(lm, params))


class NGramDraft(Proposer):
    """Counts of other text propose: the token that most often followed the latest tokens there (Shannon 1948).

    A look-up in a sorted table costs a hundredth of a draft model's step. It guesses as well as the text is like what
    the target writes, its training data for example (He et al. 2023 search in such text).

    Args:
        ids: tokens of that text, by the target's tokenizer, at least two.
        num_speculative_tokens: proposals in a pass at most, >= 0.
        max_context: latest tokens that are looked up first, then fewer, down to 1; >= 1, and with n distinct ids
            n ** (max_context + 1) < 2 ** 63.
        min_confidence: propose no more in this pass once the product of the shares, with which each proposal followed
            its context, is below this; in [0, 1].

    Raises:
        ValueError: a setting is out of range, or there is too little text. In `stream` and `generate`: an id is unknown
            to the target.
    """

    def __init__(self, ids: Sequence[int] | np.ndarray | Tensor, num_speculative_tokens: int = 8, *,
                 max_context: int = 4, min_confidence: float = 0.3) -> None:
        check_count("num_speculative_tokens", num_speculative_tokens, 0)
        check_count("max_context", max_context, 1)
        check_share("min_confidence", min_confidence)
        text = np.asarray(ids).astype(np.int64)
        require(text.ndim == 1 and len(text) >= 2 and text.min() >= 0, "ids", ids, "two ids or more, each >= 0")
        self.num_speculative_tokens, self.min_confidence = num_speculative_tokens, min_confidence
        self.base = int(text.max()) + 1
        require(self.base ** (max_context + 1) < 2**63, "max_context", max_context,
                f"smaller: {self.base} ** (max_context + 1) must be below 2 ** 63")
        self.tables = [count_contexts(text, n, self.base) for n in range(1, min(max_context, len(text) - 1) + 1)]

    def start(self, lm: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, length: int) -> Run:
        """As `Proposer.start`."""
        require(self.base <= lm.config.vocab_size, "largest id that was counted", self.base - 1,
                f"below the target's vocab_size = {lm.config.vocab_size}")
        return GuessRun(self.guess, lm.config.vocab_size, end_ids(lm, params))

    def guess(self, ids: Sequence[int], k: int) -> list[int]:
        """At most k ids that often follow, each looked up after those before it."""
        text, confidence = list(ids[-len(self.tables) :]), 1.0
        for _ in range(k):
            token_id, share = self.following(text)
            confidence *= share
            if not share or confidence < self.min_confidence:
                break
            text.append(token_id)
        return text[len(ids[-len(self.tables) :]) :]

    def following(self, ids: Sequence[int]) -> tuple[int, float]:
        """The id that most often followed the longest known ending of `ids`, and in which share of its places; (0, 0.0)
        where even the last id is unknown.
        """
        for n in range(min(len(ids), len(self.tables)), 0, -1):
            contexts, following, shares = self.tables[n - 1]
            if max(ids[-n:]) < self.base:
                key = 0
                for token_id in ids[-n:]:
                    key = key * self.base + token_id
                place = int(contexts.searchsorted(key))
                if place < len(contexts) and contexts[place] == key:
                    return int(following[place]), float(shares[place])
        return 0, 0.0


def count_contexts(text: np.ndarray, n: int, base: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each run of n ids in a text, as one number, ascending: the id that followed most often (of equals the
    lowest), and the share of places where it did.

    >>> count_contexts(np.array([1, 2, 1, 2, 1, 0]), 1, base=3)
    (array([1, 2]), array([2, 1]), array([0.66666667, 1.        ]))
    """
    gram = text[: len(text) - n].copy()
    for i in range(1, n + 1):
        gram = gram * base + text[i : len(text) - n + i]
    grams, counts = np.unique(gram, return_counts=True)
    contexts, starts = np.unique(grams // base, return_index=True)
    order = np.lexsort((grams, -counts, grams // base))  # in each context the most frequent first
    best = order[starts]
    return contexts, grams[best] % base, counts[best] / np.add.reduceat(counts, starts)


@dataclass(frozen=True)
class GuessRun:
    """Guesses that are certain of themselves, their q being 1, at work on one request; only the text is remembered."""

    guess: Callable[[Sequence[int], int], list[int]]
    vocab_size: int
    ends: AbstractSet[int]

    def propose(self, ids: Sequence[int], uniforms: Tensor) -> tuple[list[int], Tensor]:
        """As `Run.propose`; nothing after an end token."""
        proposal = self.guess(ids, len(uniforms))
        end = next((i + 1 for i, token_id in enumerate(proposal) if token_id in self.ends), len(proposal))
        rows = F.one_hot(torch.tensor(proposal[:end], dtype=torch.long), self.vocab_size)
        return proposal[:end], rows.float()

    def crop(self, length: int) -> None:
        """Nothing is kept."""


def look_up(ids: Sequence[int], k: int, max_ngram: int) -> list[int]:
    """The k ids that followed the latest earlier place of the longest ending found there, at most `max_ngram` long.

    If the end of the text is reached before, it is assumed to go on in the same circle. Empty if nothing is found.

    >>> look_up([5, 6, 7, 8, 5, 6], 3, max_ngram=2), look_up([5, 6, 5, 6], 3, 2), look_up([5, 6], 3, 2)
    ([7, 8, 5], [5, 6, 5], [])
    """
    for n in range(min(max_ngram, len(ids) - 1), 0, -1):
        ending = ids[-n:]
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - 1] == ending[-1] and ids[end - n : end] == ending:
                return (ids[end : end + k] * k)[:k]
    return []


def same_width(logits: Tensor, vocab_size: int) -> Tensor:
    """Logits (1, V) of a draft for the target's ids: padded ids that only one of the two has cannot be proposed."""
    return F.pad(logits, (0, vocab_size - logits.shape[1]), value=-torch.inf)


def check_vocabularies(target: Any, draft: Any) -> None:
    """Refuse a draft to which ids mean something else.

    Raises:
        ValueError: a token has different ids, or only one of the two tokenizers has it.
    """
    ours, theirs = ({**tokenizer.mergeable_ranks, **tokenizer.special_tokens} for tokenizer in (target, draft))
    if ours != theirs:
        example = next(token for token in (*ours, *theirs) if ours.get(token) != theirs.get(token))
        raise ValueError(f"a draft must have the target's vocabulary: {example!r} is id {theirs.get(example)} "
                         f"for the draft and {ours.get(example)} for the target")


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no integer, or too small."""
    require(is_int(value) and value >= least, name, value, f"an integer >= {least}")


def check_share(name: str, value: Any) -> None:
    """Refuse what is no probability."""
    require(is_number(value) and 0 <= value <= 1, name, value, "in [0, 1]")
