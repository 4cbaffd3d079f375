"""The benchmark command: engines in processes of their own, and numbers that fit together."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from course_lib import load
from course_lib.analysis import bench, engines
from course_lib.analysis.engines import ENGINES, Engine, Process, available, processes, prompt_of
from course_lib.config import ModelConfig
from course_lib.costs import decode_bytes
from course_lib.sampling import filter_logits
from course_lib.training.first_model import FIRST_MODEL

SIZES = {"prompt_tokens": 9, "tokens": 6, "threads": 1}


def number(text):
    return float(re.match(r"[\d.]+", text)[0])


class Told:
    """An engine's process that decodes the same ids, in seconds that were told beforehand."""

    def __init__(self, ids, seconds):
        self.ids, self.seconds = ids, iter(seconds)

    def __call__(self):
        return self.ids, next(self.seconds)


def test_the_table_compares_round_by_round(monkeypatch):
    told = {"course_lib": Told([1, 2], [2.0, 1.0, 4.0]), "+ int8": Told([1, 3], [1.0, 1.0, 1.0])}

    class Given:
        def __enter__(self):
            return told

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(bench, "processes", lambda *args, **sizes: Given())
    first, second = bench.engine_rows("pocket-draft", list(told), bytes_per_s=1e9, runs=3, **SIZES)
    config = load("pocket-draft").config
    share = [6 / seconds * decode_bytes(config, 12, bytes_per_element=4, bytes_per_weight=b) / 1e9
             for seconds, b in ((2, 4), (1, 1))]
    assert first == ("pocket-draft", "course_lib", "3", "1.00 (1.00 to 1.00)", f"{share[0]:.0%}", "3 of 3")
    assert second == ("pocket-draft", "+ int8", "6", "2.00 (1.00 to 4.00)", f"{share[1]:.0%}", "0 of 3")


def test_engines_decode_the_same_ids_in_processes_of_their_own():
    with processes(["course_lib", "transformers"], "pocket-draft", **SIZES) as running:
        results = {name: process() for name, process in running.items()}
        pids = {process.process.pid for process in running.values()}
    (ids, seconds), (their_ids, their_seconds) = results.values()
    assert ids == their_ids and len(ids) == 6 and seconds > 0 and their_seconds > 0 and len(pids) == 2
    assert all(process.process.poll() is not None for process in running.values())


@pytest.mark.parametrize("name", ["+ int8", "+ int4", "+ speculative"])
def test_every_lever_decodes_as_many_tokens_as_asked_and_never_stops_early(name, monkeypatch):
    monkeypatch.setattr(engines, "COUNTED", 2000)
    prompt_ids = prompt_of(load("pocket-draft", device="cpu"), 9)
    assert len(prompt_ids) == 9 and len(ENGINES[name].build("pocket-draft")(prompt_ids, 40)) == 40


def test_a_draft_checks_with_packed_weights(monkeypatch):
    monkeypatch.setattr(engines, "COUNTED", 2000)
    entered = []

    @contextmanager
    def packed(model):
        entered.append("packed")
        yield

    monkeypatch.setattr(engines, "packed_weights", packed)
    ENGINES["course_lib"].build("pocket-draft")
    assert entered == []
    run = ENGINES["+ speculative"].build("pocket-draft")
    run([1, 2, 3], 2)
    assert entered == ["packed"]


def test_the_table_of_drafts_has_every_text_temperature_and_draft(monkeypatch):
    monkeypatch.setattr(engines, "COUNTED", 2000)
    monkeypatch.setattr(bench, "KINDS", {"a": ["Once upon a time"], "b": ["The cat"]})
    monkeypatch.setattr(bench, "DRAFT_TOKENS", 6)
    rows = list(bench.draft_rows(load("pocket", device="cpu"), runs=1))
    assert len({row[:3] for row in rows}) == len(rows) == 2 * 2 * 3
    assert all(1 <= number(tokens) <= 7 and number(ratio) > 0 for *_, tokens, ratio in rows)


def test_a_spread_is_the_middle_and_the_ends():
    assert bench.spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)" and bench.spread([0.5]) == "0.50 (0.50 to 0.50)"
    assert bench.spread([1.0, 2.0]) == "1.50 (1.00 to 2.00)"


