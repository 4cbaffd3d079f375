"""Checks of notebook 07, Sampling. Expected values are worked out by hand, in weights and exact fractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement
from math import inf
from typing import Any

import torch
from torch import Tensor

from course_lib.analysis.stats import count_limits, outside
from course_lib.classroom.broken_samplers import MISTAKES
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_diagnosis, expect_equal
from course_lib.config import SamplingParams
from course_lib.sampling import apply_penalties, apply_temperature, apply_top_k, sample

Weights = Sequence[float]
FALSE_ALARM = 1e-6  # of the one check that counts draws
N_DRAWS, WEIGHTS = 2000, (1, 9, 4, 2)
EXACT = {0: Fraction(0), 1: Fraction(81, 101), 2: Fraction(16, 101), 3: Fraction(4, 101)}  # at T = 0.5, min-p 0.04


def logits_of(*rows: Weights) -> Tensor:
    """Logits (B, V) in float32 whose softmax is proportional to the weights; a weight of 0 was removed."""
    return torch.tensor(rows, dtype=torch.float64).log().float()


def expect_dtype_kept(attempt: Callable, logits: Tensor, *settings: Any, **more: Any) -> None:
    """float64 stays float64, and several rows may share one row's memory, as in `row.expand(n, -1)`."""
    got = attempt(logits.double(), *settings, **more)
    expect_equal(str(getattr(got, "dtype", None)), "torch.float64",
                 "the result has the dtype of the logits: no .float(), and settings in logits.dtype",
                 where="dtype of the result for float64 logits")
    same = attempt(logits[:1].double().expand(len(logits), -1), *settings, **more)
    expect_close(same[:1], got[:1], "the rows may be one row expanded: read it, and write into something new",
                 where="first row of the result")


# 07.1


def check_apply_temperature(attempt: Callable) -> None:
    def expect_weights(rows: Sequence[Weights], temperature: list[float], expected: Sequence[Weights],
                       likely: str) -> None:
        check_softmax(attempt(logits_of(*rows), temperature), expected, likely)

    expect_weights([[1, 2, 5]], [1], [[1, 2, 5]],
                   "a temperature of 1 changes nothing, and what is returned are logits, not probabilities")
    expect_weights([[1, 2, 5]], [0.5], [[1, 4, 25]],
                   "divide by the temperature: 0.5 squares the weights (to multiply would take their root)")
    expect_weights([[1, 4, 9], [9, 4, 1], [1, 4, 9]], [2, 1, 0.5], [[1, 2, 3], [9, 4, 1], [1, 16, 81]],
                   "each row has its own temperature: make it a column of shape (B, 1). A shape of (B,) divides "
                   "column by column, and where B = V nobody complains")
    expect_weights([[2, 5, 5]], [0], [[0, 1, 0]],
                   "at temperature 0 one token is left, the largest, and the lowest id among equals; every other "
                   "logit is -inf")
    expect_weights([[1, 4, 9], [4, 9, 1]], [0, 2], [[0, 0, 1], [2, 3, 1]],
                   "a batch may mix greedy rows with others")
    check_softmax(attempt(torch.tensor([[10.0, 20.0]]), [1e-38]), [[0, 1]],
                  "logits / 1e-38 overflow to inf, and inf - inf is NaN in softmax: move the row's maximum to 0 "
                  "before dividing")
    removed = "what was removed before, a logit of -inf, stays removed, and nothing becomes NaN"
    expect_weights([[0, 2, 5], [0, 1, 3], [7, 0, 0]], [0, 0.5, 1e-38], [[0, 0, 1], [0, 1, 9], [1, 0, 0]], removed)
    expect_equal(attempt(logits_of([0, 2, 5]), [0.5])[0, 0].item(), -inf, removed, where="result[0, 0]")
    greedy = attempt(logits_of([2, 5, 3], [7, 1, 7]), [0, 0])
    expect_equal(greedy.isneginf().tolist(), [[True, False, True], [False, True, True]],
                 "at temperature 0 every other logit is -inf, and not just a low number", where="result == -inf")
    x = torch.tensor([[0.3, 2.0, -1.7, 4.1], [1.1, 0.2, 0.1, -5.0], [0.302, 0.301, 0.304, 0.3]],
                     dtype=torch.float64)
    temperatures = [0.3, 0.85, 0.002]
    got = attempt(x, temperatures)
    exact = [[(a - row[0]) / t for a in row] for row, t in zip(x.tolist(), temperatures)]
    expect_close(got - got[:, :1], torch.tensor(exact, dtype=torch.float64),
                 "0.3 has more digits in float64 than in float32: make the column with dtype=logits.dtype", rtol=1e-12,
                 atol=1e-12, where="differences from the first logit")
    many = [*range(1, 151)]
    expect_weights([many, many], [0.5, 0], [[w * w for w in many], [0] * 149 + [1]],
                   "each row has its own temperature, whatever the size of the vocabulary")
    given = logits_of([1, 2, 5])
    if attempt(given, [1]).data_ptr() == given.data_ptr():
        raise CheckFailed("a new tensor", "the given one, or a view of it", "result is the logits that were given",
                          "the result is new at a temperature of 1 as well: writing into it must not change logits")
    expect_dtype_kept(attempt, logits_of([1, 2, 5], [5, 1, 2]), [0.5, 0])


