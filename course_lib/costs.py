"""What a model costs: parameters, bytes, floating-point operations and money, from its shape alone.

Every formula is exact for the models of this package, and the tests compare it with the live object. Units
stand in the names and docstrings: FLOPs count a multiply and an add as two, 1 GB is 1e9 bytes, prices are
in dollars.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from course_lib.config import ModelConfig, require

# Published shapes to try the formulas on; the sources are the `config.json` files of the checkpoints.
GPT2 = ModelConfig(vocab_size=50257, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
                   num_attention_heads=12, norm="layernorm", positions="learned", gated_mlp=False,
                   hidden_act="gelu_tanh", attention_bias=True, attention_out_bias=True, mlp_bias=True)
LLAMA_3_8B = ModelConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336,
                         num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                         max_position_embeddings=8192, rope_theta=500_000.0, tie_word_embeddings=False)
LLAMA_3_70B = ModelConfig(vocab_size=128256, hidden_size=8192, intermediate_size=28672,
                          num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
                          max_position_embeddings=8192, rope_theta=500_000.0, tie_word_embeddings=False)


@dataclass(frozen=True)
class ParameterCount:
    """Learned numbers of a model by part; `head` is 0 where the embedding serves as the head."""

    embedding: int
    attention: int
    mlp: int
    norm: int
    head: int

    @property
    def total(self) -> int:
        """All of them, each once."""
        return sum(asdict(self).values())


def parameter_count(config: ModelConfig) -> ParameterCount:
    """Count the parameters of a model without building it.

    >>> parameter_count(LLAMA_3_8B).total
    8030261248
    >>> parameter_count(GPT2).total
    124439808
    """
    D, V, L = config.hidden_size, config.vocab_size, config.num_hidden_layers
    learned = config.positions == "learned"
    biases = 1 if config.norm == "rmsnorm" else 2  # LayerNorm has a bias beside its weight
    norm_sizes = L * (2 * D + (2 * config.head_dim if config.qk_norm else 0)) + D
    return ParameterCount(
        embedding=V * D + (config.max_position_embeddings * D if learned else 0),
        attention=L * attention_parameters(config), mlp=L * mlp_parameters(config),
        norm=biases * norm_sizes, head=0 if config.tie_word_embeddings else V * D)


def attention_parameters(config: ModelConfig) -> int:
    """Of the four projections of one layer."""
    D, query = config.hidden_size, config.num_attention_heads * config.head_dim
    kv = 2 * config.num_key_value_heads * config.head_dim
    biases = (query + kv) * config.attention_bias + D * config.attention_out_bias
    return D * (query + kv) + query * D + biases


def mlp_parameters(config: ModelConfig) -> int:
    """Of the two or, with a gate, three matrices of one layer."""
    D, F, wide = config.hidden_size, config.intermediate_size, 2 if config.gated_mlp else 1
    return (wide + 1) * D * F + (wide * F + D) * config.mlp_bias


def weight_bytes(config: ModelConfig, bytes_per_weight: float = 2) -> float:
    """Bytes of all parameters: 4 bytes each in float32, 2 in bfloat16, 0.5 in int4.

    >>> weight_bytes(LLAMA_3_70B) / 1e9
    141.107412992
    """
    require(bytes_per_weight > 0, "bytes_per_weight", bytes_per_weight, "> 0")
    return parameter_count(config).total * bytes_per_weight


def kv_bytes_per_token(config: ModelConfig, bytes_per_element: float = 2) -> float:
    """Bytes that one more position adds to the KV cache: a key and a value in every layer.

    >>> kv_bytes_per_token(LLAMA_3_8B)
    131072
    """
    require(bytes_per_element > 0, "bytes_per_element", bytes_per_element, "> 0")
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * bytes_per_element


def latent_kv_bytes_per_token(num_hidden_layers: int, *, kv_lora_rank: int = 512, qk_rope_head_dim: int = 64,
                              bytes_per_element: float = 2) -> float:
    """Bytes that one more position adds to the cache of multi-head latent attention (MLA), whatever the heads.

    Instead of keys and values, a layer keeps the vector of `kv_lora_rank` numbers that both are made from, and one
    key of `qk_rope_head_dim` numbers that carries the position for all heads.

    Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1; the defaults are those of DeepSeek-V2 and V3.

    >>> latent_kv_bytes_per_token(61)  # DeepSeek-V3
    70272
    """
    for name, size in (("num_hidden_layers", num_hidden_layers), ("kv_lora_rank", kv_lora_rank),
                       ("bytes_per_element", bytes_per_element)):
        require(size > 0, name, size, "> 0")
    require(qk_rope_head_dim >= 0, "qk_rope_head_dim", qk_rope_head_dim, ">= 0")
    return num_hidden_layers * (kv_lora_rank + qk_rope_head_dim) * bytes_per_element


def largest_batch(memory_bytes: float, weights_bytes: float, row_bytes: float) -> int:
    """How many rows fit beside the weights, each with a cache of its own; 0 where the weights fill the memory.

    Args:
        memory_bytes: of the device, without what activations and the driver need.
        weights_bytes: of all weights, held once.
        row_bytes: of one row's cache at its full length, > 0.

    >>> largest_batch(80e9, weight_bytes(LLAMA_3_8B), 8192 * kv_bytes_per_token(LLAMA_3_8B))
    59
    """
    for name, size in (("memory_bytes", memory_bytes), ("weights_bytes", weights_bytes)):
        require(size >= 0, name, size, ">= 0")
    require(row_bytes > 0, "row_bytes", row_bytes, "> 0")
    return int(max(0, memory_bytes - weights_bytes) // row_bytes)


def tokens_to_outweigh(weights_bytes: float, bytes_per_token: float) -> int:
    """Cached positions, of all rows together, from which on the cache takes more memory than the weights.

    >>> tokens_to_outweigh(weight_bytes(LLAMA_3_8B), kv_bytes_per_token(LLAMA_3_8B))  # 15 texts of 8,192 tokens
    122533
    """
    require(weights_bytes >= 0, "weights_bytes", weights_bytes, ">= 0")
    require(bytes_per_token > 0, "bytes_per_token", bytes_per_token, "> 0")
    return int(weights_bytes // bytes_per_token) + 1


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of the matrix products for one token, by part."""

    dense: int
    attention: int
    head: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(asdict(self).values())


