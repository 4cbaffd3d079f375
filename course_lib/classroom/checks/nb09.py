"""Checks of notebook 09, Prefill and decode. What is expected is worked out by hand, with round numbers."""

from __future__ import annotations

from collections.abc import Callable

from course_lib.analysis.roofline import (
    LLAMAS,
    MACHINES,
    Machine,
    bound,
    critical_batch,
    decode_seconds,
    prefill_seconds,
)
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import (
    CheckFailed,
    expect_diagnosis,
    expect_equal,
    expect_number,
    show,
)
from course_lib.classroom.slow_engines import LIMITS
from course_lib.config import ModelConfig
from course_lib.costs import Flops, decode_bytes, flops_per_token

# 09.1


def step_seconds(flops: float, nbytes: float, machine: Machine) -> float:
    """Seconds that a step takes at least.

    Args:
        flops, nbytes: what it computes, and what it reads from memory.
    """
    return bound(flops, nbytes, machine)


def check_step_seconds(attempt: Callable) -> None:
    def expect_seconds(flops: float, nbytes: float, machine: Machine, seconds: float, likely: str) -> None:
        expect_number(attempt(flops, nbytes, machine), seconds, likely, rtol=1e-9, atol=0)

    slow_memory = Machine("slow memory", bytes_per_s=50e9, flops_per_s=8e12)
    slow_chip = Machine("slow arithmetic", bytes_per_s=4e12, flops_per_s=20e9)
    expect_seconds(0, 3e9, slow_memory, 0.06, "a step that only reads takes nbytes / machine.bytes_per_s")
    expect_seconds(3e9, 0, slow_chip, 0.15, "a step that only computes takes flops / machine.flops_per_s")
    expect_seconds(6e12, 25e9, slow_memory, 0.75,
                   "both go on at the same time, and the step is done when the slower one is: the larger of the two, "
                   "not their sum, mean or minimum")
    expect_seconds(2e12, 45e9, slow_memory, 0.9,
                   "which of the two is slower depends on the step and on the machine: here it is reading")
    expect_seconds(8e12, 50e9, slow_memory, 1.0, "where both take a second, the step takes a second")
    expect_seconds(7e9, 7e9, slow_chip, 0.35, "the same step on another machine has another limit")
    expect_seconds(16, 8, Machine("tiny", 1, 4), 8.0, "seconds are no whole numbers, and no milliseconds")


# 09.2


def decode_cost(config: ModelConfig, context: int, rows: int, bytes_per_number: float) -> tuple[float, float]:
    """FLOPs and bytes of one decode step for `rows` texts, each of which sees `context` positions.

    Args:
        bytes_per_number: of a weight and of a number in the cache.
    """
    nbytes = decode_bytes(config, context, batch_size=rows, bytes_per_weight=bytes_per_number,
                          bytes_per_element=bytes_per_number)
    return rows * flops_per_token(config, context).total, nbytes


FLOPS_TOTAL = "flops_per_token counts three parts one by one; .total is their sum"


