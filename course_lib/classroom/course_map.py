"""The map of the course: its notebooks in order, the stage each builds, and the lever the stage offers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Chapter(NamedTuple):
    """One notebook: its file, what it builds, and what the reader can turn afterwards."""

    file: str
    title: str
    builds: str
    lever: str

    @property
    def number(self) -> str:
        """Two digits, as exercises are numbered."""
        return self.file[:2]


CHAPTERS = (
    Chapter("00_from_enter_to_the_first_word", "From Enter to the first word",
            "the whole pipeline on one question", "knowing where the time goes"),
    Chapter("01_tokenizer", "Tokenizer", "byte-level BPE, trained and run", "tokens per text: price and length"),
    Chapter("02_embeddings_and_positions", "Embeddings and positions", "lookup, neighbours, RoPE",
            "table size; usable context"),
    Chapter("03_attention", "Attention", "scores, mask, heads, GQA", "key/value heads: cache memory"),
    Chapter("04_transformer_block", "The transformer block", "norm, residual stream, SwiGLU, the stack",
            "width and depth: quality for compute"),
    Chapter("05_training_and_inference", "Training and inference", "loss, gradient descent, a trained model",
            "data and steps: quality"),
    Chapter("06_lm_head_and_softmax", "LM head and softmax", "logits, softmax, perplexity, logit lens",
            "vocabulary size: cost of the last layer"),
    Chapter("07_sampling", "Sampling", "temperature, top-k, top-p, min-p, penalties",
            "spread: variety against safety"),
    Chapter("08_kv_cache", "KV cache", "caches that copy, preallocate, slide", "memory for speed"),
    Chapter("09_prefill_and_decode", "Prefill and decode", "latency, roofline, batch", "batch: latency for cost"),
    Chapter("10_flash_attention", "FlashAttention", "online softmax in tiles", "memory traffic at long context"),
    Chapter("11_quantization", "Quantization", "int8 and int4 weights", "bytes per weight: memory, speed, quality"),
    Chapter("12_speculative_decoding", "Speculative decoding", "draft, verify, accept",
            "spare compute for latency"),
    Chapter("13_detokenize_and_stream", "Detokenize and stream", "UTF-8 borders, stop strings, a server",
            "time until the reader sees text"),
    Chapter("14_batching_and_paging", "Batching and paging", "continuous batching, block tables, prefix reuse",
            "requests per machine"),
    Chapter("15_scaling_laws", "Scaling laws", "a family of models and a fitted law",
            "parameters and data for a budget"),
    Chapter("16_agents", "Agents", "tool calls and the bounded loop", "tools: correctness for tokens"),
    Chapter("17_every_lever", "Every lever", "all stages together, measured", "all of them"),
)


def notebooks_folder() -> Path:
    """Where the notebooks lie in a checkout."""
    return Path(__file__).resolve().parents[2] / "notebooks"


def course_table(*, links: bool = False, folder: str = "") -> str:
    """The map as a Markdown table; a notebook that does not exist yet is marked as coming.

    Args:
        links: make the titles of written notebooks links.
        folder: what stands before the file name in a link.
    """
    lines = ["| nb | title | builds | the lever |", "|---|---|---|---|"]
    for chapter in CHAPTERS:
        written = (notebooks_folder() / f"{chapter.file}.ipynb").exists()
        title = f"[{chapter.title}]({folder}{chapter.file}.ipynb)" if links and written else chapter.title
        lines.append(f"| {chapter.number} | {title}{'' if written else ' (coming)'} | {chapter.builds} "
                     f"| {chapter.lever} |")
    return "\n".join(lines)
