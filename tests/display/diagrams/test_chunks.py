"""A long prompt among running answers, drawn: ticks, blocks and gaps are as long as the roofline says."""

from itertools import pairwise

import pytest
from well_drawn import check, paths, rects, words

from course_lib.analysis.roofline import LLAMAS, MACHINES, decode_seconds, prefill_seconds
from course_lib.display.diagrams.chunks import chunked_prefill, shared_passes
from course_lib.display.diagrams.phases import milliseconds

LLAMA, H100, NAME = LLAMAS["Llama 3 8B"], MACHINES["H100 SXM"], "Llama 3 8B"


@pytest.mark.parametrize("chunk, running", [(512, 3), (1024, 2), (1500, 4)])
def test_ticks_are_apart_as_the_passes_are_long(chunk, running):
    drawing = check(lambda: chunked_prefill(4096, chunk, LLAMA, H100, NAME, running=running))
    ticks = paths(drawing, 4)
    rows = sorted({start[1] for start, _ in ticks})
    assert len(rows) == 2 * running
    both = [sorted(start[0] for start, _ in ticks if start[1] == y) for y in (rows[0], rows[-1])]
    blocks = rects(drawing, "cost")
    [alone], pieces = (shared_passes(4096, size, LLAMA, H100, running) for size in (4096, chunk))
    assert len(blocks) == 1 + len(pieces)
    gaps = [max(b - a for a, b in pairwise(xs)) for xs in both]
    assert gaps[0] / gaps[1] == pytest.approx(alone / max(pieces), rel=0.02)
    step = decode_seconds(LLAMA, 1, H100, batch_size=running)
    for xs in both:
        assert min(b - a for a, b in pairwise(xs)) / gaps[0] == pytest.approx(step / alone, rel=0.05), "a usual step"
    inside = [x for x in both[0] if blocks[0][0] + 1 < x < blocks[0][0] + blocks[0][2] - 1]
    assert inside == [], "no token while the prompt is read"
    for left, _, wide, _ in blocks[1:]:
        assert any(x == pytest.approx(left + wide, abs=0.2) for x in both[1]), "each piece ends with a token"
    assert f"first token after {milliseconds(alone)}" in words(drawing)
    assert f"first token after {milliseconds(sum(pieces))}" in words(drawing)
    assert f"no token for {milliseconds(max(pieces))}" in words(drawing)


def test_large_pieces_cost_what_the_whole_does_and_small_ones_read_the_weights_again():
    [whole] = shared_passes(4096, 4096, LLAMA, H100, 1)
    assert whole == pytest.approx(prefill_seconds(LLAMA, 4096, H100), rel=1e-3)
    assert sum(shared_passes(4096, 512, LLAMA, H100, 1)) == pytest.approx(whole, rel=0.01)
    assert sum(shared_passes(4096, 64, LLAMA, H100, 1)) > 3 * whole, "below the ridge"


@pytest.mark.parametrize("prompt, chunk, running", [(100, 100, 3), (100, 0, 3), (100, 50, 1), (100, 50, 5)])
def test_what_cannot_be_drawn_is_refused(prompt, chunk, running):
    with pytest.raises(ValueError, match="is not allowed"):
        chunked_prefill(prompt, chunk, LLAMA, H100, NAME, running=running)
