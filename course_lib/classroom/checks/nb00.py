"""Checks of notebook 00, From Enter to the first word. Expected values are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor, nn

from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, misfit, show
from course_lib.generate import Step, latency

STAGES = ("tokenize", "embed", "attend", "feed forward", "score", "choose", "detokenize")
CALLS_ALLOWED = 40  # of the counting model, far above the four that a right answer needs
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


class CountingModel(nn.Module):
    """Scores highest the id (3 * sum of all ids so far + how many) mod 997, and notes what it was given.

    The lowest score has the largest size. It offers what the notebook uses of a model: eval(), parameters() and
    an embedding, beside the call.
    """

    vocab_size = 997

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(self.vocab_size, 1)
        self.calls: list[list[int]] = []
        self.kv_cache = CountedPositions()

    def __repr__(self) -> str:
        return "<model>"

    def forward(self, input_ids: Tensor, *, kv_cache: object = None, logits_to_keep: int = 0) -> Tensor:
        if kv_cache is not self.kv_cache:
            raise ValueError("called without the kv_cache that was given: what the model has read would be lost")
        if input_ids.dim() != 2:
            raise ValueError(f"ids of shape {tuple(input_ids.shape)} are not allowed: must be (1, T)")
        new = input_ids[0].tolist()
        self.calls.append(new)
        if len(self.calls) > CALLS_ALLOWED:
            raise ValueError(f"called more than {CALLS_ALLOWED} times for {len(self.calls[0])} ids and a few new ones: "
                             "does the loop end?")
        before, held = len(kv_cache.held), kv_cache.held + new
        kv_cache.held = held
        best = torch.tensor([(3 * sum(held[:end]) + end) % self.vocab_size
                             for end in range(before + 1, len(held) + 1)])
        one_hot = nn.functional.one_hot(best, self.vocab_size).float()  # (T, V)
        return (one_hot - 9 * one_hot.roll(1, -1))[None, -logits_to_keep:]  # (1, T, V)


class CountedPositions:
    """A cache that holds ids; its length is asked for as that of a cache of `course_lib`."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def get_seq_length(self) -> int:
        """How many positions it holds."""
        return len(self.held)


def sizes(calls: list[list[int]]) -> str:
    """How many ids each call was given, in words that cannot be taken for ids."""
    return "calls with " + ", ".join(str(len(call)) for call in calls) + " ids"


def check_greedy_with_cache(attempt: Callable) -> None:
    # by hand: 3*18+3=57; 3*75+4=229; 3*304+5=917; 3*1221+6=3669, less 3*997: 678
    cases = (([5, 11, 2], [57]), ([5, 11, 2], [57, 229, 917, 678]), ([7], [22, 89]))
    for prompt, expected in cases:
        model = CountingModel()
        got = attempt(model, list(prompt), len(expected), model.kv_cache)
        expect_equal(model.calls[:1], [prompt], "prefill: the whole prompt goes through the model at once",
                     where="ids given to the first call")
        expect_equal(sizes(model.calls), sizes([prompt] + [[0]] * (len(expected) - 1)),
                     "every id goes through the model once: after prefill only the id just chosen, and the "
                     "last one chosen not at all", where="what the model was called with")
        expect_equal(got, expected, "the next id is the argmax of the last position's logits, [0, -1] of "
                                    "(1, T, V), and only the n new ids are returned")


# 00.3


def steps_of(*seconds: float) -> list[Step]:
    """Steps that took so long; the first one read a prompt of 8 tokens."""
    return [Step(token_id=40 + i, logprob=-1.0, top=(), seconds=s, positions=1 if i else 8)
            for i, s in enumerate(seconds)]


def check_latency(attempt: Callable) -> None:
    def expect_latency(seconds: tuple[float, ...], ttft: Fraction, itl: Fraction, rate: Fraction,
                       *likely: str) -> None:
        try:
            got = attempt(steps_of(*seconds))
        except ZeroDivisionError as error:
            raise CheckFailed(show(tuple(map(float, (ttft, itl, rate)))), f"ZeroDivisionError: {error}",
                              "result does not come", likely[1]) from error
        if not isinstance(got, tuple | list) or len(got) != 3:
            raise CheckFailed("a tuple of three numbers", show(got), "result is no tuple of three numbers",
                              misfit(got, ()) or "return three numbers: ttft_s, itl_s, tokens_per_s")
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
        (0.5, 1.5), half, Fraction(3, 2), Fraction(1), "the first step", "two steps have one gap: divide by n - 1",
        "two tokens over two seconds")
    expect_latency(
        (0.1, 0.3, 0.2, 0.7, 0.1, 0.1), Fraction(1, 10), Fraction(7, 25), Fraction(4),
        "the first step alone", "the mean of all gaps, five of them here", "n tokens over the sum of all seconds")
    expect_latency(
        (0.5,), half, Fraction(0), Fraction(2), "one step is enough for a time to first token",
        "with one step there is no gap: 0.0, not an error", "one token over half a second")


EXERCISES = (
    Exercise(
        "00.1", "put the stages in order", stage_order, check_stage_order, minutes=4, kind="predict",
        difficulty="warm-up", hints=(
            "What does each stage need that another one makes: text, ids, vectors, scores, one id?",
            "Text becomes ids, ids become vectors; the vectors meet each other before each is worked on.",
            "tokenize and embed come first, choose and detokenize last; score stands right before choose.",
        )),
    Exercise(
        "00.2", "fix the loop with a cache", greedy_with_cache, check_greedy_with_cache, minutes=15,
        kind="find the bug", hints=(
            "Print the shape of what goes into the model at each step. What does the cache already hold?",
            "After the first call the cache holds the prompt: pass on the newest id alone.",
            "Keep two lists: `ids`, what the model gets next, and `new_ids`, what is returned; after each "
            "step ids = [the chosen id].",
        )),
    Exercise(
        "00.3", "find where the time goes", latency, check_latency, minutes=10, difficulty="stretch", hints=(
            "Which step makes the reader wait before anything appears? Which ones follow each other on "
            "the screen?",
            "steps[0].seconds is the time to first token; the others are the gaps.",
            "The mean gap is sum(later) / len(later), 0.0 if there is none; the rate is "
            "len(steps) / sum of all seconds.",
        )),
)
