"""The folder of wheels: real pip, on small wheels made here, with a folder in the place of an index."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from course_lib import __main__
from course_lib.classroom.teaching import cut_off, offline_check, wheel_collection, wheelhouse
from course_lib.classroom.teaching.wheel_collection import UNFINISHED, collect, reason
from course_lib.classroom.teaching.wheel_targets import SYSTEMS, Target, here, is_here, system_here
from course_lib.command_line import UsageError

ROOT = Path(__file__).parents[2]


def make_wheel(folder, name, version="1.0", *needs, tag="py3-none-any", extra_lines=(), content=""):
    """Write a wheel with one module, `name`, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *extra_lines,
             *(f"Requires-Dist: {need}" for need in needs)]
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", content)
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that is all that pip knows of the world."""
    folder = tmp_path / "index"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    make_wheel(folder, "app", "1.0", "core[fast]>=1", "winpty; os_name == 'nt'", "fork; sys_platform != 'win32'",
               "later; python_version >= '3.13'")
    for version in ("1.0", "2.0"):
        make_wheel(folder, "core", version, "speed; extra == 'fast'", "never; extra == 'other'", "app",
                   extra_lines=["Provides-Extra: fast", "Provides-Extra: other"])
    for platform in ("win_amd64", "manylinux_2_28_x86_64", "macosx_11_0_arm64", "manylinux_2_39_x86_64"):
        make_wheel(folder, "speed", "1.0", tag=f"cp312-cp312-{platform}")
    for name in ("winpty", "fork", "later", "never"):
        make_wheel(folder, name)
    return folder


@pytest.fixture
def pins(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("# versions\ncore==1.0\n")
    return path


APP = [Requirement("app")]


@pytest.mark.parametrize("target, expected", [
    (Target("3.12", "windows"), {"app-1.0-py3-none-any", "core-1.0-py3-none-any", "winpty-1.0-py3-none-any",
                                 "speed-1.0-cp312-cp312-win_amd64"}),
    (Target("3.12", "macos"), {"app-1.0-py3-none-any", "core-1.0-py3-none-any", "fork-1.0-py3-none-any",
                               "speed-1.0-cp312-cp312-macosx_11_0_arm64"}),
    (Target("3.12", "linux"), {"app-1.0-py3-none-any", "core-1.0-py3-none-any", "fork-1.0-py3-none-any",
                               "speed-1.0-cp312-cp312-manylinux_2_28_x86_64"}),
], ids=["windows", "macos", "linux"])
def test_it_brings_what_the_other_machine_needs(target, expected, index, pins, tmp_path):
    """Its own conditions hold, its own wheels are taken, extras are followed, the pin of `core` counts."""
    wheels = collect(tmp_path / "wheels", target, APP, pins)
    assert {path.stem for path in wheels} == expected
    assert {path.stem for path in (tmp_path / "wheels").iterdir()} == expected, "and nothing else lies there"


def test_another_python_needs_other_packages(index, pins, tmp_path):
    make_wheel(index, "speed", "1.0", tag="cp311-abi3-win_amd64")
    wheels = {path.stem for path in collect(tmp_path / "wheels", Target("3.13", "windows"), APP, pins)}
    assert {"later-1.0-py3-none-any", "speed-1.0-cp311-abi3-win_amd64"} <= wheels


def test_what_lies_there_is_not_brought_again(index, pins, tmp_path):
    target, folder = Target("3.12", "windows"), tmp_path / "wheels"
    first = collect(folder, target, APP, pins)
    shutil.rmtree(index)
    assert collect(folder, target, APP, pins) == first, "pip has nothing to take from, and is not asked"
    first[0].unlink()
    with pytest.raises(UsageError, match="app"):
        collect(folder, target, APP, pins)


def test_a_wheel_that_the_constraints_no_longer_admit_is_replaced(index, pins, tmp_path):
    folder, target = tmp_path / "wheels", Target("3.12", "linux")
    collect(folder, target, APP, pins)
    pins.write_text("core==2.0\n")
    assert folder / "core-2.0-py3-none-any.whl" in collect(folder, target, APP, pins)


def test_an_interruption_keeps_what_is_whole(index, pins, tmp_path, monkeypatch):
    folder, target = tmp_path / "wheels", Target("3.12", "linux")

    def interrupted(command, **_):
        unfinished = Path(command[command.index("--dest") + 1])
        half = make_wheel(unfinished, "fork", content="x = 1\n" * 500)
        half.write_bytes(half.read_bytes()[:-40])
        make_wheel(unfinished, "app", "1.0", "fork")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            collect(folder, target, APP, pins)
    assert [path.name for path in folder.iterdir()] == ["app-1.0-py3-none-any.whl"]
    assert {path.name[:4] for path in collect(folder, target, APP, pins)} == {"app-", "fork"}


def test_what_a_killed_run_left_is_sorted_by_the_next(index, pins, tmp_path):
    folder = tmp_path / "wheels"
    whole = make_wheel(folder / UNFINISHED, "fork", content="whole = True")
    damaged = make_wheel(folder / UNFINISHED, "app", content="x = 1\n" * 500)
    damaged.write_bytes(damaged.read_bytes().replace(b"x = 1\nx", b"x = 2\nx", 1))
    expected = whole.read_bytes()
    collect(folder, Target("3.12", "linux"), APP, pins)
    assert (folder / whole.name).read_bytes() == expected, "kept, not brought again"
    assert (folder / damaged.name).read_bytes() == (index / damaged.name).read_bytes(), "brought again"
    assert not (folder / UNFINISHED).exists()


def test_it_names_a_wheel_that_does_not_exist(index, pins, tmp_path):
    for path in index.glob("speed*win*"):
        path.unlink()
    with pytest.raises(UsageError, match=r"for Windows AMD64, Python 3.12: No matching distribution found for speed"):
        collect(tmp_path / "wheels", Target("3.12", "windows"), APP, pins)


def test_it_says_that_there_is_no_network(pins, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the port of discard: nothing listens
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(UsageError, match="is there a network"):
        collect(tmp_path / "wheels", Target("3.12", "linux"), [Requirement("no-such-package-anywhere")], pins)


def test_it_says_that_the_disk_is_full():
    stderr = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    assert reason(stderr, here()).startswith("no space left")


def test_pytorch_for_linux_comes_without_cuda(index, pins, tmp_path, monkeypatch):
    """From the index that the Makefile names; for other systems there is one build alone."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^CPU_INDEX := (.*)$", makefile, re.M)[1] == wheel_collection.CPU_INDEX
    make_wheel(index, "torch", "2.0+cpu", tag="cp312-cp312-manylinux_2_28_x86_64")
    make_wheel(index, "torch", "2.0", tag="cp312-cp312-win_amd64")
    commands, real = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **more: commands.append(command) or real(command, **more))
    pins.write_text("torch==2.0\ncore==1.0\n")
    for system in ("linux", "windows"):
        collect(tmp_path / system, Target("3.12", system), [*APP, Requirement("torch>=1")], pins)
        assert len([*(tmp_path / system).glob("torch-*")]) == 1
    from_cpu = [wheel_collection.CPU_INDEX in command for command in commands]
    assert from_cpu == [True] + [False] * (len(commands) - 1) and commands[0][-1] == "torch>=1"


