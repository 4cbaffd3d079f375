"""Numbers in the prose of notebook 09 that none of its cells prints."""

from course_lib import load
from course_lib.analysis.roofline import LLAMAS, MACHINES, prefill_seconds
from course_lib.costs import decode_bytes, flops_per_token, kv_bytes_per_token, prefill_flops, weight_bytes

POCKET = load("pocket", device="cpu").config
H100, H200 = MACHINES["H100 SXM"], MACHINES["H200"]
SMALL, LARGE = LLAMAS["Llama 3 8B"], LLAMAS["Llama 3 70B"]
ROW = flops_per_token(SMALL, 1000).total
WRITTEN = 1 / (decode_bytes(SMALL, 1000) / H100.bytes_per_s)
CACHE_LONGER, CACHE_LONGER_70B = (
    next(S for S in range(1, 2000) if S * kv_bytes_per_token(config) / H100.bytes_per_s
         > flops_per_token(config, S).total / H100.flops_per_s) for config in (SMALL, LARGE))
# pencil 9.1: two H200, a twentieth of a second, 2,000 tokens
USER, MEMORY = 2000 * kv_bytes_per_token(LARGE), 2 * H200.memory_bytes
WEIGHTS, READ = weight_bytes(LARGE), decode_bytes(LARGE, 1) - kv_bytes_per_token(LARGE)
A_STEP = 2 * H200.bytes_per_s / 20
TOKEN = flops_per_token(LARGE, 2000).total
BUSY = 2 * H200.flops_per_s / 20 / TOKEN
# pencil 9.2: a phone
PHONE_BYTES, PHONE_FLOPS = 60e9, 2e12
LARGEST = PHONE_BYTES / 10 / 0.5  # weights

COMPUTED = {
    "84 times": prefill_flops(POCKET, 100) / flops_per_token(POCKET, 100).total,
    "15.5 billion": ROW / 1e9,
    "64,000": round(H100.flops_per_s / ROW, -3),
    "writes 221": WRITTEN,
    "989 trillion": H100.flops_per_s / 1e12,
    "4 MB": 1000 * 1000 * 4 / 1e6,
    "5 % of the time": 0.01 / 0.20,
    "0.13 GB": 1000 * kv_bytes_per_token(SMALL) / 1e9,
    "394 tokens": CACHE_LONGER,
    "1,477 tokens": CACHE_LONGER_70B,
    "1.4 times": H200.bytes_per_s / H100.bytes_per_s,
    "15.8 seconds": prefill_seconds(SMALL, 1000, MACHINES["laptop"]),
    "2.50 dollars": H100.dollars_per_hour,
    "453 operations": 1012 - 559,
    "999 neighbours": 1000 - 1,
    # exercise 9.5
    "70.6 billion": WEIGHTS / 2 / 1e9,
    "3.35 TB": H100.bytes_per_s / 1e12,
    # pencil 9.1
    "with 141 GB": H200.memory_bytes / 1e9,
    "989 TFLOPS each": H200.flops_per_s / 1e12,
    "reads 139": READ / 1e9,
    "144 billion": TOKEN / 1e9,
    "4.8 TB/s": H200.bytes_per_s / 1e12,
    "480 GB": A_STEP / 1e9,
    "139 GB": READ / 1e9,
    "0.655 GB": USER / 1e9,
    "341 GB": (A_STEP - READ) / 1e9,
    "520 users": (A_STEP - READ) // USER,
    "282 GB": MEMORY / 1e9,
    "141.1 GB": WEIGHTS / 1e9,
    "holds 215": (MEMORY - WEIGHTS) / USER,
    "some 690": round(BUSY, -1),
    "322 users": (MEMORY - WEIGHTS / 2) // USER,
    # pencil 9.2
    "12 billion weights": LARGEST / 1e9,
    "12 billion ·": LARGEST / 1e9,
    "24 seconds": 2 * LARGEST * 2000 / PHONE_FLOPS,
    "6 seconds": 2 * 3e9 * 2000 / PHONE_FLOPS,
    "40 tokens per second": PHONE_BYTES / (3e9 * 0.5),
}

KNOWN = {
    "Why not 1.0": "what the ratio would be if nothing but the weights counted",
    "1,979 TFLOPS": "NVIDIA H100 SXM data sheet",
    "1.0 to": "python -m course_lib bench, pocket, one thread and two of an AMD EPYC",
    "1.3 times the speed": "python -m course_lib bench, pocket, one thread and two of an AMD EPYC",
    "took 20 ms": "an assumption, drawn in 09_roofline",
    "120 steps": "the default of `gaps_between_tokens`",
    "768 tokens": "the default of `gaps_between_tokens`",
    "at 1,000 tokens of context": "given in exercise 9.5",
    "5 % is fine": "given in exercise 9.5",
    "20 tokens per second": "given in pencil 9.1",
    "2,000 tokens": "given in the pencil problems",
    "60 GB per second": "given in pencil 9.2",
    "· 2,000 FLOPs": "given in pencil 9.2",
    "16-bit weights": "bfloat16, the type of the checkpoint",
    "16 bits": "bfloat16, the type of the checkpoint",
}