def check_decode_cost(attempt: Callable) -> None:
    L, D, H, HKV, DH, F, V = 5, 48, 6, 3, 8, 20, 100
    config = ModelConfig(vocab_size=V, hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H,
                         num_key_value_heads=HKV, max_position_embeddings=64, tie_word_embeddings=True)
    layer = D * H * DH + 2 * D * HKV * DH + H * DH * D + 3 * D * F  # q, k and v, o, and the MLP's three
    matrices, norms = L * layer + V * D, (2 * L + 1) * D

    def expect_cost(context: int, rows: int, each: float, flops_likely: str, bytes_likely: str) -> None:
        flops = rows * (2 * matrices + 4 * L * H * DH * context)
        nbytes = (matrices + norms + rows * context * 2 * L * HKV * DH) * each
        try:
            got = attempt(config, context, rows, each)
        except TypeError as error:
            if "Flops" not in str(error):
                raise
            raise CheckFailed("a number", "a Flops", "flops", FLOPS_TOTAL) from error
        if isinstance(got, tuple) and len(got) == 2 and isinstance(got[0], Flops):
            raise CheckFailed("a number", show(got[0]), "flops", FLOPS_TOTAL)
        if not (isinstance(got, tuple) and len(got) == 2):
            raise CheckFailed("a tuple of two numbers", show(got), "result", "return flops, nbytes")
        expect_number(got[0], flops, flops_likely, rtol=1e-9, atol=0, where="flops")
        expect_number(got[1], nbytes, bytes_likely, rtol=1e-9, atol=0, where="nbytes")

    expect_cost(1, 1, 1, "one row costs flops_per_token(config, context).total: each weight 2, and attention's own",
                "one row reads every weight, and its own keys and values")
    expect_cost(9, 1, 1, "attention's own arithmetic grows with the context",
                "kv_bytes_per_token is for a single position; the row reads all `context` of them")
    expect_cost(9, 1, 4, "the FLOPs do not depend on the bytes of a number",
                "each weight and each number of the cache takes bytes_per_number; both functions want to be told")
    expect_cost(1, 7, 1, "every row is computed: 7 rows, 7 times the FLOPs",
                "all rows share one reading of the weights, but each has keys and values of its own")
    expect_cost(11, 3, 0.5, "rows times the FLOPs of a row",
                "the weights once, the cache of each row, half a byte each")


# 09.3


def check_critical_batch(attempt: Callable) -> None:
    def expect_rows(machine: Machine, bytes_per_weight: float, rows: float, likely: str) -> None:
        expect_number(attempt(machine, bytes_per_weight), rows, likely, rtol=1e-9, atol=0)

    expect_rows(Machine("even", 100e9, 100e9), 2, 1,
                "set both times equal for one weight: rows · 2 / flops_per_s = bytes_per_weight / bytes_per_s")
    expect_rows(Machine("fast chip", 50e9, 600e9), 2, 12,
                "a faster chip needs more rows to be busy: FLOP/s stand above, bytes/s below")
    expect_rows(Machine("fast memory", 800e9, 100e9), 2, 0.125,
                "faster memory needs fewer rows, here less than one: do not round")
    expect_rows(Machine("fast chip", 50e9, 600e9), 4, 24,
                "a weight of 4 bytes takes twice as long to read as one of 2, so twice as many rows fit in that time")
    expect_rows(Machine("fast chip", 50e9, 600e9), 0.5, 3, "bytes_per_weight are bytes, not bits: 0.5 is int4")


# 09.4


def diagnosis() -> dict[str, str]:
    """What limits each engine, by its short name."""
    return {"A": "compute", "B": "cache", "C": "overhead", "D": "weights"}


# What in the table only one of the limits explains.
EVIDENCE = {
    "A": "half the rows take half the time, and half the context changes nothing: what grows with the rows and not "
         "with their context?",
    "B": "half the context helps as much as half the rows: what does a step read that grows with both?",
    "C": "nothing that is read or computed makes a difference: what is left?",
    "D": "one change alone helps, and it changes a number that all rows share: which?",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), LIMITS, EVIDENCE, noun="limit")


# 09.5


def llama_70b_on_eight() -> dict[str, float]:
    """Tokens per second of one user, seconds to the first token, and the critical batch."""
    config, machine = LLAMAS["Llama 3 70B"], MACHINES["H100 SXM"].times(8)
    return {"tokens per second": 1 / decode_seconds(config, 1000, machine),
            "first token": prefill_seconds(config, 1000, machine), "critical batch": critical_batch(machine, 2)}