def test_an_engine_that_fails_says_why():
    with pytest.raises(ChildProcessError, match="no-such-model"):
        Process("course_lib", "no-such-model", **SIZES)


def test_only_what_is_installed_and_made_for_the_model_is_measured(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setitem(ENGINES, "missing", Engine(engines.ours(), ready=engines.installed("no_such_package")))
    assert "+ speculative" in available("pocket") and "+ speculative" not in available("124M")
    assert not {"missing", "+ compile"} & set(available("pocket"))
    assert {"course_lib", "transformers", "+ int4"} <= set(available("124M"))


def test_a_shape_becomes_a_folder_for_as_long_as_it_is_needed(monkeypatch):
    shape = ModelConfig(vocab_size=4096, hidden_size=24, intermediate_size=36, num_hidden_layers=2,
                        num_attention_heads=6)
    monkeypatch.setitem(bench.SHAPES, "tiny", shape)
    with bench.checkpoint("tiny") as folder:
        assert load(folder).config.hidden_size == 24
    with pytest.raises(ValueError):
        load(folder)
    with bench.checkpoint("pocket") as name:
        assert name == "pocket"


def test_details_are_numbers_with_units(monkeypatch):
    monkeypatch.setattr(bench, "BUFFER", 1024 * 1024)
    monkeypatch.setattr(bench, "VOCABULARIES", (97,))
    monkeypatch.setattr(bench, "first_model_row", lambda tokenizer: ("train", "1 s", ""))
    rows = bench.detail_rows(load("pocket-draft", device="cpu"), runs=1)
    assert len(rows) == 3 + len(bench.SAMPLING) + 2 and all(number(value) > 0 for _, value, _ in rows)
    assert "choosing a token, V = 97" in {name for name, _, _ in rows}


def test_both_samplers_choose_from_the_same_tokens():
    """Whatever is drawn survives the other chain as well; the settings leave at most 50 of 500 tokens."""
    generator = torch.Generator().manual_seed(0)
    logits, seen = 2.5 * torch.randn(1, 500, generator=generator), torch.tensor([[3, 3, 9]])
    params = bench.SAMPLING[-1]
    kept = filter_logits(logits, params, seen, [[]])[0].isfinite()
    theirs = bench.their_sampler(params, seen)
    assert 1 < kept.sum() <= 50 and all(kept[theirs(logits)] for _ in range(50))


def test_a_row_for_each_setting():
    sampled = [(value, conditions) for name, value, conditions in bench.sampler_rows(97, 1)]
    assert len(sampled) == len(bench.SAMPLING) and all(number(value) > 0 for value, _ in sampled)
    for (_, conditions), params in zip(sampled, bench.SAMPLING):
        assert re.fullmatch(rf"\d+\.\d times as fast as transformers, {re.escape(repr(params))}", conditions)


def test_the_training_of_notebook_05_is_measured_from_a_few_steps(monkeypatch):
    small = ModelConfig(vocab_size=4096, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                        num_attention_heads=2)
    monkeypatch.setattr(bench, "FIRST_MODEL", FIRST_MODEL._replace(model=small))
    name, value, conditions = bench.first_model_row(load("pocket-draft").tokenizer, steps=3)
    assert "notebook 05" in name and number(value) > 0
    assert conditions == f"{FIRST_MODEL.config.steps} steps, from 3"


def test_the_command_prints_a_table_and_gives_the_threads_back(capsys, monkeypatch):
    before = torch.get_num_threads()
    calibrated = bench.calibrate(rounds=1)
    monkeypatch.setattr(bench, "calibrate", lambda: calibrated)

    def engine_rows(model: str, names: list[str], **sizes) -> Iterator[tuple[str, ...]]:
        yield (model, *names, str(sizes["tokens"]))

    monkeypatch.setattr(bench, "engine_rows", engine_rows)
    assert bench.main(["--model", "pocket-draft", "--engine", "course_lib", "--threads", "1", "--tokens", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "threads: 1" in lines[0] and "64 + 5 tokens" in lines[0]
    assert lines[2].startswith("| model | engine | tokens/s |") and lines[4] == "| pocket-draft | course_lib | 5 |"
    assert torch.get_num_threads() == before
    with pytest.raises(SystemExit):
        bench.main(["--runs", "0"])
    assert "--runs: '0' is not allowed: must be an integer >= 1" in capsys.readouterr().err
