"""Numbers in the prose of notebook 17 that none of its cells prints."""

import math
from dataclasses import replace
from inspect import signature
from itertools import takewhile

from course_lib import load
from course_lib.analysis.customers import CUSTOMERS
from course_lib.analysis.lever_runs import NEW_TOKENS, Bench, prompts, sampled_answers
from course_lib.analysis.lever_settings import Setting
from course_lib.analysis.lever_stored import COMPILED
from course_lib.analysis.levers import WARM, measure
from course_lib.analysis.other_engines import scale_out
from course_lib.analysis.quantization import first_questions, right_answers
from course_lib.analysis.roofline import MACHINES
from course_lib.costs import LLAMA_3_8B, LLAMA_3_70B, weight_bytes
from course_lib.display.levers_measured import OF_TIMES
from course_lib.engine import Engine

LM = load("pocket")
ASKED = prompts(LM, 33)
CAPITALS = first_questions("capitals", 1000)  # all
USERS, TOKENS, EVERY_S, PRICE, CARD = 10_000, 100, 300, 0.20, 2.50  # of pencil 17.1
WANTED = USERS * TOKENS / EVERY_S
A_DAY = WANTED * 86_400
ONE_CARD = 20_659  # tokens a second, of notebook 14
CUT, COPIES = scale_out(LLAMA_3_8B, MACHINES["H100 SXM"], 8, readers=8, context=2000)  # of pencil 17.2
EXCHANGES_S = 2 * 32 * 10e-6

BENCH = Bench(LM)
SHARED = len([*takewhile(lambda column: len(set(column)) == 1, zip(*ASKED))])
READ = sum(map(len, ASKED)) / len(ASKED)
A_PASS = signature(Engine).parameters["max_num_batched_tokens"].default
HELD = {name: sum(BENCH.held_bytes(Setting(name))) for name in ("float32", "int8", "int4")}
NIGHT = CUSTOMERS["nightly"].tokens_per_s
QUESTIONS = signature(measure).parameters["questions"].default

COMPUTED = {
    "74 seconds": COMPILED.before_s,
    "1,024 tokens": LM.config.max_position_embeddings,
    "203 tokens": READ,
    "188 of its": SHARED,
    "512 tokens": A_PASS,
    "6,500 tokens": round(32 * READ, -2),
    "13 passes": math.ceil(32 * READ / A_PASS),
    "· 15 =": round(READ - SHARED),
    "480 tokens": 32 * round(READ - SHARED),
    "24 tokens": NEW_TOKENS,
    "24 capitals": QUESTIONS,
    "24 tool calls": QUESTIONS,
    "two of 24": QUESTIONS,
    "all 185": len(CAPITALS),
    "knows 179": sum(right_answers(LM, CAPITALS)),
    "only 165": sum(sampled_answers(LM, CAPITALS, WARM)),
    "it is 171": sum(sampled_answers(LM, CAPITALS, replace(WARM, top_p=0.95))),
    "30 % from": OF_TIMES - 1,
    "From 0.72": math.ceil(100 * sum(BENCH.held_bytes(Setting("int8", draft="counts"))) / HELD["float32"]) / 100,
    "need 0.29": HELD["int4"] / HELD["float32"],
    "int8 weights 0.36": HELD["int8"] / HELD["float32"],
    "100 million tokens": NIGHT * 8 * 3600 / 1e6,
    "3,472 a second": NIGHT,
    "141 GB": weight_bytes(LLAMA_3_70B) / 1e9,
    # pencil 17.1
    "3,333 tokens": WANTED,
    "288 million": A_DAY / 1e6,
    "57.6 dollars": A_DAY / 1e6 * PRICE,
    "it is 60": 24 * CARD,
    "still 60": 24 * CARD,
    "16 %": WANTED / ONE_CARD,
    "19.2 dollars": A_DAY / 3 / 1e6 * PRICE,
    # pencil 17.2
    "0.64 ms by": CUT.gap_s * 1e3,
    "4.56 ms": COPIES.gap_s * 1e3,
    "factor of 7.1": COPIES.gap_s / CUT.gap_s,
    "take 0.64 ms": EXCHANGES_S * 1e3,
    "64 exchanges": EXCHANGES_S / 10e-6,
    "1.28 ms": (CUT.gap_s + EXCHANGES_S) * 1e3,
    "factor of 3.6": COPIES.gap_s / (CUT.gap_s + EXCHANGES_S),
}

KNOWN = {
    "between 0.4 and 0.9": "runs on several processors",
    "a card of 80": "NVIDIA H100 datasheet",
    "100 tokens": "a story of `CUSTOMERS`",
    "10,000 users": "a story of `CUSTOMERS`",
    "10,000 · 100 / 300": "a story of `CUSTOMERS`",
    "2.50 dollars": "an assumption of the problem, as in notebook 14",
    "20,659 tokens": "notebook 14",
    "0.20 dollars": "an assumption of the problem",
    "2,000 tokens": "an assumption of the problem",
    "32 layers": "Llama 3 8B",
    "at most 12 lines": "tests/classroom/test_answers.py",
}