def flops_per_token(config: ModelConfig, context: int) -> Flops:
    """Forward pass for one token that sees `context` positions, its own included.

    A matrix of n weights costs 2 n, so `dense` and `head` are twice their weights. `attention` is scores
    and weighted sum, 2 Dh each per head and position. Norms, RoPE, softmax, biases and activations do not
    count, and looking an embedding up costs nothing.

    >>> flops_per_token(LLAMA_3_8B, 1024)
    Flops(dense=13958643712, attention=536870912, head=1050673152)
    """
    require(context >= 1, "context", context, ">= 1")
    D, L = config.hidden_size, config.num_hidden_layers
    query, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    mlp = (3 if config.gated_mlp else 2) * D * config.intermediate_size
    seen = min(context, config.sliding_window or context)
    return Flops(dense=2 * L * (2 * D * query + 2 * D * kv + mlp), attention=4 * L * query * seen,
                 head=2 * D * config.vocab_size)


def prefill_flops(config: ModelConfig, tokens: int) -> int:
    """Forward pass over a prompt of this length, each token seeing those before it, with one row of logits.

    A kernel that computes the masked half of the scores as well does twice the attention.
    """
    require(tokens >= 1, "tokens", tokens, ">= 1")
    each = flops_per_token(config, 1)
    window = min(tokens, config.sliding_window or tokens)
    seen = window * (window + 1) // 2 + (tokens - window) * window  # summed over the tokens
    return tokens * each.dense + seen * each.attention + each.head


def decode_bytes(config: ModelConfig, context: int, *, batch_size: int = 1, bytes_per_weight: float = 2,
                 bytes_per_element: float = 2) -> float:
    """Bytes read from memory for one decode step: every weight once, and the cache of each row.

    Args:
        context: positions that each row sees.
        batch_size: rows that share one reading of the weights.

    Of an embedding that is not the head as well, and of learned positions, only the rows looked up are read.

    >>> decode_bytes(LLAMA_3_8B, context=1024) / 1e9  # 15.0 of weights, 0.1 of keys and values
    15.144075264
    """
    require(batch_size >= 1, "batch_size", batch_size, ">= 1")
    count = parameter_count(config)
    matrices = count.total - count.embedding + config.vocab_size * config.hidden_size * (count.head == 0)
    looked_up = config.hidden_size * ((count.head > 0) + (config.positions == "learned"))
    seen = min(context, config.sliding_window or context)
    return ((matrices + batch_size * looked_up) * bytes_per_weight
            + batch_size * seen * kv_bytes_per_token(config, bytes_per_element))


def step_seconds(flops: float, nbytes: float, *, flops_per_s: float, bytes_per_s: float) -> float:
    """The roofline's lower bound for a step: computing and reading overlap, so the slower one counts.

    Source: Williams et al. 2009.

    >>> step_seconds(2e9, 1e9, flops_per_s=1e12, bytes_per_s=50e9)
    0.02
    """
    return max(flops / flops_per_s, nbytes / bytes_per_s)


def price(tokens_in: int, tokens_out: int, *, per_million_in: float, per_million_out: float) -> float:
    """Dollars for a request, given dollars per million tokens read and written.

    >>> price(1_500, 200, per_million_in=0.5, per_million_out=2.0)
    0.00115
    """
    for name, tokens in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
        require(tokens >= 0, name, tokens, ">= 0")
    return (tokens_in * per_million_in + tokens_out * per_million_out) / 1e6


def training_flops(parameters: float, tokens: float) -> float:
    """The rule of thumb C = 6 N D: a forward pass is 2 operations a parameter and token, a backward pass 4.

    It leaves attention scores out. Whether the embedding counts among the parameters has to be said each time: looking
    it up costs nothing, and an LM head of the same size does cost.

    Source: Kaplan et al. 2020, section 2.1.

    >>> f"{training_flops(70e9, 1.4e12):.2e}"  # Chinchilla
    '5.88e+23'
    """
    for name, value in (("parameters", parameters), ("tokens", tokens)):
        require(value >= 0, name, value, ">= 0")
    return 6 * parameters * tokens


def serving_flops(parameters: float, tokens: float) -> float:
    """Forward passes alone, 2 N for each token read or written; attention scores are left out.

    >>> serving_flops(8e9, 1_000)
    16000000000000.0
    """
    return training_flops(parameters, tokens) / 3


def gpu_hours(flops: float, *, flops_per_s: float, utilisation: float) -> float:
    """Hours of one GPU for a number of operations.

    Args:
        flops_per_s: peak of the GPU in the number format used.
        utilisation: the share of the peak that the run reaches (MFU), in (0, 1].

    >>> gpu_hours(3.6e18, flops_per_s=1e15, utilisation=0.5)
    2.0
    """
    require(flops >= 0, "flops", flops, ">= 0")
    require(flops_per_s > 0, "flops_per_s", flops_per_s, "> 0")
    require(0 < utilisation <= 1, "utilisation", utilisation, "in (0, 1]")
    return flops / (flops_per_s * utilisation) / 3600
