"""Numbers in the prose of notebook 08 that none of its cells prints."""

from math import ceil

from course_lib.checkpoint import load
from course_lib.costs import LLAMA_3_8B, kv_bytes_per_token, largest_batch, weight_bytes
from course_lib.published import LATENT, PUBLISHED

POCKET, LINE, WEIGHTS = load("pocket").config, kv_bytes_per_token(LLAMA_3_8B), weight_bytes(LLAMA_3_8B)
CARD, SPEED, DOLLARS = 80e9, 3.35e12, 2.0  # bytes, bytes a second, an hour
LONG, USER = 131_072, 32_768  # tokens
DEEPSEEK, MISTRAL = LATENT["DeepSeek-V3"], PUBLISHED["Mistral-7B"]
USERS, USERS_8_BIT = (largest_batch(CARD, WEIGHTS, USER * LINE / divided) for divided in (1, 2))
COPIED = 8192 * 8191 // 2 * LINE  # bytes
COPY_SECONDS, READ_SECONDS = 2 * COPIED / SPEED, 8192 * WEIGHTS / SPEED

COMPUTED = {
    "500,500 tokens": 1000 * 1001 / 2,
    "131,072 tokens": LONG,
    "17.2 GB": LONG * LINE / 1e9,
    "16.1 GB": WEIGHTS / 1e9,
    "999 of them": 1000 - 1,
    "5,120 bytes": kv_bytes_per_token(POCKET, 4),
    "499,500 lines": 1000 * 999 / 2,
    "cut at 11 places": 12 - 1,
    "15 texts": ceil(122_533 / 8192),
    "512 numbers": DEEPSEEK.kv_lora_rank,
    "key of 64 numbers": DEEPSEEK.qk_rope_head_dim,
    "61 layers": DEEPSEEK.num_hidden_layers,
    "(512 +": DEEPSEEK.kv_lora_rank,
    "+ 64)": DEEPSEEK.qk_rope_head_dim,
    "192 numbers": DEEPSEEK.qk_nope_head_dim + DEEPSEEK.qk_rope_head_dim,
    "(128 each)": DEEPSEEK.v_head_dim,
    "671 billion": DEEPSEEK.parameters / 1e9,
    "128 heads": DEEPSEEK.num_attention_heads,
    "59 texts": largest_batch(CARD, WEIGHTS, 8192 * LINE),
    "67 fit": largest_batch(CARD, WEIGHTS / 2, 8192 * LINE),
    "it is 52": largest_batch(0.9 * CARD, WEIGHTS, 8192 * LINE),
    "52 and 59": largest_batch(0.9 * CARD, WEIGHTS / 2, 8192 * LINE),
    "16 GB of 80": WEIGHTS / 1e9,
    "of 80, so": CARD / 1e9,
    "23 positions back": 24 - 1,
    "of 4,096 reach": MISTRAL.sliding_window,
    "32 layers": MISTRAL.num_hidden_layers,
    "131,040 tokens": MISTRAL.num_hidden_layers * (MISTRAL.sliding_window - 1),
    "could reach 220": POCKET.num_hidden_layers * (23 - 1),
    # pencil 8.1
    "32,768 × 131,072": USER,
    "32,768 tokens": USER,
    "131,072 bytes, 4.29": LINE,
    "4.29 GB": USER * LINE / 1e9,
    "16.06 GB": WEIGHTS / 1e9,
    "14 users": USERS,
    "14 cents": 100 * DOLLARS / USERS,
    "29 fit": USERS_8_BIT,
    # pencil 8.2
    "8,191": 8192 - 1,
    "131,072 bytes: 4.40": LINE,
    "4.40 TB": COPIED / 1e12,
    "8.80 TB": 2 * COPIED / 1e12,
    "2.63 seconds": COPY_SECONDS,
    "39 seconds": READ_SECONDS,
    "15 users": READ_SECONDS / COPY_SECONDS,
}

KNOWN = {
    "Llama 3.1 8B": "the name of a model",
    "16 bits on": "bfloat16, the type of the checkpoint",
    "80 GB, nothing": "NVIDIA H100 SXM data sheet",
    "3.35 TB a second": "NVIDIA H100 SXM data sheet",
}
