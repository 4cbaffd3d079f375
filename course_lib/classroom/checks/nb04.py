"""Checks of notebook 04, The transformer block. The oracle is PyTorch's own function, or arithmetic by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, show, versus
from course_lib.config import ModelConfig
from course_lib.costs import LLAMA_3_8B
from course_lib.published import PUBLISHED


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """The same normal numbers on every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# 04.1


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Each vector divided by its root mean square, then times `weight`, in the type of `x`.

    The squares are taken in float32 where `x` is narrower: in float16 the square of 300 is infinite.

    Args:
        x: (..., D).
        weight: (D,).
        eps: added to the mean of the squares.
    """
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean_square = wide.square().mean(-1, keepdim=True)  # (..., 1)
    return weight * (wide * torch.rsqrt(mean_square + eps)).to(x.dtype)


def check_rms_norm(attempt: Callable) -> None:
    ones = torch.ones(4, dtype=torch.float64)
    x = torch.tensor([1.0, 1.0, 7.0, 7.0], dtype=torch.float64)
    expect_close(attempt(x, ones, 0.0), torch.tensor([0.2, 0.2, 1.4, 1.4], dtype=torch.float64),
                 "the squares of 1, 1, 7, 7 have the mean 25, and its root is 5: the mean and not the sum, and "
                 "nothing is subtracted, neither from x nor from its squares")
    expect_close(attempt(x, torch.tensor([1.0, 10.0, 1.0, 0.0], dtype=torch.float64), 0.0),
                 torch.tensor([0.2, 2.0, 1.4, 0.0], dtype=torch.float64),
                 "the weight multiplies what has been normalized, dimension by dimension, and comes last")
    expect_close(attempt(ones.clone(), ones, 3.0), torch.full_like(ones, 0.5),
                 "eps belongs under the root: 1 / sqrt(1 + 3) is one half")
    x, weight = random(2, 5, 6), random(6, seed=1)
    expect_close(attempt(x.clone(), weight, 1e-3), F.rms_norm(x, (6,), weight, 1e-3),
                 "every vector by itself: the mean runs over the last dimension alone, with keepdim=True")
    half = torch.tensor([300.0, -300.0, 300.0, 0.0], dtype=torch.float16)
    expect_close(attempt(half, ones.half(), 1e-5), half / 150 / 3**0.5,  # the mean square is 3/4 of 300**2
                 "the squares were taken in float16, where that of 300 is infinite: go to float32 first",
                 rtol=2e-3, atol=0)
    small = torch.tensor([1e-4, -1e-4, 1e-4, 1e-4], dtype=torch.float16)
    expect_close(attempt(small, ones.half(), 1e-12), torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float16),
                 "in float16 the square of 1e-4 is 0: square in float32", rtol=2e-3, atol=0)
    single, weight = random(3, 40, seed=2, dtype=torch.float32), random(40, seed=3, dtype=torch.float32)
    single[1] = 0
    expect_close(attempt(single, weight, 1e-5), F.rms_norm(single, (40,), weight, 1e-5),
                 "float32 in, float32 out, and a vector of zeros stays one")
    brain = random(8, 64, seed=4, dtype=torch.bfloat16)
    exact = brain.double() * torch.rsqrt(brain.double().square().mean(-1, keepdim=True) + 1e-5)
    expect_close(attempt(brain, torch.ones(64, dtype=torch.bfloat16), 1e-5), exact.to(brain.dtype),
                 "bfloat16 is narrower than float32, too: its squares keep 8 bits, so take them in float32", rtol=1e-3,
                 atol=0)


# 04.2


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The gated feed-forward network (Shazeer 2020): down (silu(gate x) * (up x)).

    Args:
        x: (..., D).
        gate, up: (F, D), as `nn.Linear` stores the matrix of a map from D to F.
        down: (D, F).
    """
    hidden = F.silu(x @ gate.T) * (x @ up.T)  # (..., F)
    return hidden @ down.T  # (..., D)


