"""Numbers in notebook 07's prose that no cell of the same section prints."""

from course_lib.costs import price
from course_lib.published import PUBLISHED

PER_MILLION = 10.0  # dollars, the price that both pencil problems assume
BROKEN = 1 - (1 - 0.001) ** 500
CENTS = 100 * price(0, 500, per_million_in=0, per_million_out=PER_MILLION)
assert "Llama-3-70B" in PUBLISHED

COMPUTED = {
    "one time in 25": 1 / 0.04,
    "one in 25 does": 1 / 0.04,
    "25/29": 16 + 9,
    "/29, more": 16 + 9 + 4,
    "at most 25/30": 16 + 9,
    "/30.": 16 + 9 + 4 + 1,
    "0.8999999999999999": 0.7 + 0.1 + 0.1,
    # pencil 7.1
    "0.999⁵⁰⁰": 0.999,
    "39.4 %": BROKEN,
    "0.5 cents": CENTS,
    "0.606": 1 - BROKEN,
    "1.65 of them": 1 / (1 - BROKEN),
    "0.82 cents": CENTS / (1 - BROKEN),
    # pencil 7.2
    "97.2 %": 1 - (1 - 0.3) ** 10,
    "0.7¹⁰": 1 - 0.3,
    "4 cents;": 10 * 100 * price(0, 400, per_million_in=0, per_million_out=PER_MILLION),
    "one draw, at 0.4 cents": 100 * price(0, 400, per_million_in=0, per_million_out=PER_MILLION),
}

GIVEN = "assumed by the problem"
DOCUMENTED = "the vendor's documentation or model card"
KNOWN = {
    "so top-p 0.9 would": GIVEN,
    "found 0.2 best": "Chen et al. 2021, section 3.3",
    "JSON of 500 tokens": GIVEN,
    "0.1 % of the probability": GIVEN,
    "in 30 % of its samples": GIVEN,
    "at temperature 0.8, in 400 tokens": GIVEN,
    "With 1,000 calls": GIVEN,
    "adds top-k 50": "transformers 5, the default generation parameters",
    "0.8 with top-k 40, top-p 0.95, min-p 0.05": "llama.cpp, common/common.h",
    "DeepSeek-V3-0324": "a model's name",
    "turns 1 into 0.3": DOCUMENTED,
}
