"""What this machine can do, in a few seconds: bytes read per second, FLOPs by shape of a product, cost of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from course_lib.analysis.roofline import Machine
from course_lib.config import require
from course_lib.fast_layer import speed_up
from course_lib.training.machine import machine as machine_name

ROWS = (1, 2, 4, 8, 16, 64, 256, 1024)
MATRICES = 16  # of N x K float32 numbers, 128 MB together: more than the caches of a CPU hold
N, K = 2048, 1024
Key = TypeVar("Key", bound=Hashable)


class Calibration(NamedTuple):
    """What `calibrate` found.

    Attributes:
        machine: with the highest numbers of the two columns below, and no overhead yet.
        flops_by_rows: FLOPs per second of a product of that many rows with an N x K matrix out of memory.
        bytes_by_rows: bytes of matrix per second in the same products.
        call_s: seconds of an operation on a single number.
    """

    machine: Machine
    flops_by_rows: dict[int, float]
    bytes_by_rows: dict[int, float]
    call_s: float


def now() -> float:
    """A time in seconds, to take differences of.

    Where one CPU thread computes, it is that thread's own time, without the turns that the system gives to others.
    """
    alone = torch.get_num_threads() == 1 and not torch.cuda.is_available()
    return time.thread_time() if alone else time.perf_counter()


def seconds_of(call: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def fastest(calls: Mapping[Key, Callable[[], object]], rounds: int) -> dict[Key, float]:
    """Seconds of each call, the least of its rounds.

    The calls take turns, so that what else the machine does meets them alike. Other work only ever adds time, so the
    least is nearest to what the call takes by itself.
    """
    require(rounds >= 1, "rounds", rounds, ">= 1")
    timed: dict[Key, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            started = now()
            call()
            timed[key].append(now() - started)
    return {key: min(seconds) for key, seconds in timed.items()}


@torch.inference_mode()
def calibrate(*, rounds: int = 5, device: torch.device | str = "cpu") -> Calibration:
    """Measure this machine with PyTorch's present number of threads; about three seconds on two cores.

    The products are those of a loaded model, over matrices that take turns and so come from memory.

    Args:
        rounds: how often each is timed, the least counts.
        device: "cpu", or a GPU, which is waited for.
    """
    device = torch.device(device)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    maps = nn.ModuleList(nn.Linear(K, N, bias=False) for _ in range(MATRICES)).to(device, dtype)
    speed_up(maps)
    number = torch.ones((), device=device)

    def products(rows: int) -> Callable[[], Tensor]:
        x = torch.ones(rows, K, device=device, dtype=dtype)
        used = maps if rows < 256 else maps[:2]  # there the matrix is not what takes time
        return lambda: finished([part(x) for part in used][-1])

    calls = {rows: products(rows) for rows in ROWS}
    for call in calls.values():
        call()
    seconds = {rows: t / (MATRICES if rows < 256 else 2) for rows, t in fastest(calls, rounds).items()}
    call_s = fastest({"add": lambda: finished([number + number for _ in range(1000)][-1])}, rounds)["add"] / 1000
    flops = {rows: 2 * rows * N * K / t for rows, t in seconds.items()}
    read = {rows: N * K * dtype.itemsize / t for rows, t in seconds.items()}
    return Calibration(Machine(machine_name(device), max(read.values()), max(flops.values())), flops, read, call_s)


def finished(result: Tensor) -> Tensor:
    """The result, once it is there: a GPU is given work that it has yet to do."""
    if result.is_cuda:
        torch.cuda.synchronize(result.device)
    return result
