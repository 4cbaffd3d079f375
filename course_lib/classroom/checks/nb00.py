"""Checks of notebook 00, From Enter to the first word. Expected values are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import expect_close, expect_equal
from course_lib.generate import Step, latency

STAGES = ("tokenize", "embed", "attend", "feed forward", "score", "choose", "detokenize")
WHY = (
    "embed looks up a row for each id, and only tokenize makes ids",
    "attend works on vectors, and only embed makes vectors of ids",
    "in each layer, attend first gathers from other positions and feed forward then works on the result",
    "score compares the vector that leaves the last layer with every entry of the vocabulary",
    "choose picks one id by its score, so there must be scores",
    "detokenize turns an id into text, so an id must have been chosen",
)

# 00.1


def stage_order() -> list[str]:
    """The stages from Enter to a piece of text on the screen, in order."""
    return ["tokenize", "embed", "attend", "feed forward", "score", "choose", "detokenize"]


def check_stage_order(attempt: Callable) -> None:
    got = attempt()
    kept = sorted(got) if isinstance(got, list) and all(isinstance(name, str) for name in got) else got
    expect_equal(kept, sorted(STAGES), "return a list with each of the seven names once", where="sorted(result)")
    for before, after, why in zip(STAGES, STAGES[1:], WHY):
        expect_equal([name for name in got if name in (before, after)], [before, after], why,
                     where=f"the order of {before!r} and {after!r}")


# 00.2


def greedy_with_cache(model: Callable, prompt_ids: list[int], n: int, kv_cache: object) -> list[int]:
    """The n ids that greedy decoding adds to the prompt; each id goes through the model once at most.

    Args:
        model: `model(ids, kv_cache=kv_cache)` takes ids (1, T) that the cache does not hold yet and
            returns logits (1, T, V); the cache holds them afterwards.
        prompt_ids: at least one.
        n: new ids, >= 1.
        kv_cache: empty.
    """
    new_ids, ids = [], prompt_ids
    for _ in range(n):
        logits = model(torch.tensor([ids]), kv_cache=kv_cache)
        ids = [logits[0, -1].argmax().item()]
        new_ids += ids
    return new_ids


class CountingModel:
    """Scores highest the id (3 * sum of all ids so far + how many) mod 97, and notes what it was given."""

    vocab_size = 97

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.held: list[int] = []

    def __call__(self, input_ids: Tensor, *, kv_cache: object = None, logits_to_keep: int = 0) -> Tensor:
        if kv_cache is None:
            raise ValueError("called without kv_cache: what the model has read would be lost")
        if input_ids.dim() != 2:
            raise ValueError(f"ids of shape {tuple(input_ids.shape)} are not allowed: must be (1, T)")
        new = input_ids[0].tolist()
        self.calls.append(new)
        before = self.held
        self.held = before + new
        ends = range(len(before) + 1, len(self.held) + 1)
        best = torch.tensor([(3 * sum(self.held[:end]) + end) % self.vocab_size for end in ends])
        return torch.nn.functional.one_hot(best, self.vocab_size)[None, -logits_to_keep:].float()  # (1, T, V)


def sizes(calls: list[list[int]]) -> str:
    """How many ids each call was given, in words that cannot be taken for ids."""
    return "calls with " + ", ".join(str(len(call)) for call in calls) + " ids"


def check_greedy_with_cache(attempt: Callable) -> None:
    prompt = [5, 11, 2]
    # by hand: 3*18+3=57; 3*75+4=229, less 2*97: 35; 3*110+5=335, less 3*97: 44
    for n, expected in ((1, [57]), (3, [57, 35, 44])):
        model = CountingModel()
        got = attempt(model, list(prompt), n, object())
        expect_equal(model.calls[:1], [prompt], "prefill: the whole prompt goes through the model at once",
                     where="ids given to the first call")
        expect_equal(sizes(model.calls), sizes([prompt] + [[0]] * (n - 1)),
                     "every id goes through the model once: after prefill only the id just chosen, and the "
                     "last one chosen not at all", where="what the model was called with")
        expect_equal(got, expected, "the next id is the argmax of the last position's logits, and only the "
                                    "n new ids are returned")
    kept = list(prompt)
    attempt(CountingModel(), kept, 2, object())
    expect_equal(kept, prompt, "the caller's prompt was changed: build a new list", where="prompt_ids")


# 00.3


def steps_of(*seconds: float) -> list[Step]:
    """Steps that took so long; the first one read a prompt of 8 tokens."""
    return [Step(token_id=40 + i, logprob=-1.0, top=(), seconds=s, positions=1 if i else 8)
            for i, s in enumerate(seconds)]


def check_latency(attempt: Callable) -> None:
    def expect_latency(seconds: tuple[float, ...], ttft: Fraction, itl: Fraction, rate: Fraction,
                       *likely: str) -> None:
        got = attempt(steps_of(*seconds))
        expect_equal(len(got), 3, "return three numbers: ttft_s, itl_s, tokens_per_s", where="len(result)")
        for name, value, right, why in zip(("ttft_s", "itl_s", "tokens_per_s"), got, (ttft, itl, rate), likely):
            expect_close(value, right, why, where=name)

    half = Fraction(1, 2)
    expect_latency(
        (0.5, 0.125, 0.125, 0.25), half, Fraction(1, 6), Fraction(4),
        "the first token comes with the first step: its whole time, not divided by the prompt's tokens",
        "the mean over the steps after the first: prefill is no gap between tokens, and three gaps are "
        "divided by three",
        "new tokens, each step gives one, over the time of all steps, prefill included")
    expect_latency(
        (0.25, 0.125, 0.125, 1.5), Fraction(1, 4), Fraction(7, 12), Fraction(2),
        "the first step, not the slowest one", "the mean, not the median: a slow step is felt too",
        "tokens over the sum of all seconds, not the mean of the steps' own rates")
    expect_latency(
        (0.5,), half, Fraction(0), Fraction(2), "one step is enough for a time to first token",
        "with one step there is no gap: 0.0, not an error", "one token over half a second")


EXERCISES = (
    Exercise(
        "00.1", "put the stages in order", stage_order, check_stage_order, minutes=5, kind="predict",
        difficulty="warm-up", hints=(
            "What does each stage need that another one makes: text, ids, vectors, scores, one id?",
            "Text becomes ids, ids become vectors; the vectors meet each other before each is worked on.",
            "tokenize and embed come first, choose and detokenize last; score stands right before choose.",
        )),
    Exercise(
        "00.2", "mend the loop with a cache", greedy_with_cache, check_greedy_with_cache, minutes=15,
        kind="find the bug", hints=(
            "Print the shape of what goes into the model at each step. What does the cache already hold?",
            "After the first call the cache holds the prompt: hand over the newest id alone.",
            "Keep two lists: `ids`, what the model gets next, and `new_ids`, what is returned; after each "
            "step ids = [the chosen id].",
        )),
    Exercise(
        "00.3", "find where the time goes", latency, check_latency, minutes=10, hints=(
            "Which step makes the reader wait before anything appears? Which ones follow each other on "
            "the screen?",
            "steps[0].seconds is the time to first token; the others are the gaps.",
            "The mean gap is sum(later) / len(later), 0.0 if there is none; the rate is "
            "len(steps) / sum of all seconds.",
        )),
)