def check_swiglu(attempt: Callable) -> None:
    def number(x: float, gate: float, up: float, down: float) -> Tensor:
        return attempt(*(torch.full((1, 1), value, dtype=torch.float64) for value in (x, gate, up, down)))

    def silu(z: float) -> float:
        return z / (1 + math.exp(-z))

    # x = 2, gate x = 6, up x = 10: every wrong order gives another number.
    expect_close(number(2, 3, 5, 7), silu(6) * 10 * 7,
                 "with one dimension the result is silu(gate x) * (up x) * down: silu bends the gate alone, the "
                 "two are multiplied and not added")
    expect_close(number(2, -0.5, 5, 7), silu(-1) * 10 * 7,
                 "silu(z) is z * sigmoid(z): below zero it is neither 0 (relu) nor the value of gelu")
    x, gate, up, down = random(2, 5, 4), random(6, 4, seed=1), random(6, 4, seed=2), random(4, 6, seed=3)
    expected = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    expect_close(batched(attempt, x, gate, up, down), expected,
                 "a matrix is stored as (out, in), so a row vector meets its transpose: x @ gate.T")
    square = [random(4, 4, seed=seed) for seed in (1, 2, 3)]
    expected = F.linear(F.silu(F.linear(x, square[0])) * F.linear(x, square[1]), square[2])
    expect_close(attempt(x, *square), expected,
                 "with square matrices a forgotten transpose raises no error and is wrong all the same")
    expect_close(number(2, 500, 5, 7), 1000 * 10 * 7,
                 "silu(1000) is 1000: exp(1000) overflows, and infinite / infinite is NaN; exp(-z) does not")
    narrow = [matrix.float() for matrix in (x[0, 0], gate, up, down)]  # x is a single vector (D,)
    bent = F.silu(F.linear(narrow[0], narrow[1])) * F.linear(narrow[0], narrow[2])
    expect_close(attempt(*narrow), F.linear(bent, narrow[3]), "any number of dimensions in front, none as well, and "
                                                              "float32 stays float32")


