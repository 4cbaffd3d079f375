"""Numbers in the prose of notebook 15 that none of its cells prints."""

import math

from course_lib.analysis.roofline import MACHINES, decode_seconds, dollars_per_million
from course_lib.analysis.scaling_law import LAWS
from course_lib.analysis.training_cost import H100_FLOPS_PER_S, TRAININGS, training_cost
from course_lib.costs import LLAMA_3_8B, flops_per_token, parameter_count, training_flops
from course_lib.training.corpus import encyclopedia
from course_lib.training.scaling_kinds import losses_by_kind, shares
from course_lib.training.scaling_runs import CONTEXT, SIZES, VOCABULARY, results, shape

RUNS = results()
LOSS = {(run.size, round(run.tokens / 1e6, 1)): run.loss for run in RUNS}
EXAM = [run.loss for run in sorted(results("held-out"), key=lambda run: run.tokens)]
SAME_COST = [training_flops(run.parameters, run.tokens) for run in RUNS
             if (run.size, round(run.tokens / 1e6, 1)) in ((3, 16.0), (4, 8.0), (5, 4.0), (6, 2.0), (8, 1.0))]
[DOUBLED] = [run.loss for run in results("rate") if (run.size, run.rate) == (6, 2)]
# of 6 N D; a token sees half the context on average
SCORES = [flops_per_token(shape(size), CONTEXT // 2).attention / (2 * parameter_count(shape(size)).total)
          for size in SIZES]
SEEDS = [run.loss for run in results(("fit", "seed")) if (run.size, round(run.tokens / 1e6, 1)) == (3, 1.0)]
[LONG] = [run for run in RUNS if (run.size, round(run.tokens / 1e6, 1)) == (4, 16.0)]
PASSING = next(loss for _, tokens, loss in LONG.curve if tokens > 3.9e6)  # of the stretch that ends at 4 M tokens
FOUR, EIGHT = (losses_by_kind()[f"size-8-tokens-{n}000k"] for n in (4, 8))
GAINS = {kind: share * (FOUR[kind] - EIGHT[kind]) for kind, share in shares().items()}
H100 = MACHINES["H100 SXM"]
# dollars for a million tokens, as in notebook 09
WRITTEN = dollars_per_million(decode_seconds(LLAMA_3_8B, 1000, H100, batch_size=64), 64, H100)
HOURS_405B = TRAININGS["Llama-3.1-405B"].gpu_hours


def off_the_best(times: float, flops: float = 1e23) -> float:
    """How much more loss a model has, as a share, that is so many times as large as the best for the budget."""
    law = LAWS["Besiroglu et al. 2024"]
    N, D = law.optimal(flops)
    return law.loss(times * N, D / times) / law.loss(N, D) - 1


# pencils
RENTED = 1000 * 30 * 86_400 * 0.4 * 989e12
SIZE = math.sqrt(RENTED / 120)
SMALL, LARGE = (6 * n * d + 2 * n * 73 for n, d in ((8, 15), (34, 0.65)))

COMPUTED = {
    "30.84 million": HOURS_405B,
    "77 million": H100.dollars_per_hour * HOURS_405B / 1e6,
    "2.50 dollars": H100.dollars_per_hour,
    "43 T written": H100.dollars_per_hour * TRAININGS["Llama-3-8B"].gpu_hours / WRITTEN / 1e6,
    "width of 64": shape(4).hidden_size,
    "1,024 tokens": VOCABULARY,
    "log 1,024": VOCABULARY,
    "= 6.93": math.log(VOCABULARY),
    "β = 0.32": math.log2(4.0 / 3.2),
    "is 0.80": 2 ** -0.32,
    "3.2 with twice": 4.0 * 0.8,
    "2.56 with four": 4.0 * 0.8**2,
    "away 26 %": 1 - EXAM[1] / EXAM[0],
    "30 % of the whole": GAINS["encyclopedia"] / sum(GAINS.values()),
    "1,362 texts": sum(len(entry.say) for entry in encyclopedia()),
    "to 40 %": max(SAME_COST) / min(SAME_COST) - 1,
    "1 % worse": LOSS[5, 4.0] / LOSS[4, 8.0] - 1,
    "0.3 %": off_the_best(2),
    "differ by 0.3 %": (max(SEEDS) - min(SEEDS)) / SEEDS[0],
    "size 6 there 5 %": DOUBLED / LOSS[6, 1.0] - 1,
    "add 16": min(SCORES),
    "to 29 %": max(SCORES),
    "5.88 · 10": training_flops(70e9, 1.4e12) / 1e23,
    "3.8 · 10": TRAININGS["Llama-3.1-405B"].flops / 1e25,
    "2.6 times": TRAININGS["Llama-3-8B"].gpu_hours / training_cost("Llama-3-8B", 15e12).gpu_hours,
    "by 0.35 nats": PASSING - LOSS[4, 4.0],
    "gap is 0.35": PASSING - LOSS[4, 4.0],
    "within 0.01 of": max(SEEDS) - min(SEEDS),
    "within 0.06 of": max(run.curve[-2][2] - run.loss for run in RUNS if run.size == 4 and run.tokens > 6e5),
    # pencil 15.1
    "86,400 seconds": 24 * 3600,
    "989 TFLOPS": H100_FLOPS_PER_S / 1e12,
    "· 989": H100_FLOPS_PER_S / 1e12,
    "make 1.03": RENTED / 1e24,
    "120 N": 6 * 20,
    "92.4 billion": SIZE,
    # pencil 15.2
    "73 T": 0.2 * 365,
    "· 73": 0.2 * 365,
    "= 720": 6 * 8 * 15,
    "720 + ": 6 * 8 * 15,
    "1,168 = ": 2 * 8 * 73,
    "1,888": SMALL,
    "133 + ": 6 * 34 * 0.65,
    "4,964 = ": 2 * 34 * 73,
    "5,097": LARGE,
    "costs 37 %": SMALL / LARGE,
}

KNOWN = {
    "20 seconds on": "measured: 10 of training, the rest to make the texts and to measure",
    "power was 0.73": "Kaplan et al. 2020, section 6.1: the best N grows as the budget to the power 0.73",
    "Hoffmann's 0.50": "Hoffmann et al. 2022, table 2, approach 1",
    "1/10,000": "OpenAI 2023, GPT-4 Technical Report, section 3.1: \"at most 10,000x less compute\"",
    "loss of 4.0": "an example",
    "takes away 20 %": "an example",
    "1.5 million": "FEWEST_TOKENS",
    "about 19 times": "counted; tests/training/test_scaling_kinds.py counts a sixteenth of it again",
    "over 400 models": "Hoffmann et al. 2022, abstract",
    "here 0.001": "the default of the exercise",
    "+ 16)": "an example",
    "100 times as large": "an example",
    "at 40 %": "an assumption",
    "reports 38 to 43 %": "Dubey et al. 2024, The Llama 3 Herd of Models, section 3.3",
    "1,000 H100s": "an assumption of the problem",
    "1,000 · 30": "an assumption of the problem",
    "30 days": "an assumption of the problem",
    "reach 40 %": "an assumption of the problem",
    "20 tokens": "an assumption of the problem",
    "20 N": "an assumption of the problem",
    "· 0.4 ·": "an assumption of the problem",
    "0.2 T": "an assumption of the problem",
    "0.65": "an assumption of the problem",
    "15 T": "an assumption of the problem",
    "· 15": "an assumption of the problem",
    "· 34": "an assumption of the problem",
    "6 · 34": "an assumption of the problem",
    "20 T tokens": "an assumption of the question",
}
