"""Numbers of notebook 06 that no cell prints."""

import math

import torch

from course_lib.costs import decode_bytes, parameter_count
from course_lib.published import PUBLISHED

LARGE, SMALL = PUBLISHED["Llama-3-8B"], PUBLISHED["Llama-3.2-1B"]
TABLES = [config.vocab_size * config.hidden_size for config in (LARGE, SMALL)]
WEIGHTS = [parameter_count(config).total for config in (LARGE, SMALL)]
POWERS = [math.exp(logit) for logit in (4, 2, 1)]
BITS = 2 / math.log(2)  # per token, at a loss of 2 nats
SAMPLES = math.exp(3.2)  # answers until one with a logprob of -3.2 is drawn, on average

COMPUTED = {
    # softmax by hand, surprisal
    "powers are 54.6": POWERS[0], "7.39 and": POWERS[1], "2.72": POWERS[2], "64.7": sum(POWERS),
    "1.44 bits": 1 / math.log(2),
    "about one in 50,000": round(2**15.7, -4),
    "= 1.5": 0.5 * 1 + 0.25 * 2 + 0.25 * 2,
    "about 12 · D²": 4 + 8, "12 · L · D": 12,
    # vocabularies, and how much of the training text is searched
    "128,256": LARGE.vocab_size, "50,257": PUBLISHED["GPT-2"].vocab_size, "20,000 documents": 20_000,
    "2048 + 1 is 2048": float(torch.tensor(2048.0).half() + 1), "is 2048 again": float(torch.tensor(2048.0).half() + 1),
    # pencil 6.1
    "1.05 GB": 2 * TABLES[0] / 1e9, "0.53 GB": 2 * TABLES[1] / 1e9,
    "8.03 billion weights": WEIGHTS[0] / 1e9, "1.236 billion weights": WEIGHTS[1] / 1e9,
    "D = 2,048": SMALL.hidden_size, "D = 4,096": LARGE.hidden_size,
    "it is 7 %": 100 * 2 * TABLES[0] / decode_bytes(LARGE, context=1),
    "6.5 % of the 8B": 100 * TABLES[0] / WEIGHTS[0], "21.3 % of the 1B": 100 * TABLES[1] / WEIGHTS[1],
    # pencil 6.2
    "e² = 7.39": math.exp(2), "2.89 bits per token": BITS, "0.72 per character": BITS / 4,
    "4.1 %": 100 * math.exp(-3.2), "24.5 answers": SAMPLES, "172 tokens": 7 * SAMPLES,
    "0.0017 dollars": 7 * SAMPLES * 10 / 1e6,
}
KNOWN = {
    "between 15 and 28 %": "five runs of the cell on two AMD EPYC cores, quiet and busy",
    "sum to −3.2": "an assumption", "power −3.2": "an assumption", "Llama 3.2": "a name",
    "0.7 points before": "OpenAI 2023, GPT-4 Technical Report, figure 8", "7.4 after": "the same figure",
    "how sure it is: 93 %": "an assumption", "above 90 %": "Ines's threshold",
    "Another 400 documents gave 1.5 points, give or take 0.9":
        "the measurement of the section, with documents(seed=9_001): 1.55 and 0.89",
}
