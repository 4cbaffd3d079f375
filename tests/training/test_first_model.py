"""The model of notebook 05, its text, the stored log of a training, and the command that shows it."""

import json
from itertools import islice

import numpy as np
import pytest
import torch

from course_lib.checkpoint import MODELS, load
from course_lib.config import ModelConfig
from course_lib.training import command, train
from course_lib.training.corpus import END_OF_TEXT
from course_lib.training.first_model import (
    FIRST_MODEL,
    KINDS,
    fresh_model,
    greedy,
    held_back_batches,
    known_pairs,
    new_sentences,
    simple_batches,
    simple_documents,
    word_pairs,
    writer,
)
from course_lib.training.train import Batches, TrainConfig, encode_corpus, next_token_loss
from course_lib.training.training_log import BAR, ROWS, curve_lines, read_log, show_training

TINY = ModelConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)


def test_the_model_has_about_a_million_parameters():
    with torch.device("meta"):
        size = sum(p.numel() for p in train.CausalLM(FIRST_MODEL.model).parameters())
    assert 0.9e6 < size < 1.2e6
    assert FIRST_MODEL.config.guided == (0, 0), "the first model is shown nothing"


def test_the_simple_text_has_both_kinds_in_turn_and_no_conversation():
    texts = list(islice(simple_documents(7), 6))
    assert texts == list(islice(simple_documents(7), 6)) != list(islice(simple_documents(8), 6))
    assert all(text.endswith(END_OF_TEXT) and text.count("<|") == 1 for text in texts)
    lengths = [len(text) for text in texts]
    assert len(KINDS) == 2 and min(lengths[::2]) > 150 and max(lengths[1::2]) < 300


def test_training_and_validation_read_different_text_within_the_vocabulary():
    tokenizer = load("pocket-draft", device="cpu").tokenizer
    batches, validation = simple_batches(tokenizer, tokens=3_000)
    assert len(batches.tokens) >= 3_000 and len(validation.tokens) >= 20_000
    assert batches.tokens.max() < FIRST_MODEL.model.vocab_size
    assert not np.array_equal(batches.tokens[:500], validation.tokens[:500])
    ids = batches(0, 2, 40)
    assert ids.shape == (2, 41)
    starts = [text[:20] for text in islice(simple_documents(train.TRAIN_SEED), 200)]
    assert all(tokenizer.decode(row)[:20] in starts for row in ids.tolist()), "windows start where documents start"


def test_the_encoded_corpus_is_the_training_documents_one_after_another():
    tokenizer = load("pocket-draft", device="cpu").tokenizer
    ids = encode_corpus(tokenizer, 2_000, seed=3)
    text = tokenizer.decode(ids.tolist())
    assert len(ids) >= 2_000 and text.endswith(END_OF_TEXT)
    assert text == "".join(islice(train.training_documents(3), text.count(END_OF_TEXT)))


