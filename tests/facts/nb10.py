"""Numbers in the prose of notebook 10 that none of its cells prints."""

import math

import torch

from course_lib.analysis.heads import projections
from course_lib.checkpoint import load
from course_lib.costs import LLAMA_3_8B, flops_per_token, weight_bytes
from course_lib.display.tiles_view import tiles_view
from course_lib.flash import flash_traffic, merge, naive_traffic

LM = load("pocket")
POCKET, LLAMA, T = LM.config, LLAMA_3_8B, 8192
SPEED, OPERATIONS, PROCESSORS, CHIP = 3.35e12, 989e12, 132, 228 * 1024  # bytes a second, a second, and of an H100
HEADS = LLAMA.num_hidden_layers * LLAMA.num_attention_heads
NAIVE = naive_traffic(T, T, LLAMA.head_dim)
CARRIED = HEADS * sum(NAIVE)
ARITHMETIC = HEADS * 4 * T**2 * LLAMA.head_dim / 2
LAYERS = flops_per_token(LLAMA, 1).dense  # for a token: two operations for each weight of the layers
REST = LAYERS * T
TILE = [2 * 3 * LLAMA.head_dim + 4 * (LLAMA.head_dim + 2), 4]  # bytes times b, and times b squared
ROW = flash_traffic(T, T, POCKET.head_dim, causal=True, block_q=1, bytes_per_element=4)
SAID = LM.tokenizer.encode_prompt("Once upon a time a small dragon lived in a cave. It was afraid, so it")
Q, K, V = (x[2, 0] for x in projections(LM.model, torch.tensor(SAID)[None]))
BEFORE, LAST = (tiles_view(Q[6][-1], K[1], V[1], block=4, step=step, merge=merge) for step in (4, 5))

COMPUTED = {
    "in 36 ms": 2 * ARITHMETIC / OPERATIONS * 1e3,
    "167 ms": CARRIED / SPEED * 1e3,
    "558 GB": CARRIED / 1e9,
    "295 operations": OPERATIONS / SPEED,
    "hold 31 MB": PROCESSORS * CHIP / 1e6,
    "32 numbers each": POCKET.head_dim,
    "8 · 32 =": 8,
    "32 = 256": POCKET.head_dim,
    "= 256 numbers": POCKET.hidden_size,
    "load* 0.54 GB": naive_traffic(T, T, POCKET.head_dim, bytes_per_element=4).loaded / 1e9,
    "3.63 to 8.80": BEFORE.m,
    "to 8.80": LAST.m,
    "16 keys": LAST.start,
    "0.57 %": 100 * LAST.keep,
    "or 554": 8 * flash_traffic(T, T, POCKET.head_dim, causal=True, block_q=128, bytes_per_element=4).loaded / 1e6,
    "of 1.6.": math.exp(0.5),
    "not 295": OPERATIONS / SPEED,
    "8.59 GB": ROW.loaded / 1e9,
    "= 1.3679": 1 + math.exp(-1),
    "0.0681": math.exp(-3) * (1 + math.exp(-1)),
    "of 268 MB": 8192**2 * 4 / 1e6,
    "6.5 GB": (8 * 3 * 4 + 1) * 8192**2 / 1e9,
    "of 67 MB": 8192**2 / 1e6,
    "take 30 MB": weight_bytes(POCKET, 4) / 1e6,
    "124 processors": PROCESSORS - LLAMA.num_key_value_heads,
    "128 processors": 16 * LLAMA.num_key_value_heads,
    # pencil 10.1
    "1,288 b": TILE[0],
    "b = 128": 128,
    "230,400 of": TILE[0] * 128 + TILE[1] * 128**2,
    "of 233,472": CHIP,
    # pencil 10.2
    "277 GB": HEADS * NAIVE.stored / 1e9,
    "1,024 heads": HEADS,
    "8,192² · 128": T,
    "heads: 36 ms": 2 * ARITHMETIC / OPERATIONS * 1e3,
    "or 18 ms": ARITHMETIC / OPERATIONS * 1e3,
    "takes 0.28 s": CARRIED / SPEED + REST / OPERATIONS,
    "and 6.98 of": LAYERS / 2 / 1e9,
    "8.03 billion": weight_bytes(LLAMA) / 2 / 1e9,
    "116 ms": REST / OPERATIONS * 1e3,
}

KNOWN = {
    "80 GB of": "NVIDIA H100 SXM data sheet",
    "3.35 TB": "NVIDIA H100 SXM data sheet",
    "989 trillion": "NVIDIA H100 SXM data sheet, bfloat16, without sparsity",
    "16-bit type": "bfloat16",
    "to 16 bits": "bfloat16",
    "in 32 bits": "float32",
    "16 bits a number": "bfloat16",
    "take 32.": "float32",
    "132 processors": "streaming multiprocessors of an H100 SXM",
    "228 KiB": "shared memory and L1 cache of a streaming multiprocessor, at most for a program 227",
    "Dh = 128": "head_dim of Llama 3 8B",
    "32 layers": "num_hidden_layers of Llama 3 8B",
    "32 heads": "num_attention_heads of Llama 3 8B",
    "in 16 bits": "bfloat16",
    "· 128 operations": "head_dim of Llama 3 8B",
    "another 60": "minutes",
}
