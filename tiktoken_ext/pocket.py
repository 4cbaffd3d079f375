"""tiktoken finds this module by its place: `tiktoken.get_encoding("pocket")` is the shipped tokenizer.

`tiktoken_ext` is a namespace that tiktoken and its plugins share, so no `__init__.py` may stand here.
"""

from importlib.resources import as_file, files
from typing import Any


def pocket() -> dict[str, Any]:
    """The arguments of `tiktoken.Encoding`, read from the checkpoint."""
    # Not at the top: tiktoken imports this module also when it is asked for another encoding.
    from course_lib.hf_tokenizer import read_tokenizer

    with as_file(files("course_lib") / "models" / "pocket") as folder:
        tokenizer = read_tokenizer(folder)
    return {"name": "pocket", "pat_str": tokenizer.pat_str, "mergeable_ranks": tokenizer.mergeable_ranks,
            "special_tokens": tokenizer.special_tokens,
            "explicit_n_vocab": len(tokenizer.mergeable_ranks) + len(tokenizer.special_tokens)}


ENCODING_CONSTRUCTORS = {"pocket": pocket}
