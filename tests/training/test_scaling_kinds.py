"""Losses by kind of text: the same text with its kinds noted, a table that adds up to the log, and what it shows."""

import numpy as np
import pytest
import torch

from course_lib.model import CausalLM
from course_lib.training import scaling, scaling_kinds
from course_lib.training.corpus import documents, encyclopedia
from course_lib.training.scaling_kinds import (
    CALLS,
    ENCYCLOPEDIA,
    KINDS,
    QUESTIONS,
    REST,
    RESULTS,
    STORIES,
    NotingWriter,
    kinds_of_tokens,
    losses_by_kind,
    main,
    measure,
    rows,
    shares,
    store,
)
from course_lib.training.scaling_runs import CONTEXT, VALIDATION_WINDOWS, read_results, shape
from course_lib.training.train import VALIDATION_SEED


def parts(writer):
    """The next document as a list of (kind, text)."""
    text, kinds = writer.noted()
    cuts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(text)]
    return [(int(kinds[a]), text[a:b].decode()) for a, b in zip(cuts, cuts[1:])]


# --- the kinds ------------------------------------------------------------------------------------

def test_a_writer_that_notes_writes_the_same_text():
    writer = NotingWriter(5)
    for _, expected in zip(range(300), documents(5)):
        text, kinds = writer.noted()
        assert text.decode() == expected and len(kinds) == len(text)


def test_each_kind_is_what_its_name_says():
    writer, found = NotingWriter(2), {kind: [] for kind in range(len(KINDS))}
    sentences = {sentence for entry in encyclopedia() for sentence in entry.say}
    for _ in range(400):
        document = parts(writer)
        for place, (kind, text) in enumerate(document):
            found[kind].append(text)
            before = document[place - 1][1] if place else ""
            asked = before.endswith("<|im_start|>user\n")
            assert (kind == QUESTIONS) == asked, "all that a user types, and nothing else"
            assert (kind == RESULTS) == before.endswith("<tool_response>")
            if kind == ENCYCLOPEDIA and before.endswith("assistant\n"):
                assert text in sentences
            if kind == CALLS:
                assert before.endswith(("assistant\n", '{"word": "', '{"expression": "'))
            if kind == STORIES:
                assert len(text) > 60
    assert all(len(texts) > 20 for texts in found.values())
    assert all("<|im_" not in text for kind, texts in found.items() for text in texts if kind in (QUESTIONS, RESULTS))
    assert any("Tools: calculator" in text for text in found[REST])


def test_a_token_has_the_kind_of_its_last_byte():
    ids, kinds = kinds_of_tokens(scaling.tokenizer(), VALIDATION_SEED, 3000)
    assert len(ids) == len(kinds) == 3000 and np.array_equal(ids, scaling.validation_text()[:3000])
    writer, encoder, place = NotingWriter(VALIDATION_SEED), scaling.tokenizer(), 0
    while place < 2000:
        text, of_bytes = writer.noted()
        done = 0
        while done < len(text):
            done += len(encoder.decode_bytes([int(ids[place])]))
            assert kinds[place] == of_bytes[done - 1]
            place += 1


# --- the table ------------------------------------------------------------------------------------

def test_the_kinds_of_a_run_add_up_to_the_loss_in_the_log():
    share, log = shares(), {run.run: run.loss for run in read_results()}
    assert tuple(share) == KINDS and sum(share.values()) == pytest.approx(1, abs=1e-4)
    assert {f"size-8-tokens-{n}000k" for n in (2, 4, 8)} <= set(losses_by_kind())
    for run, losses in losses_by_kind().items():
        assert sum(share[kind] * losses[kind] for kind in KINDS) == pytest.approx(log[run], abs=1e-4), run


def test_measuring_splits_the_loss_of_a_model(monkeypatch):
    windows = 32
    text = scaling.validation_text()[: windows * CONTEXT + 1]
    monkeypatch.setattr(scaling, "VALIDATION_WINDOWS", windows)
    for module in (scaling, scaling_kinds):
        monkeypatch.setattr(module, "validation_text", lambda: text)
    torch.manual_seed(0)
    model = CausalLM(shape(1))
    measured = measure(model)
    assert tuple(measured) == KINDS and sum(share for share, _ in measured.values()) == pytest.approx(1)
    assert sum(share * loss for share, loss in measured.values()) == pytest.approx(scaling.window_losses(model).mean())
    assert windows < VALIDATION_WINDOWS


def test_runs_are_stored_line_by_line_and_read_back(tmp_path, monkeypatch, capsys):
    file = tmp_path / "kinds.csv"
    store("one", {kind: (0.125, 2.0 + i) for i, kind in enumerate(KINDS)}, file)
    monkeypatch.setattr(scaling_kinds, "trained", lambda run: ("model", [], 0.0))
    monkeypatch.setattr(scaling_kinds, "measure", lambda model: {kind: (0.125, 1.0) for kind in KINDS})
    assert main(["size-2-tokens-500k", "--results", str(file)]) == 0
    assert capsys.readouterr().out == "size-2-tokens-500k: stored\n"
    assert rows(file)[0] == {"run": "one", "kind": KINDS[0], "share": "0.12500", "loss": "2.00000"}
    assert losses_by_kind(file) == {"one": {kind: 2.0 + i for i, kind in enumerate(KINDS)},
                                    "size-2-tokens-500k": dict.fromkeys(KINDS, 1.0)}
    assert shares(file) == dict.fromkeys(KINDS, 0.125)


# --- what notebook 15 says of it ------------------------------------------------------------------

def test_two_kinds_leave_the_line_and_no_other():
    two, four, eight = (losses_by_kind()[f"size-8-tokens-{n}000k"] for n in (2, 4, 8))
    for kind in KINDS:
        before, after = 1 - four[kind] / two[kind], 1 - eight[kind] / four[kind]
        left = kind in ("encyclopedia", "tool calls and answers")
        assert after > 1.5 * before if left else after < before + 0.005, kind
    assert 1 - eight["tool results"] / four["tool results"] < 0.01, "what cannot be copied has not become easier"


def test_training_shows_each_sentence_of_the_encyclopedia_19_times_in_8_million_tokens():
    """Counted in the first sixteenth of them, some 1,600 sentences; in all of them it is 18.7 times."""
    sentences = [sentence for entry in encyclopedia() for sentence in entry.say]
    text = scaling.tokenizer().decode(scaling.training_text(500_000).tolist())
    assert len(sentences) == 1362
    assert 16 * sum(map(text.count, sentences)) / len(sentences) == pytest.approx(18.7, rel=0.1)
