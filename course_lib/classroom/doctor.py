"""`python -m course_lib doctor`: is this installation whole, and if not, what to do about it."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from hashlib import file_digest
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import NamedTuple

import tiktoken
import torch
from packaging.requirements import Requirement

from course_lib import threads
from course_lib.checkpoint import MODELS, SHIPPED, find_folder, load
from course_lib.command_line import Parser
from course_lib.config import SamplingParams
from course_lib.device import device
from course_lib.generate import stream
from course_lib.weights import require_file

DISTRIBUTION = "course-lib"
INSTALL = "run: python -m pip install -c constraints.txt -e '.[test]'"
RESTORE = "run: git checkout course_lib/models, or rebuild the weights with: python -m course_lib train"


class Check(NamedTuple):
    """What was looked at, what was found, and what to do; an empty `advice` means that all is well."""

    name: str
    found: str
    advice: str = ""


def check_packages() -> Check:
    """Versions of Python and of every package that the library needs, and whether they are such as it asks for."""
    try:
        needed = [Requirement(line) for line in metadata.requires(DISTRIBUTION)]
        needed = sorted((r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})), key=str)
        found = {r: metadata.version(r.name) for r in needed}
        own = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        return Check("packages", f"{error.name} is not installed", INSTALL)
    if unfit := [f"{r.name} {version}, needed {r.specifier}" for r, version in found.items()
                 if not r.specifier.contains(version, prereleases=True)]:
        return Check("packages", "; ".join(unfit), INSTALL)
    versions = [f"{r.name} {version}" for r, version in found.items()]
    return Check("packages", ", ".join([f"Python {platform.python_version()}", f"{DISTRIBUTION} {own}", *versions]))


def check_device() -> Check:
    """Where the models will run."""
    try:
        chosen = device()
    except (ValueError, RuntimeError) as error:
        return Check("device", str(error), "set COURSE_DEVICE to cpu, or unset it")
    name = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else platform.machine()
    return Check("device", f"{chosen} ({name})")


def check_threads() -> Check:
    """How many threads compute, of how many cores, and whether they wait for each other by endless spinning."""
    count = torch.get_num_threads()
    found = f"{count} of {os.cpu_count()} cores"
    if (usable := threads.usable_cores()) < (os.cpu_count() or 1):
        found += f" ({usable} may be used)"
    if sys.platform != "linux" or count == 1:
        return Check("threads", found)
    if not threads.is_chosen():
        return Check("threads", f"{found}; they spin without bound when they wait, which is slow on a busy machine",
                     "torch was imported before course_lib: swap the two, or set "
                     f"GOMP_SPINCOUNT={threads.SPIN} where Python or Jupyter is started, as `make lab` does")
    chosen = next(f"{name}={os.environ[name]}" for name in threads.CHOICES if os.environ.get(name))
    return Check("threads", f"{found}; they wait as {chosen} says")


def check_chosen_model() -> Check | None:
    """Whether there is what COURSE_MODEL names (a hub id is downloaded, as by `load`); None where it names none."""
    if not (name := os.environ.get("COURSE_MODEL")):
        return None
    try:
        folder = find_folder(name)
        require_file(folder / "config.json")
    except (OSError, ValueError) as error:
        return Check("COURSE_MODEL", " ".join(str(error).split()), "set COURSE_MODEL to what exists, or unset it")
    return Check("COURSE_MODEL", str(folder))


def check_weights(folder: Path) -> Check:
    """Compare the files of a checkpoint with its SHA256SUMS."""
    name = f"weights of {folder.name}"
    sums = folder / "SHA256SUMS"
    if not sums.is_file():
        return Check(name, f"{folder.name}/SHA256SUMS is missing", RESTORE)
    listed = [line.split(maxsplit=1) for line in sums.read_text().splitlines()]
    if "model.safetensors" not in [file for _, file in listed]:
        return Check(name, "SHA256SUMS does not list model.safetensors", RESTORE)
    missing = [file for _, file in listed if not (folder / file).is_file()]
    changed = [file for digest, file in listed if file not in missing and sha256(folder / file) != digest]
    if missing or changed:
        faults = [f"{file} is missing" for file in missing] + [f"{file} has changed" for file in changed]
        return Check(name, ", ".join(faults), RESTORE)
    return Check(name, f"{len(listed)} files as shipped")


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def check_tiktoken() -> Check:
    """The shipped vocabulary, found by tiktoken under its name."""
    try:
        encoding = tiktoken.get_encoding("pocket")
    except (ValueError, OSError) as error:
        return Check("tiktoken", " ".join(str(error).split())[:100], INSTALL)
    return Check("tiktoken", f'get_encoding("pocket") has {encoding.n_vocab:,} tokens')


def check_generation(seconds: float = 2.0, tokens: int = 16) -> Check:
    """Generate greedily for that time, and at least that number of tokens; the speed is that of the median step."""
    question = [{"role": "user", "content": "What is gravity?"}]
    try:
        deltas = stream(load("pocket"), question,
                        SamplingParams(temperature=0, max_tokens=900, ignore_eos=True))
        start, text = time.perf_counter(), ""
        for delta in deltas:
            text += delta
            if time.perf_counter() - start > seconds and len(deltas.steps) >= tokens:
                break
    except (OSError, ValueError, RuntimeError) as error:
        return Check("generation", f"{type(error).__name__}: {error}", INSTALL)
    if not text.strip():
        return Check("generation", f"no text in {len(deltas.steps)} tokens", RESTORE)
    rate = 1 / median(step.seconds for step in deltas.steps)
    return Check("generation", f"{rate:.3g} tokens/s: {' '.join(text.split())[:60]} ...")


def checks(models: Path = MODELS) -> Iterator[Check]:
    """All checks in order; what rests on broken weights is not tried."""
    yield check_packages()
    yield check_device()
    yield check_threads()
    if chosen := check_chosen_model():
        yield chosen
    weights = [check_weights(models / name) for name in SHIPPED]
    yield from weights
    if not any(check.advice for check in weights):
        yield check_tiktoken()
        yield check_generation()


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per check, and one more with what to do where something is wrong.

    Returns:
        0 if all is well, else 1.
    """
    Parser(prog="python -m course_lib doctor", description=main.__doc__).parse_args(argv)
    broken = 0
    for check in checks():
        print(f"{'BROKEN' if check.advice else 'ok':<7}{check.name}: {check.found}", flush=True)
        if check.advice:
            print(f"       what to do: {check.advice}", flush=True)
            broken += 1
    print(f"{broken} broken" if broken else "everything works")
    return int(broken > 0)
