"""Checks of notebook 02, Embeddings and positions. Expected values are worked out by hand or in complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Integral, Real

import torch
from torch import Tensor

from course_lib.analysis.geometry import nearest
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, expect_number, misfit, show
from course_lib.config import ModelConfig
from course_lib.costs import LLAMA_3_8B, parameter_count
from course_lib.layers import apply_rope
from course_lib.published import PUBLISHED


def random(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64, the same on every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# 02.1


def lookup(weight: Tensor, ids: Tensor) -> Tensor:
    """The rows of a table (V, D) for ids of any shape: (..., D)."""
    return weight[ids]


def check_lookup(attempt: Callable) -> None:
    table = (10 * torch.arange(7).view(7, 1) + torch.arange(3)).float()  # 41 is row 4, column 1
    expect_close(attempt(table, torch.tensor([4])), torch.tensor([[40.0, 41.0, 42.0]]),
                 "row 4 of the table, unchanged: ids count from 0, the numbers are not scaled")
    expect_close(attempt(table, torch.tensor([6, 0, 6])), table[[6, 0, 6]],
                 "one row for each id in the order of the ids: the last id and the first, repeats included")
    ids = torch.tensor([[1, 5], [0, 3], [2, 2], [6, 1]])
    expect_close(attempt(table, ids), torch.stack([table[row] for row in ids.tolist()]),
                 "ids (B, T) give (B, T, D): every row of the batch, and the shape of the ids stays",
                 where="result for ids (4, 2)")
    expect_close(attempt(table.double(), torch.tensor([2])), table.double()[2:3],
                 "the result has the type of the table: a one-hot matrix has to be made in it")
    expect_close(attempt(table + 0.5, torch.tensor([4])), torch.tensor([[40.5, 41.5, 42.5]]),
                 "the table is an argument: the same ids pick other rows in another table")
    ids = torch.tensor([[[299, 5, 256]], [[0, 298, 299]]])
    large = random(300, 3)
    expect_close(attempt(large, ids), torch.stack([large[row] for row in ids.flatten().tolist()]).view(2, 1, 3, 3),
                 "ids may have any shape and any size below V, and the numbers are the table's to the last bit", rtol=0,
                 atol=0, where="result for ids (2, 1, 3)")
    weight = random(7, 3).requires_grad_()
    got = attempt(weight, torch.tensor([[2, 5], [5, 0]]))
    expect_equal(bool(getattr(got, "requires_grad", False)), True,
                 "training has to reach the table: no detach, no .data, no way through Python lists",
                 where="result.requires_grad")
    got.sum().backward()
    expect_close(weight.grad[:, 0], torch.tensor([1, 0, 1, 0, 0, 2, 0]).double(),
                 "a row's gradient counts how often it was looked up; the other rows have none",
                 where="gradient of the table's first column")


# 02.2


def check_nearest(attempt: Callable) -> None:
    def expect_nearest(weight: Tensor, id: int, k: int, ids: list[int], cosines: list[float], likely: str,
                       why_cosines: str) -> None:
        got = attempt(weight.clone(), id, k)
        if not isinstance(got, list) or not all(map(is_pair, got)):
            raise CheckFailed("a list of pairs (id, cosine)", show(got), "result is no list of pairs (id, cosine)",
                              misfit(got, []) or "each pair is (id, cosine), id first, an int, and both plain "
                              "numbers, no tensors: [(2, 0.8), (1, 0.6)]")
        got_ids, got_cosines = [i for i, _ in got], [float(c) for _, c in got]
        if id in got_ids:
            raise CheckFailed(show(ids), show(got_ids), f"the neighbours of row {id} hold {id}",
                              "row `id` itself is in the list, and it is no neighbour of itself: leave out row `id` by "
                              "its id, not whatever comes first; 0 is not low enough to hide it, use -inf")
        expect_equal(got_ids, ids, likely, where="ids")
        expect_close(torch.tensor(got_cosines, dtype=torch.float64), torch.tensor(cosines, dtype=torch.float64),
                     why_cosines, where="cosines")

    rows = torch.tensor([[2.0, 0], [30, 40], [4, 3], [0, 7], [-5, 0]])
    direction = "nearest first, by cosine: a dot product lets long rows win and a distance lets short ones win"
    expect_nearest(rows[:4], 0, 2, [2, 1], [0.8, 0.6], direction,
                   "the cosine divides by the length of the row and by that of row `id`, too")
    expect_nearest(rows, 0, 4, [2, 1, 3, 4], [0.8, 0.6, 0, -1],
                   "a row that points the other way is far, not near: keep the sign",
                   "the cosine runs from -1 to 1")
    expect_nearest(rows, 4, 1, [3], [0], "the neighbours of row `id`, whichever id it is; k of them",
                   "the cosine of row `id` with its neighbour")
    twin = torch.tensor([[1.0, 5], [6, 8], [0, -1], [3, 4]])
    expect_nearest(twin, 3, 1, [1], [1], "another row may point exactly the same way, and is the nearest then",
                   "the cosine of two rows that point one way is 1")
    expect_nearest(torch.tensor([[3.0, 4], [0, 0], [-4, 3.1], [-3, -4]]), 0, 3, [2, 1, 3], [0.4 / 5 / 5.060632, 0, -1],
                   "a row of zeros has no direction: give it cosine 0, and let no NaN through",
                   "a row of zeros has no direction: give it cosine 0, and let no NaN through")
    scaled = "the length of a row may be small: divide by the true lengths, and add nothing to them"
    expect_nearest(rows[[0, 2, 3, 1]] / 100, 0, 2, [1, 3], [0.8, 0.6], scaled, scaled)
    zero = attempt(torch.tensor([[1.0, 2], [0, 0], [2, 1]]), 1, 2)
    expect_equal(sorted((i, float(c)) for i, c in zero), [(0, 0.0), (2, 0.0)],
                 "a row of zeros has cosine 0 with everything, and row `id` itself stays out", where="sorted(result)")
    many = random(300, 5)
    lengths = [math.sqrt(math.fsum(x * x for x in row)) for row in many.tolist()]
    cosines = {i: math.fsum(x * y for x, y in zip(row, many[270].tolist())) / lengths[i] / lengths[270]
               for i, row in enumerate(many.tolist()) if i != 270}
    best = sorted(cosines, key=lambda i: -cosines[i])[:150]
    expect_nearest(many, 270, 150, best, [cosines[i] for i in best], "every row of the table may be a neighbour",
                   "in float64 the cosine has the digits of a float64")


def is_pair(pair: object) -> bool:
    """Whether it is an integer and a number, both plain."""
    return (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], Integral)
            and isinstance(pair[1], Real))


# 02.3


def table_share(config: ModelConfig) -> float:
    """The share of a model's parameters that are its token table and, where it is not tied, its LM head."""
    tables = 1 if config.tie_word_embeddings else 2
    return tables * config.vocab_size * config.hidden_size / parameter_count(config).total


