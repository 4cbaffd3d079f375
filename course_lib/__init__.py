"""How a language model generates text, in small readable modules with a small model inside.

>>> from course_lib import load, stream, SamplingParams
>>> lm = load()
>>> question = [{"role": "user", "content": "What is gravity?"}]
>>> text = "".join(stream(lm, question, SamplingParams(temperature=0.8, seed=0)))
"""

from course_lib import threads

threads.set_defaults()  # before the first import of torch, which this call keeps isort from moving up
threads.limit_threads()  # after it

from course_lib.checkpoint import LanguageModel, load, save
from course_lib.config import ModelConfig, SamplingParams
from course_lib.detokenize import DecodeStream
from course_lib.device import device
from course_lib.drafts import DraftModel, NGramDraft, PromptLookup
from course_lib.generate import CompletionOutput, Step, generate, stream
from course_lib.kv_cache import DynamicCache, SlidingWindowCache, StaticCache, cache_for
from course_lib.model import CausalLM
from course_lib.sampling import sample
from course_lib.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = ["load", "stream", "generate", "SamplingParams", "LanguageModel", "CompletionOutput", "Step",
           "ModelConfig", "CausalLM", "Tokenizer", "DecodeStream", "DynamicCache", "StaticCache",
           "SlidingWindowCache", "cache_for", "sample", "DraftModel", "PromptLookup", "NGramDraft", "save", "device"]
