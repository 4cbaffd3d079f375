"""tiktoken finds the shipped vocabulary by name, offline, beside its own encodings."""

import subprocess
import sys
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import tiktoken_ext
from course_lib import load
from tiktoken_ext.pocket import ENCODING_CONSTRUCTORS

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>",
            "</tool_response>"]


@pytest.fixture(scope="module")
def tokenizer():
    return load("pocket").tokenizer


def test_the_encoding_is_the_shipped_tokenizer(tokenizer):
    encoding = tiktoken.get_encoding("pocket")
    assert encoding.name == "pocket"
    assert encoding.n_vocab == tokenizer.n_vocab == 4096
    assert encoding._mergeable_ranks == tokenizer.mergeable_ranks
    assert encoding._special_tokens == tokenizer.special_tokens
    assert encoding._pat_str == tokenizer.pat_str
    assert set(SPECIALS) == encoding.special_tokens_set


@given(text=st.text())
def test_encoding_equals_the_library(tokenizer, text):
    encoding = tiktoken.get_encoding("pocket")
    ids = encoding.encode_ordinary(text)
    assert encoding.decode(ids) == text
    assert tokenizer.encode(text) == ids


def test_special_tokens_are_single_ids_when_asked_for():
    encoding = tiktoken.get_encoding("pocket")
    ids = encoding.encode("".join(SPECIALS), allowed_special="all")
    assert len(ids) == len(SPECIALS) and len(set(ids)) == len(ids)
    assert encoding.eot_token == ids[0]


def test_tiktoken_keeps_its_own_encodings():
    assert {"pocket", "gpt2", "cl100k_base", "o200k_base"} <= set(tiktoken.list_encoding_names())
    assert list(ENCODING_CONSTRUCTORS) == ["pocket"]


def test_the_plugin_folder_is_a_namespace():
    assert tiktoken_ext.__file__ is None, "an __init__.py here would hide tiktoken's own encodings"
    assert not (Path(__file__).parents[1] / "tiktoken_ext" / "__init__.py").exists()


def test_other_encodings_do_not_wait_for_the_library(tmp_path):
    code = "import sys, tiktoken; tiktoken.list_encoding_names(); print('course_lib' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                         timeout=60)
    assert run.stdout == "False\n", run.stderr


def test_the_installed_package_is_enough(tmp_path):
    code = "import tiktoken; print(tiktoken.get_encoding('pocket').encode('Hello'))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                         timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[")