def check_table_share(attempt: Callable) -> None:
    shape = {"vocab_size": 12, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 1}
    # By hand: 12 * 4 in the table, 16 + 8 + 8 + 16 in attention, 3 * 4 * 6 in the MLP, 3 * 4 in norms.
    tied = attempt(ModelConfig(**shape))
    expect_close(tied, Fraction(48, 180),
                 "a share lies between 0 and 1: divide by the total, and leave it at that" if above_one(tied) else
                 "a tied table is one matrix and counts once; the share is of all parameters, the table included")
    expect_close(attempt(ModelConfig(**shape, tie_word_embeddings=False)), Fraction(96, 228),
                 "without tying, the LM head is a second matrix of vocab_size * hidden_size: it counts in the "
                 "numerator and in the total")
    expect_close(attempt(ModelConfig(**shape, positions="learned", max_position_embeddings=10)), Fraction(48, 220),
                 "learned positions are parameters, but no part of the token table")
    expect_close(attempt(PUBLISHED["Llama-3.2-1B"]), Fraction(128_256 * 2048, 1_235_814_400),
                 "all of this comes from the config", where="Llama-3.2-1B")
    expect_close(attempt(LLAMA_3_8B), Fraction(2 * 128_256 * 4096, 8_030_261_248), "all of this comes from the config",
                 where="Llama-3-8B")


def above_one(value: object) -> bool:
    """Whether it is a number, but no share: a percentage, say."""
    return isinstance(value, Real) and value > 1


