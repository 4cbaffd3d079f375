"""A model of a reader's own text, from the command to what `load` and `transformers` read; tiny runs."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from course_lib import SamplingParams, generate, load
from course_lib.__main__ import main
from course_lib.command_line import UsageError
from course_lib.training import command, own_model, train
from course_lib.training.first_model import fresh_model
from course_lib.training.held_back import held_back_loss
from course_lib.training.own_model import OwnRun, planned_steps, prepare, recipe, train_own, usual_steps
from course_lib.training.progress_line import ProgressLine
from course_lib.training.training_log import show_training

CPU = torch.device("cpu")
ANIMALS, PLACES = ("cat", "dog", "hen", "cow"), ("barn", "yard", "house", "field", "pond")
SENTENCES = [f"The {animal} slept in the {place}, and the {other} did not.\n"
             for animal in ANIMALS for place in PLACES for other in ANIMALS if other != animal]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """A shape and windows that train in a second."""
    shape = replace(own_model.SHAPE, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                    num_key_value_heads=1, max_position_embeddings=64)
    monkeypatch.setattr(own_model, "SHAPE", shape)
    monkeypatch.setattr(own_model, "LENGTH", 32)
    monkeypatch.setattr(own_model, "SEQUENCES", 2)


@pytest.fixture
def text():
    rng = np.random.default_rng(0)
    return "".join(SENTENCES[i] for i in rng.integers(0, len(SENTENCES), 300))


@pytest.fixture
def run(text, tmp_path):
    return OwnRun("mine", (text,), tmp_path / "mine", tmp_path / "work", steps=30)


def test_a_run_ends_in_a_folder_that_load_and_transformers_read(text, tmp_path, capsys):
    (tmp_path / "farm.txt").write_text(text)
    out = tmp_path / "models" / "farm"
    arguments = ["--text", str(tmp_path / "farm.txt"), "--name", "farm", "--out", str(out), "--steps", "60",
                 "--work", str(tmp_path / "work"), "--vocab-size", "320"]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    lm, theirs = load(out), transformers.AutoModelForCausalLM.from_pretrained(out)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ids = lm.tokenizer.encode(text[:400])
    assert ids == their_tokenizer(text[:400])["input_ids"] and max(ids) < lm.config.vocab_size <= 320
    inputs = torch.tensor([ids[:40]])
    with torch.inference_mode():
        assert torch.allclose(lm.model(inputs), theirs(inputs).logits, atol=1e-4)
    ours = generate(lm, "The cat", SamplingParams(temperature=0, max_tokens=12))
    prompt = torch.tensor([lm.tokenizer.encode("The cat")])
    output = theirs.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert list(ours.token_ids) == output[0, prompt.shape[1]:].tolist()
    assert f"load('{out}')" in printed and "after step 60: " in printed and "step 60/60 [####" in printed
    assert "command: python -m course_lib train --text, seed 0" in show_training(out)
    assert not (tmp_path / "work" / "own-farm").exists()
    with pytest.raises(UsageError, match="holds a model already"):
        command.main(arguments)


def test_the_loss_falls_and_is_that_of_transformers_on_what_was_held_back(run, text):
    loss = train_own(run, CPU, say=lambda line: None)
    log = [json.loads(line) for line in (run.folder / "training_log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [10, 20, 30]
    assert log[-1]["val_loss"] < log[0]["val_loss"] < 6.5
    theirs = transformers.AutoModelForCausalLM.from_pretrained(run.folder)
    tokens = load(run.folder).tokenizer.encode(text[-(len(text) // 10):])
    windows = torch.tensor([tokens[i : i + 33] for i in range(0, len(tokens) - 32, 32)])
    with torch.inference_mode():
        expected = theirs(windows, labels=windows).loss.item()
    assert loss == pytest.approx(expected, abs=1e-4)
    assert json.loads((run.folder / "training.json").read_text())["val_loss"] == loss


def test_held_back_text_is_never_read_in_training(run):
    text = "a b c d e f g h i j\n" * 500 + "Z\u00e9bra! " * 1_000
    ready = prepare(replace(run, texts=(text,)), CPU)
    training, held_back = (ready.tokenizer.decode(part.tokens.tolist()) for part in (ready.batches, ready.validation))
    assert training == text[:15_300] + "<|endoftext|>" and held_back == text[15_300:] + "<|endoftext|>"


def test_the_prompt_of_the_samples_never_ends_inside_a_character(run):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 10_000)))  # rare ones, each of several tokens
    assert prepare(replace(run, texts=(text,)), CPU).prompt == text[9_000:9_024]


class Cut(Exception):
    """The run is killed."""


def test_an_interrupted_run_goes_on_and_ends_like_an_uninterrupted_one(run, tmp_path, monkeypatch):
    run = replace(run, steps=150)
    train_own(replace(run, folder=tmp_path / "whole", work=tmp_path / "other"), CPU, say=lambda line: None)
    original, said = own_model.append_log, []

    def cut_at_120(path, entry):
        original(path, entry)
        if entry["step"] == 120:
            raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(own_model, "append_log", cut_at_120)
        train_own(run, CPU, say=lambda line: None)
    with pytest.raises(UsageError, match=r"steps = 150, .* this one has steps = 90, "):
        train_own(replace(run, steps=90), CPU, say=lambda line: None)
    train_own(run, CPU, say=said.append)
    assert "going on after step 100" in said[-1]
    weights = [load(folder).model.state_dict() for folder in (run.folder, tmp_path / "whole")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    steps = [json.loads(line)["step"] for line in (run.folder / "training_log.jsonl").read_text().splitlines()]
    assert steps == list(range(10, 151, 10))


def test_minutes_are_turned_into_steps_once(run, tmp_path, monkeypatch):
    monkeypatch.setattr(own_model, "seconds_per_step", lambda ready: 0.5)
    run, plan = replace(run, steps=None, minutes=2.0), tmp_path / "plan.json"
    assert planned_steps(run, None, plan) == 240
    monkeypatch.setattr(own_model, "seconds_per_step", lambda ready: 0.1)
    assert planned_steps(run, None, plan) == 240, "as when the run began"
    assert planned_steps(replace(run, minutes=0.1), None, plan) == 60
    assert planned_steps(run, None, plan) == 240, "whatever was asked for in between"
    plan.write_text("{")
    assert planned_steps(run, None, plan) == 1200


def test_a_step_is_timed_on_another_model(run):
    ready = prepare(run, CPU)
    before = [p.clone() for p in ready.model.parameters()]
    assert 0 < own_model.seconds_per_step(ready) < 5
    assert all(torch.equal(a, b) for a, b in zip(before, ready.model.parameters()))


@pytest.mark.parametrize("tokens, steps", [(10, 300), (10_000, 1250), (10**8, 3000)])
def test_by_default_the_text_is_read_some_times(tokens, steps):
    assert usual_steps(tokens) == steps
    assert recipe(steps).warmup_steps == min(100, steps / 10) and recipe(5).warmup_steps == 0


def test_the_final_loss_of_a_model_that_knows_nothing_is_that_of_a_guess():
    model = fresh_model(replace(own_model.SHAPE, vocab_size=320), device=CPU)
    tokens = np.random.default_rng(0).integers(0, 320, 3 * 32 + 1).astype(np.uint16)
    assert held_back_loss(model, tokens, 32) == pytest.approx(np.log(320), abs=0.1)


# --- the progress -------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def entry(step):
    return {"step": step, "loss": 4.0, "val_loss": 4.5}


def test_on_a_terminal_the_line_is_written_over():
    out = Terminal()
    line = ProgressLine(40, out=out)
    line.started -= 10  # ten seconds for ten steps
    line.show(entry(10))
    assert re.fullmatch(r"\rstep 10/40 \[#####\.{15}\] loss 4.00, held back 4.50, 30 s left", out.getvalue())
    line.say("sample")
    line.show(entry(20))
    assert out.getvalue().count("\n") == 1 and len(out.getvalue().split("\r")[2].strip()) == 0


def test_elsewhere_there_is_a_line_for_each_tenth():
    out = io.StringIO()
    line = ProgressLine(400, first=200, out=out)
    for step in range(201, 401):
        line.show(entry(step))
    assert [text.split("/")[0] for text in out.getvalue().splitlines()] == [f"step {n}" for n in range(240, 401, 40)]
    assert "\r" not in out.getvalue()


# --- places and options -------------------------------------------------------------------------


def test_a_model_never_goes_into_the_package_nor_over_something_else(tmp_path):
    for name in ("pocket", "../x", "a/b", "", "-x"):
        with pytest.raises(UsageError, match="--name"):
            command.check_place(name, tmp_path / "x", replaced=True)
    for folder in (command.MODELS / "mine", command.MODELS / ".." / "x", command.MODELS.parent):
        with pytest.raises(UsageError, match="inside the package"):
            command.check_place("mine", folder, replaced=True)
    (tmp_path / "letters").mkdir()
    command.check_place("mine", tmp_path / "letters", replaced=False)
    (tmp_path / "letters" / "to_anna.txt").write_text("Hello")
    for folder in (tmp_path / "letters", tmp_path / "letters" / "to_anna.txt"):
        with pytest.raises(UsageError, match="holds something else"):
            command.check_place("mine", folder, replaced=True)
    (tmp_path / "letters" / "training_log.jsonl").write_text("")
    command.check_place("mine", tmp_path / "letters", replaced=True)
    with pytest.raises(UsageError, match="--restart"):
        command.check_place("mine", tmp_path / "letters", replaced=False)


def test_a_replacement_that_was_interrupted_goes_on_without_the_flag(text, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(text)
    arguments = ["--text", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"),
                 "--steps", "5"]
    command.main(arguments)
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(train, "SAVE_SECONDS", 0)
        patch.setattr(own_model, "held_back_loss", lambda *args: (_ for _ in ()).throw(Cut))
        command.main([*arguments, "--restart"])
    command.main(arguments)
    assert not (tmp_path / "work" / "own-mine").exists()


@pytest.mark.parametrize("arguments, words", [
    (["--text", "nowhere.txt"], "nowhere.txt does not exist"),
    (["--text", "short.txt"], "too few"),
    (["--text", "short.txt", "--steps", "5", "--minutes", "2"], "--steps and --minutes exclude each other"),
    (["--text", "short.txt", "--only", "pocket"], "--only does not go with --text"),
    (["--text", "short.txt", "--minutes", "0"], "--minutes: '0' is not allowed: must be from 0.1 to 10,000"),
    (["--text", "short.txt", "--vocab-size", "20"], "--vocab-size: '20' is not allowed: must be an integer from 300"),
    (["--text", "short.txt", "--name", "pocket"], "--name 'pocket' is not allowed"),
    (["--text", "short.txt", "--name", ".x"], "'.x' is not allowed: must start with a letter, digit or _"),
    (["--text"], "--text"),
    (["--name", "mine"], "--name does not go without --text"),
    (["--steps", "0"], "--steps: '0' is not allowed: must be an integer from 1 to 1,000,000"),
    (["--steps", "-5"], "--steps: '-5' is not allowed"),
])
def test_wrong_use_is_one_line_and_status_2(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "shipped", pytest.fail)
    (tmp_path / "short.txt").write_text("Too short.")
    try:
        status = main(["train", *arguments])
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr()
    assert status == 2 and printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("python -m course_lib train: ") and words in printed.err


def test_the_command_trains_in_a_process_of_its_own(text, tmp_path):
    (tmp_path / "farm.txt").write_text(text)
    command_line = [sys.executable, "-m", "course_lib", "train", "--text", "farm.txt", "--name", "farm", "--steps", "2"]
    done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "step 2/2" in done.stdout and (tmp_path / "my_models" / "farm" / "model.safetensors").is_file()
