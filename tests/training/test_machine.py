"""The processor of a run is named, on systems that tell it and on those that do not."""

import platform
from pathlib import Path

import pytest
import torch

from course_lib.device import cpu_name
from course_lib.training.machine import machine


def test_the_processor_is_named(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel\t\t: 85\nmodel name\t: A chip @ 2.1 GHz\nmodel name\t: Another\n")
    assert cpu_name(cpuinfo) == "A chip @ 2.1 GHz"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50\n")  # as on many ARM machines
    assert cpu_name(cpuinfo) == cpu_name(tmp_path / "none") == (platform.processor() or platform.machine()) != ""


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="this system has no /proc/cpuinfo")
def test_the_machine_is_named_by_its_processor():
    assert cpu_name() in machine(torch.device("cpu"))
    assert "model name" not in Path("/proc/cpuinfo").read_text() or cpu_name() != platform.machine()
