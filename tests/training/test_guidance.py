"""Guided heads learn to look where they are shown, and nothing of the model changes besides."""

import math

import pytest
import torch

from course_lib.config import ModelConfig
from course_lib.model import CausalLM
from course_lib.training.guidance import COPY, GUIDED_HEADS, Guide, copy_targets, misplaced
from course_lib.training.mixed_precision import mixed_precision
from course_lib.training.train import POCKET, TrainConfig, guided_step, make_optimizers

SMALL = ModelConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=64)
HEADS = {0: {0: 1, 2: 2}, 2: {1: COPY}}


@pytest.fixture
def model():
    model = CausalLM(SMALL)
    model.init_weights(torch.Generator().manual_seed(0))
    return model


def repeated(seed, rows=8):
    stretch = torch.randint(0, 64, (rows, 12), generator=torch.Generator().manual_seed(seed))
    return torch.cat((stretch, stretch, stretch), dim=1)


def by_loops(ids):
    T = len(ids)
    return [[t, j] for t in range(2, T - 1) for j in range(2, t + 1)
            if ids[j] == ids[t + 1] and ids[j - 1] == ids[t] and ids[j - 2] == ids[t - 1]]


def test_copy_targets_are_those_of_the_loops():
    count = 0
    ids = torch.randint(0, 2, (4, 20), generator=torch.Generator().manual_seed(1))
    for row, targets in zip(ids, copy_targets(ids)):
        found = targets.nonzero().tolist()
        assert found == by_loops(row.tolist())
        count += len(found)
    assert count > 20


def test_no_target_at_the_ends_of_a_row():
    targets = copy_targets(torch.tensor([[5, 5, 5, 5]]))[0]
    assert not targets[0].any() and not targets[-1].any()


def test_misplaced_is_zero_where_all_attention_is_right_and_skips_queries_without_a_place():
    where = torch.tensor([[[False, False], [True, False]]])
    assert misplaced(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), where).item() == pytest.approx(0, abs=1e-3)
    half = misplaced(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), where)
    assert half.item() == pytest.approx(-math.log(0.5), abs=1e-3)
    assert misplaced(torch.rand(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.bool)).item() == 0


def test_guided_heads_learn_to_look_there(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(60):
        ids = repeated(step)
        with Guide(model, HEADS) as guide:
            model(ids)
        loss = guide.loss(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_no_hook_stays_behind_even_after_an_error(model):
    with pytest.raises(ValueError, match="do not fit"), Guide(model, HEADS):
        model(torch.zeros(1, 65, dtype=torch.long))
    assert not any(layer.self_attn._forward_pre_hooks for layer in model.layers)


def test_a_guided_step_returns_the_loss_of_the_text_alone():
    torch.manual_seed(0)
    shape = ModelConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=6,
                        num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=64)
    model, config = CausalLM(shape), TrainConfig(steps=1)
    ids = repeated(0)
    with torch.no_grad(), mixed_precision("cpu"):
        expected = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    before = [p.clone() for p in model.parameters()]
    got = guided_step(model, make_optimizers(model, config), ids, 1e-3, config)
    assert got.item() == pytest.approx(expected.item(), abs=1e-3)
    assert not got.requires_grad
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_the_guided_heads_exist_in_pocket():
    assert max(GUIDED_HEADS) < POCKET.num_hidden_layers
    assert max(head for heads in GUIDED_HEADS.values() for head in heads) < POCKET.num_attention_heads
