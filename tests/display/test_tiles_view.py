"""Tile by tile: the state after each tile against softmax, the bars against the state, a panel that runs on a merge."""

import math
import re

import pytest
import torch
from diagrams.well_drawn import check, rects
from saved_form import picture_of, still_of

from course_lib.checkpoint import load
from course_lib.classroom.checks.nb10 import merge
from course_lib.display.tiles_view import HIGH, tiles_drawing, tiles_html, tiles_summary, tiles_view
from course_lib.display.tiles_widget import tiles_widget
from course_lib.flash import flash_traffic, tile_bytes

S, DH = 11, 6


def row(scores=None):
    """A query, keys and values; with scores, keys that give them."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*shape, generator=generator) for shape in ((DH,), (S, DH), (S, DH)))
    if scores is not None:
        q, k = torch.zeros(DH), torch.zeros(len(scores), DH)
        q[0], k[:, 0], v = math.sqrt(DH), torch.tensor(scores), v[:len(scores)]
    return q, k, v


@pytest.mark.parametrize("block", [1, 4, 11, 20])
def test_each_step_is_softmax_of_the_keys_so_far(block):
    q, k, v = row()
    for step in range(1, -(-S // block) + 1):
        view = tiles_view(q, k, v, block=block, step=step, merge=merge)
        seen = torch.tensor(view.scores[:view.seen])
        assert view.seen == min(step * block, S) and view.m == pytest.approx(seen.max().item(), rel=1e-5)
        assert view.total == pytest.approx((seen - seen.max()).exp().sum().item(), rel=1e-4)
        assert sum(view.weights) == pytest.approx(view.total, rel=1e-4)
        so_far = seen.softmax(0) @ v[:view.seen]
        whole = torch.tensor(view.scores).softmax(0) @ v
        assert view.gap == pytest.approx((so_far - whole).abs().max().item(), abs=1e-5)
    assert view.step == view.steps and view.gap < 1e-5


def test_bytes_are_those_of_the_library():
    view = tiles_view(*row(), block=4, step=2, merge=merge)
    assert view.fast_bytes == tile_bytes(1, 4, DH)
    assert view.loaded == flash_traffic(1, 8, DH, causal=False, block_q=1, bytes_per_element=4).loaded
    assert f"{view.fast_bytes:,.0f} bytes" in tiles_html(view) and f"{view.loaded:,.0f} bytes" in tiles_html(view)
    assert f"{4 * S} bytes" in tiles_html(view)


@pytest.mark.parametrize("step, said", [
    (1, "Tile 1 of 3, keys 0 to 1. The first maximum is 2.00. The sum l is 1.37. o / l is still"),
    (2, "Tile 2 of 3, keys 2 to 3. The maximum rises from 2.00 to 5.00, so what came before shrinks to 5.0 %."),
    (3, "Tile 3 of 3, key 4. The maximum stays 5.00. The sum l is 1.21. o / l is the output of the whole row.")])
def test_the_summary_tells_the_five_numbers(step, said):
    assert said in tiles_summary(tiles_view(*row([2.0, 1, 5, 0, 3]), block=2, step=step, merge=merge))


def test_a_wrong_merge_is_seen():
    view = tiles_view(*row([2.0, 1, 5, 0, 3]), block=2, step=3, merge=lambda a, b: tuple(x + y for x, y in zip(a, b)))
    assert "But o / l is" in tiles_summary(view) and view.gap > 0.01


def bars(markup, kind):
    return [float(high) for high in re.findall(rf'class="{kind}" x="[\d.]+" width="[\d.]+" y="[\d.]+" '
                                               r'height="([\d.]+)"', markup)]


def test_the_bars_are_the_weights():
    view = tiles_view(*row([2.0, 1, 5, 0, 3]), block=2, step=2, merge=merge)
    markup, now, past = tiles_html(view), [1, math.exp(-5)], [math.exp(-3), math.exp(-4)]
    assert bars(markup, "now") == pytest.approx([HIGH * x for x in now], abs=0.06)
    assert bars(markup, "past") == pytest.approx([HIGH * x for x in past], abs=0.06)
    assert bars(markup, "before") == pytest.approx([HIGH * x for x in (1, math.exp(-1))], abs=0.06)
    assert markup.count('class="later"') == 1 and markup.count('class="tile"') == 1
    assert "dashed" in markup and 'role="status"' in markup, "colour is not all that tells them apart"
    drawn = check(lambda: tiles_drawing(view))
    assert [high for *_, high in rects(drawn, "key")] == pytest.approx([140 * x for x in past + now], abs=0.1)
    assert not bars(tiles_html(tiles_view(*row([2.0, 1, 5, 0, 3]), block=2, step=3, merge=merge)), "before")


@pytest.mark.parametrize("wrong", [{"block": 0}, {"step": 0}, {"step": 4}])
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        tiles_view(*row(), **({"block": 4, "step": 1, "merge": merge} | wrong))


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu")


IDS = torch.arange(300, 324)


def test_the_widget_runs_on_the_merge_that_it_gets(lm):
    asked = []

    def mine(a, b):
        asked.append(a)
        return merge(a, b)

    panel = tiles_widget(lm, IDS, mine, layer=2, head=5, block=6)
    assert len(asked) == 3 and 'data-step="1"' in panel.picture.value and 'data-steps="4"' in panel.picture.value
    panel.next.click()
    assert panel.step.value == 2 and 'data-step="2"' in panel.picture.value
    panel.step.value = 4
    assert "o / l is the output of the whole row." in panel.picture.value
    panel.next.click()
    assert panel.step.value == 1, "after the last the first"
    panel.step.value = 3
    panel.block.value = 24
    assert panel.step.value == panel.step.max == 1 and 'data-steps="1"' in panel.picture.value
    panel.block.value = 1
    assert panel.step.max == 24 and 'data-steps="24"' in panel.picture.value
    before = panel.picture.value
    panel.head.value = 0
    assert panel.picture.value != before
    panel.layer.value = 9
    assert panel.message.value == ""
    assert all(knob.description for knob in (panel.layer, panel.head, panel.block, panel.step, panel.next))


def test_the_row_is_the_model_s(lm):
    """The last row of a layer's attention weights, with the keys of the head's group."""
    from course_lib.analysis.trace import trace

    panel = tiles_widget(lm, IDS, merge, layer=3, head=6, block=24)
    scores = torch.tensor(panel.update().scores)
    assert torch.allclose(scores.softmax(0), trace(lm.model, IDS[None]).attentions[3, 0, 6, -1], atol=1e-5)


def test_what_is_saved_is_a_picture_of_the_first_setting(lm):
    panel = tiles_widget(lm, IDS, merge, block=6, step=2)
    first = picture_of(panel)
    assert "Tile 2 of 4, keys 6 to 11." in still_of(panel) and "course-tile-steps" in panel._dom_classes
    panel.next.click()
    assert picture_of(panel) == first


@pytest.mark.parametrize("wrong", [{"layer": 10}, {"head": 8}, {"block": 25}, {"block": 0}])
def test_a_panel_that_cannot_be_is_refused(lm, wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        tiles_widget(lm, IDS, merge, **wrong)
