"""When passes end, with pauses long enough to stand out on any machine."""

import threading

import pytest
import torch
from torch import nn

from course_lib.analysis.arrivals import gaps, passes, until


def test_each_pass_is_noted_in_order_and_in_any_thread():
    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    with passes(model) as ends:
        model(x)
        thread = threading.Thread(target=lambda: [model(x) for _ in range(3)])
        thread.start()
        thread.join()
    assert len(ends) == 4 and ends == sorted(ends)
    model(x)
    assert len(ends) == 4, "afterwards nothing is noted"


def test_the_pause_is_before_its_pass_and_nowhere_else():
    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    with passes(model, {3: 0.2}) as ends:
        for _ in range(4):
            model(x)
    first, second, third = gaps(ends)
    assert second >= 0.2 > first and third < 0.2


def test_the_hooks_go_when_the_block_fails():
    model = nn.Linear(3, 2)
    with pytest.raises(KeyError), passes(model):
        raise KeyError
    assert not model._forward_hooks and not model._forward_pre_hooks


@pytest.mark.parametrize("pauses", [{0: 1.0}, {2: -0.5}])
def test_impossible_pauses_are_refused(pauses):
    with pytest.raises(ValueError, match="pauses"), passes(nn.Linear(3, 2), pauses):
        pass


def test_waiting_ends_when_it_holds_or_when_the_time_is_over():
    answers = iter([False, False, True])
    assert until(lambda: next(answers), every=0.001) >= 0.002
    with pytest.raises(TimeoutError, match=r"not within 0\.01 seconds"):
        until(lambda: False, seconds=0.01, every=0.001)
