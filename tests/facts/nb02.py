"""Numbers in the prose of notebook 02 that no cell prints."""

import math

from course_lib.costs import LLAMA_3_8B, kv_bytes_per_token, parameter_count, weight_bytes
from course_lib.published import PUBLISHED

QWEN = PUBLISHED["Qwen2-0.5B"]
QWEN_TABLE = QWEN.vocab_size * QWEN.hidden_size  # numbers
LLAMA_TABLE = LLAMA_3_8B.vocab_size * LLAMA_3_8B.hidden_size
TOTAL = parameter_count(LLAMA_3_8B).total
NEW_ROWS = LLAMA_3_8B.vocab_size - PUBLISHED["Llama-2-7B"].vocab_size
NEW_BYTES = 2 * NEW_ROWS * LLAMA_3_8B.hidden_size * 2
SAVED = 0.15 * kv_bytes_per_token(LLAMA_3_8B)
POCKET_PAIRS = 32 // 2  # Dh of pocket, two numbers in a pair
PAIRS = LLAMA_3_8B.head_dim // 2
TURNS = [2 * math.pi * LLAMA_3_8B.rope_theta ** (i / PAIRS) for i in range(PAIRS)]  # positions for a turn of each hand
TRAINED = LLAMA_3_8B.max_position_embeddings
ROUND = sum(turn <= TRAINED for turn in TURNS)  # hands that turn at least once in training

COMPUTED = {
    "43 %": 200 * QWEN_TABLE / (parameter_count(QWEN).total + QWEN_TABLE),
    "1,400 times larger": 100 * round(parameter_count(PUBLISHED["GPT-3 175B"]).total
                                      / parameter_count(PUBLISHED["GPT-2"]).total / 100),
    "1.05 GB": LLAMA_TABLE * 2 / 1e9,
    "8.03 billion": TOTAL / 1e9,
    "2.10 GB": 2 * LLAMA_TABLE * 2 / 1e9,
    "13.1 %": 200 * LLAMA_TABLE / TOTAL,
    "16.06 GB": weight_bytes(LLAMA_3_8B) / 1e9,
    "7.0 %": 100 * LLAMA_TABLE / (TOTAL - LLAMA_TABLE),
    "32,000 tokens": PUBLISHED["Llama-2-7B"].vocab_size,
    "131,072 bytes": kv_bytes_per_token(LLAMA_3_8B),
    "96,256": NEW_ROWS,
    "1.58 GB": NEW_BYTES / 1e9,
    "19,661 bytes": SAVED,
    "80,213 tokens": NEW_BYTES / SAVED,
    "6.28 positions": TURNS[0],
    "2,559,196 positions": TURNS[-1],
    "1.15 degrees": 360 * TRAINED / TURNS[-1],
    "to 34 have": ROUND - 1,
    "35 hands": ROUND,
    "i = 34.98": PAIRS * math.log(TRAINED / (2 * math.pi)) / math.log(LLAMA_3_8B.rope_theta),
    "other 29": PAIRS - ROUND,
    "θ = 500,000": LLAMA_3_8B.rope_theta,
    "500,000 in Llama 3": LLAMA_3_8B.rope_theta,
    "500,000^(126": LLAMA_3_8B.rope_theta,
    "500,000^(i": LLAMA_3_8B.rope_theta,
    "number 19": 3 + POCKET_PAIRS,
    "of 16 speeds": POCKET_PAIRS,
    "5,242,880": 5 * 4_096 * 256,
    "θ = 10,000": 10_000,
    "10,000 here": 10_000,
    "8.32": math.log(4_096),
    "3,072": 3 * 1_024,
    "= 1.78": 10_000 ** (1 / POCKET_PAIRS),
    "16 pairs": POCKET_PAIRS,
}

KNOWN = {
    "15 %": "an assumption; Meta writes \"up to 15% fewer tokens\", Introducing Meta Llama 3, April 2024",
    "0.15": "the same assumption",
    "about 12 × layers": "4 D² in attention and 8 D² in a plain MLP of width 4 D",
    "V / (12": "the same",
    "another 60": "minutes, as the hours of the exercises and a reader's estimate",
    "Llama 3.1's": "the name of the model",
    "80 GB card": "NVIDIA H100 and A100, memory of the larger kind",
    "Dh = 128": "config.json of meta-llama/Meta-Llama-3-8B",
    "64 hands": "half of Dh = 128",
    "126 / 128": "the last pair of Dh = 128",
    "i / 64": "the exponent 2 i / Dh with Dh = 128",
    "token 3,000": "an example in the last third of 3,072 tokens",
}
