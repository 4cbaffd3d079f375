"""Numbers in the prose of notebook 04 that no cell prints."""

import math

from course_lib.costs import (
    LLAMA_3_8B,
    LLAMA_3_70B,
    attention_parameters,
    mlp_parameters,
    weight_bytes,
)
from course_lib.published import PUBLISHED
from course_lib.training.shapes import AGAIN, GRID, RECIPE, read_results


def layer(config):
    """Parameters of one layer."""
    return attention_parameters(config) + mlp_parameters(config) + 2 * config.hidden_size


SMALL, LARGE, GPT3 = layer(LLAMA_3_8B), layer(LLAMA_3_70B), PUBLISHED["GPT-3 175B"]
H100 = 3.35e12  # bytes per second
SAVED = 40 * 2 * (LARGE - 2 * LLAMA_3_70B.hidden_size)  # FLOPs, without the norms
SEEDS = [run.loss for run in read_results() if (run.width, run.depth) == AGAIN and run.steps == RECIPE.steps
         and run.peak_lr == RECIPE.peak_lr]
DEEP = [run.loss for run in read_results() if (run.width, run.depth) == (64, 8)]  # with either rate

COMPUTED = {
    "repeated 80 times": LLAMA_3_70B.num_hidden_layers,
    "through all 80": LLAMA_3_70B.num_hidden_layers,
    "20 parts": 2 * 10,
    "add 4 %": 4 * 1000 * LLAMA_3_8B.num_attention_heads * LLAMA_3_8B.head_dim / (2 * SMALL),
    "22 tokens": 242 / 11,
    "11 vectors": 10 + 1,
    "only from 19 to": 0.95 * 20,
    "about 18": 4.0 * math.sqrt(21),
    "66 times": 265.6 / 4.02,
    "1, 1, 49, 49": 1,
    "49, 49": 7**2,
    "their mean is 25": (1 + 1 + 49 + 49) / 4,
    "ends at 65,504": (2 - 2**-10) * 2**15,
    "65,536": 256**2,
    "F = 14,336": LLAMA_3_8B.intermediate_size,
    "4,096 × 14,336": LLAMA_3_8B.hidden_size,
    "× 14,336": LLAMA_3_8B.intermediate_size,
    "32 query heads": LLAMA_3_8B.num_attention_heads,
    "128 numbers": LLAMA_3_8B.head_dim,
    "1,024 = 41.9 million": LLAMA_3_8B.num_key_value_heads * LLAMA_3_8B.head_dim,
    "41.9 million": attention_parameters(LLAMA_3_8B),
    "176.2 million": mlp_parameters(LLAMA_3_8B),
    "218.1 million": SMALL,
    "436 million FLOPs": 2 * SMALL,
    "436 MB": 2 * SMALL,
    "0.13 ms": 2 * SMALL / H100,
    "4.2 ms": 32 * 2 * SMALL / H100,
    "32 layers": LLAMA_3_8B.num_hidden_layers,
    "them and 12 more": len(GRID) - 3,
    "less than 0.01": max(SEEDS) - min(SEEDS),
    "from 0.58 to": max(DEEP),
    "1.2 million tokens": RECIPE.steps * RECIPE.sequences * RECIPE.length,
    "128 in GPT-3": GPT3.hidden_size / GPT3.num_hidden_layers,
    "102 in Llama 3 70B": LLAMA_3_70B.hidden_size / LLAMA_3_70B.num_hidden_layers,
    "855.7 million": LARGE,
    "40 layers instead of 80": 80 / 2,
    "40 × 2": 80 / 2,
    "68.5 billion FLOPs": SAVED,
    "68.5 GB": 40 * 2 * LARGE,
    "49 %": 40 * 2 * LARGE / weight_bytes(LLAMA_3_70B),
    "141 GB": weight_bytes(LLAMA_3_70B),
    "72.7 GB": weight_bytes(LLAMA_3_70B) - 40 * 2 * LARGE,
    "171 seconds": 1e6 * SAVED / 400e12,
    "0.10 dollars": 1e6 * SAVED / 400e12 / 3600 * 2,
}
KNOWN = {
    "looks at 1,000 others": "an assumption of the sentence",
    "loss of 1.64": "Shazeer 2020, table 1: 1.636 after 524,288 steps",
    "ReLU had 1.68": "Shazeer 2020, table 1: 1.677 after 524,288 steps",
    "about 20, or more than 200": "choices to guess from",
    "More than 200": "one of these choices",
    "3.35 TB": "NVIDIA H100 SXM data sheet: 3.35 TB/s",
    "card of 80 GB": "an assumption of the problem",
    "400 trillion": "an assumption of the problem",
    "about 100 numbers": "rounded from 102 to 128",
    "20 wide layers": "an assumption of the question",
    "80 narrow ones": "an assumption of the question",
}
