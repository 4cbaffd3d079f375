"""Where tensors live: the CPU, or a GPU where there is one."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from course_lib.config import require


def device(name: str | torch.device | None = None) -> torch.device:
    """The device to compute on: `name`, else COURSE_DEVICE, else CUDA where present, else the CPU.

    Apple's MPS is used only when it is asked for by name: its numbers differ from the CPU's.

    Raises:
        ValueError: this machine has no such device; the message lists those it has.

    >>> device("cpu")
    device(type='cpu')
    """
    asked = "COURSE_DEVICE" if name is None else "device"
    name = str(name or os.environ.get("COURSE_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))
    present = available_devices()
    require(name in present, asked, name, f"one of {', '.join(present)}")
    return torch.device(name)


def available_devices() -> list[str]:
    """The names that `device` accepts here, the CPU first."""
    cuda = ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return ["cpu", *(cuda if torch.cuda.is_available() else []),
            *(["mps"] if torch.backends.mps.is_available() else [])]


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model of this machine's processor, as far as the system tells it."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.processor() or platform.machine())
