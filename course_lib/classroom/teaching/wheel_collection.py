"""A folder of wheels: what a requirement needs on some machine, found there or brought by pip.

pip reads the conditions of requirements, such as `os_name == "nt"`, for the machine that it runs on, also when it
downloads for another one. So the walk from a wheel to what it needs is made here, with the conditions of the other
machine, and pip only chooses and brings wheels. The versions are those of a file of constraints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

from course_lib.classroom.teaching.wheel_targets import Target
from course_lib.command_line import UsageError

CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # as in the Makefile
UNFINISHED = ".unfinished"
NO_CONNECTION = ("NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "NameResolutionError", "ProxyError",
                 "Connection aborted")


def collect(folder: Path, target: Target, requirements: Iterable[Requirement], constraints: Path) -> list[Path]:
    """Bring into `folder` every wheel that the requirements need on a machine, and name them all.

    What lies there and fits is kept. After an interruption the next call goes on.

    Args:
        constraints: a file of lines such as `torch==2.13.0`.

    Raises:
        UsageError: pip cannot bring something: no network, no such wheel, no space left.
    """
    shelf = Shelf(folder, target, constraints)
    wheels, seen, todo = set(), set(), [r for r in requirements if target.holds(r)]
    while todo:
        shelf.bring([requirement for requirement in todo if shelf.find(requirement) is None])
        found = [(requirement, shelf.find(requirement)) for requirement in todo]
        if missing := [str(requirement) for requirement, wheel in found if wheel is None]:
            raise UsageError(f"pip brought no wheel of {', '.join(missing)} for {target}")
        wheels |= {wheel for _, wheel in found}
        seen |= {str(requirement) for requirement in todo}
        needed = (need for requirement, wheel in found for need in needs(wheel, requirement.extras, target))
        todo = list({str(need): need for need in needed if str(need) not in seen}.values())
    return sorted(wheels)


def needs(wheel: Path, extras: Iterable[str], target: Target) -> list[Requirement]:
    """What a wheel asks for on a machine, besides itself."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
        raw, _ = parse_email(archive.read(name))
    asked = [Requirement(line) for line in raw.get("requires_dist", [])]
    return [requirement for requirement in asked if target.holds(requirement, extras)]


class Shelf:
    """The wheels in a folder that fit a machine and a file of constraints.

    Args:
        folder: made if it does not exist.
    """

    def __init__(self, folder: Path, target: Target, constraints: Path) -> None:
        self.folder, self.target, self.constraints = folder, target, constraints
        folder.mkdir(parents=True, exist_ok=True)
        lines = [line.partition("#")[0].strip() for line in constraints.read_text("utf-8").splitlines()]
        pins = [Requirement(line) for line in lines if line]
        self.pins = {canonicalize_name(pin.name): pin.specifier for pin in pins}
        adopt(folder / UNFINISHED, folder)

    def find(self, requirement: Requirement) -> Path | None:
        """The newest wheel on the shelf that meets a requirement, or None."""
        name = canonicalize_name(requirement.name)
        allowed = requirement.specifier & self.pins.get(name, SpecifierSet())
        fitting = [(version, path) for path in self.folder.glob("*.whl") if self.target.admits(path.name)
                   for found, version, *_ in [parse_wheel_filename(path.name)]
                   if found == name and allowed.contains(version, prereleases=True)]
        return max(fitting)[1] if fitting else None

    def bring(self, requirements: list[Requirement]) -> None:
        """Let pip download a wheel for each. PyTorch for Linux is the one without CUDA, from an index of its own."""
        torch = [r for r in requirements if r.name == "torch" and self.target.platform_system == "Linux"]
        self.download(torch, "--index-url", CPU_INDEX)
        self.download([requirement for requirement in requirements if requirement not in torch])

    def download(self, requirements: list[Requirement], *options: str) -> None:
        """One run of pip. Its files become visible in the folder when they are whole."""
        if not requirements:
            return
        names = list(dict.fromkeys(f"{requirement.name}{requirement.specifier}" for requirement in requirements))
        print(f"  pip brings {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else ""), flush=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                   "--dest", str(self.folder / UNFINISHED), "-c", str(self.constraints),
                   *self.target.pip_options, *options, *names]
        try:
            run = subprocess.run(command, capture_output=True, text=True)
        finally:
            adopt(self.folder / UNFINISHED, self.folder)
        if run.returncode:
            raise UsageError(reason(run.stderr, self.target))


def adopt(unfinished: Path, folder: Path) -> None:
    """Move the wheels that are whole into `folder`, and delete the rest."""
    for path in unfinished.glob("*.whl"):
        if is_whole(path):
            os.replace(path, folder / path.name)
    shutil.rmtree(unfinished, ignore_errors=True)


def is_whole(wheel: Path) -> bool:
    """Whether a file is a zip archive whose members all have their checksum."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except zipfile.BadZipFile:
        return False


def reason(stderr: str, target: Target) -> str:
    """Why pip failed, in one line."""
    if "No space left on device" in stderr:
        return "no space left on the disk; what has come whole is kept, and the same command goes on"
    if any(word in stderr for word in NO_CONNECTION):
        return "pip reaches no index: is there a network? What has come whole is kept, and the same command goes on"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    said = errors[-1] if errors else (stderr.strip().splitlines() or ["it said nothing"])[-1]
    return f"pip, for {target}: {said}"
