"""The file of what is done, where two kernels write it at once, and where it is no ordinary file."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from course_lib.classroom import progress_file

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from course_lib.classroom.progress_file import record
print("ready", flush=True)
sys.stdin.readline()
for i in range(20):
    record(f"{sys.argv[1]}.{i}")
"""


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    path = tmp_path / "home" / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    return path


def test_two_processes_of_twenty_entries_lose_none(own_file):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, env=environment) for name in ("90", "91")]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert [writer.communicate(timeout=60)[0] for writer in writers] == ["", ""]
    assert json.loads(own_file.read_text())["passed"] == sorted(f"{name}.{i}" for name in (90, 91) for i in range(20))


def test_a_lock_that_is_never_given_up_costs_one_line(own_file, capsys, monkeypatch):
    monkeypatch.setattr(progress_file, "PATIENCE_S", 0.05)
    own_file.parent.mkdir()
    with progress_file.locked(own_file):
        progress_file.record("01.2")
    assert capsys.readouterr().out == ("Progress is not saved (another kernel is writing it); COURSE_PROGRESS can name "
                                       "another file.\n")
    progress_file.record("01.2")
    assert json.loads(own_file.read_text()) == {"passed": ["01.2"]}


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_is_neither_read_nor_moved(device, monkeypatch, capsys):
    moved = []
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, lambda *args: moved.append(args))
    monkeypatch.setenv("COURSE_PROGRESS", device)
    progress_file.record("01.2")
    assert "Progress is not saved (Not a regular file)" in capsys.readouterr().out
    assert moved == [] and stat.S_ISCHR(os.stat(device).st_mode) and not Path(f"{device}.lock").exists()


def test_a_pipe_and_a_folder_are_left_alone(tmp_path, monkeypatch, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / name))
        thread = threading.Thread(target=progress_file.record, args=["01.2"], daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "reading a pipe waits for a writer"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    assert capsys.readouterr().out.count("Not a regular file") == 2


def test_a_link_stays_a_link(tmp_path, monkeypatch):
    link, target = tmp_path / "link.json", tmp_path / "cloud" / "progress.json"
    link.symlink_to(target)
    monkeypatch.setenv("COURSE_PROGRESS", str(link))
    progress_file.record("01.2")
    progress_file.record("01.3")
    assert link.is_symlink() and json.loads(target.read_text()) == {"passed": ["01.2", "01.3"]}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_what_an_editor_puts_in_front_is_no_nonsense(encoding, own_file, capsys):
    own_file.parent.mkdir()
    own_file.write_text('{"passed": ["00.1"]}', encoding=encoding)
    progress_file.record("01.2")
    assert json.loads(own_file.read_bytes()) == {"passed": ["00.1", "01.2"]}
    assert capsys.readouterr().out == ""


def test_a_link_to_itself_costs_one_line(tmp_path, monkeypatch, capsys):
    link = tmp_path / "link.json"
    link.symlink_to(link)
    monkeypatch.setenv("COURSE_PROGRESS", str(link))
    progress_file.record("01.2")
    assert "Progress is not saved (" in capsys.readouterr().out and link.is_symlink()
