"""A reader's own text, made ready for training: checked, a tenth held back, a vocabulary learned, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import regex
import torch
from torch import Tensor

from course_lib.command_line import UsageError
from course_lib.config import require
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe
from course_lib.training.corpus import END_OF_TEXT
from course_lib.training.train import Batches

MIN_CHARACTERS = 10_000
HELD_BACK = 10  # one tenth of each file, its last, is not trained on
VOCAB_SIZES = (300, 32_768)
SAMPLE = 1_000_000  # characters on which the vocabulary is learned
CHUNK = 1_000_000  # characters encoded at once
LONGEST_PIECE = 32  # characters without a space; longer ones would make learning a vocabulary slow


def read_texts(paths: Sequence[Path]) -> list[str]:
    """The contents of the files.

    Raises:
        UsageError: a file is missing, empty or no text in UTF-8, or all of them together are too short.
    """
    texts = [read_text(path) for path in paths]
    size = sum(map(len, texts))
    if size < MIN_CHARACTERS:
        raise UsageError(f"the text has {size:,} characters, which is too few: must be at least {MIN_CHARACTERS:,}, "
                         "and a million is better")
    return texts


def read_text(path: Path) -> str:
    """The contents of one file, each line closed by a newline alone."""
    if not path.is_file():
        raise UsageError(f"{path} is a folder, not a text file" if path.is_dir() else f"{path} does not exist")
    data = path.read_bytes()
    if b"\0" in data:
        raise UsageError(f"{path} holds zero bytes, so it is a binary file or UTF-16: must be plain text in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte {error.start:,} is {data[error.start]:#x}; save it as UTF-8, "
                         "in an editor or with iconv") from error
    if not text.strip():
        raise UsageError(f"{path} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def hold_back(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Each text cut into what is trained on and its last tenth.

    >>> hold_back(["abcdefghij", "0123456789" * 2])
    (['abcdefghi', '012345678901234567'], ['j', '89'])
    """
    borders = [len(text) - len(text) // HELD_BACK for text in texts]
    return ([text[:border] for text, border in zip(texts, borders)],
            [text[border:] for text, border in zip(texts, borders)])


def usual_vocab_size(characters: int) -> int:
    """How many tokens suit a text of this length: each should occur about a hundred times.

    >>> [usual_vocab_size(n) for n in (10_000, 1_000_000, 50_000_000)]
    [532, 2512, 4096]
    """
    return min(4096, 512 + characters // 500)


def learn_tokenizer(name: str, texts: Sequence[str], vocab_size: int | None = None) -> Tokenizer:
    """A vocabulary of at most `vocab_size` tokens, the end-of-text token included; None: as many as suit the text.

    Raises:
        ValueError: vocab_size is outside `VOCAB_SIZES`.
    """
    vocab_size = usual_vocab_size(sum(map(len, texts))) if vocab_size is None else vocab_size
    low, high = VOCAB_SIZES
    require(low <= vocab_size <= high, "vocab_size", vocab_size, f"from {low:,} to {high:,}")
    share = SAMPLE // len(texts)
    sample = [regex.sub(rf"(\S{{{LONGEST_PIECE}}})(?=\S)", r"\1 ", text[:share]) for text in texts]
    ranks = train_bpe(sample, vocab_size - 1)
    return Tokenizer(name, POCKET_PATTERN, ranks, {END_OF_TEXT: len(ranks)}, eos_token=END_OF_TEXT)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """The texts as one array of uint16, each closed by the end-of-text token; control tokens in them are words."""
    chunks = []
    for text in texts:
        parts = (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))
        chunks += [np.array(tokenizer.encode(part), dtype=np.uint16) for part in parts]
        chunks.append(np.array([tokenizer.special_tokens[END_OF_TEXT]], dtype=np.uint16))
    return np.concatenate(chunks)


class Windows(Batches):
    """Windows that start anywhere: a file is one long document.

    Raises:
        UsageError: the tokens do not fill one window.
    """

    def __init__(self, tokens: np.ndarray, length: int, seed: int = 0) -> None:
        if len(tokens) <= length:
            raise UsageError(f"the text, or its last tenth, has {len(tokens):,} tokens: must be more than {length:,}")
        self.tokens = tokens
        self.seed = seed

    def __call__(self, step: int, sequences: int, length: int) -> Tensor:
        """(sequences, length + 1) ids."""
        starts = np.random.default_rng([self.seed, step]).integers(0, len(self.tokens) - length, sequences)
        return torch.from_numpy(np.stack([self.tokens[i : i + length + 1] for i in starts]).astype(np.int64))
