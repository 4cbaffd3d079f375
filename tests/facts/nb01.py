"""Numbers in the prose of notebook 01 that none of its cells prints."""

from course_lib.classroom.declaration import FIRST
from course_lib.costs import price
from course_lib.tokenizer import POCKET_PATTERN, split_pieces

MONTH = price(1_000_000 * 1_000, 0, per_million_in=2.50, per_million_out=2.50)  # dollars
CONTEXT, NOVEL = 131_072, 300 * 1_600  # tokens, characters

COMPUTED = {
    "55 pieces": len(split_pieces(FIRST["Hindi"], POCKET_PATTERN)),
    "15 words": len(FIRST["Hindi"].split()),
    "24 % more": 3.94 / 3.17 - 1,
    "480,000 characters": NOVEL,
    "516,424": CONTEXT * 3.94,
    "415,498 characters": CONTEXT * 3.17,
    "last 40 pages": (NOVEL - CONTEXT * 3.17) / 1_600,
    "2,500 dollars": MONTH,
    "8,333 dollars": MONTH * 90 / 27,
    "2,222 dollars": MONTH * 24 / 27,
    "2,870 dollars": MONTH * 31 / 27,
}
GPT_4O = "OpenAI, Hello GPT-4o, 2024, section Language tokenization"
KNOWN = {
    "3.94 English": "Llama Team 2024, The Llama 3 Herd of Models, section 3.2",
    "3.17": "Llama Team 2024, The Llama 3 Herd of Models, section 3.2",
    "90 tokens to 31": GPT_4O,
    "27 to 24": GPT_4O,
    "90/27": GPT_4O,
    "factors of up to 15": "Petrov et al. 2023, abstract",
    "one takes 1,000 tokens": "an assumption of the problem",
    "300 pages of 1,600 characters": "an assumption of the problem",
    "Llama 3.1 8B": "the name of a model",
    "131,072": "max_position_embeddings in config.json of meta-llama/Llama-3.1-8B",
    "× 3.94": "Llama Team 2024, The Llama 3 Herd of Models, section 3.2",
    "10,000 Hindi tokens": "an assumption of the question",
}