def test_a_fresh_model_depends_on_its_seed():
    one, same, other = (fresh_model(TINY, seed=seed, device="cpu").lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_word_pairs_and_sentences_are_compared_with_the_corpus():
    corpus = "The cat sat. The dog ran home."
    assert word_pairs("A cat's tail, long.") == [("A", "cat's"), ("cat's", "tail"), ("tail", "long")]
    assert known_pairs(["The cat ran home", "The cow"], corpus) == 2 / 4
    assert new_sentences(["The cat sat. The dog sat. The do", "No! The dog ran home. And"], corpus) == (2, 4)


def test_a_writer_goes_on_with_its_prompt_and_its_seed_decides_how():
    tokenizer, model = load("pocket", device="cpu").tokenizer, fresh_model(FIRST_MODEL.model, device="cpu")
    write = writer(model, tokenizer)
    text = write("The cat", seed=1, max_tokens=8)
    assert text.startswith("The cat") and len(text) > len("The cat")
    assert text == write("The cat", seed=1, max_tokens=8) != write("The cat", seed=2, max_tokens=8)


def test_greedy_takes_the_likeliest_token_each_time():
    tokenizer, model = load("pocket", device="cpu").tokenizer, fresh_model(FIRST_MODEL.model, device="cpu")
    ids = tokenizer.encode("The cat")
    with torch.inference_mode():
        first = model(torch.tensor([ids]))[0, -1].argmax().item()
        second = model(torch.tensor([[*ids, first]]))[0, -1].argmax().item()
    assert greedy(model, tokenizer, "The cat", 2) == tokenizer.decode([first, second])


def test_the_schedule_is_an_argument():
    tokens = np.tile(np.arange(8, dtype=np.uint16), 40)
    config, log = TrainConfig(steps=3, sequences=2, length=6), []
    model = fresh_model(TINY, device="cpu")
    before = model.embed_tokens.weight.detach().clone()
    train.train(model, Batches(tokens, 0, seed=0), config, on_log=log.append, log_every=1,
                schedule=lambda step, config: 0.0)
    assert [entry["lr"] for entry in log] == [0.0] * 3
    assert torch.equal(model.embed_tokens.weight, before), "a rate of zero changes nothing"


def write_checkpoint(folder, *, entries=30, guided=(5, 9), note="In one go."):
    """The files beside the weights of a training that was never run."""
    folder.mkdir()
    log = [{"step": 10 * i, "tokens": 100 * i, "loss": 8 / i, "lr": 0.001, "seconds": 2.0 * i, "val_loss": 9 / i}
           for i in range(1, entries + 1)]
    (folder / "training_log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log))
    config = {"seed": 3, "peak_lr": 0.004, "warmup_steps": 1_200, "decay_fraction": 0.25, "guided": guided}
    facts = {"config": config, "last": log[-1], "val_loss": 1.23456, "machine": "a slow one",
             "command": "make it", "note": note}
    (folder / "training.json").write_text(json.dumps(facts))
    shape = {"model_type": "llama", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
             "num_attention_heads": 2, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(shape))
    return log


def test_the_stored_log_is_shown(tmp_path):
    log = write_checkpoint(tmp_path / "small")
    assert read_log(tmp_path / "small") == log
    text = show_training(tmp_path / "small")
    weights = 10 * 4 + 4 * 4 * 4 + 3 * 4 * 6 + 3 * 4
    assert f"small: {weights} parameters, 300 steps, 3,000 tokens, 60 s" in text
    assert "validation loss of the finished model: 1.235 nats per token" in text
    assert "machine: a slow one" in text and "command: make it, seed 3" in text and "note: In one go." in text
    assert "up to 0.004 in 1,200 steps, down to zero over the last 25%" in text
    assert "guided: from step 5 to 9 a second loss showed the heads 1.0, 1.4, 3.0, 3.4, 5.2" in text


@torch.inference_mode()
def test_the_validation_loss_of_the_log_jumps_because_it_is_of_four_windows():
    """The training loss shows neither jump, one of the four windows costs far more, and 64 cost what training does."""
    log, pocket = read_log("pocket"), load("pocket", device="cpu")
    for before, after in ((8, 10), (46, 47)):
        assert log[before]["val_loss"] - log[after]["val_loss"] > 0.15
        assert log[before]["loss"] - log[after]["loss"] < 0.12

    def level(ids):
        return next_token_loss(pocket.model(ids[:, :-1]), ids).item()

    windows = held_back_batches(pocket.tokenizer)
    four = [level(ids[None]) for ids in windows(0, 4, 256)]
    assert max(four) - min(four) > 0.3
    assert level(windows(0, 64, 256)) == pytest.approx(log[-1]["loss"], abs=0.1)


def test_what_was_not_done_is_not_said(tmp_path):
    write_checkpoint(tmp_path / "small", guided=(0, 0), note="")
    text = show_training(tmp_path / "small")
    assert "guided" not in text and "note" not in text


@pytest.mark.parametrize("entries", [1, 3, ROWS, 47])
def test_the_table_ends_with_the_last_entry_and_its_bars_are_losses(tmp_path, entries):
    log = write_checkpoint(tmp_path / "small", entries=entries)
    header, *rows = curve_lines(log)
    assert header.split() == ["step", "tokens", "rate", "loss", "val"] and len(rows) == min(entries, ROWS)
    assert rows[-1].startswith(f"{log[-1]['step']:7,}")
    assert all(len(row.split("  ")[-1]) <= BAR for row in rows)
    values = [(float(row.split()[4]), row.count("#")) for row in rows]
    assert max(values)[1] == BAR and values == sorted(values, reverse=True)


def test_a_checkpoint_without_a_log_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.* must be a checkpoint with a training_log.jsonl"):
        read_log(tmp_path / "nowhere")


def test_a_relative_folder_is_where_it_says_and_a_shipped_name_is_in_the_package(tmp_path, monkeypatch):
    (tmp_path / "my_models").mkdir()
    log = write_checkpoint(tmp_path / "my_models" / "mine", entries=2)
    monkeypatch.chdir(tmp_path)
    assert read_log("my_models/mine") == log
    assert show_training("my_models/mine").startswith("mine: ")
    assert read_log("pocket") == read_log(MODELS / "pocket")


def test_the_command_shows_the_shipped_models_and_trains_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "train_tokenizer", lambda: pytest.fail("nothing is to be trained"))
    assert command.main(["--show"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("pocket: ") and "\npocket-draft: " in shown
    last = read_log("pocket")[-1]
    assert f"{last['step']:,} steps, {last['tokens']:,} tokens" in shown
    assert command.main(["--show", "--only", "pocket-draft"]) == 0
    assert capsys.readouterr().out.startswith("pocket-draft: ")