def check_softmax(got: Any, expected: Sequence[Weights], likely: str) -> None:
    """Refuse the result unless its softmax is proportional to the expected weights, row by row."""
    weights = torch.tensor(expected, dtype=torch.float64)
    comparable = isinstance(got, Tensor) and got.is_floating_point() and got.dim()
    try:
        expect_close(got.double().softmax(-1) if comparable else got, weights / weights.sum(-1, keepdim=True), likely,
                     where="softmax of the result")
    except CheckFailed as failed:
        raise CheckFailed(f"after softmax, {failed.expected}", f"after softmax, {failed.got}" if comparable
                          else failed.got, failed.where, failed.likely) from None


# 07.2 to 07.4: what a filter keeps


def expect_kept(attempt: Callable, logits: Tensor, setting: list[float], ids: Sequence[Sequence[int]],
                likely: str) -> None:
    """Refuse the result unless these ids keep their logits, row by row, and all others are -inf."""
    expected = torch.full_like(logits, -inf)
    for row, kept in enumerate(ids):
        expected[row, list(kept)] = logits[row, list(kept)]
    got = attempt(logits.clone(), setting)
    expect_close(got.to(logits) if isinstance(got, Tensor) and got.is_floating_point() else got, expected, likely)


def expect_exact_values(attempt: Callable, setting: list[float]) -> None:
    """Refuse the result unless what it keeps is the given number to the last bit, here in float64.

    Args:
        setting: three, each of which keeps the largest of three logits at least.
    """
    logits = torch.tensor([[0.1, 1 / 3, -7.3], [40 / 3, -0.7, 0.3], [-1 / 3, -0.1, -9.1]], dtype=torch.float64)
    got = attempt(logits, setting)
    kept = torch.where(got.isneginf(), got, logits) if isinstance(got, Tensor) else logits
    expect_close(got, kept, "what stays keeps its logit, to the last bit: mask the logits and compute no new ones",
                 rtol=0, atol=0)


def expect_exact_hits(attempt: Callable, cases: Sequence[tuple[Weights, float, int]], likely: str) -> None:
    """Refuse the result unless a descending row that meets its setting exactly keeps the given number of tokens.

    Rounding spares some rows and not others, and in each dtype others: hence many cases, in both.

    Args:
        cases: whole weights, the setting, and how many of the first tokens stay.
    """
    for dtype in (torch.float32, torch.float64):
        for row, setting, n in cases:
            logits = torch.tensor([row], dtype=torch.float64).log().to(dtype)
            weights = ", ".join(map(str, row))
            expect_kept(attempt, logits, [setting], [range(n)], f"{likely}; here the weights are {weights}")


