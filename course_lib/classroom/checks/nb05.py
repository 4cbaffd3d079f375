"""Checks of notebook 05, Training and inference. Expected values are logarithms and fractions worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, expect_number, show
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
                "e to the 1000 overflows: take the largest score m out first, ln(sum) = m + ln(sum of e^(s - m))")
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
        try:
            loss = attempt(logits, torch.tensor(ids))
        except RuntimeError as error:
            if "view size" not in str(error):
                raise
            raise CheckFailed(f"{expected:g}", "RuntimeError: view size is not compatible", "result does not come",
                              "a slice such as ids[:, 1:] skips numbers in memory, which view cannot do: take flatten "
                              "or reshape, which copy where they must") from error
        expect_close(loss, torch.tensor(expected), likely, atol=1e-5)

    expect_loss(knowing([5, 1, 4]), [[5, 5, 1, 4]], 0.0,
                "a perfect predictor has no loss: logits[:, t] are about ids[:, t + 1], so the labels are the ids "
                "without the first (labels without the last one instead would give 33.3). The logits are already one "
                "shorter than ids; labels that are shifted twice would give 50")
    expect_loss(knowing([5, 3, 1]), [[5, 3, 1, 4]], 50.0,
                "a parrot that repeats its input is wrong everywhere, by 50: an off-by-one rewards it, and a sum grows "
                "with the text")
    expect_loss(knowing([3, 1, 0]), [[5, 3, 1, 4]], 50 / 3,
                "the last position predicts the last id; the mean is over all three positions")
    expect_loss(knowing([3, 1, 4]), [[5, 3, 1, 6]], 50 / 3, "the ids are an argument: other labels, another loss")
    expect_loss(knowing([3]), [[5, 3]], 0.0, "two tokens make one prediction, and this one is perfect")
    expect_loss(knowing([3, 1, 4], [2, 6, 0]), [[5, 3, 1, 4], [0, 2, 6, 0]], 0.0,
                "rows of the batch stay apart: flatten (B, T, V) to (B * T, V) and the labels alike")
    expect_loss(torch.zeros(2, 3, 7), [[5, 3, 1, 4], [0, 2, 6, 0]], math.log(7),
                "the loss of equal scores is ln(V), the mean over B * T positions in nats")
    scores = torch.tensor([[[0.0, 1.0, 3.0, -2.0]]])  # bfloat16 holds them exactly
    expect_loss(scores.bfloat16(), [[0, 1]], -scores.double().log_softmax(-1)[0, 0, 1].item(),
                "turn logits in bfloat16 into float32 first, for bfloat16 keeps fewer than three digits of a loss")
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


def training_bytes(trained: int, frozen: int) -> int:
    """Bytes that training with AdamW keeps for its parameters, all in float32; activations are not counted.

    Args:
        trained: parameters that are updated: weight, gradient, mean and mean square of the gradients.
        frozen: parameters that are only read.
    """
    return 16 * trained + 4 * frozen


def check_training_bytes(attempt: Callable) -> None:
    def expect_bytes(trained: int, frozen: int, expected: int, likely: str) -> None:
        expect_equal(attempt(trained, frozen), expected, likely, where="bytes")

    expect_bytes(1, 0, 16, "a trained parameter keeps four numbers of four bytes each: the weight, its gradient and "
                           "two running means")
    expect_bytes(0, 1, 4, "a frozen parameter is only read: no gradient and no running means, only its own four bytes")
    expect_bytes(1000, 30, 16_120, "the two kinds add up")
    expect_bytes(7_000_000_001, 1_000_000_007, 116_000_000_044, "the numbers may be large, and every digit counts")
    expect_bytes(0, 0, 0, "nothing costs nothing")


# 05.5


def adamw_step(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: int,
               lr: float) -> tuple[Tensor, Tensor, Tensor]:
    """One step of AdamW (Loshchilov & Hutter 2019), with PyTorch's usual constants; new tensors are returned.

    Args:
        weight, gradient: of any one shape.
        mean, square: the running means of the gradient and of its square, 0 before the first step.
        step: 1 for the first.
        lr: the learning rate.
    """
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient.square()
    fair_mean, fair_square = mean / (1 - 0.9**step), square / (1 - 0.999**step)
    return weight * (1 - 0.01 * lr) - lr * fair_mean / (fair_square.sqrt() + 1e-8), mean, square


def check_adamw_step(attempt: Callable) -> None:
    def expect_step(given: tuple[list[float], ...], step: int, lr: float, expected: dict[str, list[float]],
                    likely: str) -> None:
        got = attempt(*(torch.tensor(numbers, dtype=torch.float64) for numbers in given), step, lr)
        got = expect_three(got)
        for name, numbers in expected.items():
            expect_close(got[name], torch.tensor(numbers, dtype=torch.float64), likely, atol=1e-9, where=name)

    expect_step(([0.0], [3.0], [2.0], [0.0], ), 4, 0.1, {"mean": [2.1]},
                "the new mean is 0.9 of the old one and 0.1 of the gradient; return it without the correction")
    expect_step(([0.0], [3.0], [0.0], [2.0]), 4, 0.1, {"square": [2.007]},
                "the new square is 0.999 of the old one and 0.001 of the squared gradient; return it without "
                "the correction")
    expect_step(([2.0], [0.0], [0.0], [0.0]), 1, 0.1, {"weight": [1.998]},
                "with no gradient the weight only decays, by lr * 0.01 of itself; the decay is no part of the gradient")
    expect_step(([0.0, 0.0], [0.5, -200.0], [0.0, 0.0], [0.0, 0.0]), 1, 0.1, {"weight": [-0.1, 0.1]},
                "the first step is as long as the learning rate, whatever the gradient: both means are divided by "
                "1 - beta**step, and the second goes under a square root; the decay is taken from the old weight")
    expect_step(([0.0], [0.0], [0.1], [0.004]), 3, 1.0,
                {"weight": [-(0.09 / 0.271) / (math.sqrt(0.003996 / 0.002997001) + 1e-8)]},
                "what moves the weight is the running mean, each mean corrected with the number of this step")
    expect_step(([0.0], [1e-8], [0.0], [0.0]), 1, 1.0, {"weight": [-0.5]},
                "1e-8 is added after the square root, to keep a zero out of the denominator")
    follow_pytorch(attempt)


def expect_three(got: Any) -> dict[str, Any]:
    """The results by name.

    Raises:
        CheckFailed: they are not three.
    """
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise CheckFailed("a tuple of three tensors", show(got), "result is no tuple of three tensors",
                          "return weight, mean, square: the optimizer needs both means again at the next step")
    return dict(zip(("weight", "mean", "square"), got))


def follow_pytorch(attempt: Callable) -> None:
    """Six steps beside `torch.optim.AdamW`, with a new gradient and a new learning rate at each."""
    start, gradients = random(2, 3), random(6, 2, 3)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=1.0)
    state = {"weight": start, "mean": torch.zeros_like(start), "square": torch.zeros_like(start)}
    for step, gradient in enumerate(gradients, 1):
        optimizer.param_groups[0]["lr"], theirs.grad = 0.3 / step, gradient.clone()
        optimizer.step()
        state = expect_three(attempt(state["weight"], gradient, state["mean"], state["square"], step, 0.3 / step))
        expect_close(state["weight"], theirs.detach(), f"step {step} of six beside torch.optim.AdamW, each weight with "
                     "its own means", where="weight", atol=1e-9)


EXERCISES = (
    Exercise(
        "05.1", "cross-entropy from scores", cross_entropy, check_cross_entropy, minutes=10, hints=(
            "Write -ln(e^a / (e^a + e^b + ...)) as a difference of two logarithms before you write code.",
            "The loss of one row is ln(sum of e^s) - row[target]. In the first part, subtract the row's largest score "
            "m before e^, and add it after the logarithm; amax(dim=-1, keepdim=True) finds m for every row.",
            "torch.logsumexp does that first part. Row n wants column targets[n]: index with "
            "torch.arange(len(targets)) and targets together, then mean().",
        )),
    Exercise(
        "05.2", "line labels up with predictions", next_token_loss, check_next_token_loss, minutes=5,
        kind="find the bug", hints=(
            "Write three ids on paper, and under each the token that the model should say after reading it.",
            "logits belong to ids[:, :-1], so position t has read ids[:, : t + 1]; which column is it about?",
            "The labels are ids without the first column. Flatten both to one row per position, make the logits "
            "float(), and take F.cross_entropy.",
        )),
    Exercise(
        "05.3", "a schedule with warm-up", learning_rate, check_learning_rate, minutes=5, hints=(
            "Two straight lines and a ceiling: which of the three is lowest at each step?",
            "rise = (step + 1) / warmup_steps, fall = (steps - step) / (decay_fraction * steps).",
            "peak_lr times the least of 1, rise and fall; max(..., 1) in both denominators keeps zero out of them.",
        )),
    Exercise(
        "05.4", "bytes to train a parameter", training_bytes, check_training_bytes, minutes=5, kind="predict",
        difficulty="warm-up", hints=(
            "To use a weight you need the weight. What else does one step of AdamW read?",
            "A float32 number is four bytes; a gradient is as large as its weight, and so is each running mean.",
            "Trained: weight, gradient and two running means. Frozen: the weight alone. Add up both kinds.",
        )),
    Exercise(
        "05.5", "one step of AdamW", adamw_step, check_adamw_step, minutes=20, difficulty="stretch", hints=(
            "Update both running means first; the rest reads the new ones. At step 1 the mean is 0.1 of the gradient: "
            "what must you divide by to get the gradient?",
            "Divide the mean by 1 - 0.9**step, and the square by 1 - 0.999**step. Return them as they were before.",
            "The decay subtracts lr * 0.01 times the old weight, beside the step and not within it.",
        )),
)
