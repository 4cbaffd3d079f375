"""Checks of notebook 06, LM head and softmax. The oracle is loops over Python floats, or cases by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.analysis.logit_lens import logit_lens
from course_lib.analysis.surprisal import perplexity, pooled_perplexity
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import expect_close, expect_number, tensor_difference
from course_lib.config import ModelConfig
from course_lib.model import CausalLM

INF = math.inf


# 06.1


def softmax(logits: Tensor) -> Tensor:
    """Probabilities along the last dimension, (..., V) to (..., V), for logits of any size."""
    exponentials = (logits - logits.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def softmax_by_loops(row: list[float]) -> list[float]:
    """With a correctly rounded sum; Python's exp of a large negative number is 0."""
    top = max(row)
    exponentials = [math.exp(x - top) for x in row]
    return [e / math.fsum(exponentials) for e in exponentials]


def check_softmax(attempt: Callable) -> None:
    def expect(rows: list, likely: str, dtype: torch.dtype = torch.float64, rtol: float = 1e-5,
               atol: float = 1e-6) -> None:
        logits = torch.tensor(rows, dtype=dtype)
        expected = torch.tensor([softmax_by_loops(row) for row in logits.view(-1, logits.shape[-1]).tolist()],
                                dtype=dtype).view(logits.shape)
        expect_close(attempt(logits), expected, likely, rtol=rtol, atol=atol)

    expect([math.log(1), math.log(2), math.log(5)], "exp of each logit over the sum of all: here 1/8, 2/8, 5/8")
    expect([[0.0, 1.0, 2.0], [1.0, 1.0, 3.0], [2.0, 0.5, 0.0]],
           "each row sums to 1 by itself: max and sum run along the last dimension, with keepdim=True")
    expect([[[0.0, 1.5], [2.0, 1.0], [0.5, 3.0]]] * 2, "there may be more dimensions in front: use -1, not 1")
    expect([0.0, 1000.0], "exp(1000) is infinite, and infinite / infinite is NaN: subtract the maximum first")
    expect([-1001.0, -1000.0], "every exp is 0, and 0 / 0 is NaN: subtract the maximum, whatever its sign")
    expect([[900.0, 0.0, 30.0], [-1900.0, -901.0, -900.0], [-5.0, 900.0, -900.0]],
           "each row needs its own maximum, wherever it is: after subtracting the largest of all rows the second "
           "has nothing but zeros")
    expect([-INF, 2.0, -INF, 2.0, 1.0, -INF],
           "a logit of -inf is a removed token: its probability is exactly 0, the rest is unmoved")
    expect([0.0, -60.0], "nothing may be added, rounded or cut: a small probability stays what it is",
           rtol=1e-9, atol=0)
    wide = torch.randn(3, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    expect(wide.tolist(), "every token has its probability, those far down as well", rtol=1e-9, atol=0)
    for dtype, rtol in ((torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 5e-2)):
        kept = "the result has the type of the input, whichever it is"
        expect([[1.0, 2.0, 3.0], [1.0, 0.5, -1.0]], kept, dtype=dtype, rtol=rtol, atol=1e-5)


# 06.2


def rows_for(probs: list[float]) -> Tensor:
    """Logits over three tokens, one row each, that give token 0 these probabilities."""
    return torch.tensor([[math.log(p), *([math.log((1 - p) / 2)] * 2)] for p in probs])


def check_perplexity(attempt: Callable) -> None:
    expect_number(attempt(torch.zeros(4, 7), [3, 0, 6, 6]), 7.0,
                  "seven equal choices are a perplexity of seven: exp of the mean of -ln p, natural on both sides, and "
                  "the mean is over the T - 1 predicted tokens")
    sure = torch.full((4, 5), -20.0)
    for t, following in enumerate((3, 1, 4, 2)):
        sure[t, following] = 20.0
    expect_number(attempt(sure.log_softmax(-1), [0, 3, 1, 4]), 1.0,
                  "row t predicts ids[t + 1]: shift by one, drop the last row and the first id, and only these")
    expect_number(attempt(rows_for([0.5, 0.125, 0.25]), [0, 0, 0]), 4.0,
                  "the mean is of the logarithms: p = 1/2 and p = 1/8 have the mean surprisal of p = 1/4")
    shifted = rows_for([0.5, 0.125, 0.25]) + torch.tensor([[5.0], [-7.0], [3.0]])
    expect_number(attempt(shifted, [0, 0, 0]), 4.0, "logits are raw scores: normalise each row by log_softmax")
    far = torch.zeros(4, 2)
    far[0, 1] = -120.0
    expect_number(attempt(far, [0, 1, 0, 0]), math.exp((120 + 2 * math.log(2)) / 3),
                  "a probability below the smallest float32 is 0, and its logarithm -inf: take log_softmax, which "
                  "never forms the probability, instead of log of softmax", rtol=1e-4)
    large = torch.randn(5, 300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ids = [0, 299, 256, 7, 299]
    losses = [-math.log(softmax_by_loops(row)[id]) for row, id in zip(large.tolist(), ids[1:])]
    expect_number(attempt(large, ids), math.exp(math.fsum(losses) / 4),
                  "every row and every id counts, whatever they are")
    expect_number(attempt(torch.zeros(1001, 7), [3] * 1001), 7.0,
                  "a text may be long: a product of a thousand probabilities is 0, so add up logarithms")
    expect_number(attempt(rows_for([0.5, 0.5]), [1, 0]), 2.0, "one predicted token is enough for a mean")
    expect_number(attempt(rows_for([0.81, 0.81]), [0, 0]), 1 / 0.81, "a plain number with all its digits: no rounding")
    expect_number(attempt(rows_for([0.81, 0.81]), [0, 1]), 2 / 0.19, "other ids have another perplexity")


# 06.3


def small_model(norm: str = "rmsnorm") -> CausalLM:
    """A random model with a head of its own, whose final norm does more than normalise."""
    config = ModelConfig(vocab_size=13, hidden_size=12, intermediate_size=10, num_hidden_layers=3,
                         num_attention_heads=6, num_key_value_heads=3, head_dim=4, max_position_embeddings=16,
                         norm=norm, tie_word_embeddings=False)
    model, generator = CausalLM(config).double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter += 1
    return model


def lens_by_loops(model: CausalLM, state: list[float]) -> list[float]:
    """RMSNorm and head of one state, in Python floats."""
    scale = 1 / math.sqrt(math.fsum(x * x for x in state) / len(state) + model.config.rms_norm_eps)
    normed = [x * scale * w for x, w in zip(state, model.norm.weight.tolist())]
    return [math.fsum(x * w for x, w in zip(normed, row)) for row in model.lm_head.weight.tolist()]


def check_logit_lens(attempt: Callable) -> None:
    model = small_model()
    states = torch.randn(4, 2, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3
    expected = torch.tensor([lens_by_loops(model, state) for state in states.view(-1, 12).tolist()],
                            dtype=torch.float64).view(4, 2, 5, 13)
    got = attempt(model, states)
    with torch.no_grad():
        mistakes = {
            "model.norm is missing: the head expects normed states": model.lm_head(states),
            "the final norm is applied twice: the states have not met it, and need it once":
                model.lm_head(model.norm(model.norm(states))),
            "this model has a head of its own, model.lm_head, which is not the embedding":
                model.norm(states) @ model.embed_tokens.weight.T}
        layered = small_model("layernorm")
        rows = [[(x - sum(s) / 12) / math.sqrt(sum((y - sum(s) / 12) ** 2 for y in s) / 12
                 + layered.config.rms_norm_eps) for x in s] for s in states[0, 0].tolist()]
        norm = torch.tensor(rows, dtype=torch.float64) * layered.norm.weight + layered.norm.bias
        by_layer_norm = (norm @ layered.lm_head.weight.T)[None, None]
    likely = next((why for why, wrong in mistakes.items() if not tensor_difference(got, wrong, "", 1e-6, 1e-8)),
                  "every depth and every position goes through the model's final norm, then through its lm_head, and "
                  "stays a raw score")
    expect_close(got, expected, likely, rtol=1e-6, atol=1e-8)
    expect_close(attempt(layered, states[:1, :1]), by_layer_norm,
                 "use the model's own model.norm: another family has LayerNorm there, with a bias", rtol=1e-6,
                 atol=1e-8)
    expect_close(attempt(model, states.flip(0)), expected.flip(0),
                 "the states are an argument: each has its own logits", rtol=1e-6, atol=1e-8)


# 06.4


def check_pooled_perplexity(attempt: Callable) -> None:
    log = math.log
    expect_number(attempt([[log(4), log(4)]]), 4.0, "one text: exp of the mean of its losses")
    expect_number(attempt([[log(2)], [log(8)]]), 4.0,
                  "average the losses and take exp last: the mean of the perplexities 2 and 8 would be 5")
    expect_number(attempt([[log(2)] * 3, [log(32)]]), 4.0,
                  "every token counts once: a text of three tokens weighs three times as much as a text of one")
    expect_number(attempt([[], [log(4)], []]), 4.0, "a text of one token predicts nothing: it adds 0 tokens, no 0")
    expect_number(attempt([[log(2), log(8), log(32)], [log(2)]]), 2**2.5,
                  "every loss of every text counts, not its first, its last or its middle one")
    expect_number(attempt([[log(3)] * 300, [log(3)] * 5, [log(3)]]), 3.0,
                  "the mean over all tokens, however many there are in a text")
    expect_number(attempt([[400.0] * 2, [100.0] * 4]), math.exp(200),
                  "exp comes once, at the end; a product of probabilities or of their inverses overflows")


EXERCISES = (
    Exercise(
        "06.1", "a softmax that does not overflow", softmax, check_softmax, minutes=10, hints=(
            "Adding one number to all logits of a row changes no probability. Which number keeps exp from overflowing?",
            "Subtract the row's maximum: then the largest exponential is 1, the sum is at least 1, and what "
            "underflows is too small to matter.",
            "amax(-1, keepdim=True) keeps the dimension, so that the result subtracts row by row; max(-1) would give "
            "two tensors, values and places. The sum after exp needs dim=-1 and keepdim=True, too. Use no in-place "
            "operation.",
        )),
    Exercise(
        "06.2", "perplexity", perplexity, check_perplexity, minutes=12, hints=(
            "Which row of logits was the prediction of which id? Row 0 has seen ids[0]; what does it predict?",
            "logits[:-1] are the predictions and ids[1:] what came. log_softmax gives logarithms for the whole "
            "vocabulary; pick one number in each row.",
            "gather along the last dimension with an index of shape (T - 1, 1), or index with arange and the ids; "
            "then math.exp of minus the mean, as a plain number.",
        )),
    Exercise(
        "06.3", "the logit lens", logit_lens, check_logit_lens, minutes=10, difficulty="stretch", hints=(
            "What happens to the last layer's output before it becomes logits? Two modules of the model do it.",
            "The final norm and the head work on the last dimension, whatever axes come before it, so the stack of all "
            "depths can go through at once.",
            "Call the module `norm` of the model on the states, then the module `lm_head` on the result; no softmax.",
        )),
    Exercise(
        "06.4", "perplexity of several texts", pooled_perplexity, check_pooled_perplexity, minutes=10,
        kind="find the bug", difficulty="stretch", hints=(
            "Take a text of one token and a text of a thousand. How much does each say about the model?",
            "Perplexity is exp of a mean of losses. The mean that is wanted runs over all tokens of all texts.",
            "Add up all losses, divide by the number of all losses, and call math.exp once. A text without losses "
            "changes neither.",
        )),
)
