"""Which layers of protection this machine has. They are tried before anything is graded."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.teaching.grading import kernel
from course_lib.classroom.teaching.grading.channel import (
    Channel,
    Gone,
    Malformed,
    OutOfTime,
    read_message,
    write_message,
)
from course_lib.classroom.teaching.grading.sandbox import LAYERS, Limits, Sandbox
from course_lib.command_line import UsageError

# What may not be possible, and which layers prevent it: one of them has to be in force.
NEEDED = {"reach the network": ("namespaces", "filter"),
          "leave processes running": ("namespaces", "filter"),
          "write outside its folder": ("mounts", "account", "landlock"),
          "read other submissions": ("mounts", "landlock")}
LIMITS = Limits(seconds=20, memory_mb=512, disk_mb=8)


def choose_layers(folder: Path, unprotected: bool) -> tuple[str, ...]:
    """The layers that work on this machine, all together.

    Args:
        folder: of the submissions; a process under protection must not be able to list it.
        unprotected: whether to go on if they are not enough.

    Raises:
        UsageError: they are not enough, and going on was not asked for.
    """
    found = tuple(filter(possible, LAYERS))
    tried = attack(found, folder)
    if tried is None:
        found = ()
        for layer in filter(possible, LAYERS):
            found = (*found, layer) if attack((*found, layer), folder) is not None else found
        tried = attack(found, folder)
    open_ways = list(NEEDED) if tried is None else tried
    if open_ways and not unprotected:
        raise UsageError(f"this machine cannot hold students' code: it could {' and '.join(open_ways)}. Grade on a "
                         "Linux with user namespaces or Landlock, or as root in a container that has nothing to lose; "
                         "--unprotected grades all the same")
    return found if tried is not None else ()


def possible(layer: str) -> bool:
    """Whether a layer makes sense at all here, without trying it."""
    return {"account": os.getuid() == 0, "landlock": kernel.landlock_version() > 0,
            "filter": kernel.has_filter()}.get(layer, True)


def attack(layers: Sequence[str], folder: Path) -> list[str] | None:
    """What a process under these layers can do that it may not; None if it cannot even be started."""
    target = str(folder.resolve())
    worker = Sandbox(LIMITS, layers).start(lambda end: try_everything(Channel(end), target))
    try:
        message, _ = read_message(Channel(worker.end, deadline()))
    except (Gone, OutOfTime, Malformed):
        return None
    finally:
        worker.stop()
    return [way for way in NEEDED if message.get(way) is not False]


def deadline() -> float:
    """When a trial is given up."""
    return time.monotonic() + LIMITS.seconds


def try_everything(channel: Channel, folder: str) -> None:
    """In the process under protection: try what may not be possible, and tell."""
    write_message(channel, {"reach the network": has_network(), "leave processes running": can_leave_processes(),
                            "write outside its folder": can_write(folder), "read other submissions": can_read(folder)})


def has_network() -> bool:
    """Whether another machine could be reached: sockets can be made, and there is an interface beside the loopback."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
        return len(socket.if_nameindex()) > 1
    except OSError:
        return False


def can_leave_processes() -> bool:
    """Whether there can be processes that are not ended with this one, which is the first of its namespace."""
    if os.getpid() == 1:
        return False
    try:
        child = os.fork()
    except OSError:
        return False
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return True


def can_write(folder: str) -> bool:
    """Whether a file can be made among the submissions or in the course's library."""
    for place in (folder, os.path.dirname(__file__)):
        path = os.path.join(place, f".grade-trial-{os.getpid()}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            continue
        os.unlink(path)
        return True
    return False


def can_read(folder: str) -> bool:
    """Whether the submissions can be listed."""
    try:
        os.listdir(folder)
    except OSError:
        return False
    return True
