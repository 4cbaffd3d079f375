"""A process from which a student's code reaches nothing: what holds it, and how it is started and ended.

Five layers, of which each is tried on this machine before anything is graded:

    namespaces  no network, no other processes to be seen, nothing left over when the first one ends
    mounts      a root folder with Python and the course to read, and a small file system in memory to write
    account     where the grader is root: a user number that nobody has
    landlock    the kernel refuses to open other files
    filter      the kernel refuses new processes, programs and sockets
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import site
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.classroom.teaching.grading import kernel
from course_lib.classroom.teaching.grading.children import until_death
from course_lib.classroom.teaching.grading.worker import silence

PACKAGE = Path(__file__).parents[3]
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
OWN = "/course-answer"  # a student's folder, where it has a root of its own
ACCOUNTS = (1_900_000_000, 65_534)  # the first is in no range that systems give away; the second is `nobody`
MOST_THREADS, MOST_HANDLES, MOST_FILES = 32, 64, 4096
SPACES = (kernel.NEW_PROCESSES | kernel.NEW_NETWORK | kernel.NEW_IPC | kernel.NEW_HOSTNAME)
LAYERS = ("namespaces", "mounts", "account", "landlock", "filter")
GRACE_S = 3.0


@dataclass(frozen=True)
class Limits:
    """What a student's process may use.

    Attributes:
        seconds: for one answer, all calls of its check included.
        memory_mb: beyond what Python and PyTorch take.
        disk_mb: in files of its own, which vanish afterwards.
    """

    seconds: float = 60.0
    memory_mb: int = 1024
    disk_mb: int = 64


def readable() -> list[str]:
    """What a student's process may read: Python, its packages, the course, and the system's libraries."""
    paths = [*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *site.getsitepackages(),
             os.path.join(sys.base_prefix, "lib"), str(PACKAGE), *SYSTEM]
    found = [path for path in dict.fromkeys(map(os.path.abspath, paths)) if os.path.exists(path)]
    return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]


class Sandbox:
    """Starts and ends processes with the layers that there are.

    Args:
        layers: some of `LAYERS`.
    """

    def __init__(self, limits: Limits, layers: Sequence[str] = LAYERS) -> None:
        self.limits, self.layers = limits, tuple(layers)
        self.roots = readable()

    def start(self, function: Callable[[socket.socket], None]) -> Worker:
        """Run a function in a process of its own; it gets one end of a socket, the `Worker` has the other."""
        ours, theirs = socket.socketpair()
        scratch = tempfile.mkdtemp(prefix="course-grade-")
        keeper = os.fork()
        if not keeper:
            ours.close()
            self.keep(theirs, scratch, function)
        theirs.close()
        return Worker(ours, keeper, Path(scratch), self.limits)

    def keep(self, end: socket.socket, scratch: str, function: Callable[[socket.socket], None]) -> None:
        """In a process between the judge's and the student's, which ends the student's; does not return."""
        status, children, asked = 125, [], []

        def end_child(number: int, frame: Any) -> None:
            asked.append(number)
            for child in children:
                os.kill(child, signal.SIGKILL)

        try:
            signal.signal(signal.SIGTERM, end_child)
            until_death(signal.SIGTERM)
            os.setsid()
            self.separate()
            child = os.fork()
            if not child:
                self.run(end, scratch, function)
            end.close()
            children.append(child)
            if asked:
                os.kill(child, signal.SIGKILL)
            status = exit_status(os.waitpid(child, 0)[1])
        finally:
            os._exit(status)

    def separate(self) -> None:
        """Namespaces for the child; a user who is not root gets them in a user namespace."""
        wanted = SPACES if "namespaces" in self.layers else 0
        wanted |= kernel.NEW_MOUNTS if "mounts" in self.layers else 0
        if not wanted:
            return
        uid, gid = os.getuid(), os.getgid()
        kernel.unshare(wanted | (kernel.NEW_USERS if uid else 0))
        if uid:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                Path(f"/proc/self/{name}").write_text(text)

    def run(self, end: socket.socket, scratch: str, function: Callable[[socket.socket], None]) -> None:
        """In the student's process: raise the walls, then run; does not return."""
        status = 124
        try:
            until_death(signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            silence()
            os.dup2(end.fileno(), 3)
            end.detach()
            os.closerange(4, 65_536)
            self.confine(scratch)
            status = 0
            function(socket.socket(fileno=3))
        except MemoryError:
            status = 123
        finally:
            os._exit(status)

    def confine(self, scratch: str) -> None:
        """All layers but the namespaces, in the order in which they can be had."""
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        home = enter_own_root(self.roots, scratch, self.limits) if "mounts" in self.layers else scratch
        os.chdir(home)
        clean_environment(home)
        set_limits(self.limits, taken + (self.limits.memory_mb << 20))
        account = "account" in self.layers
        if account:
            leave_root(home)
        until_death(signal.SIGKILL)
        kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
        kernel.prctl(kernel.NO_DUMPS, 0)
        if "landlock" in self.layers:
            kernel.landlock(filter(reachable, self.roots), [home], filter(os.path.exists, DEVICES))
        if not account:
            kernel.drop_capabilities()
        if "filter" in self.layers:
            kernel.filter_calls()


class Worker:
    """A student's process, seen from outside.

    Attributes:
        end: of the socket to it.
        scratch: its folder on the disk; empty where it has a file system of its own.
    """

    def __init__(self, end: socket.socket, keeper: int, scratch: Path, limits: Limits) -> None:
        self.end, self.keeper, self.scratch, self.limits = end, keeper, scratch, limits

    def interrupt(self) -> None:
        """End the process; `stop` has to follow."""
        with suppress(ProcessLookupError):
            os.kill(self.keeper, signal.SIGTERM)

    def stop(self, patience: float = 0.0) -> int:
        """End the process and all that it has started, remove its files; its exit status, 128 + n after signal n.

        Args:
            patience: seconds in which it may still end by itself.
        """
        self.end.close()
        done = self.wait(patience)
        if not done:
            self.interrupt()
            done = self.wait(GRACE_S)
        if not done:
            os.kill(self.keeper, signal.SIGKILL)
            done = os.waitpid(self.keeper, 0)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return exit_status(done[1])

    def wait(self, seconds: float) -> tuple[int, int] | None:
        """What `os.waitpid` says of the process between, or None if it has not ended in this time."""
        deadline = time.monotonic() + seconds
        while (done := os.waitpid(self.keeper, os.WNOHANG))[0] == 0:
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.002)
        return done

    def files_mb(self) -> float:
        """What lies in its folder on the disk."""
        sizes = 0
        for folder, _, names in os.walk(self.scratch):
            for name in names:
                with suppress(OSError):
                    sizes += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return sizes / 1e6


