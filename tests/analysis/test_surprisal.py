"""Surprisal, perplexity and entropy against sums by hand; the lens and the bins of a calibration, likewise."""

import math
from types import SimpleNamespace

import pytest
import torch

from course_lib.analysis.calibration import Bin, Predictions, calibration_error, predict, reliability, together
from course_lib.analysis.logit_lens import logit_lens, ranks_of, settling_depth
from course_lib.analysis.surprisal import (
    TokenScore,
    bits_of,
    bits_per_byte,
    entropy,
    mean_bits,
    next_token_logprobs,
    perplexity,
    pooled_perplexity,
    score_text,
)
from course_lib.analysis.trace import trace
from course_lib.config import ModelConfig
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

RANKS = train_bpe(["The dog did not cross the street because it was too tired."] * 2, 300)
TOKENIZER = Tokenizer("tiny", POCKET_PATTERN, RANKS, {"<|endoftext|>": len(RANKS)})
TEXT = "The dog was <b> 日 tired."


@pytest.fixture(scope="module")
def lm():
    config = ModelConfig(vocab_size=len(RANKS) + 1, hidden_size=20, intermediate_size=24, num_hidden_layers=3,
                         num_attention_heads=6, num_key_value_heads=2, head_dim=4, max_position_embeddings=64)
    model, generator = CausalLM(config).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=config, eos_token_ids=frozenset())


def random_logits(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 4


def test_logprobs_are_those_of_the_next_ids():
    logits, ids = random_logits(4, 9), [2, 8, 0, 5]
    expected = []
    for t, following in enumerate(ids[1:]):
        total = math.fsum(math.exp(x) for x in logits[t].tolist())
        expected.append(logits[t, following].item() - math.log(total))
    assert next_token_logprobs(logits, ids).tolist() == pytest.approx(expected, abs=1e-6)
    assert perplexity(logits, ids) == pytest.approx(math.exp(-sum(expected) / 3), rel=1e-6)
    with pytest.raises(ValueError, match="as there are ids"):
        next_token_logprobs(logits, ids[:3])
    with pytest.raises(ValueError, match="first token is not predicted"):
        perplexity(logits[:1], ids[:1])


def test_a_hopeless_token_has_finite_surprisal_and_a_removed_one_infinite():
    logits = torch.tensor([[0.0, -500.0, -torch.inf], [0.0, 0.0, 0.0]])
    assert next_token_logprobs(logits, [0, 1]).tolist() == pytest.approx([-500.0])
    assert next_token_logprobs(logits, [0, 2]).tolist() == [-math.inf]
    assert bits_of(0) == math.inf and str(bits_of(1.0)) == "0.0"


def test_pooling_equals_the_perplexity_of_all_tokens():
    losses = [[0.5, 1.5, 0.25], [], [3.0]]
    assert pooled_perplexity(losses) == pytest.approx(math.exp(5.25 / 4))
    with pytest.raises(ValueError, match="at least one predicted token"):
        pooled_perplexity([[], []])


def test_entropy_is_the_expected_surprisal():
    logits = random_logits(2, 3, 7)
    logits[0, 0, 4] = -torch.inf
    for row, bits in zip(logits.view(6, 7).tolist(), entropy(logits).flatten().tolist(), strict=True):
        weights = [math.exp(x) for x in row]
        probs = [w / sum(weights) for w in weights]
        assert bits == pytest.approx(-sum(p * math.log2(p) for p in probs if p), abs=1e-6)


def test_scores_tell_bits_rank_and_candidates(lm):
    scores = score_text(lm, TEXT, candidates=4)
    ids = TOKENIZER.encode(TEXT)
    with torch.no_grad():
        probs = lm.model(torch.tensor([ids]))[0].double().softmax(-1)
    assert [s.id for s in scores] == ids and b"".join(s.piece for s in scores) == TEXT.encode()
    assert scores[0] == TokenScore(ids[0], scores[0].piece)
    for t, score in enumerate(scores[1:]):
        p = probs[t, ids[t + 1]].item()
        assert score.bits == pytest.approx(-math.log2(p), abs=1e-4)
        assert score.rank == 1 + sum(q > p for q in probs[t].tolist())
        assert [q for _, q in score.candidates] == pytest.approx(sorted(probs[t].tolist())[:-5:-1], abs=1e-6)
        assert score.candidates[0][0] == TOKENIZER.decode_single_token_bytes(probs[t].argmax().item())
        assert score.entropy == pytest.approx(-(probs[t] * probs[t].log2()).sum().item(), abs=1e-4)
    bits = [score.bits for score in scores[1:]]
    assert mean_bits(scores) == pytest.approx(sum(bits) / len(bits))
    assert bits_per_byte(scores) == pytest.approx(sum(bits) / (len(TEXT.encode()) - len(scores[0].piece)))


def test_scores_use_the_softmax_that_is_given(lm):
    uniform = score_text(lm, "The dog", softmax=lambda row: torch.full_like(row, 1 / row.shape[-1]))
    assert all(s.bits == pytest.approx(math.log2(len(RANKS) + 1)) and s.rank == 1 for s in uniform[1:])


def test_a_text_that_cannot_be_scored_is_refused(lm):
    with pytest.raises(ValueError, match="at least one token"):
        score_text(lm, "")
    with pytest.raises(ValueError, match="at most 64"):
        score_text(lm, "xyz " * 60)
    [only] = score_text(lm, "T")
    assert only.bits is None and math.isnan(mean_bits([only])) and math.isnan(bits_per_byte([only]))


def test_the_lens_ends_in_the_models_logits_and_reads_every_depth(lm):
    ids = torch.tensor([TOKENIZER.encode(TEXT)] * 2)
    seen = trace(lm.model, ids)
    lens = logit_lens(lm.model, seen.hidden_states)
    assert lens.shape == (4, 2, ids.shape[1], len(RANKS) + 1)
    torch.testing.assert_close(lens[-1], seen.logits)
    state = seen.hidden_states[1, 1, 2]
    normed = state / (state.square().mean() + lm.config.rms_norm_eps).sqrt() * lm.model.norm.weight
    torch.testing.assert_close(lens[1, 1, 2], lm.model.lm_head.weight @ normed)
    assert not lens.requires_grad


@pytest.mark.parametrize("best, depth", [([1, 1, 1], 0), ([0, 1, 1], 1), ([1, 0, 1], 2), ([0, 0, 1], 2)])
def test_settling_is_coming_to_the_top_and_staying(best, depth):
    assert settling_depth(torch.nn.functional.one_hot(torch.tensor(best), 3).float()) == depth


def test_ranks_count_what_is_likelier():
    assert ranks_of(torch.tensor([3.0, 1.0, 3.0, 2.0]), 3).item() == 3
    assert ranks_of(torch.tensor([3.0, 1.0, 3.0, 2.0]), 2).item() == 1


def predictions(confidence, correct):
    return Predictions(torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct))