# --- machines -----------------------------------------------------------------------------------


def test_this_machine_takes_what_is_installed_here():
    """pip has chosen for this Python: every wheel that it installed must be admitted, none for another system."""
    for name in ("numpy", "torch", "packaging", "pyyaml"):
        wheel = metadata.distribution(name).read_text("WHEEL")
        tag = re.search(r"^Tag: (.*)$", wheel, re.M)[1]
        assert here().admits(f"{name}-1.0-{tag}.whl"), tag
    assert not here().admits("numpy-1.0-cp27-cp27m-win32.whl") and not here().admits("README.whl")


def test_this_machine_is_known_by_its_name():
    assert is_here(here()) and here().python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert not is_here(Target("3.5", system_here()))
    assert [name for name in SYSTEMS if is_here(Target(here().python, name))] == [system_here()]


# --- the check ----------------------------------------------------------------------------------

COURSE = '''
import socket, subprocess, sys
import helper
SamplingParams, load = dict, str
def stream(lm, question, params):
    yield {answer}
if sys.argv[1:] == ["doctor"]:
    {doctor}
'''
PYPROJECT = '''
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "course-lib"
version = "1"
dependencies = ["helper"]
[project.optional-dependencies]
test = []
[tool.setuptools]
packages = ["course_lib"]
'''


