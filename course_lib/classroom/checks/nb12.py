"""Checks of notebook 12, Speculative decoding. What is expected is written by hand, in numbers that floats hold."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from numbers import Real

import torch

from course_lib.classroom.broken_verifiers import MISTAKES
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import (
    CheckFailed,
    expect_close,
    expect_diagnosis,
    expect_equal,
    expect_number,
    show,
)
from course_lib.speculative import accept, expected_tokens, residual, verify

# 12.1


def check_accept(attempt: Callable) -> None:
    def expect_stays(p: float, q: float, uniform: float, stays: bool, likely: str) -> None:
        got = attempt(p, q, uniform)
        if isinstance(got, Real) and not isinstance(got, bool):
            raise CheckFailed(show(stays), show(got), f"result is {show(got)}, expected a bool",
                              "return whether the token stays, True or False, and not how probable that is")
        expect_equal(got, stays, likely)

    expect_stays(0.5, 0.25, 0.99, True, "where the target gives the token more than the draft does, it always stays")
    expect_stays(0.25, 0.25, 0.99, True, "where both give the token the same, it always stays")
    expect_stays(0.25, 0.5, 0.25, True, "a token with half of the draft's probability stays in half of the cases: "
                                        "when uniform is below p / q")
    expect_stays(0.25, 0.5, 0.45, True, "uniform is compared with p / q = 0.5, and not with p")
    expect_stays(0.25, 0.5, 0.55, False, "p / q = 0.5, so a uniform of 0.55 rejects: an unlikely token does not "
                                         "always stay")
    expect_stays(0.125, 0.25, 0.75, False, "the share is p / q, and neither 1 - p / q nor q")
    expect_stays(0.25, 0.5, 0.5, False, "uniform lies in [0, 1), so that p / q of its values are *below* p / q: take <")
    expect_stays(0.0, 0.5, 0.0, False, "what the target never writes is never accepted, not even with uniform = 0")
    expect_stays(Fraction(1, 3), Fraction(1, 2), Fraction(13, 20), True, "fractions are numbers, too")
    expect_stays(Fraction(1, 3), Fraction(1, 2), Fraction(14, 20), False, "fractions are numbers, too")


# 12.2


def check_residual(attempt: Callable) -> None:
    def expect_left(p: list[float], q: list[float], left: list[float], likely: str,
                    dtype: torch.dtype = torch.float32) -> None:
        expect_close(attempt(torch.tensor(p, dtype=dtype), torch.tensor(q, dtype=dtype)),
                     torch.tensor(left, dtype=dtype), likely)

    expect_left([0.5, 0.375, 0.125], [0.25, 0.625, 0.125], [1, 0, 0],
                "only where p is above q is something left, p - q; everywhere else it is 0, and all sums to 1")
    expect_left([0.5, 0.25, 0.125, 0.125], [0.125, 0.125, 0.25, 0.5], [0.75, 0.25, 0, 0],
                "0.375 and 0.125 are left: divided by their sum, 0.5, they are 3/4 and 1/4")
    expect_left([0.0, 0.25, 0.75], [0.5, 0.0, 0.5], [0, 0.5, 0.5], "a probability of 0 is a number like any other")
    expect_left([0.25] * 2 + [0.5] + [0.0] * 97, [0.0] * 97 + [0.5] + [0.25] * 2, [0.25] * 2 + [0.5] + [0.0] * 97,
                "however long the vocabulary is")
    expect_left([0.25, 0.75], [0.25, 0.75], [0.25, 0.75],
                "where p equals q nothing is left, and 0 / 0 is no number: return p itself")
    expect_left([0.5, 0.5], [0.75, 0.25], [0, 1], "the type of p stays what it is", torch.float64)


# 12.3


def check_verify(attempt: Callable) -> None:
    def expect_tokens(p: list[list[float]], q: list[list[float]], proposal: list[int], uniforms: list[float],
                      tokens: list[int], likely: str) -> None:
        rows = torch.tensor(p), torch.tensor(q).reshape(len(q), len(p[0]))
        expect_equal(attempt(*rows, proposal, torch.tensor(uniforms, dtype=torch.float64)), tokens, likely)

    sure = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]]
    expect_tokens([sure[2], sure[1]], [sure[0]], [0], [0.5, 0.5], [2],
                  "the first proposal is rejected, and its replacement is the last token of this pass")
    expect_tokens([sure[0], sure[3]], [sure[0]], [0], [0.5, 0.5], [0, 3],
                  "all proposals stay, so a bonus token is drawn from the last row of p")
    expect_tokens([sure[0], sure[2], sure[2], sure[1]], [sure[0], sure[1], sure[2]], [0, 1, 2], [0.5] * 4, [0, 2],
                  "what follows a rejected token is thrown away, even where the rows agree: it was written after a "
                  "word that is not there")
    expect_tokens([[0.25, 0.75, 0, 0], sure[3]], [[0.5, 0, 0.5, 0]], [0], [0.375, 0.5], [0, 3],
                  "proposal i stays if uniforms[i] is below p_rows[i, token] / q_rows[i, token]")
    expect_tokens([[0.25, 0.5, 0.25, 0], sure[3]], [[0.5, 0, 0.25, 0.25]], [0], [0.75, 0.125], [1],
                  "a rejected token is replaced from the residual of its row, and not from p")
    expect_tokens([[0, 0.5, 0.25, 0.25], sure[3]], [sure[0]], [0], [0.0, 0.875], [3],
                  "the replacement is drawn with the last of the uniforms: each number is used once")
    expect_tokens([sure[0], [0.25, 0.25, 0.25, 0.25]], [sure[0]], [0], [0.25, 0.625], [0, 2],
                  "the bonus is drawn with the last of the uniforms, and not taken as the likeliest")
    expect_tokens([sure[1], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]], [sure[1], [0, 0, 1, 0]], [1, 2], [0.0, 0.75, 0.25],
                  [1, 1], "row i of p and row i of q belong to proposal i")
    expect_tokens([[0, 0.25, 0.75, 0]], [], [], [0.5], [2], "with no proposal, the one token is drawn from p")


# 12.4


def check_expected_tokens(attempt: Callable) -> None:
    def expect_mean(acceptance: float, k: int, expected: float, likely: str) -> None:
        try:
            got = attempt(acceptance, k)
        except ZeroDivisionError as error:
            raise CheckFailed(show(expected), "ZeroDivisionError", f"{error} for a = {acceptance:g}", likely) from error
        expect_number(got, expected, likely, rtol=1e-9, atol=1e-9)

    expect_mean(0.0, 4, 1, "with nothing accepted, each pass still writes one token: the replacement")
    expect_mean(1.0, 4, 5, "with everything accepted, a pass writes k proposals and the bonus; a closed formula "
                           "divides by 1 - a, which is 0 here")
    expect_mean(0.5, 1, 1.5, "one proposal: one token for certain, and a second with probability a")
    expect_mean(0.5, 2, 1.75, "a second proposal counts only if the first was accepted, too: a · a")
    expect_mean(0.5, 3, 1.875, "k proposals give the powers 0 to k of a, k + 1 of them")
    expect_mean(0.8, 0, 1, "without proposals a pass writes one token")
    expect_mean(0.25, 7, 1.33331298828125, "k proposals give the powers 0 to k of a, k + 1 of them")


# 12.5


def diagnosis() -> dict[str, str]:
    """The mistake of each verifier, by its short name."""
    return {"A": "no bonus", "B": "target again", "C": "greedy draft"}


EVIDENCE = {
    "A": "what it writes has the right shares, so nothing is wrong with accepting or replacing. What does it do less "
         "often than it should?",
    "B": "token 2 is written often enough by the proposals that stay, and then comes a second time: from where can a "
         "replacement bring it?",
    "C": "it never writes token 2. Which tokens does a draft like this one never propose?",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), MISTAKES, EVIDENCE)


EXERCISES = (
    Exercise(
        "12.1", "accept or reject", accept, check_accept, minutes=3, difficulty="warm-up", hints=(
            "The draft proposed the token with probability q. In how many of these cases may it stay, so that it is "
            "written with probability p?",
            "In p / q of them, and in all where p / q is above 1. A uniform number is below 0.3 in three cases of ten.",
            "Compare uniform with p / q. You need no min, since uniform is below 1.",
        )),
    Exercise(
        "12.2", "what the draft left over", residual, check_residual, minutes=5, hints=(
            "Take the picture: which part of p's bars sticks out over q's?",
            "p - q where that is positive, else 0: .clamp(min=0). Then make it sum to 1.",
            "Where p equals q, the sum is 0. Return p there, before you divide.",
        )),
    Exercise(
        "12.3", "verify a proposal", verify, check_verify, minutes=10, hints=(
            "Walk through the proposals with enumerate. At the first that is rejected, return what you have and its "
            "replacement.",
            "accept(p_rows[i, token], q_rows[i, token], uniforms[i]) decides. A draw takes a row of shape (1, V) and "
            "one number: draw(row[None], uniforms[-1:]).item().",
            "After a loop without a rejection all proposals stay, and the bonus is drawn from p_rows[-1].",
        )),
    Exercise(
        "12.4", "expected tokens in a pass", expected_tokens, check_expected_tokens, minutes=4, hints=(
            "How likely is it that at least the first i proposals are accepted?",
            "That is a to the power i, if each is accepted with probability a, whatever happened before. The mean "
            "number of accepted proposals is the sum of these over i = 1 ... k.",
            "And one more token comes in any case, which is a to the power 0.",
        )),
    Exercise(
        "12.5", "diagnose three verifiers", diagnosis, check_diagnosis, minutes=10, kind="find the bug",
        difficulty="stretch", hints=(
            "Work out by hand what a right verifier accepts, token by token, and how often it rejects.",
            "A verifier that writes the right shares has only one way left to be wrong: it writes too few tokens.",
            "For the two others, compare what they write too often with p, and with the likeliest token of q.",
        )),
)
