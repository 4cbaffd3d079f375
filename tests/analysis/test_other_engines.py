"""The shipped folder elsewhere: the scripts that the course shows are run, and what vLLM asks of a folder is there."""

import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

from course_lib import SamplingParams, generate, load
from course_lib.analysis import load_test
from course_lib.analysis.engines import ENGINES, prompt_of
from course_lib.analysis.other_engines import (
    PORT,
    ctranslate2_script,
    load_test_command,
    scale_out,
    transformers_script,
    vllm_commands,
)
from course_lib.analysis.roofline import MACHINES
from course_lib.checkpoint import MODELS
from course_lib.command_line import UsageError
from course_lib.costs import LLAMA_3_8B, LLAMA_3_70B, weight_bytes
from course_lib.training.questions import user

FOLDER, DRAFT = MODELS / "pocket", MODELS / "pocket-draft"
H100 = MACHINES["H100 SXM"]
needs_ctranslate2 = pytest.mark.skipif(find_spec("ctranslate2") is None, reason="CTranslate2 is not installed")


def printed(script):
    """What a script prints, in a process of its own without a hub."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def answer():
    params = SamplingParams(temperature=0, max_tokens=48)
    return generate(load("pocket", device="cpu"), user("What is gravity?"), params).text


def test_transformers_gives_our_answer(answer):
    assert printed(transformers_script(FOLDER)) == answer


@needs_ctranslate2
def test_ctranslate2_gives_our_answer_from_integers(answer, tmp_path):
    assert printed(ctranslate2_script(FOLDER, tmp_path / "converted")) == answer


@needs_ctranslate2
def test_ctranslate2_decodes_our_ids():
    ids = prompt_of(load("pocket", device="cpu"), 24)
    ours, theirs = (ENGINES[name].build("pocket")(ids, 40) for name in ("course_lib", "CTranslate2 float32"))
    assert theirs == ours and len(ours) == 40


def test_a_folder_has_what_vllm_asks_for():
    """The names that it finds an architecture, a template and its tokens by, and head sizes that its kernels know."""
    pocket, draft = (json.loads((folder / "config.json").read_text()) for folder in (FOLDER, DRAFT))
    assert pocket["architectures"] == draft["architectures"] == ["LlamaForCausalLM"]
    assert pocket["head_dim"] % 8 == draft["head_dim"] % 8 == 0 and 32 <= pocket["head_dim"] <= 256
    assert pocket["vocab_size"] == draft["vocab_size"], "or it refuses the draft"
    assert pocket["num_attention_heads"] % 8 == 0, "or the model cannot be cut into 8"
    settings = json.loads((FOLDER / "tokenizer_config.json").read_text())
    assert "<tool_call>" in settings["chat_template"] and (FOLDER / "generation_config.json").exists()


def test_commands_for_vllm_are_words_of_a_shell():
    commands = vllm_commands(FOLDER, DRAFT, gpus=4)
    assert list(commands) == ["one GPU", "one model on 4 GPUs", "4 copies of it", "with a draft"]
    for command in commands.values():
        words = shlex.split(command)
        assert words[:3] == ["vllm", "serve", str(FOLDER)] and words[words.index("--port") + 1] == str(PORT)
    assert commands["one model on 4 GPUs"].endswith("--tensor-parallel-size 4")
    assert commands["4 copies of it"].endswith("--data-parallel-size 4")
    config = json.loads(shlex.split(commands["with a draft"])[-1])
    assert config == {"method": "draft_model", "model": str(DRAFT), "num_speculative_tokens": 3}
    assert "with a draft" not in vllm_commands("Qwen/Qwen3-8B")
    with pytest.raises(ValueError, match="gpus = 0"):
        vllm_commands(FOLDER, gpus=0)


def test_the_load_test_takes_the_command(monkeypatch):
    words, seen = shlex.split(load_test_command(clients=4, seconds=0.5)), []
    assert words[:4] == ["python", "-m", "course_lib", "load-test"]

    async def run(url, *args, **options):
        seen.append(url)
        raise ConnectionError("nobody there")

    monkeypatch.setattr(load_test, "load_test", run)
    with pytest.raises(UsageError, match="nobody there"):
        load_test.main(words[4:])
    assert seen == [f"http://127.0.0.1:{PORT}"]


def test_more_machines_halve_the_gap_or_double_the_readers():
    one, copies = scale_out(LLAMA_3_8B, H100, 8, readers=64, context=1000)
    assert (one.how, copies.how) == ("one model on all", "a copy on each")
    assert one.gap_s < copies.gap_s and one.ttft_s == pytest.approx(copies.ttft_s / 8)
    assert one.fits > copies.fits, "the copies hold the weights eight times"
    spared = 7 * weight_bytes(LLAMA_3_8B) / (1000 * 131_072)
    assert one.fits - copies.fits == pytest.approx(spared, abs=8)
    assert one.tokens_per_s > copies.tokens_per_s and one.dollars_per_million < copies.dollars_per_million


def test_a_model_that_does_not_fit_one_machine_needs_several():
    one, copies = scale_out(LLAMA_3_70B, H100, 8, readers=8, context=1000)
    assert copies.fits == 0 < one.fits and one.possible and not copies.possible
    alone = scale_out(LLAMA_3_8B, H100, 1, readers=4, context=1000)
    assert alone[0].gap_s == alone[1].gap_s and alone[0].fits == alone[1].fits


@pytest.mark.parametrize("options", [{"n": 0}, {"n": 3}, {"readers": 0}])
def test_what_cannot_be_shared_out_is_refused(options):
    arguments = {"n": 2, "readers": 8} | options
    with pytest.raises(ValueError, match="is not allowed"):
        scale_out(LLAMA_3_8B, H100, arguments["n"], readers=arguments["readers"], context=100)
