"""`python -m course_lib class wheelhouse DIR`: all that an installation without a network needs, and a proof of it."""

from __future__ import annotations

import io
import subprocess
import tomllib
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from course_lib.classroom.teaching.notebook_files import CHECKOUT
from course_lib.classroom.teaching.offline_check import check
from course_lib.classroom.teaching.wheel_collection import collect
from course_lib.classroom.teaching.wheel_targets import SYSTEMS, Target, here, is_here, system_here
from course_lib.classroom.whole_file import write_whole
from course_lib.command_line import Parser, UsageError

ARCHIVE, INSTRUCTIONS = "course.zip", "INSTALL.txt"

INSTALL = """\
How to install the course without a network

This folder holds the course (course.zip) and every package that it needs, for
{targets}

You need one of these Pythons. In the commands, put the path of this folder in the place of WHEELS.
The environment fills about 2 GB.

Linux and macOS, in a terminal:

    unzip "WHEELS/course.zip"
    cd course
    python3 -m venv .venv
    .venv/bin/python -m pip install --no-index -f "WHEELS" -c constraints.txt -e ".[test]"
    .venv/bin/python -m course_lib doctor
    .venv/bin/python -m jupyterlab notebooks

Where there is make, this does it all from the third line on, and `make test` runs there, too:

    make lab WHEELHOUSE="WHEELS"

Windows, in PowerShell:

    Expand-Archive "WHEELS\\course.zip" -DestinationPath .
    cd course
    py -{python} -m venv .venv
    .venv\\Scripts\\python -m pip install --no-index -f "WHEELS" -c constraints.txt -e ".[test]"
    .venv\\Scripts\\python -m course_lib doctor
    .venv\\Scripts\\python -m jupyterlab notebooks

The doctor ends with the line: everything works
"""


def wheelhouse(argv: Sequence[str]) -> int:
    """Collect the wheels, the course and INSTALL.txt in a folder, then install from it without a network and try it.

    Run again after an interruption, it goes on: what lies in the folder is kept. PyTorch for Linux is the build for
    the CPU. What was collected for another machine than this one is complete by what the wheels say of themselves;
    only there it can be installed.

    Returns:
        0; every failure is an error.

    Raises:
        UsageError: not a checkout of git, no network, no wheel for a machine, or the check failed.
        OSError: the folder cannot be written to, or the disk is full.
    """
    options = parse(argv)
    targets, folder, archive = options.targets, options.folder, course_archive()
    wheels: set[Path] = set()
    for target in targets:
        print(target, flush=True)
        found = collect(folder, target, requirements(), CHECKOUT / "constraints.txt")
        print(f"  {len(found)} wheels, {megabytes(found)}")
        wheels |= set(found)
    write_whole(folder / ARCHIVE, archive)
    write_whole(folder / INSTRUCTIONS, instructions(targets))
    print(f"{folder}: {len(wheels)} wheels, {megabytes(wheels)}; {ARCHIVE}, {megabytes([folder / ARCHIVE])}; "
          f"{INSTRUCTIONS}", flush=True)
    report(options)
    return 0


def parse(argv: Sequence[str]) -> Namespace:
    """The options, with a list of `targets`: every system with every Python that was asked for."""
    parser = Parser(prog="python -m course_lib class wheelhouse", description=wheelhouse.__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="where it goes; up to 0.5 GB for each machine")
    parser.add_argument("--for", action="append", choices=SYSTEMS, dest="systems",
                        help="may be given more than once: linux (x86_64, glibc 2.28 or newer), windows (64 bit), "
                             "macos (14 or newer, Apple silicon); default: this machine")
    parser.add_argument("--python", action="append", metavar="X.Y", dest="pythons",
                        help="the Python there, such as 3.12; may be given more than once; default: the running one")
    parser.add_argument("--no-check", action="store_true", help="do not install from the folder to try it")
    options = parser.parse_args(argv)
    pythons, allowed = options.pythons or [here().python], allowed_pythons()
    if wrong := [python for python in pythons if python not in allowed]:
        parser.error(f"argument --python: {wrong[0]!r} is not allowed: must be one of {', '.join(allowed)}")
    if not options.systems and system_here() is None and options.pythons:
        parser.error("argument --python: this machine is none of those that --for knows; leave the option out")
    systems = options.systems or [system_here() if options.pythons else None]
    options.targets = list(dict.fromkeys(Target(python, system) for system in systems for python in pythons))
    return options


def project() -> dict:
    """What pyproject.toml says.

    Raises:
        UsageError: the course is installed without its repository.
    """
    if not (CHECKOUT / "pyproject.toml").is_file() or not (CHECKOUT / "constraints.txt").is_file():
        raise UsageError("this needs the repository of the course: install it from there, with pip install -e")
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))


def allowed_pythons() -> list[str]:
    """The versions that the course runs on, as two numbers each."""
    specifier = SpecifierSet(project()["project"]["requires-python"])
    return [f"3.{minor}" for minor in range(100) if specifier.contains(f"3.{minor}")]


def requirements() -> list[Requirement]:
    """What an editable install with the tests asks for: its packages, and those that build it."""
    tables = project()
    lines = [*tables["project"]["dependencies"], *tables["project"]["optional-dependencies"]["test"],
             *tables["build-system"]["requires"]]
    return [Requirement(line) for line in lines]


def course_archive() -> bytes:
    """The files that git tracks, as they lie in the repository, in a zip archive with the folder `course`.

    Raises:
        UsageError: there is no git, or the repository is not a checkout.
    """
    try:
        listed = subprocess.run(["git", "-C", str(CHECKOUT), "ls-files", "-z"], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise UsageError(f"git does not know which files of {CHECKOUT} belong to the course: it packs those that it "
                         "tracks, so install git and clone the course with it") from error
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (CHECKOUT / name).is_file():
                archive.write(CHECKOUT / name, f"course/{name}")
    return buffer.getvalue()


def instructions(targets: Sequence[Target]) -> str:
    """The text of INSTALL.txt."""
    return INSTALL.format(targets="\n".join(f"    {target}" for target in targets), python=targets[0].python)


def megabytes(files: Iterable[Path]) -> str:
    """What files weigh together."""
    return f"{sum(path.stat().st_size for path in files) / 1e6:,.0f} MB"


def report(options: Namespace) -> None:
    """Say for which machines the folder has been tried, and try it for this one."""
    for target in options.targets:
        if not is_here(target):
            print(f"not tried: {target}; install from the folder on such a machine, as {INSTRUCTIONS} says")
        elif options.no_check:
            print(f"not tried: {target}; --no-check says so")
        else:
            print(f"installing from it without a network, for {target}", flush=True)
            answer = check(options.folder, options.folder / ARCHIVE)
            print(f"it suffices; the model there answers: {' '.join(answer.split())}")
