"""Where a run took place: the processor or the GPU, by name."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def machine(device: torch.device) -> str:
    """Where a run took place, in words."""
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return f"{chip}, threads: {torch.get_num_threads()}, PyTorch {torch.__version__.partition('+')[0]}"


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model of this machine's processor, as far as the system tells it."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.processor() or platform.machine())
