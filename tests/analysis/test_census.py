"""The census of heads: ordinary text to score on, and the five scores."""

import pytest
import torch

from course_lib import load
from course_lib.analysis import census, heads
from course_lib.analysis.trace import trace
from course_lib.training.corpus import people


@pytest.fixture(scope="module")
def lm():
    return load("pocket")


@pytest.fixture(scope="module")
def texts(lm):
    return census.prose(lm.tokenizer, 6, 48)


def test_prose_is_whole_rows_of_text_without_chats(lm, texts):
    assert texts.shape == (6, 48) and len({tuple(row) for row in texts.tolist()}) == 6
    assert all("<|" not in lm.tokenizer.decode(row) for row in texts.tolist())


def test_more_prose_than_there_is(lm):
    with pytest.raises(ValueError, match="texts = 1000 is not allowed"):
        census.prose(lm.tokenizer, 1000, 48)


def test_scores_are_shares_and_those_of_the_definitions(lm, texts):
    names, generator = people(), torch.Generator().manual_seed(0)
    lines = heads.lines_said_twice(lm.tokenizer, names["girls"], 9, batch_size=2, generator=generator)
    scores = census.job_scores(lm, texts, lines)
    shape = lm.config.num_hidden_layers, lm.config.num_attention_heads
    assert all(score.shape == shape and 0 <= score.min() <= score.max() <= 1 + 1e-6 for score in scores.values())
    weights = trace(lm.model, texts).attentions[1, :, 4].cpu()  # (B, T, T) of one head
    for job, back in (("previous token", 1), ("two back", 2)):
        expected = weights.diagonal(-back, -2, -1).mean()
        assert scores[job][1, 4].item() == pytest.approx(expected.item(), abs=1e-5)
    assert scores["first token"][1, 4].item() == pytest.approx(weights[:, 2:, 0].mean().item(), abs=1e-5)
    expected = heads.induction_scores(trace(lm.model, lines).attentions, 9)
    torch.testing.assert_close(scores["induction"], expected.float().cpu())


def test_attention_spread_evenly_scores_what_chance_gives():
    """What a head would score that looks at everything alike: 7 % at the previous token, 6 % at the first."""
    even = (torch.ones(48, 48).tril() / torch.arange(1, 49)[:, None]).expand(1, 1, 1, 48, 48)
    for places, share in ((heads.previous_token, 0.07), (heads.first_token, 0.06)):
        assert heads.attention_share(even, places(48)).item() == pytest.approx(share, abs=0.005)


def test_the_best_pronoun_head_of_pocket_looks_three_tokens_back(lm, texts):
    meant, other = heads.pronoun_scores(lm, heads.pronoun_sentences(24))
    layer, head = divmod(meant.argmax().item(), lm.config.num_attention_heads)
    assert meant[layer, head] < 0.5 and meant[layer, head] > other[layer, head]
    weights = trace(lm.model, texts).attentions[layer, :, head]
    back = [weights.diagonal(-k, -2, -1).mean().item() for k in range(9)]
    assert back[3] == max(back) > 0.9
