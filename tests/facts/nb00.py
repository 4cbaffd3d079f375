"""Numbers in the prose of notebook 00 that none of its cells prints."""

from course_lib.checkpoint import load
from course_lib.costs import parameter_count, price, weight_bytes
from course_lib.published import PUBLISHED

POCKET, LLAMA = load("pocket").config, PUBLISHED["Llama-3-70B"]
STEP_S = weight_bytes(LLAMA) / 6.7e12
IN, OUT = (price(a, b, per_million_in=3, per_million_out=15) for a, b in ((2000, 0), (0, 500)))

COMPUTED = {
    "37 times": 5 + 32,
    "You see 31": 32 - 1,
    "the other 31": 32 - 1,
    "6.7 TB/s": 2 * 3.35,
    "(640)": POCKET.intermediate_size,
    "in all 80 heads": POCKET.num_hidden_layers * POCKET.num_attention_heads,
    "has 7.6 million": parameter_count(POCKET).total / 1e6,
    "probability of 0.17": 0.170,
    "7.6 million numbers": parameter_count(POCKET).total / 1e6,
    "With 2,500 tokens": 500 * 15 / 3,
    "17 times in 100": 17.0,
    "it reads 36": 5 + 31,
    "read 35 of them": 5 + 30,
    "70.6 billion parameters": parameter_count(LLAMA).total / 1e9,
    "141 GB": weight_bytes(LLAMA) / 1e9,
    "21 ms per token": 1000 * STEP_S,
    "at most 47 tokens": 1 / STEP_S,
    "10.5 seconds": 500 * STEP_S,
    "0.6 cents": 100 * IN,
    "0.75 cents": 100 * OUT,
    "1.35 cents": 100 * (IN + OUT),
    "56 % of the bill": OUT / (IN + OUT),
    "cost 1,350 dollars": 100_000 * (IN + OUT),
}
KNOWN = {
    "6.7 terabytes": "NVIDIA H100 SXM data sheet: 3.35 TB/s a card",
    "15 dollars per million": "the price that the problem assumes",
    "2,000 tokens of input and 500": "the request that the problem assumes",
    "500 tokens": "the answer that the problem assumes",
    "of 500 tokens": "the answer that the problem assumes",
}
