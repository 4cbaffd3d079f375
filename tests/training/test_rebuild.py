"""Rebuilding the shipped weights: the corpus on disk, and runs that are cut off, on a tiny corpus and model."""

import json

import numpy as np
import pytest
import torch

from course_lib.checkpoint import load
from course_lib.config import ModelConfig
from course_lib.training import command, rebuild
from course_lib.training.corpus import PRETRAINING, TUNING
from course_lib.training.held_back import held_back_loss
from course_lib.training.rebuild import Text, cached_corpus, corpus_digest, joined, make_model, run_files, tuned
from course_lib.training.resume import cut_log, entry_step
from course_lib.training.train import Batches, Recipe, TrainConfig, encode_corpus

TOKENS = 3_000
TEXT = Text(TOKENS, 0, PRETRAINING)
TINY = ModelConfig(vocab_size=4096, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                   max_position_embeddings=64)
SHORT = TrainConfig(steps=40, sequences=1, length=8, long_every=0)


@pytest.fixture(scope="module")
def tokenizer():
    return load("pocket-draft", device="cpu").tokenizer


@pytest.fixture
def text(tokenizer, tmp_path):
    return cached_corpus(tokenizer, tmp_path, TEXT)


def test_the_corpus_is_written_once(tokenizer, tmp_path, text, monkeypatch):
    [path] = tmp_path.glob("corpus-*")
    assert path.name == f"corpus-{corpus_digest(tokenizer, TEXT)}.npy"
    assert np.array_equal(text, encode_corpus(tokenizer, TOKENS, seed=0))
    monkeypatch.setattr(rebuild, "encode_corpus", lambda *args: pytest.fail("it is there already"))
    assert np.array_equal(cached_corpus(tokenizer, tmp_path, TEXT), text)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:50], lambda data: data[:-1],
                                    lambda data: b"no array at all" * 400])
def test_a_broken_corpus_is_written_anew(tokenizer, tmp_path, text, damage):
    [path] = tmp_path.glob("corpus-*")
    expected = np.array(text)
    path.write_bytes(damage(path.read_bytes()))
    assert np.array_equal(cached_corpus(tokenizer, tmp_path, TEXT), expected)
    assert np.array_equal(np.load(path), expected)


def test_a_kill_while_the_corpus_is_written_leaves_no_corpus(tokenizer, tmp_path, monkeypatch):
    def fail(file, array):
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(np, "save", fail)
        cached_corpus(tokenizer, tmp_path, TEXT)
    assert list(tmp_path.glob("*.npy")) == []
    assert len(cached_corpus(tokenizer, tmp_path, TEXT)) >= TOKENS


def test_the_corpus_has_the_name_of_all_that_it_is_made_from(tokenizer, tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "data").mkdir(parents=True)
    files = {package / "__init__.py": "a", package / "data" / "stories.toml": "b"}
    for path, content in files.items():
        path.write_text(content)
    monkeypatch.setattr(rebuild, "files", lambda module: package)
    names = [corpus_digest(tokenizer, TEXT), corpus_digest(tokenizer, TEXT._replace(tokens=TOKENS + 1))]
    assert corpus_digest(tokenizer, TEXT) == names[0]
    for path, content in files.items():
        path.write_text(content + "!")
        names.append(corpus_digest(tokenizer, TEXT))
    (package / "data" / "more.toml").write_text("")
    names.append(corpus_digest(tokenizer, TEXT))
    names += [corpus_digest(tokenizer, TEXT._replace(seed=7)), corpus_digest(tokenizer, TEXT._replace(mix=TUNING))]
    monkeypatch.setattr(rebuild, "POCKET_CHAT_TEMPLATE", "another")
    names.append(corpus_digest(tokenizer, TEXT))
    monkeypatch.setattr(tokenizer, "mergeable_ranks", dict(list(tokenizer.mergeable_ranks.items())[:-1]))
    names.append(corpus_digest(tokenizer, TEXT))
    assert len(set(names)) == len(names)


def test_the_data_files_of_the_course_count(tokenizer, monkeypatch):
    read = []
    monkeypatch.setattr(rebuild.hashlib, "sha256", record(read, rebuild.hashlib.sha256))
    corpus_digest(tokenizer, TEXT)
    data = (rebuild.Path(rebuild.corpus.__file__).parent / "data" / "stories.toml").read_bytes()
    code = rebuild.Path(rebuild.corpus.__file__).read_bytes()
    assert data in read and code in read


def record(read, function):
    def recording(data=b""):
        read.append(data)
        return function(data)

    return recording


class Cut(Exception):
    """The run is killed."""


@pytest.fixture
def run(monkeypatch, tokenizer, text, tmp_path):
    """Train the tiny model; a number is the step at whose save the run is killed."""
    batches = Batches(text, tokenizer.special_tokens["<|endoftext|>"], seed=0)
    monkeypatch.setattr(rebuild, "corpus_batches", lambda *args: batches)
    monkeypatch.setattr(rebuild, "held_back_batches", lambda tokenizer: batches)
    original = rebuild.append_log

    def start(kill=None, log_every=1, tuning=None, killed="pocket.jsonl"):
        def on_log(path, entry):
            original(path, entry)
            if (entry["step"], path.name) == (kill, killed):
                with path.open("a") as file:
                    file.write('{"step": 2')
                raise Cut

        monkeypatch.setattr(rebuild, "append_log", on_log)
        monkeypatch.setattr(rebuild, "train", lambda *args, **kw: train(*args, log_every=log_every, **kw))
        make_model("pocket", tokenizer, Recipe(TINY, SHORT, tuning), tmp_path, tmp_path / "out",
                   device=torch.device("cpu"), compiled=False)

    train = rebuild.train
    return start