def check_llama_70b(attempt: Callable) -> None:
    """By hand: 69.5 of the 70.6 billion weights are read, 2 bytes each, and a cache of 0.33 GB; 5 % are allowed."""
    got = attempt()
    right = {"tokens per second": 26.8e12 / (139.0e9 + 0.33e9), "first token": 1.382e14 / 7.912e15,
             "critical batch": 989 / 3.35}
    expect_equal(sorted(got) if isinstance(got, dict) else got, sorted(right),
                 f"return a dict with the keys {', '.join(map(repr, right))}", where="the keys")
    likely = {
        "tokens per second": [(56_000, "that is the arithmetic alone: a single row waits for 141 GB of weights"),
                              (23.7, "eight GPUs read eight times as fast, each its eighth of every matrix"),
                              (379, "a weight of 16 bits has 2 bytes, so 70.6 billion weights are 141 GB")],
        "first token": [(0.00873, "half of it is missing: each weight costs 2 FLOPs a token, or did you take the 1,979 "
                                  "TFLOPS, which are with sparsity?"),
                        (0.0052, "that is the time to read the weights; a thousand rows have more to compute"),
                        (0.0227, "reading and computing overlap: the larger of the two, not the sum"),
                        (17.5, "in seconds: 1,000 tokens of 141 billion FLOPs each, on 7,912 TFLOPS"),
                        (0.14, "eight GPUs compute eight times as fast")],
        "critical batch": [(2362, "FLOP/s and bytes/s both grow eight times: their ratio stays"),
                           (591, "1,979 TFLOPS are with sparsity, and each weight costs 2 FLOPs for its 2 bytes"),
                           (148, "a weight has 2 bytes in 16 bits, and costs 2 FLOPs a row: the two cancel")],
    }
    for name, value in right.items():
        close = next((words for wrong, words in likely[name] if isinstance(got[name], int | float)
                      and abs(got[name] / wrong - 1) < 0.04), "weights and FLOPs from the notebook, the machine from "
                                                             "the card; 5 % are allowed")
        expect_number(got[name], value, close, rtol=0.05, atol=0, where=f"result[{name!r}]")


EXERCISES = (
    Exercise(
        "09.1", "the time of a step", step_seconds, check_step_seconds, minutes=3, difficulty="warm-up", hints=(
            "How long would the step take if it only read? And if it only computed?",
            "nbytes / machine.bytes_per_s is the first, flops / machine.flops_per_s the second.",
            "Both go on at the same time. The step ends with the later one: max(first, second).",
        )),
    Exercise(
        "09.2", "what a decode step computes and reads", decode_cost, check_decode_cost, minutes=6, hints=(
            "Of FLOPs, weights and cache: which are needed once for all rows, and which again for each?",
            "flops: rows times flops_per_token(config, context).total. Bytes: two parts to add up.",
            "weight_bytes(config, bytes_per_number) once, and for each row and position "
            "kv_bytes_per_token(config, bytes_per_number).",
        )),
    Exercise(
        "09.3", "the critical batch", critical_batch, check_critical_batch, minutes=4, hints=(
            "Take a single weight. How long does reading it take, and multiplying it for one row?",
            "Reading: bytes_per_weight / machine.bytes_per_s. Multiplying for n rows: 2 n / machine.flops_per_s.",
            "Set them equal and solve for n: FLOP/s over bytes/s, times half of bytes_per_weight.",
        )),
    Exercise(
        "09.4", "four slow engines", diagnosis, check_diagnosis, minutes=6, kind="find the bug", difficulty="stretch",
        hints=(
            "For each limit, write down what half the rows would do to it, then half the context.",
            "Arithmetic and cache both shrink with the rows. Only one of them shrinks with the context.",
            "What nothing changes is overhead. What only the bits change is the weights.",
        )),
    Exercise(
        "09.5", "Llama 3 70B on eight H100", llama_70b_on_eight, check_llama_70b, minutes=8, kind="predict",
        difficulty="stretch", hints=(
            "What does one step read? What does the prompt compute? Eight GPUs make both eight times as fast.",
            "One token: 141 GB of weights from eight times 3.35 TB/s. 1,000 tokens: 2 FLOPs each and weight.",
            "Look at the critical batch of a single one. What happens to a ratio if both sides grow eight times?",
        )),
)
