"""The ladder lets right caches up, and each of the wrong ones falls where its mistake is and nowhere else."""

import pytest
import torch

from course_lib.classroom.cache_ladder import (
    CLOSE,
    MISTAKES,
    RUNGS,
    SUSPECTS,
    Buffers,
    climb,
    logits_in_calls,
    small_model,
    small_text,
)
from course_lib.classroom.checks.nb08 import EVIDENCE, diagnosis
from course_lib.kv_cache import DynamicCache, SlidingWindowCache, StaticCache

MODEL, IDS = small_model(), small_text()
RIGHT = {"dynamic": DynamicCache, "static": lambda: StaticCache.for_model(MODEL, 12, batch_size=2)}
WRONG_AT = {"corner": {"5, then 7"}, "no mask": {"one call", "5, then 7"}, "late": {"one by one", "5, then 7"}}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_cache_climbs_every_rung(name):
    climbed = climb(RIGHT[name], MODEL, IDS)
    assert climbed.splits == climbed.right == 2**11 and climbed.gap <= CLOSE


def test_a_ring_climbs_against_the_logits_of_its_window():
    window = 5

    def ring():
        return SlidingWindowCache(MODEL.config, window, batch_size=2, dtype=torch.float64)

    expected = logits_in_calls(MODEL, IDS, [12], ring())
    assert climb(ring, MODEL, IDS, expected).right == 2**11
    assert climb(ring, MODEL, IDS[:, :8]).right == 0, "the last rows see less than those of the model"


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("rung", RUNGS)
def test_each_mistake_shows_on_its_own_rungs(name, rung):
    gap = (logits_in_calls(MODEL, IDS, RUNGS[rung], MISTAKES[name]()) - MODEL(IDS)).abs().max()
    assert gap > 1 if rung in WRONG_AT[name] else gap <= CLOSE


def test_no_two_mistakes_show_on_the_same_rungs():
    assert len({frozenset(rungs) for rungs in WRONG_AT.values()}) == len(MISTAKES)
    assert {letter: MISTAKES[name] for letter, name in diagnosis().items()} == SUSPECTS
    assert set(EVIDENCE) == set(SUSPECTS)


def test_one_layer_and_the_last_row_show_no_missing_mask():
    """Why the ladder takes all rows and two layers."""
    gaps = {}
    for layers in (1, 2):
        model = small_model(layers)
        off = (logits_in_calls(model, IDS, [12], MISTAKES["no mask"]()) - model(IDS)).abs()
        gaps[layers] = off[:, -1].max().item(), off.max().item()
    assert gaps[1][0] <= CLOSE < 1 < gaps[1][1] and min(gaps[2]) > 1


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_caches_are_right_in_few_splits(name):
    """One token in each call, or all at once; in the wrong corner nothing shows until a second call has two rows."""
    climbed = climb(MISTAKES[name], MODEL, IDS[:, :8])
    assert climbed.splits == 2**7 and climbed.right == {"corner": 8}.get(name, 1) and climbed.gap > 1


def test_nan_is_no_right_answer():
    class Broken(DynamicCache):
        def update(self, key_states, value_states, layer_idx):
            keys, values = super().update(key_states, value_states, layer_idx)
            return keys * torch.nan, values

    climbed = climb(Broken, MODEL, IDS[:, :3])
    assert climbed == (4, 0, torch.inf)


def test_buffers_start_unwritten():
    layer = Buffers(2, 3, 5, 4, dtype=torch.float64)
    assert layer.keys.shape == layer.values.shape == (2, 3, 5, 4) and layer.length == 0
    assert layer.keys.isnan().all() and layer.values.dtype == torch.float64
    assert layer.keys.data_ptr() != layer.values.data_ptr()


def test_what_cannot_be_climbed_is_refused():
    with pytest.raises(ValueError, match=r"ids.shape\[1\] = 15"):
        climb(DynamicCache, MODEL, small_text(15))
    with pytest.raises(ValueError, match="sizes"):
        logits_in_calls(MODEL, IDS, [5, 6], DynamicCache())
