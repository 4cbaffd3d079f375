"""Numbers in the prose of notebook 03 that none of its cells prints."""

from dataclasses import replace

from course_lib.checkpoint import load
from course_lib.costs import LLAMA_3_8B, kv_bytes_per_token, parameter_count, weight_bytes
from course_lib.training.train import RECIPES

POCKET, TOKENS, LONG = load("pocket").config, 8192, 131_072
HEADS = POCKET.num_hidden_layers * POCKET.num_attention_heads
CARD, WEIGHTS = 80e9, weight_bytes(LLAMA_3_8B)
KEPT = {shared: TOKENS * kv_bytes_per_token(replace(LLAMA_3_8B, num_key_value_heads=shared)) for shared in (32, 8, 1)}
SEATS = {shared: (CARD - WEIGHTS) // size for shared, size in KEPT.items()}
LAYER_BYTES = LLAMA_3_8B.num_attention_heads * LONG**2 * 2
RECIPE = RECIPES["pocket"].config

COMPUTED = {
    "It has 80 attention heads": HEADS,
    "room for 59": SEATS[8],
    "Number 60": SEATS[8] + 1,
    "2 × 32 ×": LLAMA_3_8B.num_hidden_layers,
    "128 × 2 bytes": LLAMA_3_8B.head_dim,
    "80 in all": HEADS,
    "80 heads alone": HEADS,
    "the other 76": HEADS - 4,
    "the other 75": HEADS - 5,
    "step 60 to": RECIPE.guided[0],
    "step 900": RECIPE.guided[1],
    "of the 11,000": RECIPE.steps,
    "8.03 billion": parameter_count(LLAMA_3_8B).total / 1e9,
    "63.94 GB are left": (CARD - WEIGHTS) / 1e9,
    "or 0.13 GB": KEPT[1] / 1e9,
    "so 14": SEATS[32],
    "59 or": SEATS[8],
    "476 fit": SEATS[1],
    "costs 14 cents": 200 / SEATS[32],
    "3.4 cents": 200 / SEATS[8],
    "0.42 cents": 200 / SEATS[1],
    "32 × 131": LLAMA_3_8B.num_attention_heads,
    "1.10 TB": LAYER_BYTES / 1e12,
    "or 14 cards": -(-LAYER_BYTES // CARD),
    "17.2 GB": LONG * kv_bytes_per_token(LLAMA_3_8B) / 1e9,
    "with 32, 8 and 1": 32,
}
KNOWN = {
    "80 GB card": "the memory of an NVIDIA H100 or A100 card, as sold",
    "another 50": "minutes",
    "16 bits": "bfloat16, as the checkpoint is published",
    "w = 0.5": "an example",
    "Llama 3.1 8B": "the name of the model",
}
