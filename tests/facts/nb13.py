"""Numbers in the prose of notebook 13 that none of its cells prints."""

from course_lib.analysis.roofline import MACHINES, decode_seconds, prefill_seconds
from course_lib.costs import LLAMA_3_8B, weight_bytes

LAPTOP = MACHINES["laptop"]
FIRST = prefill_seconds(LLAMA_3_8B, 100, LAPTOP)  # a prompt of 100 tokens
ALL = FIRST + sum(decode_seconds(LLAMA_3_8B, 100 + i, LAPTOP) for i in range(1, 500))
WEIGHTS = weight_bytes(LLAMA_3_8B) / 1e9  # GB, 16 bits
READ = WEIGHTS - 2 * LLAMA_3_8B.vocab_size * LLAMA_3_8B.hidden_size / 1e9  # a step needs one row of the table
BANDWIDTH = LAPTOP.bytes_per_s / 1e9
EVENT = 210  # bytes, of which four are the piece

COMPUTED = {
    f"{ALL:.0f} seconds": ALL,
    "1.6 seconds": FIRST,
    "39 characters": 40 - 1,
    "1.5 steps": 1 + 1 / 2,
    # pencil 13.1
    "16.1 GB": WEIGHTS,
    "89.6 GB": BANDWIDTH,
    "15.01 GB": READ,
    "/ 15.01": READ,
    "5.3 tokens": 4 / 0.75,
    "= 6.0": BANDWIDTH / READ,
    "168 ms": 1000 * READ / BANDWIDTH,
    "about 24": 4 * BANDWIDTH / READ,
    # pencil 13.2
    "1.05 GB": 100_000 * 50 * EVENT / 1e9,
    "8.4 billion": 8 * 100_000 * 50 * EVENT,
    "206 + 20": EVENT - 4,
    "+ 20": 5 * 4,
    "226 bytes": EVENT + 4 * 4,
    "0.226 GB": 100_000 * 10 * (EVENT + 16) / 1e9,
}

KNOWN = {
    "40 characters": "an example",
    "RFC 3629": "the number of a standard",
    "16 bits": "bfloat16, the type of the checkpoint",
    "0.75 words": "an assumption of the problem",
    "writes 89.6": "the memory of the problem's laptop",
    "100 tokens": "an example",
    "210 bytes": "rounded: a text event of the two that the notebook prints",
    "100,000": "an assumption of the problem",
    "50 tokens": "an assumption of the problem",
    "· 50": "an assumption of the problem",
    "20 tokens": "an assumption of the question",
    "0.2 seconds": "an assumption of the question",
}
