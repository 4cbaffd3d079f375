"""Threads: one core left to others, bounded spinning, a container's quota, and that a reader's own setting wins."""

import functools
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
import yaml

from course_lib import threads
from course_lib.classroom import doctor
from course_lib.threads import SPIN, cpu_quota, limit_threads, openmp_is_loaded, set_defaults

ROOT = Path(__file__).parents[1]
SHOW = "import os; print({name: os.environ.get(name) for name in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')})"


def environ(before, **options):
    changed = dict(before)
    set_defaults(changed, **{"loaded": False} | options)
    return changed


@pytest.mark.parametrize("before, after", [
    ({}, {"GOMP_SPINCOUNT": str(SPIN)}),
    ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
    ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ({"OMP_WAIT_POLICY": ""}, {"OMP_WAIT_POLICY": "", "GOMP_SPINCOUNT": str(SPIN)}),
])
def test_spinning_is_bounded_unless_the_reader_has_chosen(before, after):
    assert environ(before) == after
    assert environ(before, loaded=True) == before, "too late to be of use"


@pytest.mark.parametrize("chosen_by_torch, limit, environ, expected", [
    (8, 3, {}, 3), (2, 3, {}, 2),  # only ever lowered: PyTorch knows of hyperthreads
    (8, 3, {"OMP_NUM_THREADS": "8"}, 8), (8, 3, {"OMP_NUM_THREADS": ""}, 3),
])
def test_threads_are_limited_unless_the_reader_has_chosen(monkeypatch, chosen_by_torch, limit, environ, expected):
    chosen = []
    monkeypatch.setattr(threads, "thread_limit", lambda: limit)
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen_by_torch)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    limit_threads(environ)
    assert [chosen_by_torch, *chosen][-1] == expected