# 02.4


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """RoPE in complex numbers: the pair (i, i + Dh / 2) is one number, and turning multiplies it."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


def check_apply_rope(attempt: Callable) -> None:
    def tables(angles: Tensor) -> tuple[Tensor, Tensor]:
        return angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def expect_turn(vector: list[float], angles: tuple[float, ...], expected: list[float], likely: str) -> None:
        x = torch.tensor(vector, dtype=torch.float64).view(1, 1, 1, -1)
        cos, sin = (table.round() for table in tables(torch.tensor([angles], dtype=torch.float64)))  # quarter turns
        got, right = attempt(x, cos, sin), torch.tensor(expected).to(x)
        if not isinstance(got, Tensor) or got.shape == x.shape:
            expect_close(got.reshape(-1) if isinstance(got, Tensor) else got, right, likely, atol=1e-9)
        expect_close(got, right.view(x.shape), "cos and sin are as wide as x: where a half of x is multiplied, take a "
                                               "half of cos and sin, too", where=f"result for x {tuple(x.shape)}",
                     atol=1e-9)

    quarter = math.pi / 2
    expect_turn([3, 5], (0.0,), [3, 5], "an angle of 0 changes nothing: cos multiplies x itself")
    expect_turn([3, 0], (quarter,), [0, 3], "a quarter turn takes (3, 0) to (0, 3): the second number gains "
                                            "sin times the first, with a plus")
    expect_turn([0, 3], (quarter,), [-3, 0], "a quarter turn takes (0, 3) to (-3, 0): the first number loses "
                                             "sin times the second")
    expect_turn([1, 10, 100, 1000], (quarter, quarter), [-100, -1000, 1, 10],
                "the pairs are (i, i + Dh / 2), first half with second half; neighbours (2i, 2i + 1) are another "
                "layout")
    expect_turn([1, 10, 100, 1000], (quarter, 0.0), [-100, 10, 1, 1000], "every pair turns by its own angle")
    x, angles = random(2, 3, 5, 8), random(5, 4, seed=1)  # B, H, T, Dh all different
    expect_close(attempt(x.clone(), *tables(angles)), turned(x, angles),
                 "each of the T positions has its own row of the tables, the same for all B and H")
    each = random(2, 1, 5, 4, seed=2)
    tables_of_each = (torch.cat((f(each), f(each)), dim=-1) for f in (torch.cos, torch.sin))
    expect_close(attempt(x.clone(), *tables_of_each), turned(x, each),
                 "the tables may differ between rows of the batch, (B, 1, T, Dh): let them broadcast")
    expect_close(attempt(x.float(), *(table.float() for table in tables(angles))), turned(x, angles).float(),
                 "float32 stays float32")
    expect_close(attempt(x[:, :, :1], *(table[:1] for table in tables(angles))), turned(x[:, :, :1], angles[:1]),
                 "a single position, as when a model writes, is turned like any other")


# 02.5


def shift_error(rotate: Callable[[Tensor, Tensor], Tensor], q: Tensor, k: Tensor, shift: int) -> float:
    """How much any score changes, at most, when all positions move by `shift`.

    Args:
        rotate: takes vectors (T, Dh) and their positions (T,); gives the vectors with positions applied.
        q, k: (T, Dh), at positions 0, 1, ..., T - 1 before the shift.
    """
    def scores(positions: Tensor) -> Tensor:
        return rotate(q, positions) @ rotate(k, positions).T  # (T, T)

    positions = torch.arange(len(q))
    return (scores(positions + shift) - scores(positions)).abs().max().item()


def check_shift_error(attempt: Callable) -> None:
    q, k = random(5, 4, seed=3), random(5, 4, seed=4)

    def turn_by(angle_of: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        speeds = torch.tensor([1.0, 0.1], dtype=torch.float64)
        return lambda x, positions: turned(x, torch.outer(angle_of(positions.double()), speeds))

    def worst(rotate: Callable, q: Tensor, k: Tensor, shift: int) -> float:
        """By loops over all pairs of positions."""
        def score(i: int, j: int, by: int) -> float:
            at = [torch.tensor([i + by]), torch.tensor([j + by])]
            return (rotate(q[i : i + 1], at[0]) * rotate(k[j : j + 1], at[1])).sum().item()

        return max(abs(score(i, j, shift) - score(i, j, 0)) for i in range(len(q)) for j in range(len(k)))

    def of_integers(rotate: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        """Refuses positions that could not be the index of a table."""
        def checked(x: Tensor, positions: Tensor) -> Tensor:
            if not isinstance(positions, Tensor) or positions.is_floating_point() or positions.dim() != 1:
                raise CheckFailed("a tensor (T,) of integers", show(positions), "the positions that rotate is given",
                                  "positions are looked up in tables: torch.arange(T), which counts in integers")
            return rotate(x, positions)
        return checked

    def expect_error(rotate: Callable, q: Tensor, k: Tensor, shift: int, likely: str) -> None:
        expected = worst(rotate, q, k, shift)
        expect_number(attempt(of_integers(rotate), q, k, shift), expected, likely, atol=1e-9)

    expect_error(turn_by(lambda p: p), q, k, 7,
                 "queries and keys both move by the shift, and are compared with the scores before it: with turns "
                 "in proportion to the position nothing changes")
    expect_error(lambda x, positions: x + positions[:, None], torch.ones(1, 1).double(), torch.ones(1, 1).double(), 2,
                 "the first position is 0, and all move by the shift that is asked for: (1 + 2)(1 + 2) - 1 * 1 = 8")
    expect_error(lambda x, positions: x / (1 + positions[:, None]), torch.ones(5, 1).double(),
                 torch.ones(5, 1).double(), 4,
                 "a score that falls has changed, too: absolute values first, then the maximum, no mean")
    expect_error(turn_by(lambda p: p**2), q, k, 3,
                 "all pairs of positions count: on the diagonal the distance is 0 and nothing changes here")
    first, last = torch.eye(5, dtype=torch.float64)[[0, 4]].unsqueeze(-1)  # (T, 1): one vector is not 0
    for q, k in ((first, last), (last, first)):
        expect_error(lambda x, positions: x * (1 + positions[:, None]), q, k, 2,
                     "all pairs of positions count, those with the key after the query as well")


EXERCISES = (
    Exercise(
        "02.1", "look up rows", lookup, check_lookup, minutes=2, difficulty="warm-up", hints=(
            "Which operation in PyTorch picks rows of a matrix by their numbers, and a row twice if you ask twice?",
            "If you index a tensor with a tensor of integers, the result has the shape of the integers, with the row "
            "added at the end: (B, T) gives (B, T, D).",
            "You need nothing but the table and the ids: weight[ids], or torch.nn.functional.embedding.",
        )),
    Exercise(
        "02.2", "find the nearest rows", nearest, check_nearest, minutes=15, difficulty="stretch", hints=(
            "The cosine of two rows is their dot product divided by the product of their lengths.",
            "One product of the table with row `id` gives all V dot products; weight.norm(dim=-1) all lengths. "
            "Clamp the product of lengths from below, so that 0 / 0 becomes 0.",
            "Set the cosine at place `id` to -inf, sort descending, and pair the first k ids with their values.",
        )),
    Exercise(
        "02.3", "the share of the table", table_share, check_table_share, minutes=4, kind="predict",
        difficulty="warm-up", hints=(
            "How many numbers does one table have, and how many tables are there?",
            "vocab_size * hidden_size: once if tie_word_embeddings is true, twice if it is not.",
            "Divide by parameter_count(config).total, which counts each parameter once.",
        )),
    Exercise(
        "02.4", "apply RoPE", apply_rope, check_apply_rope, minutes=14, hints=(
            "Turning (a, b) by an angle gives (a cos - b sin, b cos + a sin). Which numbers are a, and which are b?",
            "a is the first half of the last dimension, b is the second half. x.chunk(2, dim=-1) splits them.",
            "Join -b and a, in this order, along the last dimension. The result is x * cos plus what you joined * sin.",
        )),
    Exercise(
        "02.5", "measure the relative-shift property", shift_error, check_shift_error, minutes=10,
        difficulty="stretch", hints=(
            "Compute the whole (T, T) matrix of scores twice: at positions 0 to T - 1, then at these plus shift.",
            "scores = rotate(q, positions) @ rotate(k, positions).T, with positions a tensor of integers.",
            "Subtract the two matrices, take absolute values, then the maximum, and .item() for a plain number.",
        )),
)
