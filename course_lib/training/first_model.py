"""The model that notebook 05 trains while you wait: its shape, its recipe, and the simple text that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import torch

from course_lib.checkpoint import LanguageModel
from course_lib.config import ModelConfig
from course_lib.device import device as choose_device
from course_lib.generate import SamplingParams, generate
from course_lib.model import CausalLM
from course_lib.tokenizer import Tokenizer
from course_lib.training import train
from course_lib.training.corpus import END_OF_TEXT, Writer
from course_lib.training.train import (
    TRAIN_SEED,
    VALIDATION_SEED,
    VOCAB_SIZE,
    Batches,
    Recipe,
    TrainConfig,
    encode_corpus,
    encode_documents,
)

KINDS = ("short_story", "everyday")
TRAIN_TOKENS, VALIDATION_TOKENS = 1_500_000, 20_000
FIRST_MODEL = Recipe(
    ModelConfig(vocab_size=VOCAB_SIZE, hidden_size=128, intermediate_size=352, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256),
    TrainConfig(steps=300, sequences=8, length=128, long_every=0, peak_lr=4e-3, warmup_steps=25, decay_fraction=0.5))
TINY = ModelConfig(vocab_size=VOCAB_SIZE, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                   num_attention_heads=2)  # learns which tokens are frequent in a second


def simple_documents(seed: int) -> Iterator[str]:
    """Short stories and everyday sentences in turn, without end; each closed by the end-of-text token."""
    writer = Writer(seed)
    for kind in cycle(KINDS):
        yield getattr(writer, f"{kind}_document")() + END_OF_TEXT


def simple_batches(tokenizer: Tokenizer, *, tokens: int = TRAIN_TOKENS) -> tuple[Batches, Batches]:
    """Batches to train and to validate on, from different seeds."""
    end = tokenizer.special_tokens[END_OF_TEXT]
    sizes = {TRAIN_SEED: tokens, VALIDATION_SEED: VALIDATION_TOKENS}
    return tuple(Batches(encode_documents(tokenizer, simple_documents(seed), size), end, seed=0)
                 for seed, size in sizes.items())


def held_back_batches(tokenizer: Tokenizer) -> Batches:
    """Batches of the text that the training of the shipped models held back."""
    text = encode_corpus(tokenizer, train.VALIDATION_TOKENS, VALIDATION_SEED)
    return Batches(text, tokenizer.special_tokens[END_OF_TEXT], seed=0)


def fresh_model(shape: ModelConfig, *, seed: int = 0, device: str | torch.device | None = None) -> CausalLM:
    """A model with random weights, the same ones for the same seed.

    Args:
        device: where it goes; a name or None: as `course_lib.device` chooses.
    """
    model = CausalLM(shape)
    model.init_weights(torch.Generator().manual_seed(seed))
    return model.to(device if isinstance(device, torch.device) else choose_device(device))


def writer(model: CausalLM, tokenizer: Tokenizer) -> Callable[..., str]:
    """A function `write(prompt, seed=0, max_tokens=40)`: what the model makes of a prompt, the prompt included."""
    end = frozenset({tokenizer.special_tokens[END_OF_TEXT]})
    lm = LanguageModel(model, tokenizer, FIRST_MODEL.model, end, "first")

    def write(prompt: str, seed: int = 0, max_tokens: int = 40) -> str:
        return prompt + generate(lm, prompt, SamplingParams(temperature=0.7, seed=seed, max_tokens=max_tokens)).text

    return write


@torch.inference_mode()
def greedy(model: CausalLM, tokenizer: Tokenizer, prompt: str, n: int = 8) -> str:
    """The n likeliest next tokens, one after another, as text; control tokens are no end."""
    ids = tokenizer.encode(prompt)
    for _ in range(n):
        logits = model(torch.tensor([ids], device=model.embed_tokens.weight.device))  # (1, T, V)
        ids.append(logits[0, -1].argmax().item())
    return tokenizer.decode(ids[-n:])


def word_pairs(text: str) -> list[tuple[str, str]]:
    """Neighbouring words; punctuation is left out.

    >>> word_pairs("The cat, it sat.")
    [('The', 'cat'), ('cat', 'it'), ('it', 'sat')]
    """
    words = re.findall(r"[A-Za-z']+", text)
    return list(zip(words, words[1:]))


def known_pairs(texts: Sequence[str], corpus: str) -> float:
    """The share of the word pairs of some texts that occur anywhere in the corpus."""
    known = set(word_pairs(corpus))
    hits = [pair in known for text in texts for pair in word_pairs(text)]
    return sum(hits) / len(hits)


def new_sentences(texts: Sequence[str], corpus: str) -> tuple[int, int]:
    """Of the finished sentences of some texts, how many do not occur in the corpus, and how many there are."""
    found = [sentence for text in texts for sentence in re.split(r"(?<=[.!?]) ", text)[:-1]]
    return sum(sentence not in corpus for sentence in found), len(found)
