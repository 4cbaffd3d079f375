"""The map of the course: its notebooks in order, the stage each builds, and the lever the stage offers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Chapter(NamedTuple):
    """One notebook.

    Attributes:
        file: without its ending.
        title: as its first cell has it.
        builds: the stage.
        lever: what the reader can turn afterwards.
        requires: the numbers of the notebooks that its core path builds on, with a space between.
        core_minutes: of the core path, exercises included.
        further_minutes: of what is marked *further*, and of the pencil problems.
    """

    file: str
    title: str
    builds: str
    lever: str
    requires: str
    core_minutes: int
    further_minutes: int

    @property
    def number(self) -> str:
        """Two digits, as exercises are numbered."""
        return self.file[:2]

    @property
    def needs(self) -> tuple[str, ...]:
        """The numbers of the notebooks that its core path builds on."""
        return tuple(self.requires.split())


CHAPTERS = (
    Chapter("00_from_enter_to_the_first_word", "From Enter to the first word",
            "the whole pipeline on one question", "knowing where the time goes", "", 60, 25),
    Chapter("01_tokenizer", "Tokenizer", "byte-level BPE, trained and run", "tokens per text: price and length",
            "", 60, 35),
    Chapter("02_embeddings_and_positions", "Embeddings and positions", "lookup, neighbours, RoPE",
            "table size; usable context", "00 01", 60, 60),
    Chapter("03_attention", "Attention", "scores, mask, heads, GQA", "key/value heads: cache memory", "00 02", 60, 55),
    Chapter("04_transformer_block", "The transformer block", "norm, residual stream, SwiGLU, the stack",
            "width and depth: quality for compute", "03", 60, 55),
    Chapter("05_training_and_inference", "Training and inference", "loss, gradient descent, a trained model",
            "data and steps: quality", "01 04", 60, 75),
    Chapter("06_lm_head_and_softmax", "LM head and softmax", "logits, softmax, perplexity, logit lens",
            "vocabulary size: cost of the last layer", "00 05", 60, 65),
    Chapter("07_sampling", "Sampling", "temperature, top-k, top-p, min-p, penalties",
            "spread: variety against safety", "06", 57, 125),
    Chapter("08_kv_cache", "KV cache", "caches that copy, preallocate, slide", "memory for speed", "00 03", 58, 60),
    Chapter("09_prefill_and_decode", "Prefill and decode", "latency, roofline, batch", "batch: latency for cost",
            "00 04 08", 55, 50),
    Chapter("10_flash_attention", "FlashAttention", "online softmax in tiles", "memory traffic at long context",
            "03 08", 58, 60),
    Chapter("11_quantization", "Quantization", "int8 and int4 weights", "bytes per weight: memory, speed, quality",
            "00 04 06 09", 59, 65),
    Chapter("12_speculative_decoding", "Speculative decoding", "draft, verify, accept",
            "spare compute for latency", "07 08 09", 60, 55),
    Chapter("13_detokenize_and_stream", "Detokenize and stream", "UTF-8 borders, stop strings, a server",
            "time until the reader sees text", "00 01 09", 60, 45),
    Chapter("14_batching_and_paging", "Batching and paging", "continuous batching, block tables, prefix reuse",
            "requests per machine", "08 09", 60, 50),
    Chapter("15_scaling_laws", "Scaling laws", "a family of models and a fitted law",
            "parameters and data for a budget", "05 09", 60, 45),
    Chapter("16_agents", "Agents", "tool calls and the bounded loop", "tools: correctness for tokens",
            "01 06 07", 60, 40),
    Chapter("17_every_lever", "Every lever", "all stages together, measured", "all of them", "09 11 12 14", 60, 40),
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
