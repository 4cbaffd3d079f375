"""A setting of every lever at once, by vLLM's names, and which combinations there are."""

from __future__ import annotations

from dataclasses import dataclass, field

from course_lib.config import SamplingParams, require

PRECISIONS = ("float32", "bfloat16", "int8", "int4")
KV_CACHE_DTYPES = ("auto", "int8")
DRAFTS = ("none", "pocket-draft", "counts")
KNOBS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True)
class Setting:
    """Where each lever stands; without arguments the plain engine: float32, one reader, nothing reused.

    Args:
        precision: of the weights: "float32", "bfloat16", "int8" with a scale for each output, or "int4" in groups of
            32, its embedding in int8.
        kv_cache_dtype: "auto" as the activations, or "int8".
        draft: for speculative decoding: "none", "pocket-draft", or "counts" of text as the model was trained on.
        max_num_seqs: requests that share a pass, >= 1.
        enable_prefix_caching: whether equal beginnings of prompts are read once.
        params: how tokens are chosen; its max_tokens does not count.
        compiled: a decode step made by PyTorch's compiler; its first step takes up to two minutes.

    Raises:
        ValueError: there is no such choice. A rounded cache, a draft and a compiled step are for one reader without
            prefix caching; a compiled step takes float32 and nothing else, a rounded cache the most likely tokens.
    """

    precision: str = "float32"
    kv_cache_dtype: str = "auto"
    draft: str = "none"
    max_num_seqs: int = 1
    enable_prefix_caching: bool = False
    params: SamplingParams = field(default=GREEDY)
    compiled: bool = False

    def __post_init__(self) -> None:
        for name, choices in (("precision", PRECISIONS), ("kv_cache_dtype", KV_CACHE_DTYPES), ("draft", DRAFTS)):
            require(getattr(self, name) in choices, name, getattr(self, name), f"one of {', '.join(choices)}")
        require(self.max_num_seqs >= 1, "max_num_seqs", self.max_num_seqs, ">= 1")
        alone = [self.kv_cache_dtype != "auto", self.draft != "none", self.compiled]
        require(sum(alone) + self.in_engine <= 1, "setting", self.name,
                "at most one of: a rounded cache, a draft, a compiled step, a batch with or without prefix caching")
        require(not self.compiled or self.precision == "float32", "precision", self.precision,
                "float32 where the step is compiled")
        require(self.kv_cache_dtype == "auto" or not self.sampling, "params", self.params,
                "the most likely token where the cache is rounded")

    @property
    def in_engine(self) -> bool:
        """Whether requests go through the paged engine, not one by one through `generate`."""
        return self.max_num_seqs > 1 or self.enable_prefix_caching

    @property
    def name(self) -> str:
        """What is pulled, in words.

        >>> Setting().name, Setting("int8", draft="counts").name
        ('plain', 'int8 + draft: counts')
        """
        parts = [self.precision * (self.precision != "float32"), "int8 cache" * (self.kv_cache_dtype == "int8"),
                 f"draft: {self.draft}" * (self.draft != "none"), "compiled" * self.compiled,
                 f"batch {self.max_num_seqs}" * (self.max_num_seqs > 1),
                 "prefix reuse" * self.enable_prefix_caching, self.sampling]
        return " + ".join(filter(None, parts)) or "plain"

    @property
    def sampling(self) -> str:
        """Every knob of sampling that differs from greedy's, in words; "": the most likely token always.

        >>> Setting(params=SamplingParams(temperature=0.8, top_p=0.95)).sampling
        'temperature 0.8, top_p 0.95'
        """
        knobs = {name: getattr(self.params, name) for name in KNOBS}
        return ", ".join(f"{name} {value:g}" for name, value in knobs.items() if value != getattr(GREEDY, name))

    @property
    def numerics(self) -> tuple[str, str, SamplingParams]:
        """What decides which tokens are written; a draft, a batch and reused pages do not, up to near ties."""
        return self.precision, self.kv_cache_dtype, self.params
