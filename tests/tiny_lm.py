"""A tokenizer of some 300 tokens, and language models of two layers that go with it."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.config import ModelConfig
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

RANKS = train_bpe(["The cat sat on the mat because it was tired. What is gravity? The pull of masses."] * 2, 300)
N = len(RANKS)
TOKENIZER = Tokenizer("tiny", POCKET_PATTERN, RANKS, {"<|endoftext|>": N, "<|im_start|>": N + 1, "<|im_end|>": N + 2},
                      chat_template=POCKET_CHAT_TEMPLATE)
CONFIG = ModelConfig(vocab_size=N + 3, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)


def confident_lm() -> SimpleNamespace:
    """A model as training begins, but with logits a few units apart, as a trained model's are."""
    model = CausalLM(CONFIG).eval()
    model.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.norm.weight.mul_(20)
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=CONFIG, eos_token_ids=frozenset({N}))


def scrambled_lm() -> SimpleNamespace:
    """A model whose parameters are all random, so that each part of it matters; it has two end tokens."""
    model = CausalLM(CONFIG).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=CONFIG, eos_token_ids=frozenset({N, N + 2}))