def write_course(root, doctor="print('everything works')", answer="'Gravity pulls.'"):
    """A course of two modules, which needs one package."""
    (root / "course_lib").mkdir(parents=True, exist_ok=True)
    (root / "constraints.txt").write_text("helper==1.0\n")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "course_lib/__init__.py").write_text(COURSE.format(doctor="pass", answer=answer))
    (root / "course_lib/__main__.py").write_text(COURSE.format(doctor=doctor, answer=answer))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Wheels and archive of that course; an isolated build needs setuptools, which is packed from what is installed."""
    folder = tmp_path_factory.mktemp("wheels") / "two words"
    make_wheel(folder, "helper")
    found = metadata.distribution("setuptools")
    with zipfile.ZipFile(folder / f"setuptools-{found.version}-py3-none-any.whl", "w") as archive:
        for file in found.files:
            if file.suffix != ".pyc" and ".." not in file.parts:
                archive.write(file.locate(), file.as_posix())
    write_course(folder / "course")
    shutil.make_archive(folder / "course", "zip", folder, "course")
    return folder


@pytest.fixture(scope="module")
def installed(folder, tmp_path_factory):
    """The Python and the root of the course, installed from the folder once for all tests."""
    return offline_check.install(folder, folder / "course.zip", tmp_path_factory.mktemp("check"))


def test_a_folder_that_suffices_is_installed_and_answers(installed, folder, monkeypatch, capsys):
    write_course(installed[1])
    monkeypatch.setattr(offline_check, "install", lambda wheels, course, empty: installed)
    assert offline_check.check(folder, folder / "course.zip") == "Gravity pulls."
    assert re.sub(r"\d+ s", "_ s", capsys.readouterr().out) == "  doctor: _ s\n  generate: _ s\n"


@pytest.mark.parametrize("fault, says", [
    ({"doctor": "sys.exit('1 broken')"}, "doctor: 1 broken"),
    ({"answer": "socket.create_connection(('192.0.2.1', 80), 1)"}, "generate: .*cut off from the network"),
    ({"answer": "' '"}, "answers with nothing"),
], ids=["doctor", "network", "silence"])
def test_what_does_not_work_there_is_an_error(installed, folder, monkeypatch, fault, says):
    write_course(installed[1], **fault)
    monkeypatch.setattr(offline_check, "install", lambda wheels, course, empty: installed)
    with pytest.raises(UsageError, match=f"the check failed: .*{says}"):
        offline_check.check(folder, folder / "course.zip")


def test_a_wheel_that_is_missing_is_noticed_whatever_pip_is_set_to(installed, folder, tmp_path, monkeypatch):
    python, _ = installed
    offline_check.step("remove", [python, "-m", "pip", "uninstall", "--yes", "helper"], tmp_path)
    monkeypatch.setattr(offline_check, "bare_environment", lambda folder: python)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (tmp_path / "wheels").mkdir()
    for wheel in folder.glob("setuptools*.whl"):
        shutil.copy(wheel, tmp_path / "wheels")
    with pytest.raises(UsageError, match=r"the check failed: install: .*helper"):
        offline_check.install(tmp_path / "wheels", folder / "course.zip", tmp_path)
    offline_check.install(folder, folder / "course.zip", tmp_path)


@pytest.mark.parametrize("reach_out", [
    "socket.create_connection(('192.0.2.1', 80), timeout=1)",
    "socket.getaddrinfo('example.com', 443)",
    "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "subprocess.run([sys.executable, '-c', \"import socket; socket.gethostbyname('example.com')\"], check=True)",
], ids=["connect", "name", "datagram", "child"])
def test_nothing_in_the_environment_leaves_the_machine(reach_out, installed):
    code = f"import socket, subprocess, sys; socket.getaddrinfo('localhost', 80); print('here'); {reach_out}"
    run = subprocess.run([installed[0], "-c", code], env=offline_check.environment(), capture_output=True, text=True)
    assert run.returncode == 1 and run.stdout == "here\n" and "cut off from the network" in run.stderr


def test_importing_the_module_cuts_nothing_off():
    code = f"import {cut_off.__name__}, socket; socket.getaddrinfo('localhost', 80); print('reached')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "reached\n"


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository in the place of the course's: `tracked.py` belongs to it, `grades.csv` does not."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "repository"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["later"]\n[project]\nrequires-python = ">=3.11,<3.14"\ndependencies = ["app"]\n'
        '[project.optional-dependencies]\ntest = ["never"]\n')
    for name in ("constraints.txt", "tracked.py", "grades.csv"):
        (root / name).write_text("core==1.0\n")
    for command in ("init --quiet", "add pyproject.toml constraints.txt tracked.py"):
        subprocess.run(["git", "-C", root, *command.split()], check=True)
    monkeypatch.setattr(wheelhouse, "CHECKOUT", root)
    return root


def test_the_command_collects_everything_and_says_what_was_not_tried(index, checkout, tmp_path, capsys):
    folder = tmp_path / "stick"
    assert __main__.main(["class", "wheelhouse", str(folder), "--for", "windows", "--for", "macos",
                          "--python", "3.12"]) == 0
    names = {path.name.split("-")[0] for path in folder.iterdir()}
    assert names == {"app", "core", "speed", "winpty", "fork", "later", "never", "course.zip", "INSTALL.txt"}
    with zipfile.ZipFile(folder / "course.zip") as archive:
        assert sorted(archive.namelist()) == [f"course/{name}" for name in (
            "constraints.txt", "pyproject.toml", "tracked.py")], "what git does not track stays at home"
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith(f"{folder}: 8 wheels, ")
    assert [line.split(";")[0] for line in lines[-2:]] == ["not tried: Windows AMD64, Python 3.12",
                                                          "not tried: Darwin arm64, Python 3.12"]
    text = (folder / "INSTALL.txt").read_text()
    assert "Windows AMD64, Python 3.12" in text and "py -3.12 -m venv" in text


def test_the_instructions_say_what_the_makefile_does():
    text = wheelhouse.instructions([Target("3.12", "windows")])
    assert text.count('-m pip install --no-index -f "WHEELS" -c constraints.txt -e ".[test]"') == 2
    assert 'make lab WHEELHOUSE="WHEELS"' in text
    assert "install -c constraints.txt -e '.[test]' $(if $(WHEELHOUSE),--no-index -f" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("options, says", [
    (["--for", "amiga"], "invalid choice: 'amiga'"),
    (["--python", "3.8"], "argument --python: '3.8' is not allowed: must be one of 3.11, 3.12, 3.13"),
    (["--python", "3.12.1"], "argument --python: '3.12.1' is not allowed"),
])
def test_what_it_does_not_know_it_refuses_in_one_line(options, says, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.main(["class", "wheelhouse", str(tmp_path / "stick"), *options])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and says in error and error.count("\n") == 1
    assert not (tmp_path / "stick").exists()


def test_without_a_repository_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(wheelhouse, "CHECKOUT", tmp_path)
    assert __main__.main(["class", "wheelhouse", str(tmp_path / "stick")]) == 2
    assert "needs the repository" in capsys.readouterr().err
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    assert __main__.main(["class", "wheelhouse", str(tmp_path / "stick")]) == 2
    assert "clone the course" in capsys.readouterr().err and not (tmp_path / "stick").exists()


def test_a_folder_that_cannot_be_is_told_in_one_line(index, checkout, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert __main__.main(["class", "wheelhouse", str(tmp_path / "file"), "--no-check"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