def batched(attempt: Callable, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The attempt on x (2, 5, 4). PyTorch's words about `gate @ x`, a "batch2 tensor", say nothing to a reader."""
    try:
        return attempt(x, gate, up, down)
    except RuntimeError as error:
        if "batch2" not in str(error):
            raise
        raise CheckFailed(f"a tensor of shape {tuple(x.shape)}", f"RuntimeError: {error}", "result does not come",
                          "gate @ x is right for a single vector (D,) alone; where x has more dimensions, its vectors "
                          "are rows: x @ gate.T") from error


# 04.3


def decoder_layer(x: Tensor, self_attn: Callable, mlp: Callable, input_layernorm: Callable,
                  post_attention_layernorm: Callable) -> Tensor:
    """One layer: attention adds to the residual stream, then the MLP does, each reading a normalized copy.

    Args:
        x: the residual stream (B, T, D).
        self_attn, mlp, input_layernorm, post_attention_layernorm: functions from (B, T, D) to (B, T, D).
    """
    x = x + self_attn(input_layernorm(x))
    return x + mlp(post_attention_layernorm(x))


def check_decoder_layer(attempt: Callable) -> None:
    def same(x: Tensor) -> Tensor:
        return x.clone()

    def nothing(x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def plus(n: float) -> Callable:
        return lambda x: x + n

    def times(n: float) -> Callable:
        return lambda x: x * n

    def expect_layer(parts: tuple[Callable, ...], expected: float, likely: str) -> None:
        x = torch.full((2, 5, 3), 5.0)
        expect_close(attempt(x, *parts), torch.full((2, 5, 3), float(expected)), likely)

    # The stream is 5 everywhere; attention adds 3 to what it reads, the MLP 7, the norms multiply.
    added = "what {} returns is added to the stream, which goes on: it does not replace it"
    silent = attempt(torch.full((2, 5, 3), 5.0), plus(3), nothing, same, same)
    stopped = isinstance(silent, Tensor) and not silent.any()  # where the MLP is silent, nothing is left
    forgot = isinstance(silent, Tensor) and bool((silent == 5).all())
    expect_layer((plus(3), nothing, same, same), 5 + 8,
                 "what attention returned is lost: the second half starts from h, not from x" if forgot else
                 added.format("the MLP" if stopped else "attention"))
    expect_layer((nothing, plus(7), same, same), 5 + 12, added.format("the MLP"))
    expect_layer((nothing, nothing, times(2), times(11)), 5,
                 "the stream itself is never normalized, neither before nor after: the norms make copies for the "
                 "two parts to read")
    expect_layer((plus(3), nothing, times(2), times(11)), 5 + 13,
                 "attention reads input_layernorm(x)")
    expect_layer((nothing, plus(7), times(2), times(11)), 5 + 62,
                 "the MLP reads post_attention_layernorm of the stream")
    expect_layer((plus(3), plus(7), same, same), 13 + 20,
                 "attention comes first, and the MLP reads and extends the stream that attention has added to")
    expect_mixing_layer(attempt)


def expect_mixing_layer(attempt: Callable) -> None:
    """On random numbers, with parts that move information between positions, each called exactly once."""
    calls = []

    def part(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def call(x: Tensor) -> Tensor:
            calls.append(name)
            return function(x)
        return call

    x = random(2, 5, 3)
    parts = {"self_attn": lambda x: 2 * x.cumsum(1), "mlp": lambda x: x.roll(1, -1) - 1, "input_layernorm": torch.tanh,
             "post_attention_layernorm": torch.sin}
    h = x + 2 * torch.tanh(x).cumsum(1)
    expect_close(attempt(x, *(part(*item) for item in parts.items())), h + torch.sin(h).roll(1, -1) - 1,
                 "h = x + self_attn(input_layernorm(x)), then h + mlp(post_attention_layernorm(h)), on any numbers")
    expect_equal(sorted(calls), sorted(parts), "every part is called once: a call costs time, and attention with a "
                 "cache would store its keys twice; keep what a part returned in a variable", where="sorted(the calls)")


# 04.4


def count_parameters(config: ModelConfig) -> int:
    """How many parameters a model of the Llama family has: RMSNorm, gated MLP, no biases, RoPE.

    >>> count_parameters(LLAMA_3_8B)
    8030261248
    """
    D, V = config.hidden_size, config.vocab_size
    query = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    attention = 2 * D * query + 2 * D * kv  # q and o, k and v
    layer = attention + 3 * D * config.intermediate_size + 2 * D  # two norms
    tables = V * D if config.tie_word_embeddings else 2 * V * D
    return tables + config.num_hidden_layers * layer + D  # and the final norm


def check_count_parameters(attempt: Callable) -> None:
    # D = 10, F = 14, V = 50; 6 query heads and 3 key/value heads of 4 numbers.
    shape = {"vocab_size": 50, "hidden_size": 10, "intermediate_size": 14, "num_hidden_layers": 1,
             "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "max_position_embeddings": 64}
    layer = (240 + 120 + 120 + 240) + 3 * 140 + 20

    def expect_count(expected: int, likely: str, **changes: object) -> None:
        expect_equal(attempt(ModelConfig(**shape | changes)), expected, likely)

    one = 500 + layer + 10
    got = attempt(ModelConfig(**shape))
    missing = {10: "one norm is missing: two in each layer and one before the head have D weights each",
               20: "two norms are missing: two in each layer and one before the head have D weights each",
               -240: "k and v have num_key_value_heads * head_dim columns, fewer than q has",
               140: "the gated MLP has three matrices, and one is missing",
               -500: "a tied head is the embedding itself: with tie_word_embeddings it counts once",
               500: "the embedding of the vocabulary is missing: vocab_size * hidden_size"}
    gap = one - got if isinstance(got, int) else 0
    expect_equal(got, one, missing.get(gap, "D = 10: embedding 500; attention 240 + 120 + 120 + 240, as a head has "
                                            "head_dim numbers, not hidden_size / heads; MLP 3 * 140; norms "
                                            "10 + 10 + 10; RoPE has no parameters"))
    expect_count(500 + 3 * layer + 10, "every layer has parameters of its own, the final norm and the "
                                       "embedding are there once", num_hidden_layers=3)
    expect_count(one + 500, "without tie_word_embeddings the head is a second matrix of the size of the "
                            "embedding", tie_word_embeddings=False)
    expect_count(one - 160, "k and v shrink with num_key_value_heads, q and o do not", num_key_value_heads=1)
    # Embedding 50,307,257; attention 2 * 84,084 + 2 * 12,012; MLP 3 * 2,005,003; three norms of 1,001.
    odd = {"vocab_size": 50_257, "hidden_size": 1001, "intermediate_size": 2003, "num_hidden_layers": 1,
           "num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 12}
    expect_equal(attempt(ModelConfig(**odd)), 56_517_461, "every digit counts: whole numbers, and no floats on the way")
    expect_equal(attempt(LLAMA_3_8B), 8_030_261_248, "every digit counts", where="Llama-3-8B")
    expect_equal(attempt(PUBLISHED["Llama-3.2-1B"]), 1_235_814_400, "this one ties its head", where="Llama-3.2-1B")


# 04.5


def first_differing(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tolerance: float) -> str | None:
    """The first name whose tensors differ by more than rounding; None if there is none.

    Two tensors agree if they have one shape and max |ours - theirs| <= tolerance * max |theirs|. NaN agrees
    with nothing.

    Args:
        ours, theirs: tensors by name, in the order in which they were computed; the same names.
        tolerance: a share of the largest value.
    """
    for name, reference in theirs.items():
        if ours[name].shape != reference.shape:
            return name
        if not (ours[name] - reference).abs().max() <= tolerance * reference.abs().max():
            return name
    return None


def check_first_differing(attempt: Callable) -> None:
    base = {"embed": random(2, 5, 4), "layer 0": random(2, 5, 4, seed=1), "layer 1": random(2, 5, 4, seed=2)}

    def expect_name(changes: Mapping[str, Tensor], expected: str | None, likely: str, tolerance: float = 1e-3) -> None:
        compare({name: value.clone() for name, value in base.items()} | changes, base, expected, likely, tolerance)

    def compare(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], expected: str | None, likely: str,
                tolerance: float = 1e-3) -> None:
        got = attempt(ours, theirs, tolerance)
        if got is not None and not isinstance(got, str):
            raise CheckFailed(show(expected), show(got), "result is no name", "return the name alone, or None")
        if got != expected:
            raise CheckFailed(show(expected), show(got), f"result {versus(got, expected)}", likely)

    def one_off(name: str, by: float) -> Tensor:
        value = base[name].clone()
        value[1, 3, 2] += by
        return value

    expect_name({}, None, "no difference is None")
    expect_name({"layer 1": one_off("layer 1", 9.0)}, "layer 1", "one wrong number is enough: the largest "
                                                                 "difference, not the mean")
    expect_name({"layer 0": one_off("layer 0", -9.0)}, "layer 0",
                "a value that is too low differs as well: take the absolute difference")
    expect_name({"layer 0": one_off("layer 0", 9.0), "layer 1": one_off("layer 1", 50.0)}, "layer 0",
                "the first name, for what comes after it follows from it; not the last and not the largest")
    expect_name({"layer 0": one_off("layer 0", float("nan"))}, "layer 0",
                "NaN went unnoticed: every comparison with it is False, so ask `not difference <= limit` and not "
                "`difference > limit`")
    expect_name({"layer 1": base["layer 1"][:, :1]}, "layer 1",
                "shapes (2, 1, 4) and (2, 5, 4) subtract without an error, for PyTorch stretches the one: compare "
                "the shapes first")
    compare({"embed": torch.ones(2, 1, 4)}, {"embed": torch.ones(2, 5, 4)}, "embed",
            "equal numbers in another shape are a difference, although they subtract to zero")
    expect_name({"layer 0": base["layer 0"].reshape(5, 2, 4)}, "layer 0",
                "the same numbers in another shape are a difference: compare the shapes first")
    large = {"logits": 1e4 * random(3, 4)}
    compare({"logits": large["logits"] + 0.5}, large, None,
            "the tolerance is a share of the largest value of theirs: 0.5 on values up to 10,000 is rounding")
    compare({"logits": torch.tensor([1000.0, 0.001])}, {"logits": torch.tensor([1000.0, 0.002])}, None,
            "0.001 and 0.002 beside 1000 are rounding: the limit is a share of the largest value of the "
            "tensor, not of each value")
    small = {"logits": 1e-4 * random(3, 4)}
    compare({"logits": torch.zeros_like(small["logits"])}, small, "logits",
            "the tolerance is a share of the largest value of theirs: values of 1e-4 that are all 0 are wrong")
    compare_harder(compare, base)


def compare_harder(compare: Callable, base: Mapping[str, Tensor]) -> None:
    """Differences that a comparison misses which sorts, forgets signs or takes the limit from elsewhere."""
    both = "result = max |ours - theirs|, number by number: "
    compare(base | {"layer 1": base["layer 1"].flip(1)}, base, "layer 1",
            both + "the same numbers in another order are a difference")
    compare(base | {"layer 0": -base["layer 0"]}, base, "layer 0", both + "values with the wrong sign are a difference")
    nan = base | {"layer 1": base["layer 1"].log()}  # of numbers below 0, too
    compare(nan, nan, "layer 1", "NaN agrees with nothing, not even with NaN: ask `not difference <= limit`")
    wrong = base | {"embed": base["embed"] + 9, "layer 1": base["layer 1"] + 9}
    compare(dict(reversed(wrong.items())), base, "embed",
            "the first in the order of theirs, whatever the order of ours")
    scales = {"embed": 1e4 * base["embed"], "layer 0": base["layer 0"]}
    compare(scales | {"layer 0": base["layer 0"] + 0.5}, scales, "layer 0",
            "each tensor has its own limit: 0.5 is rounding beside 10,000, and is not beside 1")
    low = {"logits": torch.tensor([-1000.0, 0.5])}
    compare({"logits": torch.tensor([-1000.0, 1.0])}, low, None,
            "the limit is a share of the largest |theirs|, and -1000 is large")
    compare({"logits": torch.tensor([1.8])}, {"logits": torch.tensor([1.0])}, "logits",
            "the limit is a share of theirs, not of ours: 0.8 is above 0.5 * 1", 0.5)
    compare({"logits": torch.tensor([8.0, 1.0])}, {"logits": torch.tensor([8.0, 2.0])}, None,
            "max |ours - theirs| <= limit agrees: 1 is not above 0.125 * 8", 0.125)
    flat = {"logits": torch.ones(400)}
    compare({"logits": torch.ones(400).index_fill(0, torch.tensor([123]), 1.005)}, flat, "logits",
            "one number that is 0.005 off is too much, among however many: the largest difference, no mean and no norm")
    zeros = {"logits": torch.zeros(3)}
    compare(zeros, zeros, None, "0 is not above 0: two tensors of zeros agree")


EXERCISES = (
    Exercise(
        "04.1", "RMSNorm that survives half precision", rms_norm, check_rms_norm, minutes=10, hints=(
            "Three steps: square, mean over the last dimension, divide by the root. Which of them overflows?",
            "Work on x.float() if x is float16 or bfloat16, keep the dimension with mean(-1, keepdim=True), and "
            "put eps under the root.",
            "Multiply by torch.rsqrt(mean_square + eps), go back with .to(x.dtype), and multiply by weight last.",
        )),
    Exercise(
        "04.2", "SwiGLU", swiglu, check_swiglu, minutes=5, hints=(
            "Two maps up, one map down: which of the two going up is bent?",
            "silu(z) = z * sigmoid(z), or torch.nn.functional.silu; it is applied to the gate alone.",
            "A stored matrix is (out, in): x @ gate.T has the shape (..., F), and so has the product of the two; "
            "down.T brings it back.",
        )),
    Exercise(
        "04.3", "the block", decoder_layer, check_decoder_layer, minutes=5, hints=(
            "What is never normalized, and never replaced, only added to?",
            "Attention reads input_layernorm(x), and what it returns is added to x, not to the normalized copy.",
            "The second half does the same with the MLP and the other norm, starting from the sum of the first; "
            "write x = x + ..., as x += ... would change the caller's tensor.",
        )),
    Exercise(
        "04.4", "count Llama-3-8B exactly", count_parameters, check_count_parameters, minutes=10, kind="predict",
        difficulty="stretch", hints=(
            "Write the shape of every matrix of one layer: four in attention, three in the MLP, and two norms.",
            "q and o are hidden_size by num_attention_heads * head_dim; k and v use num_key_value_heads instead.",
            "Beside the layers: the embedding, vocab_size * hidden_size, once more for a head that is not tied, "
            "and hidden_size for the final norm.",
        )),
    Exercise(
        "04.5", "a comparison that cannot be fooled", first_differing, check_first_differing, minutes=10,
        kind="find the bug", difficulty="stretch", hints=(
            "Try it on NaN, on a value that is too low, and on two shapes that broadcast.",
            "Compare the shapes first, then the largest absolute difference with tolerance * the largest absolute "
            "value of theirs.",
            "`not difference <= limit` is True for NaN, where `difference > limit` is False.",
        )),
)
