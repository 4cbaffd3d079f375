"""Bytes kept for the backward pass, on models in which they can be counted by hand."""

import pytest
import torch
from torch import nn

from course_lib.analysis.activations import bytes_after_a_step, kept_for_backward

V, D, B, T = 11, 6, 2, 5
IDS = torch.arange(B * (T + 1)).view(B, T + 1) % V


class Exponential(nn.Module):
    """Its backward pass reads its result again."""

    def forward(self, x):
        return x.exp()


def kept(*modules):
    return kept_for_backward(nn.Sequential(*modules), IDS)


def test_a_linear_layer_keeps_its_input_and_an_exponential_its_result():
    plain = kept(nn.Embedding(V, V))  # ids, labels, and the logarithms of the probabilities
    assert V * 4 <= plain < V * 4 + 40
    assert kept(nn.Embedding(V, V), Exponential()) == pytest.approx(plain + 4 * V)
    assert kept(nn.Embedding(V, D), nn.Linear(D, V)) == pytest.approx(plain + 4 * D), "and not its weights"


def test_a_sum_keeps_nothing_and_a_shared_memory_counts_once():
    class Doubled(nn.Module):
        def forward(self, x):
            return x + x

    class Squared(nn.Module):
        def forward(self, x):
            return x * x.view(x.shape)

    plain = kept(nn.Embedding(V, V))
    assert kept(nn.Embedding(V, V), Doubled()) == pytest.approx(plain)
    assert kept(nn.Embedding(V, V), Squared()) == pytest.approx(plain + 4 * V)


def test_it_counts_where_gradients_are_off_and_leaves_none():
    model = nn.Embedding(V, V)
    with torch.no_grad():
        assert kept_for_backward(model, IDS) == kept(model)
    assert model.weight.grad is None


def test_a_step_of_adamw_leaves_four_numbers_for_a_trained_weight_and_one_for_a_frozen_one():
    model = nn.Sequential(nn.Embedding(V, D), nn.Linear(D, V))
    assert bytes_after_a_step(model, IDS) == {"weights": 4 * (2 * V * D + V), "gradients": 4 * (2 * V * D + V),
                                              "running means": 8 * (2 * V * D + V)}
    model = nn.Sequential(nn.Embedding(V, D).requires_grad_(False), nn.Linear(D, V))
    before = model[0].weight.clone()
    assert bytes_after_a_step(model, IDS) == {"weights": 4 * (2 * V * D + V), "gradients": 4 * (V * D + V),
                                              "running means": 8 * (V * D + V)}
    assert torch.equal(model[0].weight, before)
