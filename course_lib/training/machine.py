"""Where a run took place: the processor or the GPU, by name."""

from __future__ import annotations

import torch

from course_lib.device import cpu_name


def machine(device: torch.device) -> str:
    """Where a run took place, in words."""
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return f"{chip}, threads: {torch.get_num_threads()}, PyTorch {torch.__version__.partition('+')[0]}"
