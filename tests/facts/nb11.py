"""Numbers in the prose of notebook 11 that none of its cells prints."""

from course_lib.costs import LLAMA_3_8B, LLAMA_3_70B, kv_bytes_per_token, parameter_count, weight_bytes

BITS = 4 + 32 / 128  # of a weight in groups of 128, with scale and offset of 16 bits each
SMALL = parameter_count(LLAMA_3_8B)
LAYERS, TABLE = SMALL.attention + SMALL.mlp, SMALL.embedding
LAYER_BYTES = LAYERS * BITS / 8
STEP, STEP_16 = LAYER_BYTES + TABLE, 2 * (LAYERS + TABLE)  # bytes read for a token, in int4 and in bfloat16
LARGE = weight_bytes(LLAMA_3_70B, BITS / 8)
ROOM, TOKEN = 48e9 - LARGE, kv_bytes_per_token(LLAMA_3_70B)
TOKEN_8 = TOKEN / 2 * (1 + 2 / 128)

COMPUTED = {
    "141 GB": weight_bytes(LLAMA_3_70B) / 1e9,
    "37.5 GB": LARGE / 1e9,
    "16 codes": 2**4,
    "/ 7 = 0.10": 0.7,
    "= 0.10.": 0.7 / 7,
    "one mark in 256": 2**8,
    "31 weights": 32 - 1,
    "0.54 to 0.40": 2 * 0.27,
    "0.40.": 2 * 0.2,
    "output is 0.60": 0.2 + 0.4,
    "first loses 0.07": 0.27 - 0.2,
    "0.07 = 0.063": 0.07,
    "= 0.063": 0.9 * 0.07,
    "rises to 0.333": 0.27 + 0.063,
    "2.3 times": 7 / 3,
    # pencil 11.1
    "6.98 billion": LAYERS / 1e9,
    "0.525 billion": TABLE / 1e9,
    "32/128": 32,
    "4.25 bits": BITS,
    "3.71 GB": LAYER_BYTES / 1e9,
    "the rest 1.05": 2 * TABLE / 1e9,
    "4.76 GB": (LAYER_BYTES + 2 * TABLE) / 1e9,
    "4.23 GB": STEP / 1e9,
    "11.8 tokens": 50e9 / STEP,
    "15.0 GB": STEP_16 / 1e9,
    "3.3 tokens": 50e9 / STEP_16,
    # pencil 11.2
    "327,680 bytes": TOKEN,
    "70.55 billion": parameter_count(LLAMA_3_70B).total / 1e9,
    "4.25 / 8": BITS,
    "10.52 GB": ROOM / 1e9,
    "32,100 tokens": round(ROOM / TOKEN, -2),
    "166,400 bytes": TOKEN_8,
    "63,200 fit": round(ROOM / TOKEN_8, -2),
}

KNOWN = {
    "need 32 bits": "float32",
    "80 GB for": "NVIDIA H100 SXM data sheet",
    "stored in 16 bits": "bfloat16, the type of the scales",
    "Both take 16 bits": "bfloat16, the type of the scales",
    "an offset of 16 bits each": "bfloat16, the type of the scales",
    "scale and offset of 16 bits each": "bfloat16, the type of the scales",
    "0.7. Between": "the weight of the exercise",
    "is 14. In": "the outlier of the drawing",
    "is 14 / 7": "the outlier of the drawing",
    "Here are 16 weights": "the weights of the drawing",
    "code should be 39": "0.386 / 0.01, of the cell",
    "38.6 becomes": "0.386 / 0.01, of the cell",
    "adds 16": "2 ** 4",
    "1111 1110": "the bits of -2",
    "12 layers take turns": "num_hidden_layers of GPT-2",
    "bits in groups of 32.\n": "a setting",
    "20 times the rest": "Dettmers et al. 2022, section 4",
    "6.7 billion": "Dettmers et al. 2022, section 4",
    "175 billion": "Frantar et al. 2022, abstract",
    "50 GB a second": "the laptop of the problem",
    "48 GB. Does": "NVIDIA L40S data sheet",
    "30 languages": "made up",
}
