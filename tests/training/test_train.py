"""The training loop, on models small enough to train in a test."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from course_lib.config import ModelConfig
from course_lib.model import CausalLM
from course_lib.training import train as train_module
from course_lib.training.mixed_precision import mixed_precision
from course_lib.training.resume import Progress, save_resume
from course_lib.training.train import (
    POCKET,
    POCKET_DRAFT,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    Batches,
    TrainConfig,
    encode_corpus,
    learning_rate,
    make_optimizers,
    next_token_loss,
    train,
    train_tokenizer,
    window,
)

END = 0
TINY = ModelConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                   num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64)
SHORT = TrainConfig(steps=30, sequences=4, length=12, long_length=24, long_every=5, warmup_steps=5, peak_lr=0.01)


@pytest.fixture
def batches():
    """Documents that count upwards from a random start, closed by END."""
    rng = np.random.default_rng(0)
    rows = [[*(1 + (start + np.arange(7)) % 31), END] for start in rng.integers(0, 31, 200)]
    return Batches(np.array(rows, dtype=np.uint16).flatten(), END, seed=3)


def tiny_model():
    model = CausalLM(TINY)
    model.init_weights(torch.Generator().manual_seed(0))
    return model


def test_the_learning_rate_rises_stays_and_falls():
    config = TrainConfig(steps=100, peak_lr=1.0, warmup_steps=10, decay_fraction=0.2)
    rates = [learning_rate(step, config) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[4] == pytest.approx(0.5)
    assert rates[9:80] == [1.0] * 71
    assert rates[90] == pytest.approx(0.5) and rates[-1] == pytest.approx(0.05)
    assert all(a > b for a, b in zip(rates[80:], rates[81:]))


def test_a_perfect_predictor_has_no_loss_and_an_off_by_one_has():
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    right = torch.nn.functional.one_hot(ids[:, 1:], 8) * 50.0
    assert next_token_loss(right, ids).item() < 1e-6
    shifted = torch.nn.functional.one_hot(ids[:, :-1], 8) * 50.0
    assert next_token_loss(shifted, ids).item() > 10
    assert next_token_loss(torch.zeros(1, 4, 8), ids).item() == pytest.approx(math.log(8))


def test_windows_start_at_documents_and_belong_to_the_step(batches):
    ids = batches(5, 6, 15)
    assert ids.shape == (6, 16) and ids.dtype == torch.int64
    assert torch.equal(ids, batches(5, 6, 15))
    assert not torch.equal(ids, batches(6, 6, 15))
    assert (ids[:, 7] == END).all() and (ids[:, :7] != END).all()


def test_a_window_that_is_longer_than_the_tokens_is_refused(batches):
    assert batches(0, 2, len(batches.tokens) - 1).shape == (2, 1600)
    with pytest.raises(ValueError, match="length = 1600 is not allowed: must be from 1 to 1,599"):
        batches(0, 2, 1600)


def test_every_fifth_step_is_long():
    assert [window(step, SHORT) for step in range(6)] == [(4, 12)] * 4 + [(2, 24), (4, 12)]


def test_training_learns_and_reports(batches):
    log = []
    train(tiny_model(), batches, SHORT, validation=batches, on_log=log.append, log_every=10)
    assert [entry["step"] for entry in log] == [10, 20, 30]
    assert [entry["tokens"] for entry in log] == [480, 960, 1440]
    assert log[-1]["val_loss"] < log[0]["val_loss"] < math.log(32) + 0.5
    assert log[-1]["lr"] == learning_rate(29, SHORT)


def test_a_step_is_forward_backward_clip_and_update(batches):
    """The loop of notebook 05 in mixed precision and with clipping, one step of it, by hand."""
    ids, (by_hand, ours) = batches(0, 4, 12), (tiny_model(), tiny_model())
    optimizers = make_optimizers(by_hand, SHORT)
    with mixed_precision("cpu"):
        logits = by_hand(ids[:, :-1])
    torch.nn.functional.cross_entropy(logits.float().transpose(1, 2), ids[:, 1:]).backward()
    torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
    for optimizer in optimizers:
        optimizer.step()
    train_module.train_step(ours, make_optimizers(ours, SHORT), ids, lr=SHORT.peak_lr, clip=0.5)
    start = dict(tiny_model().named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter, by_hand.get_parameter(name), atol=1e-4), name
        assert not torch.equal(parameter, start[name]), name


def test_an_interrupted_run_ends_like_an_uninterrupted_one(batches, tmp_path):
    whole, parts, log = tiny_model(), tiny_model(), []
    train(whole, batches, SHORT, on_log=log.append, log_every=2)

    class Interrupt(Exception):
        pass

    def stop_at_24(entry):
        if entry["step"] == 24:
            raise Interrupt

    resume = tmp_path / "run.pt"
    with pytest.raises(Interrupt):
        train(parts, batches, SHORT, resume=resume, on_log=stop_at_24, log_every=2)
    later = []
    train(parts, batches, SHORT, resume=resume, on_log=later.append, log_every=2)
    assert later[0]["step"] == 22  # it was last written at 20
    assert later[-1]["tokens"] == log[-1]["tokens"]
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(a, b)


class Cut(Exception):
    """A run is cut off."""


def cut_at(step):
    def on_log(entry):
        if entry["step"] == step:
            raise Cut

    return on_log


def test_a_run_is_saved_when_time_has_passed_since_the_last_time(batches, tmp_path, monkeypatch):
    whole, log = tiny_model(), []
    train(whole, batches, SHORT, on_log=log.append, log_every=4)
    monkeypatch.setattr(train_module, "SAVE_SECONDS", 0)  # after every step, so in the middle of a log entry too
    parts, seen, resume = tiny_model(), [], tmp_path / "run.pt"

    def batches_until_step_13(step, *size):
        if step == 13 and not seen:
            raise Cut
        return batches(step, *size)

    batches_until_step_13.tokens = batches.tokens
    with pytest.raises(Cut):
        train(parts, batches_until_step_13, SHORT, resume=resume, on_log=lambda entry: None, log_every=4)
    train(tiny_model(), batches, SHORT, resume=resume, on_log=seen.append, log_every=4)
    assert [entry["step"] for entry in seen] == [16, 20, 24, 28, 30]
    assert [entry["loss"] for entry in seen] == [entry["loss"] for entry in log[3:]]


@pytest.mark.parametrize("change, words", [
    ({"steps": 31}, ["steps = 30", "steps = 31"]),
    ({"peak_lr": 0.02}, ["peak_lr = 0.01", "peak_lr = 0.02"]),
    ({"steps": 5, "seed": 8}, ["seed = 0, steps = 30", "seed = 8, steps = 5"]),
])
def test_an_interrupted_run_goes_on_only_with_its_own_settings(batches, tmp_path, change, words):
    resume = tmp_path / "run.pt"
    with pytest.raises(Cut):
        train(tiny_model(), batches, SHORT, resume=resume, on_log=cut_at(24), log_every=2)
    before = resume.read_bytes()
    with pytest.raises(ValueError, match="--restart") as refusal:
        train(tiny_model(), batches, replace(SHORT, **change), resume=resume, on_log=pytest.fail)
    assert all(word in str(refusal.value) for word in [str(resume), *words])
    assert resume.read_bytes() == before


def test_an_interrupted_run_does_not_go_on_with_another_text_or_shape(batches, tmp_path):
    resume = tmp_path / "run.pt"
    train(tiny_model(), batches, SHORT, resume=resume, on_log=lambda entry: None)
    other = Batches(np.roll(batches.tokens, 8), END, seed=3)
    with pytest.raises(ValueError, match=r"is of a run with text = .* this one has text = "):
        train(tiny_model(), other, SHORT, resume=resume, on_log=pytest.fail)
    with pytest.raises(ValueError, match="intermediate_size = 24, and this one has intermediate_size = 25"):
        train(CausalLM(replace(TINY, intermediate_size=25)), batches, SHORT, resume=resume, on_log=pytest.fail)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"half", b"PK\x03\x04" + bytes(200), saved([1]), saved(torch.zeros(3)),
                                     saved(torch.zeros(())), saved({"model": {}})])
def test_a_broken_resume_file_is_named(batches, tmp_path, content):
    resume = tmp_path / "run.pt"
    resume.write_bytes(content)
    with pytest.raises(ValueError, match=r"run.pt cannot be read.*--restart"):
        train(tiny_model(), batches, SHORT, resume=resume, on_log=pytest.fail)


def test_a_resume_file_without_settings_is_refused(batches, tmp_path):
    torch.save({"model": {}, "optimizers": [], "step": 3, "tokens": 4, "seconds": 5.0}, tmp_path / "run.pt")
    with pytest.raises(ValueError, match="cannot be read"):
        train(tiny_model(), batches, SHORT, resume=tmp_path / "run.pt", on_log=pytest.fail)


def test_a_failed_save_leaves_the_file_of_before(tmp_path, monkeypatch):
    model = tiny_model()
    optimizers, path = make_optimizers(model, SHORT), tmp_path / "run.pt"
    save_resume(path, model, optimizers, Progress(7, 70, 0.7), {})
    before = path.read_bytes()

    def fail(state, file):
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        save_resume(path, model, optimizers, Progress(8, 80, 0.8), {})
    assert path.read_bytes() == before


def test_only_the_matrices_of_the_layers_decay():
    model = tiny_model()
    muon, adamw = make_optimizers(model, SHORT)
    assert {p.dim() for p in muon.param_groups[0]["params"]} == {2}
    assert len(muon.param_groups[0]["params"]) == 7 * TINY.num_hidden_layers
    assert muon.param_groups[0]["weight_decay"] > 0 == adamw.param_groups[0]["weight_decay"]
    assert adamw.param_groups[0]["params"][0] is model.embed_tokens.weight
    both = [*muon.param_groups[0]["params"], *adamw.param_groups[0]["params"]]
    assert {id(p) for p in both} == {id(p) for p in model.parameters()} and len(both) == len(set(map(id, both)))


def test_a_bad_setting_is_refused():
    with pytest.raises(ValueError, match=r"steps = 0 is not allowed"):
        TrainConfig(steps=0)


def test_the_corpus_encodes_into_the_shipped_vocabulary():
    tokenizer = train_tokenizer(characters=1_500_000)
    assert tokenizer.n_vocab == VOCAB_SIZE
    assert list(tokenizer.special_tokens) == list(SPECIAL_TOKENS)
    ids = encode_corpus(tokenizer, 20_000, seed=4)
    assert ids.dtype == np.uint16 and len(ids) >= 20_000 and ids.max() < VOCAB_SIZE
    assert (ids == tokenizer.special_tokens["<|endoftext|>"]).sum() > 100
    assert "<|im_start|>user\n" in tokenizer.decode(ids[:5000].tolist())


def test_the_shipped_shapes_keep_their_promise():
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in CausalLM(shape).parameters()) for shape in (POCKET, POCKET_DRAFT)]
    assert sizes[0] <= 10_000_000 and sizes[1] <= 1_000_000
