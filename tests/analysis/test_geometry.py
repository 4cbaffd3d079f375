"""Neighbours and the flat view of a table, against torch's cosine and numpy's covariance."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_lib.analysis.geometry import nearest, principal_axes, single_token_words


def table(rows=11, size=5, seed=0):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("id", [0, 4, 10])
def test_nearest_against_torch(id):
    weight = table() * torch.arange(1, 12)[:, None]  # lengths that differ by a factor of ten
    cosines = {i: F.cosine_similarity(weight[i].double(), weight[id].double(), dim=0).item()
               for i in range(11) if i != id}
    expected = sorted(cosines, key=cosines.get, reverse=True)
    found = nearest(weight, id, 10)
    assert [i for i, _ in found] == expected
    assert [c for _, c in found] == pytest.approx([cosines[i] for i in expected], abs=1e-6)
    assert nearest(weight, id, 3) == found[:3]


def test_nearest_of_equals_is_the_lowest_id_and_zeros_have_cosine_0():
    weight = torch.tensor([[1.0, 0], [0, 2], [0, 1], [0, 0], [0, 5], [-1, -1]])
    assert [i for i, _ in nearest(weight, 2, 5)] == [1, 4, 0, 3, 5]
    assert dict(nearest(weight, 2, 5))[3] == 0
    assert nearest(weight, 3, 5) == [(0, 0.0), (1, 0.0), (2, 0.0), (4, 0.0), (5, 0.0)]


@pytest.mark.parametrize("id, k, words", [(11, 1, "id = 11"), (-1, 1, "id = -1"), (0, 0, "k = 0"), (0, 11, "k = 11")])
def test_nearest_refuses(id, k, words):
    with pytest.raises(ValueError, match=words):
        nearest(table(), id, k)


def test_principal_axes_against_the_covariance():
    rows = table(40, 6) * torch.tensor([1.0, 5, 2, 0.5, 3, 1]) + 7
    view = principal_axes(rows, 3)
    values, vectors = np.linalg.eigh(np.cov(rows.double().numpy().T))
    order = values.argsort()[::-1][:3]
    assert view.shares.tolist() == pytest.approx(values[order] / values.sum(), rel=1e-4)
    for axis, expected in zip(view.axes, vectors.T[order]):
        assert abs(axis.double().numpy() @ expected) == pytest.approx(1, abs=1e-5)
        assert axis[axis.abs().argmax()] > 0
    places = view(rows)
    assert places.shape == (40, 3)
    assert places.mean(0).abs().max() < 1e-4
    assert places.var(0).tolist() == pytest.approx(values[order], rel=1e-4)
    torch.testing.assert_close(view(view.mean + 2 * view.axes[1]), torch.tensor([0.0, 2, 0]), rtol=0, atol=1e-4)


def test_principal_axes_refuse_more_axes_than_there_are():
    with pytest.raises(ValueError, match=r"n = 6 .* \[1, 5\]"):
        principal_axes(table(), 6)


def test_words_of_one_token():
    ids = {" cat": [7], " dog": [8], " hedgehog": [1, 2]}
    tokenizer = SimpleNamespace(encode_ordinary=ids.__getitem__)
    assert single_token_words(tokenizer, ["dog", "hedgehog", "cat"]) == {"dog": 8, "cat": 7}
