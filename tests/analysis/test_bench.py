"""The benchmark command: it compares what it says it compares, and its numbers fit together."""

import re

import pytest
import torch

from course_lib.analysis import bench
from course_lib.checkpoint import load
from course_lib.config import ModelConfig
from course_lib.costs import decode_bytes
from course_lib.sampling import filter_logits
from course_lib.training.first_model import FIRST_MODEL


@pytest.fixture(scope="module")
def rows():
    """A small run of the draft model: name to value and conditions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "BUFFER", 64 * 1024)
        patch.setattr(bench, "VOCABULARIES", (97,))
        table = bench.measure(load("pocket-draft", device="cpu"), prompt_tokens=9, tokens=6, runs=2)
    return {name: (value, conditions) for name, value, conditions in table}


def number(text):
    return float(re.match(r"[\d.]+", text)[0])


def test_both_libraries_decode_the_same_ids(rows):
    assert rows["transformers"][1] == "the same ids in 2 of 2 runs"


def test_the_ratio_is_one_of_rates(rows):
    low, high = map(float, re.findall(r"\d+\.\d+", rows["course_lib / transformers"][1]))
    ratio = number(rows["course_lib / transformers"][0])
    assert 0 < low <= ratio <= high
    assert number(rows["time to first token"][0]) > 0


def test_the_limit_is_bandwidth_over_bytes(rows):
    nbytes = decode_bytes(load("pocket-draft").config, 12, bytes_per_weight=4, bytes_per_element=4)
    assert rows["bytes read per token"][0] == f"{nbytes / 1e6:.1f} MB"
    fastest = max(number(value) for name, (value, _) in rows.items() if name.startswith("memory"))
    assert number(rows["limit of the memory"][0]) == pytest.approx(fastest * 1e9 / nbytes, rel=0.05)


def test_both_samplers_choose_from_the_same_tokens():
    """Whatever is drawn survives the other chain as well; the settings leave at most 50 of 500 tokens."""
    generator = torch.Generator().manual_seed(0)
    logits, seen = 2.5 * torch.randn(1, 500, generator=generator), torch.tensor([[3, 3, 9]])
    params = bench.SAMPLING[-1]
    kept = filter_logits(logits, params, seen, [[]])[0].isfinite()
    theirs = bench.their_sampler(params, seen)
    assert 1 < kept.sum() <= 50 and all(kept[theirs(logits)] for _ in range(50))


def test_a_row_for_each_vocabulary_and_setting(rows):
    sampled = [(value, conditions) for name, value, conditions in bench.sampler_rows(97, 1)]
    assert len(sampled) == len(bench.SAMPLING) and all(number(value) > 0 for value, _ in sampled)
    for (_, conditions), params in zip(sampled, bench.SAMPLING):
        assert re.fullmatch(rf"\d+\.\d times as fast as transformers, {re.escape(repr(params))}", conditions)
    assert "choosing a token, V = 97" in rows


def test_runs_are_as_long_as_asked_and_never_stop_early():
    lm = load("pocket-draft", device="cpu")
    prompt = bench.prompt_of(lm, 9)
    ids, seconds, first = bench.ours(lm, prompt, 40)
    assert (len(prompt), len(ids)) == (9, 40) and 0 < first < seconds
    assert len(bench.theirs("pocket-draft", prompt, 40)()[0]) == 40


def test_the_training_of_notebook_05_is_measured_from_a_few_steps(monkeypatch):
    small = ModelConfig(vocab_size=4096, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                        num_attention_heads=2)
    monkeypatch.setattr(bench, "FIRST_MODEL", FIRST_MODEL._replace(model=small))
    name, value, conditions = bench.first_model_row(load("pocket-draft").tokenizer, steps=3)
    assert "notebook 05" in name and number(value) > 0
    assert conditions == f"{FIRST_MODEL.config.steps} steps, from 3"


def test_the_command_prints_a_table_and_gives_the_threads_back(capsys, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(bench, "measure", lambda lm, **sizes: [("a", str(sizes["tokens"]), "c")])
    assert bench.main(["--model", "pocket-draft", "--threads", "1", "--tokens", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("LanguageModel('pocket-draft'") and "threads: 1" in lines[0]
    assert lines[2:] == ["| measured | | conditions |", "|---|---:|---|", "| a | 5 | c |"]
    assert torch.get_num_threads() == before
    with pytest.raises(SystemExit):
        bench.main(["--runs", "0"])
    assert "--runs: '0' is not allowed: must be an integer >= 1" in capsys.readouterr().err