def test_predictions_compare_the_likeliest_token_with_what_comes(lm):
    ids = TOKENIZER.encode(TEXT)
    found = predict(lm.model, ids)
    with torch.no_grad():
        probs = lm.model(torch.tensor([ids]))[0].softmax(-1)
    assert found.confidence.tolist() == pytest.approx([max(row) for row in probs[:-1].tolist()], abs=1e-5)
    assert found.correct.tolist() == [row.argmax().item() == i for row, i in zip(probs[:-1], ids[1:])]


def test_bins_hold_what_lies_above_their_low_edge_up_to_their_high_edge():
    one, other = predictions([0.5, 0.9, 1.0], [True, True, False]), predictions([0.6, 0.2], [False, False])
    bins = reliability([one, other], [0, 0.5, 1])
    assert [(b.low, b.high, b.count) for b in bins] == [(0, 0.5, 2), (0.5, 1, 3)]
    assert bins[0].confidence == pytest.approx(0.35) and bins[0].accuracy == 0.5
    assert bins[1].accuracy == pytest.approx(1 / 3) and bins[1].gap == pytest.approx(1 / 3 - 2.5 / 3)
    # over two documents, with n = 2 and 1: residuals of right - confidence against gap * n
    gap = bins[1].gap
    residuals = [(1 - 1.9) - 2 * gap, (0 - 0.6) - gap]
    assert bins[1].error == pytest.approx(math.sqrt(2 * sum(r * r for r in residuals)) / 3)
    assert calibration_error(bins) == pytest.approx((2 * 0.15 + 3 * 0.5) / 5)


def test_empty_bins_are_left_out_and_one_document_has_no_error():
    [only] = reliability([predictions([0.8], [True])], [0, 0.25, 0.75, 1])
    assert only.low == 0.75 and only.error == math.inf
    with pytest.raises(ValueError, match="ascending"):
        reliability([], [0, 0])


def test_the_error_covers_a_calibrated_model_as_often_as_it_should():
    """Of 400 calibrated data sets, at least 350 lie within two errors (95 % expected; binomial tail < 1e-9)."""
    generator, inside = torch.Generator().manual_seed(0), 0
    for _ in range(400):
        confidence = torch.rand(30, 20, generator=generator, dtype=torch.float64)
        right = torch.rand(30, 20, generator=generator, dtype=torch.float64) < confidence
        [b] = reliability([Predictions(c, r) for c, r in zip(confidence, right)], [0, 1])
        inside += abs(b.gap) <= 2 * b.error
    assert 350 <= inside < 400


def test_error_of_bins_weighs_by_count():
    assert calibration_error([Bin(0, 0.5, 30, 0.4, 0.3, 0), Bin(0.5, 1, 10, 0.9, 1, 0)]) == pytest.approx(0.1)


def test_bins_of_nothing_together_have_no_mean():
    assert together([]).count == 0 and math.isnan(together([]).confidence) and math.isnan(together([]).accuracy)
