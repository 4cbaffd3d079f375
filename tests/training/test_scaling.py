"""The family of the scaling laws: one pass over the text, resumption bit for bit, a log that fits its runs."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from course_lib import __main__
from course_lib.command_line import UsageError
from course_lib.costs import parameter_count
from course_lib.model import CausalLM
from course_lib.training import scaling
from course_lib.training import train as train_module
from course_lib.training.scaling import LIVE, LIVE_TOLERANCE, SinglePass, train_live, train_run
from course_lib.training.scaling_runs import (
    BATCH,
    BLOCKS,
    CONTEXT,
    CURVE_POINTS,
    FEWEST_TOKENS,
    HELD_OUT,
    RESULTS,
    ROLES,
    SIZES,
    TOKENS,
    VOCABULARY,
    Run,
    family,
    peak_lr,
    read_results,
    recipe,
    results,
    shape,
    work,
)

SMALL = Run(1, 12 * BATCH)


@pytest.fixture
def short_text(monkeypatch):
    """Held-out text of one batch of windows, so that measuring takes no time."""
    full = scaling.validation_text()
    monkeypatch.setattr(scaling, "VALIDATION_WINDOWS", 32)
    monkeypatch.setattr(scaling, "validation_text", lambda: full[: 32 * CONTEXT + 1])


# --- the text -------------------------------------------------------------------------------------

def test_every_token_is_predicted_once_and_in_order():
    windows = SinglePass(np.arange(2 * 3 * 4 + 1, dtype=np.uint16))
    steps = [windows(step, 3, 4) for step in range(2)]
    assert steps[0].tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]
    assert torch.cat([ids[:, 1:].flatten() for ids in steps]).tolist() == list(range(1, 25))
    assert steps[0].dtype == torch.int64


def test_the_text_is_never_read_twice():
    windows = SinglePass(np.arange(2 * 3 * 4 + 1, dtype=np.uint16))
    for step in (-1, 2):
        with pytest.raises(ValueError, match=rf"step = {step} is not allowed: must be from 0 to 1: there are 25"):
            windows(step, 3, 4)


def test_more_text_begins_with_less_of_it_and_held_out_text_is_other_text():
    short, long = scaling.training_text(5_000), scaling.training_text(9_000)
    assert len(short) == 5_001 and np.array_equal(long[:5_001], short)
    words = [scaling.tokenizer().decode(text[:5_000].tolist()) for text in (short, scaling.validation_text())]
    documents = [set(text.split("<|endoftext|>")) for text in words]
    assert len(documents[0] & documents[1]) < 0.2 * len(documents[1]), "a few short sentences may meet by chance"


def test_the_vocabulary_is_the_beginning_of_pockets():
    tokenizer = scaling.tokenizer()
    assert tokenizer.n_vocab == VOCABULARY
    assert scaling.validation_text().max() < VOCABULARY
    assert scaling.bytes_per_token() == pytest.approx(3.4, abs=0.2)


# --- the family -----------------------------------------------------------------------------------

def test_the_family_has_enough_to_fit_and_its_held_out_models_are_larger_than_all_of_it():
    runs = family()
    fitted = [run for run in runs if run.role == "fit"]
    in_law = [run for run in fitted if run.steps * BATCH >= FEWEST_TOKENS]
    assert len(in_law) >= 12 and len({run.size for run in in_law}) >= 5 and len({run.tokens for run in in_law}) >= 4
    assert {run.size for run in fitted} == set(SIZES) and {run.tokens for run in fitted} >= set(TOKENS)
    assert len({run.name for run in runs}) == len(runs) and {run.role for run in runs} == set(ROLES)
    assert min(size for size, _ in HELD_OUT) > max(SIZES)
    assert [run.role for run in runs[-len(HELD_OUT):]] == ["held-out"] * len(HELD_OUT)
    costs = [work(run) for run in runs]
    assert costs[:-2] == sorted(costs[:-2]) and costs[-2] < costs[-1], "cheap ones come first"


def test_one_number_is_the_shape():
    for size in (*SIZES, HELD_OUT[0][0]):
        config = shape(size)
        with torch.device("meta"):
            model = CausalLM(config)
        layers = sum(p.numel() for p in model.layers.parameters())
        assert 2944 * size**3 <= layers <= 2944 * size**3 + 40 * size**2
        assert (config.hidden_size, config.num_hidden_layers, config.head_dim) == (16 * size, size, 16)


def test_every_run_has_a_schedule_of_its_own_that_ends_at_zero():
    for run in (family()[0], family()[-1]):
        config = recipe(run)
        rates = [train_module.learning_rate(step, config) for step in range(config.steps)]
        assert config.steps == run.tokens // BATCH and config.long_every == 0 and config.guided == (0, 0)
        assert max(rates) <= peak_lr(run.size) and max(rates) == pytest.approx(peak_lr(run.size), rel=0.1)
        assert rates[-1] == pytest.approx(config.peak_lr / config.steps)
    assert recipe(Run(4, 500_000, rate=2.0)).peak_lr == 2 * peak_lr(4)


@pytest.mark.parametrize("change, words", [
    ({"size": 0}, "size = 0"), ({"tokens": 2047}, "tokens = 2047 .*2,048"), ({"role": "test"}, "role = 'test'"),
    ({"rate": 0.0}, "rate = 0.0"),
])
def test_an_impossible_run_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Run(**{"size": 2, "tokens": 500_000} | change)
    with pytest.raises(ValueError, match="size = 0"):
        shape(0)


# --- training -------------------------------------------------------------------------------------

class Killed(Exception):
    """The run is cut off."""


def test_a_run_that_is_killed_goes_on_to_the_same_numbers_bit_for_bit(tmp_path, monkeypatch, short_text):
    whole = train_run(SMALL)
    monkeypatch.setattr(train_module, "SAVE_SECONDS", 0)  # after every step
    honest, calls = SinglePass.__call__, []

    def killed_at_step_7(self, step, *size):
        calls.append(step)
        if step == 7 and calls.count(7) == 1:
            raise Killed
        return honest(self, step, *size)

    monkeypatch.setattr(SinglePass, "__call__", killed_at_step_7)
    with pytest.raises(Killed):
        train_run(SMALL, tmp_path)
    again = train_run(SMALL, tmp_path)
    assert calls[:13] == [*range(8), *range(7, 12)], "it goes on at step 7 and does no step twice"
    assert replace(again, seconds=whole.seconds) == whole
    assert again.seconds > 0 and len(whole.curve) == 12


def test_text_that_was_made_for_a_longer_run_trains_the_same_model(short_text):
    assert train_run(SMALL, text=scaling.training_text(30 * BATCH)).loss == train_run(SMALL).loss


def test_the_state_of_another_recipe_is_refused(tmp_path, short_text):
    train_run(SMALL, tmp_path)
    (tmp_path / f"{SMALL.name}.pt").rename(tmp_path / f"{replace(SMALL, seed=1).name}.pt")
    with pytest.raises(UsageError, match="seed = 0, and this one has seed = 1"):
        train_run(replace(SMALL, seed=1), tmp_path)


def test_a_trained_model_is_better_than_chance_and_its_error_is_that_of_its_windows(short_text):
    result = train_run(SMALL)
    assert result.loss < math.log(VOCABULARY) - 0.5
    assert result.loss == pytest.approx(np.mean(result.blocks), abs=1e-4)
    assert result.bits_per_byte == pytest.approx(result.loss / math.log(2) / scaling.bytes_per_token(), abs=1e-4)
    assert result.loss_error == pytest.approx(np.std(result.blocks, ddof=1) / math.sqrt(32), rel=1e-3), \
        "with 32 windows a block is a window"


# --- the log --------------------------------------------------------------------------------------

def stored():
    return read_results() if RESULTS.exists() else []


def test_the_log_is_complete():
    assert {result.run for result in stored()} == {run.name for run in family()}
    assert len(stored()) == len(family()) and RESULTS.stat().st_size < 200_000


@pytest.mark.parametrize("result", stored(), ids=lambda result: result.run)
def test_each_line_of_the_log_is_what_its_configuration_says(result):
    [run] = [run for run in family() if run.name == result.run]
    count = parameter_count(shape(run.size))
    assert (result.role, result.size, result.rate, result.seed) == (run.role, run.size, run.rate, run.seed)
    assert (result.parameters, result.layer_parameters) == (count.total, count.total - count.embedding)
    assert (result.steps, result.tokens) == (run.steps, run.steps * BATCH)
    assert result.peak_lr == round(recipe(run).peak_lr, 6), "the recipe has changed since: train the family again"
    assert "PyTorch" in result.machine and "threads: " in result.machine and result.seconds > 0
    assert len(result.blocks) == BLOCKS and np.mean(result.blocks) == pytest.approx(result.loss, abs=1e-4)
    assert 0 < result.loss_error < 0.03
    steps, tokens, losses = zip(*result.curve)
    assert CURVE_POINTS <= len(steps) <= CURVE_POINTS + 2 and steps[-1] == result.steps
    assert list(steps) == sorted(set(steps)) and tokens == tuple(step * BATCH for step in steps)
    assert losses[-2] < losses[0] and losses[-2] == pytest.approx(result.loss, abs=0.25)


def test_more_tokens_always_help_and_larger_models_always_do_from_a_million_tokens_on():
    losses = {(run.size, run.tokens): run.loss for run in results()}
    for (size, tokens), loss in losses.items():
        assert all(other > loss for (s, t), other in losses.items() if s == size and t < tokens)
        if tokens > 900_000:
            assert all(other > loss for (s, t), other in losses.items() if t == tokens and s < size)


def test_the_smallest_members_land_on_their_stored_losses():
    runs = {result.run: result for result in results()}
    assert {run.name for run in LIVE} <= set(runs)
    [live] = train_live(LIVE[:1])
    assert live.run == LIVE[0] and live.stored == runs[live.run.name].loss
    assert live.loss == pytest.approx(live.stored, abs=LIVE_TOLERANCE)


def test_a_member_that_was_never_trained_cannot_be_compared():
    with pytest.raises(ValueError, match=r"runs = 'size-1-tokens-24k' .*runs that the log holds"):
        train_live([SMALL])


def test_what_is_written_is_read_again(tmp_path, short_text):
    result = train_run(SMALL)
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(asdict(result)) + "\n")
    assert read_results(path) == [result] == results(ROLES, path, fewest_tokens=SMALL.tokens)
    assert results(ROLES, path, fewest_tokens=SMALL.tokens + 1) == []
    with path.open("a") as file:
        file.write('{"run": "half')
    with pytest.raises(ValueError, match="line 2 is not the result of a run"):
        read_results(path)
    with pytest.raises(ValueError, match="scaling has written"):
        read_results(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="role = 'fitted'"):
        results("fitted")


# --- the command ----------------------------------------------------------------------------------

def test_the_command_trains_what_is_missing_and_keeps_what_is_there(tmp_path, monkeypatch, capsys, short_text):
    runs = [SMALL, replace(SMALL, seed=1)]
    monkeypatch.setattr(scaling, "family", lambda: runs)
    arguments = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "log.jsonl")]
    assert scaling.main([*arguments, "--only", runs[1].name]) == 0
    first = (tmp_path / "log.jsonl").read_text()
    assert scaling.main([*arguments, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()[-2:]
    assert "to do" in listed[0] and "loss" in listed[1]
    assert scaling.main(arguments) == 0
    assert (tmp_path / "log.jsonl").read_text().startswith(first)
    assert [result.run for result in read_results(tmp_path / "log.jsonl")] == [runs[1].name, runs[0].name]
    assert list((tmp_path / "work").iterdir()) == [], "the state of finished runs is removed"
    assert scaling.main(arguments) == 0 and "steps" not in capsys.readouterr().out.splitlines()[-1:]


def test_what_cannot_be_read_is_one_line_and_can_be_started_anew(tmp_path, monkeypatch, capsys, short_text):
    monkeypatch.setattr(scaling, "family", lambda: [SMALL])
    arguments = ["scaling", "--work", str(tmp_path), "--results", str(tmp_path / "log.jsonl")]
    (tmp_path / f"{SMALL.name}.pt").write_text("half a fi")
    assert __main__.main(arguments) == 2 and "start anew with --restart" in capsys.readouterr().err
    assert __main__.main([*arguments, "--restart"]) == 0
    (tmp_path / "log.jsonl").write_text("{}\n")
    capsys.readouterr()
    assert __main__.main([*arguments, "--list"]) == 2
    told = capsys.readouterr().err
    assert "line 1 is not the result of a run" in told and told.count("\n") == 1


def test_the_command_names_an_unknown_run(tmp_path):
    with pytest.raises(UsageError, match="no run 'size-7'"):
        scaling.main(["--only", "size-7", "--list"])