def check_apply_top_k(attempt: Callable) -> None:
    def expect(rows: Sequence[Weights], k: list[int], ids: Sequence[Sequence[int]], likely: str) -> None:
        expect_kept(attempt, logits_of(*rows), k, ids, likely)

    expect([[5, 3, 2, 1]], [2], [[0, 1]],
           "the k largest logits do not change and every other becomes -inf; 0 would be a logit like any other")
    expect([[5, 3, 2, 1]], [1], [[0]], "k tokens stay: no more and no fewer")
    expect([[2, 5, 3]], [2], [[1, 2]],
           "the largest, wherever they are: places in sorted order are not ids. argsort lists the ids by place; you "
           "need the place of each id")
    expect([[2, 1, 5, 3]], [2], [[2, 3]], "the largest, wherever they are: places in sorted order are not ids")
    expect([[5, 3, 2, 1], [1, 2, 3, 5], [3, 5, 1, 2]], [1, 3, 2], [[0], [1, 2, 3], [0, 1]],
           "each row has its own k")
    expect([[1, 2, 2, 2, 3]], [3], [[1, 2, 4]],
           "ties at the border: exactly k stay, those with the lowest ids; a threshold at the k-th value keeps more")
    expect([[5, 3, 2], [1, 2, 3]], [0, 1], [[0, 1, 2], [2]], "k = 0 means off: everything stays")
    expect([[5, 3, 2], [1, 2, 3]], [3, 40], [[0, 1, 2], [0, 1, 2]],
           "k may be as large as the vocabulary, or larger: everything stays")
    expect([[0, 3, 0, 2]], [3], [[1, 3]], "what was removed before stays removed")
    expect([[7] * 150, [*range(1, 151)]], [120, 130], [range(120), range(20, 150)],
           "k may be large, and so may ties be")
    expect_exact_values(attempt, [2, 0, 40])
    expect_dtype_kept(attempt, logits_of([1, 2, 5, 3], [5, 1, 2, 3]), [2, 0])


