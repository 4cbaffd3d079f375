"""Numbers in the prose of notebook 04 that no cell prints."""

import math

from course_lib.costs import (
    LLAMA_3_8B,
    LLAMA_3_70B,
    attention_parameters,
    mlp_parameters,
    weight_bytes,
)
from course_lib.display.diagrams import pocket
from course_lib.published import PUBLISHED
from course_lib.training.shapes import AGAIN, GRID, RECIPE, VOCABULARY, read_results, shape


def layer(config):
    """Parameters of one layer."""
    return attention_parameters(config) + mlp_parameters(config) + 2 * config.hidden_size


def parameters_of(width, depth):
    """Weights in the matrices of the layers of one of our own shapes."""
    config = shape(width, depth)
    return depth * (attention_parameters(config) + mlp_parameters(config))


SMALL, LARGE = layer(LLAMA_3_8B), layer(LLAMA_3_70B)
GPT3, HUGE = PUBLISHED["GPT-3 175B"], PUBLISHED["Llama-3.1-405B"]
H100 = 3.35e12  # bytes per second
SAVED = 40 * 2 * (LARGE - 2 * LLAMA_3_70B.hidden_size)  # FLOPs, without the norms
SEEDS = [run.loss for run in read_results() if (run.width, run.depth) == AGAIN and run.steps == RECIPE.steps
         and run.peak_lr == RECIPE.peak_lr]

COMPUTED = {
    "repeated 80 times": LLAMA_3_70B.num_hidden_layers,
    "through all 80": LLAMA_3_70B.num_hidden_layers,
    "20 parts": 2 * 10,
    "960 wide": 3 * pocket.CONFIG.intermediate_size // 2,
    "instead of 640": pocket.CONFIG.intermediate_size,
    "640 of 960": pocket.CONFIG.intermediate_size,
    "960.": 3 * pocket.CONFIG.intermediate_size // 2,
    "18 of": 0.95 * 20 - 0.05 * 20,
    "the 19": 0.95 * 20,
    "add 4 %": 4 * 1000 * LLAMA_3_8B.num_attention_heads * LLAMA_3_8B.head_dim / (2 * SMALL),
    "11 for each token": 10 + 1,
    "about 17": 3.80 * math.sqrt(21),
    "70 times": 265.6 / 3.80,
    "1, 1, 49, 49": 1,
    "49, 49": 7**2,
    "their mean is 25": (1 + 1 + 49 + 49) / 4,
    "is 65,504": (2 - 2**-10) * 2**15,
    "65,536": 256**2,
    "D = 16,384": HUGE.hidden_size,
    "F = 53,248": HUGE.intermediate_size,
    "16,384 ×": HUGE.hidden_size,
    "16,384 + 2": HUGE.hidden_size,
    "53,248 =": HUGE.intermediate_size,
    "128 query heads": HUGE.num_attention_heads,
    "128 numbers": HUGE.head_dim,
    "1,024 = 570.4 million": HUGE.num_key_value_heads * HUGE.head_dim,
    "570.4 million": attention_parameters(HUGE),
    "2,617.2 million": mlp_parameters(HUGE),
    "3,187.7 million": layer(HUGE),
    "6.4 billion FLOPs": 2 * layer(HUGE),
    "6.4 GB": 2 * layer(HUGE),
    "1.9 ms": 2 * layer(HUGE) / H100,
    "all 126": HUGE.num_hidden_layers,
    "All 126 layers": HUGE.num_hidden_layers,
    "240 ms": 126 * 2 * layer(HUGE) / H100,
    "376,832 FLOPs": 2 * 188_416,
    "adds 131,072": 2 * 128 * VOCABULARY,
    "188,416 weights": parameters_of(64, 4),
    "32,768 to the narrowest": 2 * 32 * VOCABULARY,
    "32,768 to the widest": 4 * 64 * 128,  # a token looks at 64 others on average, half of a text
    "131,072 to the narrowest": 4 * 64 * 32 * 16,
    "80 layers, and": LLAMA_3_70B.num_hidden_layers,
    "one of width 73,000": 1000 * round(math.sqrt(80) * LLAMA_3_70B.hidden_size / 1000),
    "so 0.5 ms": 2 * LARGE / H100,
    "at 0.5 million": 540_672,
    "at 1.8 million": 1_769_472,
    "8,192 and": LLAMA_3_70B.hidden_size,
    "80 in Llama 3 70B": LLAMA_3_70B.num_hidden_layers,
    "12 more": len(GRID) - 3,
    "less than 0.01": max(SEEDS) - min(SEEDS),
    "1.2 million tokens": RECIPE.steps * RECIPE.sequences * RECIPE.length,
    "855.7 million": LARGE,
    "40 layers instead of 80": 80 / 2,
    "40 × 2": 80 / 2,
    "68.5 billion FLOPs": SAVED,
    "68.5 GB": 40 * 2 * LARGE,
    "49 %": 40 * 2 * LARGE / weight_bytes(LLAMA_3_70B),
    "141 GB": weight_bytes(LLAMA_3_70B),
    "73 GB": weight_bytes(LLAMA_3_70B) - 40 * 2 * LARGE,
    "171 seconds": 1e6 * SAVED / 400e12,
    "0.10 dollars": 1e6 * SAVED / 400e12 / 3600 * 2,
}
KNOWN = {
    "1,000 tokens in view": "an assumption of the sentence",
    "loss of 1.64": "Shazeer 2020, table 1: 1.636 after 524,288 steps",
    "1.68 with ReLU": "Shazeer 2020, table 1: 1.677 after 524,288 steps",
    "about 20, or more than 200": "choices to guess from",
    "More than 200": "one of these choices",
    "3.35 TB": "NVIDIA H100 SXM data sheet: 3.35 TB/s",
    "card of 80 GB": "an assumption of the problem",
    "400 trillion": "an assumption of the problem",
    "about 100 times": "128 in GPT-3 and Llama 3 8B, 102 in Llama 3 70B",
    "Llama 3.1 405B": "a name",
    "take another 55": "minutes; an estimate",
    "99.9 to 74.8": "the widget's first picture",
    "20 wide layers": "an assumption of the question",
    "80 narrow ones": "an assumption of the question",
}
