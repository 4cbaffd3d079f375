"""Numbers in the prose of notebook 03 that none of its cells prints."""

import math

from course_lib.checkpoint import load
from course_lib.costs import LLAMA_3_8B, kv_bytes_per_token, weight_bytes
from course_lib.published import PARAMETERS, PUBLISHED
from course_lib.training.train import RECIPES

POCKET, TOKENS, LONG = load("pocket").config, 8192, 131_072
HEADS = POCKET.num_hidden_layers * POCKET.num_attention_heads
CARD, SPEED = 80e9, 3.35e12  # bytes, bytes a second
SEATS = (CARD - weight_bytes(LLAMA_3_8B)) // (TOKENS * kv_bytes_per_token(LLAMA_3_8B))
QWEN, QWEN_WEIGHTS = PUBLISHED["Qwen3-8B"], 2 * PARAMETERS["Qwen3-8B"]
QWEN_KEPT = TOKENS * kv_bytes_per_token(QWEN)
QWEN_SEATS = (CARD - QWEN_WEIGHTS) // QWEN_KEPT
QWEN_READ = QWEN_WEIGHTS + QWEN_SEATS * QWEN_KEPT
QWEN_RATE = QWEN_SEATS / (QWEN_READ / SPEED)  # tokens a second
LAYER_BYTES = LLAMA_3_8B.num_attention_heads * LONG**2 * 2
RECIPE = RECIPES["pocket"].config
SHARES = [math.exp(score) for score in (1, 2, 0)]  # of fast: Time, flies, fast

COMPUTED = {
    "It has 80 attention heads": HEADS,
    "has room for 59": SEATS,
    "Number 60": SEATS + 1,
    "e ≈ 2.72": math.e,
    "e³ ≈ 20.09": math.e**3,
    "20.09 / (1": math.e**3,
    "20.09 + 2.72": math.e**3,
    "+ 2.72": math.e,
    "3.33 from": 5 * SHARES[1] / sum(SHARES),
    "0.18 of": 2 * SHARES[2] / sum(SHARES),
    "makes 32 of": POCKET.head_dim,
    " 32)": POCKET.head_dim,
    "numbers 0 to 11": 3 * 4 - 1,
    "to 11, and": 3 * 4 - 1,
    "5,120 bytes": kv_bytes_per_token(POCKET, 4),
    "80 heads alone": HEADS,
    "the other 76": HEADS - 4,
    "the other 75": HEADS - 5,
    "step 60 to": RECIPE.guided[0],
    "step 900": RECIPE.guided[1],
    "of the 11,000": RECIPE.steps,
    "36 layers": QWEN.num_hidden_layers,
    "8.19 billion": PARAMETERS["Qwen3-8B"] / 1e9,
    "147,456 bytes": kv_bytes_per_token(QWEN),
    "1.21 GB": QWEN_KEPT / 1e9,
    "63.62 GB": (CARD - QWEN_WEIGHTS) / 1e9,
    "52 fit": QWEN_SEATS,
    "79.20 GB": QWEN_READ / 1e9,
    "23.6 ms": QWEN_READ / SPEED,
    "2,200 tokens": round(QWEN_RATE, -2),
    "25 cents": 200 / 3600 / QWEN_RATE * 1e6,
    "32 heads ×": LLAMA_3_8B.num_attention_heads,
    "1.10 TB": LAYER_BYTES / 1e12,
    "or 14 cards": -(-LAYER_BYTES // CARD),
    "17.2 GB": LONG * kv_bytes_per_token(LLAMA_3_8B) / 1e9,
}
KNOWN = {
    "80 GB card": "the memory of an NVIDIA H100 or A100 card, as sold",
    "80 GB H100": "the memory of an NVIDIA H100 card, as sold",
    "3.35 TB": "an H100 SXM card, NVIDIA's data sheet",
    "another 55": "minutes",
    "16 bits": "bfloat16, as the checkpoint is published",
    "w = 0.5": "an example",
    "Llama 3.1 8B": "the name of the model",
}
