"""Numbers in the prose of notebook 14 that none of its cells prints."""

from course_lib.analysis.roofline import MACHINES, decode_seconds, dollars_per_million
from course_lib.classroom import answers
from course_lib.costs import LLAMA_3_8B, LLAMA_3_70B, kv_bytes_per_token, largest_batch, weight_bytes
from course_lib.display.batching_view import Setting, again, batching_view

H100, H200 = MACHINES["H100 SXM"], MACHINES["H200"]
ALONE, COMPANY = (dollars_per_million(decode_seconds(LLAMA_3_8B, 1000, H100, batch_size=n), n, H100)
                  for n in (1, 400))
SEATED = dollars_per_million(decode_seconds(LLAMA_3_8B, 1000, H100, batch_size=483), 483, H100)
# what the widget shows
FEWER = batching_view(Setting(pages=12), answers.answer("14.1"), answers.answer("14.2")).run
assert round(10 * again(FEWER) / FEWER.served.computed) == 1, "a tenth of all tokens is computed again"
# pencil 14.1
MEMORY, WEIGHTS, TOKEN = 2 * H200.memory_bytes, weight_bytes(LLAMA_3_70B), kv_bytes_per_token(LLAMA_3_70B)
FIT = largest_batch(MEMORY, WEIGHTS, 6400 * TOKEN)
# pencil 14.2: a day
TOKENS = 100_000 * 4500 / 1e6  # millions
FULL, REUSED = 3 * TOKENS, 0.3 * 400 + 3 * 50

COMPUTED = {
    "2.50 dollars": H100.dollars_per_hour,
    "3.14 dollars": ALONE,
    "3.5 cents": 100 * COMPANY,
    "80 GB": H100.memory_bytes / 1e9,
    "99 passes": 124 - 25,
    "570 should": -(-4554 // 8),
    "570 would": -(-4554 // 8),
    "pass 521": 644 - 124 + 1,
    "56 requests": 64 - 8,
    "12 pages": 12,
    "instead of 24": 24,
    "13 times": FEWER.served.preemptions,
    "90 times": round(ALONE / SEATED, -1),
    # pencil 14.1
    "282 GB": MEMORY / 1e9,
    "141.1 GB": WEIGHTS / 1e9,
    "0.328 MB": TOKEN / 1e6,
    "6,400": 6000 + 400,
    "2.1 GB": 6400 * TOKEN / 1e9,
    "140.9 GB": (MEMORY - WEIGHTS) / 1e9,
    "67 fit": FIT,
    # pencil 14.2
    "4,500 tokens": 4000 + 500,
    "450 million": TOKENS,
    "1,350": FULL,
    "400 million": 100_000 * 4000 / 1e6,
    "50 million": 100_000 * 500 / 1e6,
    "120 + 150": 0.3 * 400,
    "+ 150": 3 * 50,
    "270 dollars": REUSED,
}

KNOWN = {
    "60 years": "Atlas, 1962",
    "0.125": "the distance of bfloat16 numbers from 16 to 32",
    "235 billion": "Qwen3-235B, in He and Thinking Machines Lab 2025",
    "1,000 times": "He and Thinking Machines Lab 2025",
    "80 different": "He and Thinking Machines Lab 2025",
    "16 bits": "bfloat16, the type of the checkpoint",
    "400 readers": "an example",
    "400 fit": "an example",
    "400 requests": "an example",
    "17 rows": "max_num_seqs=16, and one of FixedShapeEngine's own",
    "50 wait": "an assumption of the question",
    "6,000 tokens": "an assumption of the problem",
    "summary 400": "an assumption of the problem",
    "0.30": "an assumption of the problem",
    "4,000 tokens": "an assumption of the problem",
    "500 new": "an assumption of the problem",
    "100,000": "an assumption of the problem",
}