# The first tokens of every row of four whole numbers up to 4, where their sum is some twentieths of the row's.
TOP_P_HITS = [(row, 20 * total // sum(row) / 20, n)
              for row in combinations_with_replacement((4, 3, 2, 1), 4)
              for n, total in enumerate(accumulate(row[:3]), 1) if 20 * total % sum(row) == 0]
MIN_P_HITS = [((whole, part), part / whole, 2) for whole in (10, 20) for part in range(1, whole)]


def apply_top_p(logits: Tensor, p: Sequence[float]) -> Tensor:
    """Keep the smallest set of likely tokens of each row whose probability reaches p; 1 keeps all.

    This is the card's rule to the letter, with its 1e-6; `course_lib.sampling` scales the slack with the logits.

    Args:
        logits: (B, V).
        p: B numbers in (0, 1].
    """
    order = logits.argsort(dim=-1, descending=True, stable=True)  # (B, V), ids by place
    probs = logits.double().softmax(-1).gather(-1, order)
    before = probs.cumsum(-1) - probs
    limit = torch.tensor(p, dtype=torch.float64, device=logits.device).view(-1, 1)
    kept = (before < limit - 1e-6) | (limit == 1)
    kept[:, 0] = True
    return logits.masked_fill(~kept.gather(-1, order.argsort(dim=-1)), -torch.inf)


def check_apply_top_p(attempt: Callable) -> None:
    def expect(rows: Sequence[Weights], p: list[float], ids: Sequence[Sequence[int]], likely: str) -> None:
        expect_kept(attempt, logits_of(*rows), p, ids, likely)

    crossing = ("the token that crosses p stays, and none after it: ask whether the probability before a token is "
                "below p, not whether the sum with it is")
    expect([[95, 3, 2]], [0.9], [[0]], crossing)
    expect([[5, 3, 2]], [0.7], [[0, 1]], crossing)
    expect([[2, 5, 3]], [0.7], [[1, 2]], "the mask belongs to the sorted order: bring it back to the order of ids")
    expect([[5, 3, 2], [2, 3, 5]], [0.4, 0.7], [[0], [1, 2]], "each row has its own p")
    expect([[1, 1, 1, 1, 1]], [0.5], [[0, 1, 2]],
           "of equally likely tokens those with the highest ids leave first: sort with stable=True")
    exact = "an exact hit has reached p: the 1e-6 is missing, and float sums end slightly below"
    expect([[5, 3, 2], [6, 3, 1]], [0.8, 0.9], [[0, 1], [0, 1]], exact)
    expect_exact_hits(attempt, TOP_P_HITS, exact)
    expect([[5, 3, 2]], [0.8001], [[0, 1, 2]], "allow 1e-6 and not more: 0.8 has not reached 0.8001")
    fine = torch.tensor([[5, 3, 2]] * 2, dtype=torch.float64).log()
    expect_kept(attempt, fine, [0.8 + 1.2e-6, 0.8 + 8e-7], [[0, 1, 2], [0, 1]],
                "a token stays if the probability before it is below p - 1e-6: allow that much, neither more nor less")
    expect([[1] * 150, [*range(1, 151)]], [0.9, 0.9], [range(135), range(47, 150)],
           "p may keep many tokens: the sum runs over the whole vocabulary")
    expect_exact_values(attempt, [0.5, 1, 0.999])
    expect([[5, 3, 2]], [1e-8], [[0]], "at least one token stays, however small p is")
    expect([[10**12, 10**3, 1]], [1], [[0, 1, 2]],
           "p = 1 keeps everything, also what a float sum no longer notices")
    expect([[5, 0, 5]], [1], [[0, 2]], "what was removed before stays removed")
    expect_dtype_kept(attempt, logits_of([1, 2, 5], [5, 1, 2]), [0.5, 1])


def apply_min_p(logits: Tensor, min_p: Sequence[float]) -> Tensor:
    """Keep the tokens of each row that are at least min_p times as likely as its likeliest, less a relative 1e-6.

    Args:
        logits: (B, V).
        min_p: B numbers in [0, 1].
    """
    probs = logits.double().softmax(-1)
    fraction = torch.tensor(min_p, dtype=torch.float64, device=logits.device).view(-1, 1)
    return logits.masked_fill(probs < fraction * probs.amax(-1, keepdim=True) * (1 - 1e-6), -torch.inf)


def check_apply_min_p(attempt: Callable) -> None:
    def expect(rows: Sequence[Weights], min_p: list[float], ids: Sequence[Sequence[int]], likely: str) -> None:
        expect_kept(attempt, logits_of(*rows), min_p, ids, likely)

    expect([[60, 30, 20, 10]], [0.4], [[0, 1]],
           "compare with min_p times the largest probability: 0.5, 0.25, 0.17, 0.08 against 0.4 x 0.5, not "
           "against 0.4. And compare probabilities, not logits")
    expect([[60, 30, 20, 10]], [0.2], [[0, 1, 2]], "min_p is an argument: a lower one keeps more")
    expect([[60, 30, 10], [40, 38, 22]], [0.4, 0.4], [[0, 1], [0, 1, 2]],
           "each row has its own largest probability: probs.amax(-1, keepdim=True), and not the one of the whole batch")
    expect([[10, 60, 40, 20], [20, 60, 40, 30]], [0.6, 0.45], [[1, 2], [1, 2, 3]], "each row has its own min_p")
    border = "a token exactly at the border stays: the 1e-6 is missing, and floats end slightly below"
    expect([[10, 5, 1], [10, 3, 1]], [0.5, 0.3], [[0, 1], [0, 1]], border)
    expect_exact_hits(attempt, MIN_P_HITS, border)
    expect([[1000, 499]], [0.5], [[0]], "allow a relative 1e-6 and not more: 0.499 is below 0.5")
    expect([[1] * 150, [*range(1, 151)]], [0.9, 0.2], [range(150), range(29, 150)], "min_p may keep many tokens")
    expect_exact_values(attempt, [0.5, 0, 0.01])
    fine = torch.tensor([[10**7, 5 * 10**6 - 4, 5 * 10**6 - 6]], dtype=torch.float64).log()
    expect_kept(attempt, fine, [0.5], [[0, 1]],
                "a token stays from min_p * largest * (1 - 1e-6) on: allow that much, neither more nor less")
    expect([[10**12, 10**3, 1]], [0], [[0, 1, 2]], "min_p = 0 is off: everything stays, and no log(0)")
    expect([[5, 5, 1]], [1], [[0, 1]], "min_p = 1 keeps the likeliest, and what is exactly as likely")
    expect([[100, 95, 98]], [0.97], [[0, 2]], "min_p may be high, and means what it says")
    expect([[5, 0, 4]], [0], [[0, 2]], "what was removed before stays removed")
    expect_dtype_kept(attempt, logits_of([1, 2, 5], [5, 1, 2]), [0.5, 0])


# 07.5


def check_apply_penalties(attempt: Callable) -> None:
    def expect(logits: Sequence[Weights], prompt: list[list[int]], output: list[list[int]],
               expected: Sequence[Weights], likely: str, *, repetition: Sequence[float] = (1, 1),
               presence: Sequence[float] = (0, 0), frequency: Sequence[float] = (0, 0)) -> None:
        n = len(logits)
        got = attempt(torch.tensor(logits), prompt, output, repetition_penalty=list(repetition[:n]),
                      presence_penalty=list(presence[:n]), frequency_penalty=list(frequency[:n]))
        expect_close(got, torch.tensor(expected), likely)

    expect([[2.0, 4.0, 6.0]], [[0]], [[1]], [[1.0, 2.0, 6.0]],
           "repetition looks at the prompt and at the output: positive logits of both are divided", repetition=[2])
    expect([[3.0, 5.0, 6.0]], [[0]], [[1]], [[0.75, 1.25, 6.0]],
           "the penalties are arguments, and so are the logits: positive ones are divided by 4 here", repetition=[4])
    expect([[-2.0, 4.0, 6.0]], [[0]], [[]], [[-4.0, 4.0, 6.0]],
           "a negative logit is multiplied: divided by 2, it would rise", repetition=[2])
    expect([[8.0, 4.0, 6.0]], [[0, 0]], [[0]], [[4.0, 4.0, 6.0]],
           "repetition counts a token once, however often it was there", repetition=[2])
    expect([[2.0, 4.0, 6.0]], [[0]], [[1, 1]], [[2.0, 3.5, 6.0]],
           "presence subtracts once from what is in the output, and the prompt does not count", presence=[0.5])
    expect([[2.0, 4.0, 6.0]], [[1]], [[2, 0, 2]], [[1.5, 4.0, 5.0]],
           "frequency subtracts once for each time that the token is in the output, and the prompt does not count",
           frequency=[0.5])
    expect([[4.0, 6.0]], [[]], [[0, 0]], [[0.25, 6.0]],
           "repetition comes first, then 1 for presence and 0.75 for frequency are subtracted: 4 / 2 - 1 - 0.75",
           repetition=[2], presence=[1], frequency=[0.375])
    expect([[2.0, 4.0, 6.0], [2.0, 4.0, 6.0]], [[0], [1]], [[2], [0, 0]], [[1.0, 4.0, 2.75], [-2.0, 1.0, 6.0]],
           "each row has its own ids and its own penalties", repetition=[2, 4], presence=[0.25, 0.5],
           frequency=[0, 1])
    expect([[2.0, 4.0]], [[]], [[]], [[2.0, 4.0]], "no ids, no penalty", repetition=[2], presence=[1])
    expect([[2.0, 4.0, -6.0]], [[2]], [[0, 1]], [[4.5, 8.5, -3.0]],
           "a setting may raise what was there: below 1 for repetition, below 0 for presence", repetition=[0.5],
           presence=[-0.5])
    large = [float(i % 7 - 3) for i in range(300)]
    changed = large.copy()
    changed[299], changed[256] = large[299] / 2 - 3 * 0.5, large[256] / 2
    expect([large], [[256, 299]], [[299, 299, 299]], [changed], "ids are as large as the vocabulary", repetition=[2],
           frequency=[0.5])
    expect_exact_penalties(attempt)
    expect([[-inf, 4.0]], [[0]], [[0]], [[-inf, 4.0]], "what was removed before stays removed", repetition=[2],
           presence=[1], frequency=[1])
    expect_dtype_kept(attempt, torch.tensor([[2.0, 4.0]]), [[0]], [[1]], repetition_penalty=[2.0],
                                presence_penalty=[1.0], frequency_penalty=[1.0])


def expect_exact_penalties(attempt: Callable) -> None:
    """Settings that no float is equal to, on float64 logits and of three rows, no two of which are alike."""
    logits = torch.tensor([[0.7, -1.3, 2.9], [3.1, 0.2, -0.4], [1.1, -2.2, 0.9]], dtype=torch.float64)
    r, p, f = [1.3, 1.7, 0.9], [0.1, 0.3, -0.7], [0.7, 0.1, 0.3]
    prompts, outputs = [[0], [], [2, 1]], [[1, 1], [0, 2, 2], []]
    expected = logits.tolist()
    for row, prompt, output, *settings in zip(expected, prompts, outputs, r, p, f):
        for i in {*prompt, *output}:
            row[i] = row[i] / settings[0] if row[i] > 0 else row[i] * settings[0]
            row[i] -= settings[1] * (i in output) + settings[2] * output.count(i)
    got = attempt(logits, prompts, outputs, repetition_penalty=r, presence_penalty=p, frequency_penalty=f)
    expect_close(got, torch.tensor(expected, dtype=torch.float64),
                 "1.3 has more digits in float64 than in float32: make the columns with dtype=logits.dtype", rtol=1e-12,
                 atol=1e-12)


# 07.6


def check_sample(attempt: Callable) -> None:
    def generator(seed: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    def draws(rows: list[Weights], params: list[SamplingParams], seeds: list[int], n: int) -> list[list[int]]:
        """n calls in a row, each with the same rows: a list of ids for each call."""
        generators = [generator(seed) for seed in seeds]
        return [attempt(logits_of(*rows), params, generators).tolist() for _ in range(n)]

    greedy, plain = SamplingParams(temperature=0), SamplingParams()
    expect_close(attempt(logits_of(*[[1, 3, 3, 2], [5, 1, 2, 4]] * 10), [greedy] * 20, [None] * 20),
                 torch.tensor([1, 0] * 10),
                 "a greedy row takes the largest logit, the lowest id among equals, and needs no generator")
    expect_close(attempt(logits_of([1, 2, 9]).double(), [SamplingParams(top_k=1)], [generator(8)]), torch.tensor([2]),
                 "logits may be float64, as those of this notebook are, and ids are integers all the same")
    expect_streams(draws, plain)
    both = draws([[4, 4, 4, 5], [4, 4, 4, 5]], [plain, SamplingParams(top_k=1)], [1, 2], 8)
    expect_equal([ids[1] for ids in both], [3] * 8, "each row has its own settings; or was `chain` left out?",
                 where="draws of row 1, top-k 1")
    kept = {ids[0] for ids in draws([[1, 1, 1, 1]], [SamplingParams(top_k=2)], [3], 60)}
    expect_equal(sorted(kept), [0, 1], "only what the filters keep is drawn, and all of it", where="ids drawn")
    first = {ids[0] for ids in draws([[20, 7, 3]], [SamplingParams(temperature=0.5, top_p=0.8)], [4], 60)}
    expect_equal(sorted(first), [0], "the order is penalties, temperature, top-k, top-p, min-p: at temperature 0.5 "
                                     "the first of 20, 7, 3 holds 87 %, before that 67 %", where="ids drawn")
    alone = [ids[0] for ids in draws([[1] * 1000], [plain], [5], 8)]
    one = generator(5)
    beside = [attempt(logits_of(*[[1] * 1000] * 2), [greedy, plain], [None, one])[1].item() for _ in alone]
    expect_equal(beside, alone, "generators[b] belongs to row b, also where the rows before it have none",
                 where="row 1 beside a greedy row")
    expect_distribution(attempt, generator(9))


def expect_streams(draws: Callable, plain: SamplingParams) -> None:
    """Each row draws from its own generator, which goes on from call to call."""
    flat = [1] * 1000
    alone = [ids[0] for ids in draws([flat], [plain], [5], 20)]
    expect_equal(len(set(alone)) > 10, True,
                 "20 draws among 1,000 equal tokens are nearly all different: draw, do not take the maximum; and a "
                 "generator goes on from call to call and is not seeded again", where="the draws differ")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        again = [ids[0] for ids in draws([flat], [plain], [5], 8)]
    expect_equal(again, alone[:8], "draw from the row's generator and from nothing else: the same seed, the same ids",
                 where="second run with the same seed")
    company = draws([flat] * 3, [plain, SamplingParams(temperature=0), plain], [5, 6, 7], 8)
    expect_equal([ids[0] for ids in company], alone[:8],
                 "one generator for each row: what a request draws does not depend on who is in the batch",
                 where="row 0 in company")
    expect_equal(max(alone) > 255, True, "every token of the vocabulary can be drawn", where="one of them is above 255")
    last = [ids[0] for ids in draws([flat], [plain], [7], 8)]
    expect_equal([ids[2] for ids in company], last, "row 2 draws from its own generator as well",
                 where="row 2 in company")


def expect_distribution(attempt: Callable, generator: torch.Generator) -> None:
    """2,000 draws have believable counts.

    A right sampler fails with probability 1e-6 at most; one that forgets the temperature or min-p, or that takes
    the likeliest token or any, passes with probability 1e-6 at most.
    """
    n, params = N_DRAWS, [SamplingParams(temperature=0.5, min_p=0.04)] * N_DRAWS
    drawn = attempt(logits_of(WEIGHTS).expand(n, -1), params, [generator] * n).tolist()
    limits = count_limits(EXACT, n, false_alarm=FALSE_ALARM)
    counts = {i: drawn.count(i) for i in EXACT}
    for i in outside(counts, limits):
        raise CheckFailed(f"between {limits[i][0]} and {limits[i][1]} times {i}", f"{counts[i]} times",
                          f"the count of token {i} in {n:,} draws", "draw each token as often as the softmax of the "
                          "filtered logits says: take u in [0, 1), and the first id at which the running sum exceeds u")


# 07.7


def diagnosis() -> dict[str, str]:
    """The mistake that explains every line of a sampler's output, by its short name, for each of the five."""
    return {"A": "ties", "B": "shared generator", "C": "top-p first", "D": "sign", "E": "too few"}


# What in the output of a sampler only one of the mistakes explains.
EVIDENCE = {
    "A": "of its lines only the one with top-k 2 is wrong, where tokens 1 and 2 are equally likely: count how many "
         "different tokens it draws there",
    "B": "every share is right, also those of two rows with different settings; but compare the ids that request 0 "
         "draws alone with those that it draws beside request 1",
    "C": "at temperature 0.5 with top-p 0.8 it draws a token too many, and the shares of the others fit the right "
         "temperature: which tokens hold 80 % before the temperature, and which after it?",
    "D": "only the line with the repetition penalty is wrong: token 1 was in the prompt, and is drawn more often "
         "than the model alone would",
    "E": "at temperature 0.5 with top-p 0.8 it draws one token only; that token holds 62 % and not 80 %",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), MISTAKES, EVIDENCE)


EXERCISES = (
    Exercise(
        "07.1", "temperature, a row at a time", apply_temperature, check_apply_temperature, minutes=10,
        hints=(
            "A list of B numbers becomes a column, torch.tensor(temperature, dtype=logits.dtype).view(-1, 1), which "
            "divides each row by its own.",
            "Subtract each row's maximum before you divide: softmax cannot tell, and nothing overflows. Rows at 0 need "
            "another way: divide those by 1 meanwhile.",
            "For the rows at 0 make a tensor of -inf and put the maximum back at argmax (scatter); torch.where chooses "
            "between the two by a column of booleans.",
        )),
    Exercise(
        "07.2", "exactly k tokens", apply_top_k, check_apply_top_k, minutes=10, difficulty="stretch", hints=(
            "Which place does each token have in its row when the row is sorted from the largest down?",
            "order = logits.argsort(dim=-1, descending=True, stable=True) lists ids by place, lowest id first among "
            "equals; order.argsort(dim=-1) is the place of each id.",
            "A token stays where its place is below k; read k = 0 as k = V, and use masked_fill with -inf.",
        )),
    Exercise(
        "07.3", "the smallest set that reaches p", apply_top_p, check_apply_top_p, minutes=15, difficulty="stretch",
        hints=(
            "Sort the probabilities downwards, with dim=-1 and stable=True. A token stays while the "
            "probability before it is below p.",
            "The probability before a token is cumsum - probs, in float64. Compare it with p - 1e-6, so that an exact "
            "hit counts. The first token stays on its own, because 0 is below every p that is not tiny.",
            "The mask is in sorted order: place = order.argsort(dim=-1), and mask.gather(-1, place) brings it back. "
            "Rows with p = 1 keep everything, and the first place always stays.",
        )),
    Exercise(
        "07.4", "relative to the likeliest", apply_min_p, check_apply_min_p, minutes=5, difficulty="warm-up",
        hints=(
            "One comparison per token: its probability against min_p times the largest one of its row.",
            "Make a column of thresholds of shape (B, 1); probs.amax(-1, keepdim=True) is a column, too.",
            "Remove where probs < min_p * largest * (1 - 1e-6); at min_p = 0 nothing is below 0.",
        )),
    Exercise(
        "07.5", "three penalties", apply_penalties, check_apply_penalties, minutes=15, difficulty="stretch", hints=(
            "Count first: how often is each id in a row's output, and is it in the prompt or the output at all?",
            "Make counts of shape (B, V), with torch.bincount of each row's ids and minlength=V. A token is seen where "
            "its prompt or output count is above 0.",
            "torch.where(logits > 0, logits / r, logits * r) where seen; then subtract presence * (counts > 0) and "
            "frequency * counts, with the settings as columns.",
        )),
    Exercise(
        "07.6", "the sampler", sample, check_sample, minutes=10, difficulty="stretch", hints=(
            "Filter all rows at once, then take the softmax; what is left differs from row to row only in the "
            "generator.",
            "torch.rand(1, generator=g) draws one number u; the token is the first id at which the running sum of "
            "the probabilities exceeds u. A row with temperature 0 skips this and takes argmax.",
            "torch.multinomial(probs[i], 1, generator=g) has the same distribution for one row, but not the same "
            "draws; either is right. Collect the ids in one tensor.",
        )),
    Exercise(
        "07.7", "five broken samplers", diagnosis, check_diagnosis, minutes=25, kind="find the bug",
        difficulty="stretch", hints=(
            "For each sampler find the lines that are marked: a mistake that has nothing to do with the settings of "
            "a marked line cannot explain it.",
            "Then ask which set of tokens is drawn: one too many, one too few, or the right ones in the wrong "
            "proportions? Work out by hand what each candidate would give.",
            "One of them draws every token in the right proportion and is still wrong: look at the ids, in order.",
        )),
)
