"""Checkpoints of a few thousand random parameters, made by `transformers` and `tokenizers` for the tests.

All sizes of a model are different, and no parameter is left at an initial 0 or 1, so that a transposed
axis, a forgotten bias or a skipped norm changes the logits.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_PATTERN = LLAMA3_PATTERN.replace("{1,3}", "")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>")

LLAMA = {"vocab_size": 101, "hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 3,
         "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5}
STRETCH = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
GPT2 = {"vocab_size": 101, "n_embd": 30, "n_layer": 3, "n_head": 6, "n_positions": 64, "bos_token_id": 1,
        "eos_token_id": 2}

CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(**GPT2),
    "gpt2 untied, narrow": lambda: transformers.GPT2Config(**GPT2, n_inner=44, tie_word_embeddings=False),
    "llama": lambda: transformers.LlamaConfig(**LLAMA),
    "llama tied, biased": lambda: transformers.LlamaConfig(
        **LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
    "llama 3.1": lambda: transformers.LlamaConfig(**LLAMA, head_dim=8, rope_parameters=STRETCH),
    "mistral": lambda: transformers.MistralConfig(**LLAMA | {"num_key_value_heads": 2}, sliding_window=5),
    "qwen2": lambda: transformers.Qwen2Config(**LLAMA, tie_word_embeddings=True),
    "qwen2 window": lambda: transformers.Qwen2Config(
        **LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=0),
    "qwen3": lambda: transformers.Qwen3Config(
        **LLAMA | {"num_key_value_heads": 2, "hidden_size": 30}, head_dim=8, tie_word_embeddings=True),
    "qwen3 untied": lambda: transformers.Qwen3Config(**LLAMA | {"hidden_size": 30}, head_dim=8),
}

TEXT = ["The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's 12:45 on 3/14/2025.",
        "  indented\n\n\tcode = f(x)  # 100% \r\n",
        "naïve café, coöperate, Ελληνικά, Привет мир, 日本語のテキスト",
        "they're there, THEY'RE THERE; we'll we've I'd I'm don't", "👩‍👩‍👧‍👦 👍🏽 e\u0301 ½ Ⅷ ٣٤٥"] * 2


def make_model(name: str, folder: Path, **save_options: object) -> transformers.PreTrainedModel:
    """A random model of the named configuration, saved to `folder`; the model itself, for evaluation."""
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            centre = 1.0 if parameter.dim() == 1 and parameter.mean() == 1 else 0.0
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder, **save_options)
    return model


def make_tokenizer(style: str, vocab_size: int = 400) -> Tokenizer:
    """A byte-level BPE trained on the spot, cutting text as this family of models does."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
    tokenizer.normalizer = normalizers.NFC() if style == "qwen" else None
    tokenizer.decoder = decoders.ByteLevel()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=style in ("gpt2", "smollm"))
    pattern = {"llama3": LLAMA3_PATTERN, "qwen": QWEN_PATTERN}.get(style)
    first = {"gpt2": [], "smollm": [pre_tokenizers.Digits(individual_digits=True)]}.get(
        style, [pre_tokenizers.Split(Regex(pattern or ""), "isolated")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, byte_level]) if first else byte_level
    alphabet = [] if style == "smollm" else pre_tokenizers.ByteLevel.alphabet()
    specials = list(SPECIALS) if style == "smollm" else []  # there they come first, elsewhere last
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=specials,
                                  show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIALS])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, **config: object) -> None:
    """tokenizer.json and tokenizer_config.json."""
    folder.mkdir(exist_ok=True, parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIALS[0], **config}))
