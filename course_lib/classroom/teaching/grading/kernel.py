"""Calls to the Linux kernel for which Python has no function: namespaces, mounts, Landlock, system call filters.

Manual pages: unshare(2), mount(2), pivot_root(2), prctl(2), capset(2), landlock(7), seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

NEW_MOUNTS, NEW_HOSTNAME, NEW_IPC, NEW_USERS, NEW_PROCESSES, NEW_NETWORK = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
READ_ONLY, NO_SUID, NO_DEVICES, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048  # of a mount, which a user namespace may not take away
PARENT_DEATH, NO_DUMPS, FILTER, NO_NEW_PRIVILEGES = 1, 4, 22, 38
CAPABILITY_VERSION = 0x20080522
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILES, WRITE_FILES = 1 << 2 | 1 << 3 | 1 << 0, 1 << 1  # with directories, and with executing
THREAD = 0x00010000  # of clone: no new process
NO_SUCH_CALL, NOT_PERMITTED = 38, 1

# What no answer needs: other processes, other programs, sockets, mounts, and ways past the limits on memory and files.
DENIED = {
    "x86_64": (41, 57, 58, 59, 62, 200, 129, 297, 101, 322, 272, 308, 165, 166, 155, 161, 250, 248, 249, 321, 298, 323,
               425, 426, 427, 310, 311, 319, 29, 434, 424, 438, 175, 313, 246, 169, 304, 68, 64, 240, 447, 430, 428,
               429, 442, 179, 167, 163, 103, 135),
    "aarch64": (198, 221, 129, 130, 138, 240, 117, 281, 97, 268, 40, 39, 41, 51, 219, 217, 218, 280, 241, 282, 425,
                426, 427, 270, 271, 279, 194, 434, 424, 438, 105, 273, 104, 142, 265, 186, 190, 180, 447, 430, 428,
                429, 442, 60, 224, 89, 116, 92),
}
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE, CLONE3, KILL_THREAD = {"x86_64": 56, "aarch64": 220}, 435, {"x86_64": 234, "aarch64": 131}

_libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None


def checked(result: int, what: str) -> int:
    """The result of a call.

    Raises:
        OSError: it is negative, with the reason that the kernel gives.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Give this process namespaces of its own; of processes only for its children."""
    checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or what lies at `source` once more."""
    words = [word.encode() if word else None for word in (source, target, kind, options)]
    checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def enter_root(path: str) -> None:
    """Make a mounted folder the root of this process, and let go of the old root."""
    os.chdir(path)
    number = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    checked(_libc.syscall(number, b".", b"."), "pivot_root")
    checked(_libc.umount2(b".", 2), "umount of the old root")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def drop_capabilities() -> None:
    """Give up what a new user namespace grants."""
    header = ctypes.create_string_buffer(struct.pack("Ii", CAPABILITY_VERSION, 0))
    checked(_libc.capset(header, ctypes.create_string_buffer(24)), "capset")


def landlock_version() -> int:
    """The version of Landlock, 0 where there is none."""
    return max(0, _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def landlock(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """From now on this process may open only these files and what lies below them, and connect to nothing.

    Args:
        readable: files and folders.
        writable: folders in which all is allowed.
        devices: files to be read and written.
    """
    version = landlock_version()
    files = 0x1FFF | (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)
    files |= 1 << 15 if version >= 5 else 0
    attributes = struct.pack("QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = checked(_libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    for allowed, paths in ((READ_FILES, readable), (files, writable), (READ_FILES & 4 | WRITE_FILES, devices)):
        for path in paths:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            fits = allowed if os.path.isdir(path) else allowed & (1 << 0 | 1 << 1 | 1 << 2 | 1 << 14)
            rule = struct.pack("=Qi", fits, handle)
            checked(_libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"landlock_add_rule {path}")
            os.close(handle)
    checked(_libc.syscall(LANDLOCK_RESTRICT, rules, 0), "landlock_restrict_self")
    os.close(rules)


def has_filter() -> bool:
    """Whether the numbers of this machine's system calls are known here."""
    return platform.machine() in DENIED


def filter_calls() -> None:
    """Refuse system calls that no answer needs, in this process and in all that it starts; for good.

    New threads are allowed, new processes are not.
    """
    program = filter_program(platform.machine(), os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    checked(_libc.prctl(FILTER, 2, ctypes.create_string_buffer(header), 0, 0), "seccomp")


def filter_program(machine: str, pid: int) -> list[tuple[int, int, int, int]]:
    """Instructions of the kernel's filter machine: (code, jump if true, jump if false, operand)."""
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill = 0x7FFF0000, 0x80000000
    refuse, unknown = 0x00050000 | NOT_PERMITTED, 0x00050000 | NO_SUCH_CALL
    program = [(load, 0, 0, 4), (equal, 1, 0, ARCHITECTURE[machine]), (answer, 0, 0, kill), (load, 0, 0, 0),
               (at_least, 0, 1, 0x40000000), (answer, 0, 0, refuse)]  # numbers of a second table of x86
    for number in DENIED[machine]:
        program += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    program += [(equal, 0, 1, CLONE3), (answer, 0, 0, unknown)]  # the C library then takes clone
    program += [(equal, 0, 3, CLONE[machine]), (load, 0, 0, 16), (any_bit, 1, 0, THREAD), (answer, 0, 0, refuse)]
    program += [(load, 0, 0, 0), (equal, 0, 3, KILL_THREAD[machine]), (load, 0, 0, 16), (equal, 1, 0, pid),
                (answer, 0, 0, refuse)]
    return [*program, (answer, 0, 0, allow)]
