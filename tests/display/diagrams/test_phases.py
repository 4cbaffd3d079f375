"""Prefill and decode drawn: streams are equal, bars are as long as the numbers of the machine say."""

from dataclasses import replace

import pytest
from well_drawn import check, paths, rects, words

from course_lib.analysis.roofline import LLAMAS, MACHINES, Machine, decode_seconds, prefill_seconds
from course_lib.display.diagrams.phases import decode_step, milliseconds, shared_reading, two_phases

LLAMA, H100, LAPTOP = LLAMAS["Llama 3 8B"], MACHINES["H100 SXM"], MACHINES["laptop"]
NAME = "Llama 3 8B"


@pytest.mark.parametrize("tokens", [48, 60, 100])
def test_every_pass_gets_the_same_stream_and_each_token_is_drawn(tokens):
    drawing = check(lambda: two_phases(tokens, LLAMA, H100, NAME))
    assert len(rects(drawing, "latency")) == tokens + 3 and len(rects(drawing, "mark")) == 4, "one token out of each"
    streams = paths(drawing, 14)
    assert len(streams) == 4 and len({(start[1], end[1]) for start, end in streams}) == 1
    read = milliseconds(prefill_seconds(LLAMA, tokens, H100))
    assert words(drawing).count(read) == 4 == words(drawing).count("0.015 ms") + 1
    assert f"{tokens} tokens take as long as 1" in drawing.description


def test_the_claim_of_the_passes_is_made_only_where_it_holds():
    slow = replace(LAPTOP, bytes_per_s=100e9)  # whose critical batch is below 48
    with pytest.raises(ValueError, match="tokens = 48 is not allowed"):
        two_phases(48, LLAMA, slow, NAME)


def test_bars_are_as_long_as_the_times_and_meet_at_the_critical_batch():
    batches = (1, 2, 10, 20)
    drawing = check(lambda: shared_reading(batches, LLAMA, LAPTOP, NAME))
    _, *read = rects(drawing, "weights")  # the first explains the colour
    _, *squares = rects(drawing, "cost")
    assert len(squares) == sum(batches) and len({bar[2] for bar in read}) == 1 == len({bar[0] for bar in read})
    for (_, top, wide, height), rows in zip(read, batches):
        mine = [square for square in squares if square[1] == pytest.approx(top + height + 2)]
        step = decode_step(rows, LLAMA, LAPTOP)
        assert len(mine) == rows and sum(square[2] for square in mine) / wide == pytest.approx(
            step.multiply / step.read, rel=0.02)
        assert f"{rows / step.seconds:.0f}" in words(drawing) and milliseconds(step.seconds) in words(drawing)
    [(start, _)] = [line for line in paths(drawing, 2) if line[0][0] == line[1][0]]
    assert start[0] == pytest.approx(read[0][0] + read[0][2], abs=0.2)
    assert "critical batch: 10 rows" in words(drawing)


def test_a_decode_step_is_the_bound_without_its_caches():
    step = decode_step(4, LLAMA, H100)
    assert step.seconds == step.read == pytest.approx(decode_seconds(LLAMA, 1, H100, batch_size=4), rel=1e-4)
    assert decode_step(590, LLAMA, H100).multiply == pytest.approx(2 * step.read, rel=0.01), "twice the critical batch"


@pytest.mark.parametrize("call", [
    lambda: two_phases(18, LLAMA, H100, NAME), lambda: two_phases(104, LLAMA, H100, NAME),
    lambda: two_phases(44, LLAMA, H100, NAME), lambda: shared_reading((1, 2, 8), LLAMA, LAPTOP, NAME),
    lambda: shared_reading((1, 10), LLAMA, LAPTOP, NAME), lambda: shared_reading((1, 10, 40), LLAMA, LAPTOP, NAME)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()


def test_a_machine_that_is_all_memory_has_other_numbers():
    machine = Machine("box", 1e12, 10e12)  # a critical batch of ten, too
    assert "1 row: multiply 1.5 ms" in shared_reading((1, 5, 10), LLAMA, machine, NAME).description
