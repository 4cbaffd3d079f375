"""The course's text as ids, and losses along it, against loops."""

import math

import pytest
import torch

from course_lib import load
from course_lib.analysis.long_texts import course_text, loss_by_stretch, token_losses, weights_by_distance
from course_lib.analysis.trace import trace


def test_course_text_is_the_tokenizers_and_depends_on_the_seed():
    tokenizer = load("pocket", device="cpu").tokenizer
    ids = course_text(tokenizer, 300)
    assert ids.shape == (300,) and torch.equal(ids[:50], course_text(tokenizer, 50))
    assert not torch.equal(ids, course_text(tokenizer, 300, seed=2))
    assert tokenizer.special_tokens["<|endoftext|>"] in course_text(tokenizer, 2000)


def test_token_losses_against_a_loop():
    logits = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ids = torch.tensor([[1, 6, 0, 3, 3], [2, 2, 5, 4, 0]])
    found = token_losses(logits, ids)
    assert found.shape == (2, 4)
    for b in range(2):
        for t in range(4):
            row = logits[b, t].tolist()
            expected = math.log(math.fsum(math.exp(x) for x in row)) - row[ids[b, t + 1]]
            assert found[b, t].item() == pytest.approx(expected)


def test_loss_by_stretch_of_two_texts():
    losses = torch.tensor([[1.0, 2, 3], [5, 7, 9]])
    assert loss_by_stretch(losses, size=2) == [1.0, 2.5, 5.0, 8.0]
    with pytest.raises(ValueError, match="size = 3"):
        loss_by_stretch(losses, size=3)


def test_weights_by_distance_against_a_loop_and_by_the_ropes_angles():
    model = load("pocket", device="cpu").model
    ids = course_text(load("pocket", device="cpu").tokenizer, 80).view(2, 40)
    cos, sin = model.rope(slice(0, 40), torch.float32)
    found = weights_by_distance(model, ids, (cos, sin), layer=1, head=3, distances=4)
    each = [trace(model, one[None]).attentions[1, 0, 3] for one in ids]  # (T, T)
    assert found == pytest.approx([sum(w[t, t - d].item() for w in each for t in range(3, 40)) / 74 for d in range(4)],
                                  abs=1e-5)
    unturned = torch.ones_like(cos), torch.zeros_like(sin)
    assert weights_by_distance(model, ids, unturned, layer=1, head=3, distances=4) != pytest.approx(found, abs=0.01)
    with pytest.raises(ValueError, match="distances = 41"):
        weights_by_distance(model, ids, (cos, sin), layer=1, head=3, distances=41)
