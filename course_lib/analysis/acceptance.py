"""How much of what a draft proposes is accepted, by kind of prompt, and what a pass then writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from course_lib.analysis.bench import seconds_of
from course_lib.analysis.long_texts import course_text
from course_lib.checkpoint import load
from course_lib.config import SamplingParams
from course_lib.generate import Draft, LanguageModel, Prompt, stream
from course_lib.kv_cache import StaticCache
from course_lib.speculative import Pass, acceptance_rate, passes

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



def times_faster(lm: LanguageModel, prompts: Sequence[Prompt], draft: Draft, temperature: float = 0, *,
                 max_tokens: int = 24, rounds: int = 3) -> float:
    """How many times as fast text comes with a draft as without, in tokens a second; the fastest of some rounds.

    The two take turns at every prompt, so that what disturbs one disturbs both.
    """
    params = SamplingParams(temperature=temperature, seed=0, max_tokens=max_tokens)
    seconds, tokens = [0.0, 0.0], [0, 0]
    for prompt in prompts:
        turns = [[write_all(lm, [prompt], params, one) for one in (None, draft)] for _ in range(rounds)]
        for i, tallies in enumerate(zip(*turns)):
            seconds[i] += min(tally.seconds for tally in tallies)
            tokens[i] += tallies[0].tokens
    return (seconds[0] / tokens[0]) / (seconds[1] / tokens[1])


@torch.inference_mode()
def check_ms(lm: LanguageModel, rows: Sequence[int], *, batch_size: int = 1, runs: int = 20) -> list[float]:
    """Milliseconds of a pass over that many new tokens of each text, after 64 tokens; the fastest of some runs."""
    most = 64 + max(rows)
    text = course_text(lm.tokenizer, most)[None].expand(batch_size, -1).to(lm.model.embed_tokens.weight.device)
    kv_cache = StaticCache.for_model(lm.model, most, batch_size=batch_size)
    lm.model(text[:, :64], kv_cache=kv_cache)

    def check(n: int) -> None:
        kv_cache.crop(64)
        lm.model(text[:, 64 : 64 + n], kv_cache=kv_cache)

    timed = [[1000 * seconds_of(lambda n=n: check(n)) for n in rows] for _ in range(runs)]
    return [min(column) for column in zip(*timed)]


def draft_for(lm: LanguageModel) -> LanguageModel:
    """`pocket-draft` for a target with its vocabulary; any other model drafts for itself, and is always right."""
    draft = load("pocket-draft")
    same = lm.tokenizer.mergeable_ranks == draft.tokenizer.mergeable_ranks
    return draft if same and lm.tokenizer.special_tokens == draft.tokenizer.special_tokens else lm
