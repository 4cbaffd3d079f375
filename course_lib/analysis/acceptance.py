"""How much of what a draft proposes is accepted, by kind of prompt, and what a pass then writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from course_lib.analysis.heads import lines_said_twice
from course_lib.checkpoint import load
from course_lib.config import SamplingParams
from course_lib.generate import Draft, LanguageModel, Prompt, encode_prompt, stream
from course_lib.speculative import Pass, acceptance_rate, passes
from course_lib.tokenizer import Tokenizer
from course_lib.training.corpus import documents, people

QUESTIONS = ("What is gravity?", "What is the capital of France?", "so which city is India's capital",
             "How does a KV cache work?", "What is a volcano?", "Why do we dream?", "What is photosynthesis?",
             "thanks!", "What is a mirror?", "Capital of Egypt?", "What does a baker do?", "How do birds fly?",
             "what's a telescope", "Why is the sky blue?", "What is rain?", "Who are you?")
STORIES = ("tell me a story about a dragon", "Tell me a story about a girl who finds a key.",
           "Write a short story about a rabbit.", "a story about a boat please", "Tell me a story.")
BEGINNINGS = ("Once upon a time", "One morning, Mia found a small red box", "The old man walked down to the river.",
              "There was once a little fox who", "Tom and his sister went to the forest")


def chat(text: str) -> list[dict[str, str]]:
    """A message from the user."""
    return [{"role": "user", "content": text}]


KINDS: Mapping[str, Sequence[Prompt]] = {"questions": [*map(chat, QUESTIONS)], "stories": [*map(chat, STORIES)],
                                         "raw text": BEGINNINGS}


@dataclass(frozen=True)
class Tally:
    """What some requests wrote, and how.

    Attributes:
        token_ids: of each request, what it wrote.
        rounds: of each request, the passes of the target; none where there was no draft.
        seconds: all of it together.
    """

    token_ids: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[Pass, ...], ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens written; what a last pass made beyond an end token does not count."""
        return sum(map(len, self.token_ids))

    @property
    def passes(self) -> list[Pass]:
        """The passes of all requests, in order."""
        return [one for rounds in self.rounds for one in rounds]

    @property
    def tokens_per_pass(self) -> float:
        """Tokens written for each pass of the target."""
        return self.tokens / len(self.passes)

    @property
    def acceptance(self) -> float:
        """Accepted proposals, of those that were looked at."""
        return acceptance_rate(self.passes)


def write_all(lm: LanguageModel, prompts: Sequence[Prompt], params: SamplingParams,
              draft: Draft | None = None) -> Tally:
    """Answer every prompt, one after the other, with a draft or without."""
    token_ids, rounds, started = [], [], time.perf_counter()
    for prompt in prompts:
        running = stream(lm, prompt, params, draft=draft)
        for _ in running:
            pass
        token_ids.append(tuple(step.token_id for step in running.steps))
        rounds.append(tuple(passes(running.steps)) if draft else ())
    return Tally(tuple(token_ids), tuple(rounds), time.perf_counter() - started)


def accepted_by_place(rounds: Sequence[Pass]) -> list[tuple[int, int]]:
    """For the first, second, ... proposal of a pass: how many were looked at, and how many accepted."""
    longest = max((len(one.proposal) for one in rounds), default=0)
    return [(sum(one.tested > i for one in rounds), sum(one.accepted > i for one in rounds)) for i in range(longest)]


def how_many_accepted(rounds: Sequence[Pass], k: int) -> list[int]:
    """Of the passes with k proposals, how many accepted 0, 1, ..., k of them."""
    return [sum(one.accepted == i for one in rounds if len(one.proposal) == k) for i in range(k + 1)]


@torch.inference_mode()
def overlaps(lm: LanguageModel, draft: LanguageModel, prompts: Sequence[Prompt], token_ids: Sequence[Sequence[int]],
             temperatures: Sequence[float]) -> list[float]:
    """For each temperature above 0 the overlap of target and draft, the sum of min(p, q), in the mean over the places
    of the same texts.

    Args:
        token_ids: what was written after each prompt.
    """
    totals, places = torch.zeros(len(temperatures), dtype=torch.float64), 0
    for prompt, written in zip(prompts, token_ids, strict=True):
        asked = encode_prompt(lm.tokenizer, prompt)
        ids = torch.tensor([[*asked, *written]], device=lm.model.embed_tokens.weight.device)
        pair = [one.model(ids)[0, len(asked) - 1 : -1].double().cpu() for one in (lm, draft)]  # (places, V) each
        shares = ([(logits / t).softmax(-1) for logits in pair] for t in temperatures)
        totals += torch.stack([torch.minimum(*both).sum() for both in shares])
        places += len(written)
    return (totals / places).tolist()


def draft_for(lm: LanguageModel) -> LanguageModel:
    """`pocket-draft` for a target with its vocabulary; any other model drafts for itself, and is always right."""
    draft = load("pocket-draft")
    same = lm.tokenizer.mergeable_ranks == draft.tokenizer.mergeable_ranks
    return draft if same and lm.tokenizer.special_tokens == draft.tokenizer.special_tokens else lm


def other_text(tokenizer: Tokenizer, tokens: int, seed: int = 5) -> list[int]:
    """That many ids of text such as `pocket` learned from, written anew with another seed."""
    ids: list[int] = []
    for document in documents(seed=seed):
        ids += tokenizer.encode_prompt(document)
        if len(ids) >= tokens:
            break
    return ids[:tokens]


def names_begun_again(tokenizer: Tokenizer) -> list[list[int]]:
    """Four prompts: a line of 24 tokens of names, and the first two tokens of the same line again."""
    names = people()
    lines = lines_said_twice(tokenizer, names["girls"] + names["boys"], 24, batch_size=4,
                             generator=torch.Generator().manual_seed(0))
    return [line[:26].tolist() for line in lines]
