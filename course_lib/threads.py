"""How many threads PyTorch uses on a CPU, and how long they spin when they wait for each other.

The threads of GNU OpenMP, which PyTorch for Linux brings, wait by spinning, each on a core of its own. Where
another process needs that core, every wait costs a turn of the scheduler, and decoding becomes four times
slower or worse. So one core is left to others (a browser, the notebook's server, a neighbour), which costs
a small model little: its steps are too short to be shared out well. Where several neighbours are busy, a
bounded spin limits the loss. OpenMP reads its settings from the environment once, when PyTorch is imported,
so `set_defaults` comes before that and `limit_threads` after it. Where sharing out gains little anyway, `one_thread`
waits for nobody.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

SPIN = 3000  # turns of the waiting loop before a thread goes to sleep; OpenMP's own default is endless or nearly so
CHOICES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # a reader who has set one of them has chosen
CGROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def set_defaults(environ: MutableMapping[str, str] = os.environ, *, loaded: bool | None = None) -> None:
    """Bound the spinning, unless the reader has chosen how threads wait.

    Args:
        environ: changed in place.
        loaded: whether OpenMP has read its settings already, so that a change would have no effect; None: find out.
    """
    if not (openmp_is_loaded() if loaded is None else loaded) and not is_chosen(environ):
        environ["GOMP_SPINCOUNT"] = str(SPIN)


def limit_threads(environ: Mapping[str, str] = os.environ) -> None:
    """Let PyTorch use at most `thread_limit()` threads, unless the reader has set OMP_NUM_THREADS.

    PyTorch's own choice, which knows of hyperthreads, is only ever lowered.
    """
    import torch  # not above: OpenMP would have read its settings before `set_defaults`

    if not environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(min(torch.get_num_threads(), thread_limit()))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute on one thread inside the block, whatever the reader has set."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_chosen(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Whether the environment says how OpenMP's threads wait."""
    return any(environ.get(name) for name in CHOICES)


def openmp_is_loaded(maps: Path = Path("/proc/self/maps")) -> bool:
    """Whether this process has loaded PyTorch, or GNU OpenMP for another library."""
    return "torch" in sys.modules or (maps.is_file() and "libgomp" in maps.read_text(errors="replace"))


def thread_limit() -> int:
    """All but one of the `usable_cores`, and at least one."""
    return max(1, usable_cores() - 1)


def usable_cores() -> int:
    """The cores that this process may use, by its affinity and by the CPU quota of its container, rounded up."""
    cores, quota = available_cores(), cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def available_cores() -> int:
    """The cores on which the system may run this process."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Cores that the control groups (version 1 or 2) of this process may use together; None: there is no limit.

    A limit of a group holds for those inside it, so the smallest on the way to the root counts.
    """
    lines = membership.read_text().splitlines() if membership.is_file() else []
    folders = {folder for line in lines for folder in group_folders(line, cgroups)}
    return min((quota for folder in folders if (quota := folder_quota(folder)) is not None), default=None)


def group_folders(line: str, cgroups: Path) -> Iterator[Path]:
    """Where a process's CPU group and the groups around it may lie, from a line of /proc/self/cgroup.

    >>> [str(folder) for folder in group_folders("0::/job", Path("/cgroup"))]
    ['/cgroup/job', '/cgroup', '/cgroup/unified/job', '/cgroup/unified']
    """
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return
    roots = [cgroups / name for name in ("cpu", "cpu,cpuacct")] if controllers else [cgroups, cgroups / "unified"]
    for root in roots:
        folder = root / path.strip("/")
        yield from (folder, *(parent for parent in folder.parents if parent.is_relative_to(root)))


def folder_quota(folder: Path) -> float | None:
    """Cores that one group's files allow: `cpu.max` of version 2, `cpu.cfs_*` of version 1."""
    try:
        if (file := folder / "cpu.max").is_file():
            quota, period = file.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return int(quota) / int(period) if quota not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):  # none there, or in a form of its own
        return None
