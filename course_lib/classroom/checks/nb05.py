"""Checks of notebook 05, Training and inference. Expected values are logarithms and fractions worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, expect_number
from course_lib.training.train import TrainConfig, learning_rate, next_token_loss


def random(*shape: int) -> Tensor:
    """Normal numbers in float64, the same on every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def loss_of(scores: list[float], target: int) -> float:
    """-ln(probability of the target), in Python floats."""
    return math.log(math.fsum(math.exp(score) for score in scores)) - scores[target]


# 05.1


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -ln(probability of the target), in nats; the probabilities are the softmax of each row.

    Args:
        logits: (N, V), raw scores.
        targets: (N,), the column that was right.
    """
    rows = torch.arange(len(targets), device=targets.device)
    return (logits.logsumexp(dim=-1) - logits[rows, targets]).mean()


def check_cross_entropy(attempt: Callable) -> None:
    odds = torch.tensor([[1.0, 2.0, 5.0], [3.0, 1.0, 6.0]]).double()  # 8 and 10 in a row

    def expect_loss(logits: Tensor, targets: list[int], expected: float, likely: str) -> None:
        expect_close(attempt(logits, torch.tensor(targets)), torch.tensor(expected, dtype=logits.dtype), likely)

    expect_loss(odds[:1].log(), [2], math.log(8 / 5),
                "one row: minus the natural logarithm of the probability 5/8, a tensor without dimensions")
    expect_loss(odds[:1].log() + 7, [0], math.log(8),
                "the target's column decides, not the highest score; and scores that are all higher by 7 "
                "have the same softmax")
    expect_loss(odds.log(), [2, 1], (math.log(8 / 5) + math.log(10)) / 2,
                "the mean over the rows, each with its own softmax along the last dimension and its own target")
    expect_loss(torch.tensor([[1000.0, 0.0, 0.0]]), [0], 0.0,
                "e to the 1000 overflows: torch.logsumexp subtracts the largest score first")
    expect_loss(torch.tensor([[1000.0, 0.0], [0.0, 0.0]]), [0, 1], math.log(2) / 2,
                "each row needs its own maximum: after subtracting the largest score of all rows the second row's "
                "exponentials are all 0, and the logarithm of their sum is -inf")
    expect_loss(torch.tensor([[0.0, 200.0]]), [0], 200.0,
                "a probability of e to the -200 is 0 in float32 and its logarithm infinite: stay with logarithms, "
                "log of the sum minus the score, and add nothing to the probability")
    expect_loss(torch.tensor([[1000.0, 0.0]]), [1], 1000.0,
                "a loss may be as large as the scores make it: cut nothing")
    many, targets = random(5, 300), [299, 0, 256, 17, 3]
    expect_loss(many, targets, math.fsum(loss_of(*row) for row in zip(many.tolist(), targets)) / 5,
                "each row with its own target, for any number of rows and of scores")
    logits = odds.log().requires_grad_()
    got = attempt(logits, torch.tensor([2, 1]))
    expect_equal(bool(getattr(got, "requires_grad", False)), True,
                 "training needs the gradient: no detach, no .item(), no float()", where="result.requires_grad")
    got.backward()
    wanted = torch.tensor([[1 / 8, 2 / 8, 5 / 8 - 1], [3 / 10, 1 / 10 - 1, 6 / 10]]).double() / 2
    expect_close(logits.grad, wanted, "the gradient is (probability - what happened) / rows", where="gradient")


# 05.2


def check_next_token_loss(attempt: Callable) -> None:
    def knowing(*rows: list[int]) -> Tensor:
        """Logits (B, T, 7) of a model that is sure of these tokens."""
        return 50.0 * torch.nn.functional.one_hot(torch.tensor(rows), 7).float()

    def expect_loss(logits: Tensor, ids: list[list[int]], expected: float, likely: str) -> None:
        expect_close(attempt(logits, torch.tensor(ids)), torch.tensor(expected), likely, atol=1e-5)

    expect_loss(knowing([3]), [[5, 3]], 0.0,
                "two tokens make one prediction, and this one is perfect: logits[:, t] are about ids[:, t + 1], and "
                "logits are already one shorter than ids")
    expect_loss(knowing([3, 1, 4]), [[5, 3, 1, 4]], 0.0,
                "a perfect predictor has no loss: the labels are the ids without the first, not shifted twice")
    expect_loss(knowing([5, 3, 1]), [[5, 3, 1, 4]], 50.0,
                "who repeats its input is wrong everywhere, by 50: an off-by-one rewards it, and a sum grows with "
                "the text")
    expect_loss(knowing([3, 1, 0]), [[5, 3, 1, 4]], 50 / 3,
                "the last position predicts the last id; the mean is over all three positions")
    expect_loss(knowing([3, 1, 4]), [[5, 3, 1, 6]], 50 / 3, "the ids are an argument: other labels, another loss")
    expect_loss(knowing([3, 1, 4], [2, 6, 0]), [[5, 3, 1, 4], [0, 2, 6, 0]], 0.0,
                "rows of the batch stay apart: flatten (B, T, V) to (B * T, V) and the labels alike")
    expect_loss(torch.zeros(2, 3, 7), [[5, 3, 1, 4], [0, 2, 6, 0]], math.log(7),
                "the loss of equal scores is ln(V), the mean over B * T positions in nats")
    scores = torch.tensor([[[0.0, 1.0, 3.0, -2.0]]])  # bfloat16 holds them exactly
    expect_loss(scores.bfloat16(), [[0, 1]], -scores.double().log_softmax(-1)[0, 0, 1].item(),
                "logits in bfloat16 are made float32 first: with 8 bits the loss is no use to an optimizer")
    scores, ids = random(2, 3, 300).float(), [[5, 299, 0, 256], [0, 7, 260, 6]]
    losses = [loss_of(scores[b, t].tolist(), ids[b][t + 1]) for b in range(2) for t in range(3)]
    expect_loss(scores, ids, math.fsum(losses) / 6, "every prediction has its own loss: the mean over all rows and "
                "positions, for any number of them")
    scores = torch.zeros(2, 2, 4, requires_grad=True)
    got = attempt(scores, torch.tensor([[0, 1, 2], [3, 3, 0]]))
    expect_equal(bool(getattr(got, "requires_grad", False)), True,
                 "training needs the gradient: no detach, no .item(), no way through Python numbers or lists",
                 where="result.requires_grad")
    got.backward()
    right = torch.nn.functional.one_hot(torch.tensor([[1, 2], [3, 0]]), 4)
    expect_close(scores.grad, (0.25 - right) / 4, "the gradient is (probability - what happened) / (B * T)",
                 where="gradient")


# 05.3


class Schedule(TrainConfig):
    """Settings that show what a schedule depends on, and no more."""

    def __repr__(self) -> str:
        return (f"TrainConfig(steps={self.steps}, peak_lr={self.peak_lr:g}, warmup_steps={self.warmup_steps}, "
                f"decay_fraction={self.decay_fraction:g})")


def check_learning_rate(attempt: Callable) -> None:
    def expect_rate(step: int, expected: Fraction | float, likely: str, **settings: float) -> None:
        config = Schedule(**({"steps": 20, "peak_lr": 8.0, "warmup_steps": 4, "decay_fraction": 0.5} | settings))
        try:
            rate = attempt(step, config)
        except ZeroDivisionError as error:
            raise CheckFailed(f"{float(expected):g}", f"ZeroDivisionError: {error}", "result does not come",
                              "a denominator below 1 counts as 1") from error
        expect_number(rate, float(expected), likely, atol=1e-12)

    expect_rate(0, 2, "the first step, step 0, already learns: (step + 1) / warmup_steps of the peak")
    expect_rate(2, 6, "the rise is linear, and its end is peak_lr")
    expect_rate(3, 8, "with warmup_steps = 4 the fourth step, step 3, has reached peak_lr")
    expect_rate(9, 8, "between rise and fall the rate is peak_lr")
    expect_rate(15, 4, "the fall is linear over the last decay_fraction * steps: (steps - step) divided by that many")
    expect_rate(19, Fraction(8, 10), "the last step, step 19 of 20, still learns: zero would come after it")
    expect_rate(0, 8, "no warm-up starts at the peak; dividing by zero does not", warmup_steps=0)
    expect_rate(19, 8, "decay_fraction = 0 means no fall, not a division by zero", decay_fraction=0.0)
    expect_rate(8, Fraction(64, 10), "decay_fraction * steps is 2.5 here, and stays so: no int, no rounding",
                steps=10, decay_fraction=0.25)
    expect_rate(9, 8, "decay_fraction * steps is half a step here: a denominator below 1 counts as 1", steps=10,
                decay_fraction=0.05)
    expect_rate(12, Fraction(8 * 8, 20), "where rise and fall overlap the lower one counts: the least of 1, rise and "
                "fall, not their product", warmup_steps=16, decay_fraction=1.0)
    expect_rate(1, 1.5, "peak_lr scales everything", peak_lr=3.0)
    small = {"steps": 1000, "warmup_steps": 300, "decay_fraction": 0.3, "peak_lr": 6e-4}
    floor = "nothing but the card's three numbers: no least rate, and no rounding"
    expect_rate(0, 6e-4 / 300, floor, **small)
    expect_rate(999, 6e-4 / 300, floor, **small)
    expect_rate(800, 6e-4 * 2 / 3, "the fall is linear, whatever the settings", **small)


# 05.4


def training_bytes(matrices: int, others: int) -> int:
    """Bytes that training keeps for its parameters, all in float32; activations are not counted.

    Args:
        matrices: parameters that Muon trains: weight, gradient, momentum.
        others: parameters that AdamW trains: weight, gradient, mean and mean square of the gradients.
    """
    return 4 * (3 * matrices + 4 * others)


def check_training_bytes(attempt: Callable) -> None:
    def expect_bytes(matrices: int, others: int, expected: int, likely: str) -> None:
        expect_equal(attempt(matrices, others), expected, likely, where="bytes")

    expect_bytes(1, 0, 12, "Muon keeps three numbers for a parameter, of four bytes each: the weight, its gradient "
                           "and one momentum")
    expect_bytes(0, 1, 16, "AdamW keeps four numbers for a parameter, of four bytes each: the weight, its gradient "
                           "and two running means")
    expect_bytes(1000, 30, 12_480, "the two kinds add up")
    expect_bytes(7_000_000_000, 1_000_000_000, 100_000_000_000, "the numbers may be large, and every digit counts")
    expect_bytes(0, 0, 0, "nothing costs nothing")


EXERCISES = (
    Exercise(
        "05.1", "cross-entropy from scores", cross_entropy, check_cross_entropy, minutes=10, hints=(
            "Write -ln(e^a / (e^a + e^b + ...)) as a difference of two logarithms before you write code.",
            "The loss of one row is logsumexp(row) - row[target]; torch.logsumexp does not overflow.",
            "Row n wants column targets[n]: index with torch.arange(len(targets)) and targets together, then mean().",
        )),
    Exercise(
        "05.2", "line labels up with predictions", next_token_loss, check_next_token_loss, minutes=10,
        kind="find the bug", hints=(
            "Write three ids on paper, and under each the token that the model should say after reading it.",
            "logits belong to ids[:, :-1], so position t has read ids[:, : t + 1]; which column is it about?",
            "The labels are ids without the first column. Flatten both to one row per position, make the logits "
            "float(), and take F.cross_entropy.",
        )),
    Exercise(
        "05.3", "a schedule with warm-up", learning_rate, check_learning_rate, minutes=10, hints=(
            "Two straight lines and a ceiling: which of the three is lowest at each step?",
            "rise = (step + 1) / warmup_steps, fall = (steps - step) / (decay_fraction * steps).",
            "peak_lr times the least of 1, rise and fall; max(..., 1) in both denominators keeps zero out of them.",
        )),
    Exercise(
        "05.4", "bytes to train a parameter", training_bytes, check_training_bytes, minutes=5, kind="predict",
        difficulty="warm-up", hints=(
            "To use a weight you need the weight. What else does one step of the optimizer read?",
            "A float32 number is four bytes; a gradient is as large as its weight, and so is each running mean.",
            "Muon: weight, gradient, momentum. AdamW: weight, gradient, two moments. Add up for both kinds.",
        )),
)
