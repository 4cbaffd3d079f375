"""Does a folder of wheels suffice? An environment is made from it, without a network, and the course runs in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.teaching import cut_off
from course_lib.command_line import UsageError

GENERATE = """
from course_lib import SamplingParams, load, stream
question = [{"role": "user", "content": "What is gravity?"}]
print("".join(stream(load("pocket"), question, SamplingParams(temperature=0, max_tokens=48))).strip())
"""


def check(wheels: Path, course: Path) -> str:
    """Install the course from an archive and a folder of wheels alone, run its doctor and let it answer a question.

    All of it happens in a temporary folder, about 2 GB large, in an environment whose Python refuses to leave the
    machine. Of the settings of pip none counts: no index, no other folder, no cache.

    Args:
        course: the archive, with all its files in the folder `course`.

    Returns:
        The answer of the model.

    Raises:
        UsageError: a step fails. The message names the step and its last words.
    """
    with tempfile.TemporaryDirectory(prefix="course-offline-", ignore_cleanup_errors=True) as temporary:
        answer = try_out(*install(wheels, course, Path(temporary)))
    if not answer:
        raise UsageError("the check failed: the model in the new environment answers with nothing")
    return answer


def install(wheels: Path, course: Path, folder: Path) -> tuple[Path, Path]:
    """Install the course in a bare environment; both come to lie in an empty folder.

    Returns:
        The Python of the environment and the root of the course.
    """
    with zipfile.ZipFile(course) as archive:
        archive.extractall(folder)
    root, python = folder / "course", bare_environment(folder / "venv")
    step("install", [python, "-m", "pip", "install", "--no-compile", "--no-index",
                     "-f", wheels.resolve(), "-c", "constraints.txt", "-e", ".[test]"], root)
    return python, root


def try_out(python: Path, root: Path) -> str:
    """Run the doctor and let the model answer a question; the result is the answer."""
    step("doctor", [python, "-m", "course_lib", "doctor"], root)
    return step("generate", [python, "-c", GENERATE], root)


def bare_environment(folder: Path) -> Path:
    """Make a virtual environment that holds nothing but pip and is cut off from the network.

    Returns:
        Its Python.
    """
    step("venv", [sys.executable, "-m", "venv", folder], folder.parent)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = step("find", [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder)
    shutil.copy(cut_off.__file__, site)
    (Path(site) / "cut_off.pth").write_text("import cut_off\n", encoding="utf-8")
    return python


def step(name: str, command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in a folder, with an environment in which nothing is set for pip, Python or the course.

    Returns:
        What it printed.

    Raises:
        UsageError: its status is not 0.
    """
    start = time.perf_counter()
    run = subprocess.run([str(word) for word in command], cwd=folder, env=environment(), capture_output=True, text=True)
    if run.returncode:
        _, cause, which = run.stdout.partition("The conflict is caused by:")
        said = f"{last_words(run.stderr) or last_words(run.stdout)} {cause}{which.partition('To fix this')[0]}"
        raise UsageError(f"the check failed: {name}: {' '.join(said.split())} (status {run.returncode})")
    if name in ("install", "doctor", "generate"):
        print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return run.stdout.strip()


def last_words(text: str) -> str:
    """What a program said at its end: pip's errors, as far as they fit, or else the last line.

    >>> last_words("a warning\\nERROR: no wheel\\n  of numpy\\n")
    'ERROR: no wheel of numpy'
    """
    _, error, after = text.partition("ERROR: ")
    return " ".join((error + after).split())[:400] if error else (text.strip().splitlines() or [""])[-1]


def environment() -> dict[str, str]:
    """The variables of this process without those that lead elsewhere."""
    foreign = ("PIP_", "PYTHON", "COURSE_", "VIRTUAL_ENV", "CONDA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HF_HUB_OFFLINE": "1",
                   "PYTHONUTF8": "1"}
