"""The shapes of well-known models, to count with: parameters, tables, caches.

Only the shape is meant. A configuration here counts every parameter of its model exactly; for Gemma, which
scales its embeddings and adds 1 to its norms' weights, that does not mean that this package can run it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from course_lib.config import ModelConfig, RopeScaling
from course_lib.costs import GPT2, LLAMA_3_8B, LLAMA_3_70B, latent_kv_bytes_per_token

LLAMA_2_7B = ModelConfig(vocab_size=32_000, hidden_size=4096, intermediate_size=11_008, num_hidden_layers=32,
                         num_attention_heads=32, max_position_embeddings=4096, tie_word_embeddings=False)
LLAMA_3_1 = RopeScaling(factor=8, low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=8192)
QWEN3_0_6B = ModelConfig(vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                         num_attention_heads=16, num_key_value_heads=8, head_dim=128, qk_norm=True,
                         max_position_embeddings=40_960, rms_norm_eps=1e-6, rope_theta=1e6)

PUBLISHED: dict[str, ModelConfig] = {
    "GPT-2": GPT2,
    "GPT-2 XL": replace(GPT2, hidden_size=1600, intermediate_size=6400, num_hidden_layers=48,
                        num_attention_heads=25, num_key_value_heads=25),
    "GPT-3 175B": replace(GPT2, hidden_size=12_288, intermediate_size=49_152, num_hidden_layers=96,
                          num_attention_heads=96, num_key_value_heads=96, head_dim=128,
                          max_position_embeddings=2048),
    "Llama-2-7B": LLAMA_2_7B,
    "Llama-2-70B": replace(LLAMA_2_7B, hidden_size=8192, intermediate_size=28_672, num_hidden_layers=80,
                           num_attention_heads=64, num_key_value_heads=8),
    "Llama-3-8B": LLAMA_3_8B,
    "Llama-3-70B": LLAMA_3_70B,
    "Llama-3.1-405B": replace(LLAMA_3_70B, hidden_size=16_384, intermediate_size=53_248, num_hidden_layers=126,
                              num_attention_heads=128, max_position_embeddings=131_072,
                              rope_scaling=LLAMA_3_1),
    "Llama-3.2-1B": replace(LLAMA_3_8B, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                            head_dim=64, max_position_embeddings=131_072, tie_word_embeddings=True,
                            rope_scaling=replace(LLAMA_3_1, factor=32)),
    "Mistral-7B": replace(LLAMA_2_7B, intermediate_size=14_336, num_key_value_heads=8,
                          max_position_embeddings=32_768, sliding_window=4096),
    "Qwen2-0.5B": ModelConfig(vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                              num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=131_072,
                              rms_norm_eps=1e-6, rope_theta=1e6, attention_bias=True),
    "Qwen3-0.6B": QWEN3_0_6B,
    "Qwen3-8B": replace(QWEN3_0_6B, hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36,
                        num_attention_heads=32, tie_word_embeddings=False),
    "Gemma-2B": ModelConfig(vocab_size=256_000, hidden_size=2048, intermediate_size=16_384, num_hidden_layers=18,
                            num_attention_heads=8, num_key_value_heads=1, head_dim=256, hidden_act="gelu_tanh",
                            max_position_embeddings=8192, rms_norm_eps=1e-6),
    "SmolLM2-135M": ModelConfig(vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
                                rope_theta=100_000.0),
}

# Where each shape is written: a Hugging Face repository, whose config.json it is, or a paper.
SOURCES: dict[str, str] = {
    "GPT-2": "openai-community/gpt2",
    "GPT-2 XL": "openai-community/gpt2-xl",
    "GPT-3 175B": "Brown et al. 2020, table 2.1, with GPT-2's tokenizer and tied head",
    "Llama-2-7B": "meta-llama/Llama-2-7b-hf",
    "Llama-2-70B": "meta-llama/Llama-2-70b-hf",
    "Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "Llama-3-70B": "meta-llama/Meta-Llama-3-70B",
    "Llama-3.1-405B": "meta-llama/Llama-3.1-405B",
    "Llama-3.2-1B": "meta-llama/Llama-3.2-1B",
    "Mistral-7B": "mistralai/Mistral-7B-v0.1",
    "Qwen2-0.5B": "Qwen/Qwen2-0.5B",
    "Qwen3-0.6B": "Qwen/Qwen3-0.6B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Gemma-2B": "google/gemma-2b",
    "SmolLM2-135M": "HuggingFaceTB/SmolLM2-135M",
}

# How many numbers the weight files hold, a tied head counted once, as the pages of the checkpoints state them.
# Of GPT-3 there is no file to count; its paper rounds to 175.0 billion.
PARAMETERS: dict[str, int] = {
    "GPT-2": 124_439_808, "GPT-2 XL": 1_557_611_200, "Llama-2-7B": 6_738_415_616, "Llama-2-70B": 68_976_648_192,
    "Llama-3-8B": 8_030_261_248, "Llama-3-70B": 70_553_706_496, "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400, "Mistral-7B": 7_241_732_096, "Qwen2-0.5B": 494_032_768,
    "Qwen3-0.6B": 596_049_920, "Qwen3-8B": 8_190_735_360, "Gemma-2B": 2_506_172_416, "SmolLM2-135M": 134_515_008,
}


@dataclass(frozen=True)
class LatentShape:
    """What the cache of a model with multi-head latent attention needs, in the names of its config.json.

    Attributes:
        num_attention_heads: of the queries; the cache does not depend on it.
        qk_nope_head_dim, v_head_dim: numbers of a head's key and value that are made from the latent vector.
        parameters: of all experts together, as the page of the checkpoint states them, rounded.
    """

    num_hidden_layers: int
    num_attention_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    parameters: int
    source: str

    def kv_bytes_per_token(self, bytes_per_element: float = 2) -> float:
        """Bytes that one more position adds to the cache."""
        return latent_kv_bytes_per_token(self.num_hidden_layers, kv_lora_rank=self.kv_lora_rank,
                                         qk_rope_head_dim=self.qk_rope_head_dim, bytes_per_element=bytes_per_element)

    def uncompressed_bytes_per_token(self, bytes_per_element: float = 2) -> float:
        """The same if the keys and values of every head were kept instead.

        >>> LATENT["DeepSeek-V3"].uncompressed_bytes_per_token() / LATENT["DeepSeek-V3"].kv_bytes_per_token()
        71.11111111111111
        """
        numbers = self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim
        return self.num_hidden_layers * self.num_attention_heads * numbers * bytes_per_element


LATENT: dict[str, LatentShape] = {
    "DeepSeek-V2": LatentShape(num_hidden_layers=60, num_attention_heads=128, kv_lora_rank=512, qk_rope_head_dim=64,
                               qk_nope_head_dim=128, v_head_dim=128, parameters=236_000_000_000,
                               source="deepseek-ai/DeepSeek-V2"),
    "DeepSeek-V3": LatentShape(num_hidden_layers=61, num_attention_heads=128, kv_lora_rank=512, qk_rope_head_dim=64,
                               qk_nope_head_dim=128, v_head_dim=128, parameters=671_000_000_000,
                               source="deepseek-ai/DeepSeek-V3"),
}