def steps(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_after_kills_every_step_is_in_the_log_once(run, text, tmp_path):
    for kill in (7, 17, 25):  # the first before anything was saved; saved at 10 and 20
        with pytest.raises(Cut):
            run(kill)
    run()
    log = tmp_path / "out" / "training_log.jsonl"
    assert steps(log) == list(range(1, 41))
    assert [json.loads(line)["tokens"] for line in log.read_text().splitlines()] == [8 * n for n in range(1, 41)]
    facts = json.loads((tmp_path / "out" / "training.json").read_text())
    assert facts["last"]["step"] == facts["config"]["steps"] == 40
    saved = load(tmp_path / "out", device="cpu", dtype=torch.float32)
    assert facts["val_loss"] == pytest.approx(held_back_loss(saved.model, text, 64), abs=0.01)  # saved in bfloat16
    run()  # what is done stays done
    assert steps(log) == list(range(1, 41))


def test_tuning_goes_on_from_the_trained_model_and_its_log_goes_on_counting(run, tmp_path):
    short = TrainConfig(steps=20, sequences=1, length=16, long_every=0, peak_lr=3e-4, warmup_steps=5)
    run()
    before = load(tmp_path / "out", device="cpu").model.embed_tokens.weight
    for kill in (3, 14):
        with pytest.raises(Cut):
            run(kill, tuning=short, killed=f"{tuned('pocket')}.jsonl")
    run(tuning=short)
    log = tmp_path / "out" / "training_log.jsonl"
    assert steps(log) == list(range(1, 61))
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["tokens"] for entry in entries[40:]] == [8 * 40 + 16 * n for n in range(1, 21)]
    assert all(a["seconds"] <= b["seconds"] for a, b in zip(entries, entries[1:]))
    assert max(entry["lr"] for entry in entries[40:]) == 3e-4
    facts = json.loads((tmp_path / "out" / "training.json").read_text())
    assert facts["tuning"]["steps"] == 20 and facts["config"]["steps"] == 40 and facts["last"]["step"] == 60
    after = load(tmp_path / "out", device="cpu").model.embed_tokens.weight
    assert 0 < (after - before).norm() < before.norm()


def test_logs_are_joined_in_their_order(tmp_path):
    for name, rows in (("a", [(1, 8, 0.5), (2, 16, 1.0)]), ("b", [(1, 4, 0.25)])):
        entries = [{"step": step, "tokens": tokens, "loss": 3.0, "seconds": seconds} for step, tokens, seconds in rows]
        (tmp_path / name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert joined([tmp_path / "a", tmp_path / "b"])[-1] == {"step": 3, "tokens": 20, "loss": 3.0, "seconds": 1.25}
    assert joined([tmp_path / "b"])[0]["step"] == 1


def test_a_log_is_cut_to_a_step_and_to_whole_lines(tmp_path):
    log = tmp_path / "run.jsonl"
    cut_log(log, 3)
    assert not log.exists()
    log.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n{"st')
    cut_log(log, 3)
    assert log.read_text() == '{"step": 1}\n{"step": 3}\n'
    assert [entry_step(line) for line in ("", "7", "{}", '{"step": 2}')] == [float("inf")] * 3 + [2]


def test_the_command_starts_anew_when_told_to(monkeypatch, tmp_path):
    files = run_files(tmp_path, "pocket") + run_files(tmp_path, tuned("pocket"))
    others = run_files(tmp_path, "pocket-draft")
    for path in files + others:
        path.write_text("old")
    seen = []
    monkeypatch.setattr(command, "train_tokenizer", lambda: None)
    monkeypatch.setattr(command, "make_model", lambda name, tokenizer, recipe, *args, **kw: seen.append(
        (name, recipe.config.steps, recipe.tuning.steps, [path.exists() for path in files])))
    command.main(["--work", str(tmp_path), "--only", "pocket"])
    command.main(["--work", str(tmp_path), "--only", "pocket", "--restart", "--steps", "7"])
    recipe = command.RECIPES["pocket"]
    assert seen == [("pocket", recipe.config.steps, recipe.tuning.steps, [True] * 4), ("pocket", 7, 7, [False] * 4)]
    assert all(path.exists() for path in others)


def test_more_steps_than_the_recipe_has_do_not_lengthen_the_tuning():
    recipe = command.RECIPES["pocket"]
    longer = command.shortened(recipe, 10 * recipe.config.steps)
    assert longer.config.steps == 10 * recipe.config.steps and longer.tuning == recipe.tuning
    assert command.shortened(command.RECIPES["pocket-draft"], 5).tuning is None


def test_both_models_read_one_text_which_is_encoded_once(monkeypatch, tokenizer, tmp_path):
    encoded = []
    monkeypatch.setattr(rebuild, "encode_corpus", lambda *args: encoded.append(args) or encode_corpus(*args))
    first, second = (rebuild.corpus_batches(tokenizer, tmp_path, TEXT) for _ in range(2))
    assert len(encoded) == 1 and np.array_equal(first.tokens, second.tokens)
    rebuild.corpus_batches(tokenizer, tmp_path, TEXT._replace(mix=TUNING))
    assert len(encoded) == 2
