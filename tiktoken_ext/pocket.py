"""tiktoken finds this module by its place: `tiktoken.get_encoding("pocket")` is the shipped tokenizer.

`tiktoken_ext` is a namespace that tiktoken and its plugins share, so no `__init__.py` may stand here.
"""

from typing import Any

from course_lib.checkpoint import MODELS
from course_lib.hf_tokenizer import load_tokenizer


def pocket() -> dict[str, Any]:
    """The arguments of `tiktoken.Encoding`, read from the checkpoint."""
    tokenizer = load_tokenizer(MODELS / "pocket")
    return {"name": "pocket", "pat_str": tokenizer.pat_str, "mergeable_ranks": tokenizer.mergeable_ranks,
            "special_tokens": tokenizer.special_tokens, "explicit_n_vocab": tokenizer.n_vocab}


ENCODING_CONSTRUCTORS = {"pocket": pocket}
