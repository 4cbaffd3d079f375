"""Numbers in the prose of notebook 12 that none of its cells prints."""

from course_lib.checkpoint import load
from course_lib.costs import LLAMA_3_8B, weight_bytes
from course_lib.published import PUBLISHED

P, Q = (6, 3, 2, 1), (3, 6, 1, 2)  # of the drawing, in twelfths
SMALL, LARGE, TINY = weight_bytes(LLAMA_3_8B) / 1e9, weight_bytes(PUBLISHED["Llama-3-70B"]) / 1e9, 2.5  # GB, 16 bits
TOKENS, TOKENS_TINY = (sum(a**i for i in range(5)) for a in (0.8, 0.7))
STEPS, STEPS_TINY = 1 + 4 * SMALL / LARGE, 1 + 4 * TINY / LARGE
ROWS = 989 / 3.35  # 2 operations and 2 bytes a weight

COMPUTED = {
    "28 %": sum(a * b for a, b in zip(P, Q)) / 144,
    "64 texts": 4**3,
    "has 4,096": load("pocket").config.vocab_size,
    "4,096 counts": load("pocket").config.vocab_size,
    # pencil 12.1
    "141 GB": LARGE,
    "16.1 GB": SMALL,
    "16.1 /": SMALL,
    "/ 141": LARGE,
    "3.36 tokens": TOKENS,
    "1.46 steps": STEPS,
    "2.3 times": TOKENS / STEPS,
    "2.77 tokens": TOKENS_TINY,
    "1.07 steps": STEPS_TINY,
    "2.6 times": TOKENS_TINY / STEPS_TINY,
    # pencil 12.2
    "295 rows": ROWS,
    "59 users": ROWS / 5,
    "500 rows": 100 * 5,
    "1.7 times": 500 / ROWS,
}

KNOWN = {
    "16 bits": "bfloat16, the type of the checkpoints",
    "0.8 of": "an assumption of the problem",
    "0.8 +": "an assumption of the problem",
    "0.8⁴": "an assumption of the problem",
    "gets 0.7": "an assumption of the problem",
    "2.5 GB": "Llama 3.2 1B, 1.24 billion parameters in 16 bits",
    "3.35 TB": "NVIDIA H100 SXM data sheet",
    "989 trillion": "NVIDIA H100 SXM data sheet, bfloat16 without sparsity",
    "989 /": "the same",
    "/ 3.35": "the same",
}
