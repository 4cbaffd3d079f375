"""Two frozen records that the rest of the package is built on: the model's shape, the sampler's knobs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any

ACTIVATIONS = ("silu", "relu", "gelu", "gelu_tanh")


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretch of the RoPE frequencies beyond the length of pre-training.

    Wavelengths longer than `original_max_position_embeddings / low_freq_factor` are slowed by
    `factor`, those shorter than `.../high_freq_factor` are kept, and those between are blended.
    Source: Llama 3.1 reference code, `rope_type = "llama3"` in Hugging Face configurations.

    Raises:
        ValueError: a number is not positive, or the factors are not in this order.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(is_number(value) and value > 0, f"rope_scaling[{name!r}]", value, "a positive number")
        require(self.high_freq_factor > self.low_freq_factor, "rope_scaling['high_freq_factor']",
                self.high_freq_factor, f"above low_freq_factor = {self.low_freq_factor}")


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer, in the names of a Hugging Face `config.json`.

    The defaults describe the Llama family. GPT-2 is the same skeleton with `norm="layernorm"`,
    `positions="learned"`, `gated_mlp=False`, `hidden_act="gelu_tanh"` and biases everywhere.

    Raises:
        ValueError: a size is not positive, the heads do not divide, or a name is unknown; the
            message holds the value and what is allowed.

    >>> config = ModelConfig(vocab_size=4096, hidden_size=256, intermediate_size=704,
    ...                      num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=4)
    >>> config.head_dim
    32
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None  # None: as many as query heads
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = True
    hidden_act: str = "silu"
    norm: str = "rmsnorm"
    positions: str = "rope"
    gated_mlp: bool = True
    attention_bias: bool = False  # q, k and v
    attention_out_bias: bool = False  # o
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None  # keys a query may see, itself included
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                     "num_attention_heads", "num_key_value_heads", "max_position_embeddings"):
            require(is_size(getattr(self, name)), name, getattr(self, name), "a positive integer")
        self.check_settings()
        if self.head_dim is None:
            require(self.hidden_size % self.num_attention_heads == 0, "num_attention_heads",
                    self.num_attention_heads, f"a divisor of hidden_size = {self.hidden_size}")
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        require(self.num_attention_heads % self.num_key_value_heads == 0, "num_key_value_heads",
                self.num_key_value_heads,
                f"a divisor of num_attention_heads = {self.num_attention_heads}")
        require(is_size(self.head_dim), "head_dim", self.head_dim, "a positive integer")
        if self.positions == "rope":
            require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "even, RoPE turns pairs")

    def check_settings(self) -> None:
        """Refuse what is no size and out of its range."""
        require(self.hidden_act in ACTIVATIONS, "hidden_act", self.hidden_act, f"one of {ACTIVATIONS}")
        for name, allowed in (("norm", ("rmsnorm", "layernorm")), ("positions", ("rope", "learned"))):
            require(getattr(self, name) in allowed, name, getattr(self, name), f"one of {allowed}")
        for name in ("tie_word_embeddings", "gated_mlp", "attention_bias", "attention_out_bias", "mlp_bias", "qk_norm"):
            require(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        for name in ("rms_norm_eps", "initializer_range"):
            require(is_number(getattr(self, name)) and getattr(self, name) >= 0, name, getattr(self, name),
                    "a finite number >= 0")
        require(is_number(self.rope_theta) and self.rope_theta > 0, "rope_theta", self.rope_theta,
                "a finite number > 0")
        require(self.sliding_window is None or is_size(self.sliding_window), "sliding_window", self.sliding_window,
                "None or positive, an integer")


@dataclass(frozen=True)
class StructuredOutputsParams:
    """What the whole text must be, in vLLM's names: exactly one of json, regex, choice, json_object and structural_tag.

    `course_lib.grammar` says what each may hold. JSON has the white space of `json.dumps`, ", " and ": ", and no other:
    so both values of disable_any_whitespace mean the same, and a whitespace_pattern must match one space and none.
    vLLM's grammar, disable_fallback and disable_additional_properties do not exist here.

    Args:
        json: a JSON schema, as an object or as JSON text.
        regex: a regular expression that the whole text matches.
        choice: several texts, of which the whole text is one.
        json_object: True for any JSON object that does not nest too deep.
        disable_any_whitespace, whitespace_pattern: beside json or json_object only.
        structural_tag: parts with JSON between tags, as an object or as JSON text.

    Raises:
        ValueError: none is given or several, or one is of another type.
    """

    json: str | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        require(isinstance(self.json_object, bool | None), "json_object", self.json_object, "None, False or True")
        object.__setattr__(self, "json_object", self.json_object or None)
        kinds = ("json", "regex", "choice", "json_object", "structural_tag")
        given = [name for name in kinds if getattr(self, name) is not None]
        require(len(given) == 1, "structured_outputs", given, f"exactly one of {', '.join(kinds)}")
        for name in ("json", "structural_tag"):  # as text, so that equal requests are found to be equal
            if getattr(self, name) is not None:
                object.__setattr__(self, name, json_text(name, getattr(self, name)))
        require(self.regex is None or is_text(self.regex), "regex", self.regex, "a string without surrogates")
        if self.choice is not None:
            object.__setattr__(self, "choice", several("choice", self.choice, str))
            require(bool(self.choice), "choice", self.choice, "several non-empty strings")
            for i, text in enumerate(self.choice):
                require(is_text(text) and text, f"choice[{i}]", text, "a non-empty string without surrogates")
        self.check_whitespace(given[0])

    def check_whitespace(self, kind: str) -> None:
        """Refuse white space that is none, or that says nothing."""
        disable, pattern = self.disable_any_whitespace, self.whitespace_pattern
        require(isinstance(disable, bool), "disable_any_whitespace", disable, "True or False")
        require(pattern is None or is_text(pattern), "whitespace_pattern", pattern, "None or a string")
        for name, value in (("disable_any_whitespace", disable), ("whitespace_pattern", pattern)):
            require(not value or kind in ("json", "json_object"), name, value, f"left out beside {kind}")


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token and when to stop, in vLLM's names.

    Args:
        temperature: divides the logits, >= 0; exactly 0 means argmax.
        top_k: keep the k most likely tokens, >= 0; 0 keeps all.
        top_p: keep the smallest set whose probability reaches p, in (0, 1].
        min_p: keep tokens at least this fraction as likely as the likeliest, in [0, 1].
        repetition_penalty: > 0; above 1 lowers tokens already in the prompt or the output.
        presence_penalty: in [-2, 2]; subtracted once from the logit of a token already generated.
        frequency_penalty: in [-2, 2]; subtracted once per time the token was generated.
        max_tokens: new tokens at most, >= 1.
        stop: a string, or several, that end the text; they are not part of it. None: there is none.
        stop_token_ids: ids that end the text, besides the model's own end-of-sequence ids.
        ignore_eos: go on after an end-of-sequence id (for measurements).
        seed: of this request's own generator, in [-2**63, 2**64); None draws one.
        logprobs: None, or how many top log-probabilities to record for each new token, >= 0.
        structured_outputs: None, or what the whole text must be; needs an end token.

    Raises:
        ValueError: a value is outside its range; the message holds both.

    >>> SamplingParams(temperature=-1)
    Traceback (most recent call last):
    ...
    ValueError: temperature = -1 is not allowed: must be a finite number >= 0
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", several("stop", self.stop, str))
        object.__setattr__(self, "stop_token_ids", several("stop_token_ids", self.stop_token_ids, int))
        t, r = self.temperature, self.repetition_penalty
        require(is_number(t) and t >= 0, "temperature", t, "a finite number >= 0")
        require(is_int(self.top_k) and self.top_k >= 0, "top_k", self.top_k, "an integer >= 0 (0: off)")
        require(is_number(self.top_p) and 0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")
        require(is_number(self.min_p) and 0 <= self.min_p <= 1, "min_p", self.min_p, "in [0, 1]")
        require(is_number(r) and r > 0, "repetition_penalty", r, "a finite number > 0")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            require(is_number(value) and -2 <= value <= 2, name, value, "in [-2, 2]")
        require(is_int(self.max_tokens) and self.max_tokens >= 1, "max_tokens", self.max_tokens,
                "an integer >= 1")
        require(all(isinstance(text, str) and text for text in self.stop), "stop", self.stop,
                "made of non-empty strings")
        require(all(is_int(i) and i >= 0 for i in self.stop_token_ids), "stop_token_ids", self.stop_token_ids,
                "made of integers >= 0")
        require(self.seed is None or (is_int(self.seed) and -(2**63) <= self.seed < 2**64), "seed", self.seed,
                "None or an integer in [-2**63, 2**64)")
        require(self.logprobs is None or (is_int(self.logprobs) and self.logprobs >= 0), "logprobs",
                self.logprobs, "None or an integer >= 0")
        require(isinstance(self.structured_outputs, StructuredOutputsParams | None), "structured_outputs",
                self.structured_outputs, "None or StructuredOutputsParams")

    def __repr__(self) -> str:
        """Only what differs from the defaults, so that the line can be copied and read."""
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self)
                   if getattr(self, f.name) != f.default]
        return f"SamplingParams({', '.join(changed)})"


def is_int(value: Any) -> bool:
    """True for an integer that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_size(value: Any) -> bool:
    """True for an integer above 0 that fits 64 bits."""
    return is_int(value) and 0 < value < 2**63


def is_number(value: Any) -> bool:
    """True for a finite number that is not a bool."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def is_text(value: Any) -> bool:
    """True for a str that can be encoded: half a surrogate pair cannot."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def several(name: str, value: Any, one: type) -> tuple:
    """One item or several as a tuple; none for None."""
    if value is None or isinstance(value, one):
        return () if value is None else (value,)
    require(isinstance(value, Iterable), name, value, f"one {one.__name__} or several")
    return tuple(value)


def json_text(name: str, value: Any) -> str:
    """An object, or JSON text of one, as JSON text."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not allowed: must be an object, or JSON text of one ({error})") from error
    require(isinstance(value, dict), name, value, "an object, or JSON text of one")
    return text


def require(ok: bool, name: str, value: Any, allowed: str) -> None:
    """Raise the package's one kind of range error unless `ok`."""
    if not ok:
        raise ValueError(f"{name} = {value!r} is not allowed: must be {allowed}")


def to_dict(config: ModelConfig | SamplingParams) -> dict[str, Any]:
    """The record as plain JSON-able data."""
    return asdict(config)
