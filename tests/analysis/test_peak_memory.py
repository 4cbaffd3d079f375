"""Peak memory against cases by hand, PyTorch's own allocator, and what Linux saw of a whole process."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_lib.analysis.peak_memory import peak_bytes
from course_lib.flash import flash_attention
from course_lib.layers import attention, causal_mask

A = torch.ones(1000)  # 4,000 bytes


@pytest.mark.parametrize("call, numbers", [
    (lambda: None, 0), (lambda: A + 1, 1000), (lambda: A.view(10, 100).t()[2:], 0), (lambda: A.add_(1), 0),
    (lambda: A.exp().log().sin(), 2000), (lambda: [A.exp() for _ in range(5)], 5000),
    (lambda: [A.exp().sum() for _ in range(5)], 1000 + 5), (lambda: (A + 1).sort(), 1000 + 1000 + 2000),
    (lambda: (A + 1)[:10].clone().repeat(300), 10 + 3000), (lambda: A.exp_() + A.view(10, 100).t().reshape(-1), 2000),
])
def test_peaks_by_hand(call, numbers):
    assert peak_bytes(call) == 4 * numbers


def test_what_is_freed_in_between_does_not_add_up():
    def call():
        big = torch.empty(50_000)
        del big
        small = [torch.empty(1000) for _ in range(3)]
        return small, torch.empty(20_000)

    assert peak_bytes(call) == 4 * 50_000
    assert peak_bytes(call) == 4 * 50_000, "and nothing is left of the first time"


def inputs(T):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, T, 32, generator=generator) for heads in (8, 2, 2)]


def allocated(call):
    """The peak that PyTorch's profiler reports, which asks the allocator."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


@torch.inference_mode()
def test_the_allocator_agrees():
    q, k, v = inputs(300)
    mask = causal_mask(300, 300)
    for call in (lambda: attention(q, k, v, mask), lambda: flash_attention(q, k, v, causal=True, block_q=64)):
        assert peak_bytes(call) == allocated(call) > 0
    fused = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # noqa: E731
    inside = allocated(fused) - peak_bytes(fused)
    assert 0 <= inside <= torch.get_num_threads() * 700_000, "buffers of its own, of a size that T does not change"


def test_inference_mode_hides_the_matrices_of_the_math_back_end():
    q, k, v = inputs(300)
    output, matrix = q.nbytes, 8 * 300 * 300 * 4

    def fused():
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    with torch.no_grad():
        assert 2 * matrix < peak_bytes(fused) <= allocated(fused)
    with torch.inference_mode():
        assert peak_bytes(fused) == output < 2 * matrix < allocated(fused), "one operation, which frees what it made"


@torch.inference_mode()
def test_tiles_need_memory_in_proportion_to_the_length():
    """Naive attention holds three (T, S) tensors at once: four times as much for twice the length."""
    naive, tiled = ([peak_bytes(call) for call in calls] for calls in zip(*(
        (lambda q=q, k=k, v=v, mask=mask: attention(q, k, v, mask),
         lambda q=q, k=k, v=v: flash_attention(q, k, v, causal=True, block_q=32, block_k=32))
        for q, k, v, mask in ((*inputs(T), causal_mask(T, T)) for T in (256, 512)))))
    assert 3 <= naive[1] / (8 * 512 * 512 * 4) < 3.5 and naive[1] / naive[0] == pytest.approx(4, rel=0.1)
    assert tiled[1] - tiled[0] == 8 * 256 * 32 * 4, "the longer output, and nothing else"


A_PROCESS = """
import torch, sys
from resource import RUSAGE_SELF, getrusage
from course_lib.analysis.peak_memory import peak_bytes
from course_lib.layers import attention, causal_mask
torch.set_num_threads(1)
q, k, v = torch.randn(3, 1, 4, 1500, 32).unbind()
mask = causal_mask(1500, 1500)
with torch.inference_mode():
    attention(q[:, :, :8], k[:, :, :8], v[:, :, :8], mask[:8, :8])  # libraries load what they need
    unit = 1 if sys.platform == "darwin" else 1024
    before = getrusage(RUSAGE_SELF).ru_maxrss * unit
    attention(q, k, v, mask)
    print(getrusage(RUSAGE_SELF).ru_maxrss * unit - before, peak_bytes(lambda: attention(q, k, v, mask)))
"""


def test_the_operating_system_agrees():
    """A process that does nothing else: 110 MB, of which the system sees pages, and what was free before."""
    # A process starts with the peak of the one that it was forked from, so a small shell stands between.
    run = subprocess.run(["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, A_PROCESS], capture_output=True,
                         text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    seen, counted = map(int, run.stdout.split())
    assert counted > 3 * 4 * 1500 * 1500 * 4
    assert seen == pytest.approx(counted, rel=0.1)
