"""Numbers of notebook 05 that no cell prints."""

from course_lib.costs import LLAMA_3_8B, parameter_count, weight_bytes
from course_lib.training.train import RECIPES

N, TOKENS = parameter_count(LLAMA_3_8B).total, 15e12
FLOPS = 6 * N * TOKENS
PEAK, HOUR, DOLLARS_PER_HOUR = 989e12, 3600, 2  # of an H100 in bfloat16, without sparsity
GPU_HOURS = FLOPS / (0.4 * PEAK * HOUR)
REPORTED_HOURS = 1.3e6

COMPUTED = {
    "8.03 billion": N,
    "128.5 GB": weight_bytes(LLAMA_3_8B, 16),
    "16.1 GB": weight_bytes(LLAMA_3_8B, 2),
    "63.9 GB": 80e9 - weight_bytes(LLAMA_3_8B, 2),
    "7.2 × 10²³ FLOPs": FLOPS / 1e23,
    "507,000 GPU hours": round(GPU_HOURS, -3),
    "507,000 /": round(GPU_HOURS, -3),
    "1.0 million dollars": GPU_HOURS * DOLLARS_PER_HOUR,
    "2.6 million dollars": REPORTED_HOURS * DOLLARS_PER_HOUR,
    "16 % of the peak": FLOPS / (REPORTED_HOURS * PEAK * HOUR),
    "45 trillion tokens": FLOPS / (2 * N),
    "read 1,868": round(TOKENS / N),
    "7.6 million weights": parameter_count(RECIPES["pocket"].model).total,
}
KNOWN = {
    "15 trillion": "Meta's model card of Llama 3: over 15 trillion tokens",
    "989 ×": "NVIDIA's data sheet of the H100 SXM: dense bfloat16",
    "10¹² FLOPs": "the unit of the line above",
    "1.3 million GPU hours": "Meta's model card of Llama 3 8B",
    "1.3 million, or": "the same",
    "20 tokens per parameter": "Hoffmann et al. 2022, table 3: 67 billion parameters, 1.5 trillion tokens",
    "40 %": "an assumption of the problem",
    "0.40 ×": "an assumption of the problem",
    "80 GB": "an assumption of the problem: the memory of an A100 or H100",
}
