"""Machines that wheels are collected for: which of them fit, and which conditions of a requirement hold there."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename


class System(NamedTuple):
    """An operating system as requirements name it (PEP 508), and the tags of wheels that run there (PEP 425)."""

    platform_system: str
    sys_platform: str
    os_name: str
    machine: str
    tags: tuple[str, ...]


# Linux with glibc 2.28 or newer is every large distribution since 2019; PyTorch's own wheels ask for that much.
GLIBC = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)]
ALIASES = [f"manylinux{year}_x86_64" for year in (2014, 2010, 1)]
SYSTEMS = {
    "linux": System("Linux", "linux", "posix", "x86_64", (*GLIBC, *ALIASES)),
    "windows": System("Windows", "win32", "nt", "AMD64", ("win_amd64",)),
    "macos": System("Darwin", "darwin", "posix", "arm64", tuple(mac_platforms((14, 0), "arm64"))),
}


@dataclass(frozen=True)
class Target:
    """A machine with a Python on it.

    Args:
        python: its version as two numbers, such as `3.12`.
        system: a key of `SYSTEMS`; None is this machine, whose Python is the running one.
    """

    python: str
    system: str | None = None

    def __str__(self) -> str:
        return f"{self.platform_system} {self.environment['platform_machine']}, Python {self.python}"

    @property
    def platform_system(self) -> str:
        """`Linux`, `Windows` or `Darwin`."""
        return self.environment["platform_system"]

    @cached_property
    def environment(self) -> dict[str, str]:
        """What the markers of requirements are read with, such as `sys_platform`."""
        here = dict(default_environment())
        if self.system is None:
            return here
        system = SYSTEMS[self.system]
        return here | {"platform_system": system.platform_system, "sys_platform": system.sys_platform,
                       "os_name": system.os_name, "platform_machine": system.machine, "python_version": self.python,
                       "python_full_version": f"{self.python}.0", "implementation_version": f"{self.python}.0",
                       "platform_release": "", "platform_version": ""}

    @cached_property
    def tags(self) -> frozenset[Tag]:
        """The tags of all wheels that can be installed there."""
        if self.system is None:
            return frozenset(sys_tags())
        version, platforms = tuple(map(int, self.python.split("."))), SYSTEMS[self.system].tags
        interpreter = f"cp{version[0]}{version[1]}"
        return frozenset([*cpython_tags(version, platforms=platforms),
                          *compatible_tags(version, interpreter, platforms)])

    @property
    def pip_options(self) -> list[str]:
        """The options that make `pip download` choose wheels for it."""
        if self.system is None:
            return []
        return ["--implementation", "cp", "--python-version", self.python,
                *(word for tag in SYSTEMS[self.system].tags for word in ("--platform", tag))]

    def admits(self, wheel: str) -> bool:
        """Whether a wheel of this file name can be installed there.

        >>> Target("3.12", "windows").admits("torch-2.13.0-cp312-cp312-win_amd64.whl")
        True
        >>> Target("3.12", "linux").admits("torch-2.13.0-cp312-cp312-win_amd64.whl")
        False
        """
        try:
            return not self.tags.isdisjoint(parse_wheel_filename(wheel)[3])
        except InvalidWheelFilename:
            return False

    def holds(self, requirement: Requirement, extras: Iterable[str] = ()) -> bool:
        """Whether the condition of a requirement is met there.

        >>> Target("3.12", "windows").holds(Requirement("pywinpty; os_name == 'nt'"))
        True
        """
        marker = requirement.marker
        return marker is None or any(marker.evaluate(self.environment | {"extra": extra}) for extra in extras or [""])


def here() -> Target:
    """This machine with the running Python."""
    return Target(".".join(platform.python_version_tuple()[:2]))


def is_here(target: Target) -> bool:
    """Whether wheels for `target` can be tried out on this machine, with the running Python."""
    keys = ("platform_system", "platform_machine", "python_version")
    return all(target.environment[key] == here().environment[key] for key in keys)


def system_here() -> str | None:
    """The name in `SYSTEMS` of a machine like this one; None if there is none."""
    return next((name for name in SYSTEMS if is_here(Target(here().python, name))), None)