def test_one_thread_inside_the_block_and_the_old_number_after_it_and_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threads.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyboardInterrupt), threads.one_thread():
            raise KeyboardInterrupt
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("cores, quota, usable", [(8, None, 8), (8, 2.0, 2), (8, 2.5, 3), (2, 6.0, 2), (8, 0.3, 1)])
def test_one_core_of_affinity_or_quota_is_left_to_others(monkeypatch, cores, quota, usable):
    monkeypatch.setattr(threads, "available_cores", lambda: cores)
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert threads.usable_cores() == usable
    assert threads.thread_limit() == max(1, usable - 1)


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("membership, files, quota", [
    # version 2: a container sees its own group as the root
    ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
    ("0::/\n", {"cpu.max": "max 100000\n"}, None),
    ("0::/\n", {}, None),
    # the group of a job, and a group around it that allows less
    ("0::/user.slice/job\n", {"user.slice/job/cpu.max": "400000 100000", "user.slice/cpu.max": "300000 100000"}, 3.0),
    ("0::/user.slice/job\n", {"user.slice/job/cpu.max": "max 100000", "user.slice/cpu.max": "50000 100000"}, 0.5),
    ("0::/a\n", {"b/cpu.max": "100000 100000"}, None),
    # version 1: the path is the host's, and the container's own files are at the root
    ("4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n",
     {"cpu,cpuacct/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 2.0),
    ("1:cpu:/job\n", {"cpu/job/cpu.cfs_quota_us": "100000", "cpu/job/cpu.cfs_period_us": "50000",
                      "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
    ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ("4:memory:/\n2:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, None),
    # both at once, as systemd has it
    ("1:cpu:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000",
                         "unified/cpu.max": "max 100000"}, 3.0),
    # not what the kernel writes
    ("0::/\n", {"cpu.max": ""}, None), ("0::/\n", {"cpu.max": "1 0"}, None), ("", {}, None),
])
def test_the_quota_of_control_groups(tmp_path, membership, files, quota):
    write(tmp_path, {f"cgroup/{name}": text for name, text in files.items()} | {"membership": membership})
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "membership") == quota


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "none", tmp_path / "nothing") is None
    assert threads.available_cores() >= threads.usable_cores() >= threads.thread_limit() >= 1


def test_openmp_is_seen_in_the_libraries_of_the_process(tmp_path, monkeypatch):
    assert openmp_is_loaded(), "this process has torch"
    monkeypatch.setattr(threads, "sys", types.SimpleNamespace(modules={}))
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 0 /usr/lib/libm.so.6\n")
    assert not openmp_is_loaded(tmp_path / "maps") and not openmp_is_loaded(tmp_path / "none")
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 0 /site-packages/torch.libs/libgomp-98b21ff3.so.1.0.0\n")
    assert openmp_is_loaded(tmp_path / "maps")


# --- where the course is started ----------------------------------------------------------------


def python(code, **variables):
    clean = {name: value for name, value in os.environ.items() if name not in {*threads.CHOICES, "OMP_NUM_THREADS"}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT,
                          env=clean | variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_before_torch_sets_it():
    assert python(f"import course_lib; {SHOW}") == str({"GOMP_SPINCOUNT": str(SPIN), "OMP_WAIT_POLICY": None}) + "\n"


def test_a_readers_own_setting_wins():
    passive = python(f"import course_lib; {SHOW}", OMP_WAIT_POLICY="passive")
    assert passive == str({"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": "passive"}) + "\n"
    own = python("import course_lib, torch, os; print(os.environ['GOMP_SPINCOUNT'], torch.get_num_threads())",
                 GOMP_SPINCOUNT="12", OMP_NUM_THREADS="1")
    assert own == "12 1\n"


def test_importing_the_package_leaves_a_core_even_after_torch():
    for first in ("course_lib, torch", "torch, course_lib"):
        assert python(f"import {first}; print(torch.get_num_threads())") == f"{expected_threads()}\n"


def expected_threads():
    """What PyTorch alone would take here, and one less where that is every core."""
    return min(int(python("import torch; print(torch.get_num_threads())")), threads.thread_limit())


LATE = "import torch; from course_lib.classroom.doctor import check_threads; print(*check_threads(), sep='|')"


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP is PyTorch's on Linux alone")
def test_the_doctor_sees_that_torch_came_first():
    late = functools.partial(python, LATE, OMP_NUM_THREADS="2")
    cores, waiting, advice = re.fullmatch(r"threads\|(.*); (.*)\|(.*)\n", late()).groups()
    assert re.match(rf"2 of {os.cpu_count()} cores", cores) and "without bound" in waiting
    assert f"GOMP_SPINCOUNT={SPIN}" in advice and "make lab" in advice
    assert late(GOMP_SPINCOUNT=str(SPIN)).endswith(f"they wait as GOMP_SPINCOUNT={SPIN} says|\n")
    assert late(OMP_WAIT_POLICY="passive").endswith("they wait as OMP_WAIT_POLICY=passive says|\n")
    alone = python(LATE, OMP_NUM_THREADS="1")
    assert alone.startswith("threads|1 of ") and "wait" not in alone


def test_the_doctor_counts_threads_and_cores(monkeypatch):
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(threads, "available_cores", lambda: 64)
    monkeypatch.setattr(threads, "cpu_quota", lambda: 3.5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert doctor.check_threads().found.startswith("3 of 64 cores (4 may be used)")


def test_the_setting_is_the_same_wherever_the_course_is_started():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert environment["variables"] == {"GOMP_SPINCOUNT": str(SPIN)}
    assert workflow["jobs"]["test"]["env"] == environment["variables"] | {"TORCH": "cpu"}  # PyTorch without CUDA
    if not os.environ.get("OMP_WAIT_POLICY"):
        assert os.environ["GOMP_SPINCOUNT"], "conftest.py gives it to this process and to every kernel"


@pytest.mark.parametrize("variables, expected", [({}, f"{SPIN}|"), ({"GOMP_SPINCOUNT": "5"}, "5|"),
                                                 ({"OMP_WAIT_POLICY": "passive"}, "|passive")])
def test_make_exports_the_setting_unless_the_reader_has_chosen(tmp_path, variables, expected):
    (tmp_path / "Makefile").write_text(f"include {ROOT / 'Makefile'}\n"
                                       "show:\n\t@echo \"$$GOMP_SPINCOUNT|$$OMP_WAIT_POLICY\"\n")
    clean = {name: value for name, value in os.environ.items() if name not in threads.CHOICES}
    done = subprocess.run(["make", "-s", "show"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env=clean | variables)
    assert done.stdout == f"{expected}\n", done.stderr