def exit_status(status: int) -> int:
    """The exit status of a process as a shell has it: 128 + n if signal n ended it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def enter_own_root(roots: Sequence[str], scratch: str, limits: Limits) -> str:
    """A root folder with `roots`, read-only, some devices and an empty folder in memory; the path of the latter.

    The folder is none that the system has, so it hides nothing, wherever Python and the course are installed.
    """
    kernel.mount("", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
    kernel.mount("tmpfs", scratch, "tmpfs", kernel.NO_SUID, "size=1m,mode=755")
    for path in (*roots, *filter(os.path.exists, DEVICES)):
        target = scratch + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            Path(target).touch()
        kernel.mount(path, target, flags=kernel.BIND | kernel.RECURSIVE)
        if path not in DEVICES:
            flags = os.statvfs(target).f_flag & kernel.KEPT_FLAGS
            kernel.mount("", target, flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | flags)
    os.makedirs(scratch + OWN, exist_ok=True)
    options = f"size={limits.disk_mb}m,nr_inodes={MOST_FILES},mode=1777"
    kernel.mount("tmpfs", scratch + OWN, "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, options)
    kernel.mount("", scratch, flags=kernel.REMOUNT | kernel.READ_ONLY | kernel.NO_SUID)
    kernel.enter_root(scratch)
    return OWN


def clean_environment(home: str) -> None:
    """No variable of the grader's reaches the student's code: no keys, no addresses, no progress file."""
    os.environ.clear()
    os.environ.update(HOME=home, TMPDIR=home, PATH="", LANG="C.UTF-8", MPLBACKEND="agg", OMP_NUM_THREADS="1",
                      COURSE_PROGRESS=os.path.join(home, "progress.json"), COURSE_KEEP_ANSWERS="0")
    tempfile.tempdir = home


def set_limits(limits: Limits, memory: int) -> None:
    """Memory in bytes, processor time, sizes of files, handles; threads only where it runs as root; no core files."""
    seconds, disk = int(limits.seconds) + 1, limits.disk_mb << 20
    for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, disk), (resource.RLIMIT_CORE, 0),
                       (resource.RLIMIT_AS, memory), (resource.RLIMIT_NOFILE, MOST_HANDLES)):
        resource.setrlimit(what, (most, most))
    if os.getuid() == 0:  # of the account that is taken next; of a user's own, other programs count
        resource.setrlimit(resource.RLIMIT_NPROC, (MOST_THREADS, MOST_THREADS))


def leave_root(home: str) -> None:
    """Become a user whom nobody is."""
    for account in ACCOUNTS:
        with suppress(OSError):
            if home != OWN:
                os.chown(home, account, account)
            os.setgroups([])
            os.setresgid(account, account, account)
            os.setresuid(account, account, account)
            return
    raise OSError("no account that may be taken")


def reachable(path: str) -> bool:
    """Whether this process can open it at all."""
    return os.access(path, os.R_OK)
