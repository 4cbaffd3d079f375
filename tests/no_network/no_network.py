"""Importing this module shuts the process off from every network except its own machine.

It works by an audit hook, which Python's socket module consults before it resolves a name, connects
or sends, and which cannot be removed. `sitecustomize.py` beside it does the import in every Python
that starts with this folder on PYTHONPATH: notebook kernels and other subprocesses. Compiled code
with sockets of its own is out of its reach; `environment` sets the switches such libraries have.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

LOCAL_NAMES = {None, "", "localhost", "::1", "::", "0.0.0.0"}


class NetworkBlockedError(RuntimeError):
    """Code under test reached for the network."""


def is_local(host: str | bytes | None) -> bool:
    """True for a name or an address of this machine.

    >>> [is_local(host) for host in ("127.0.0.1", "::1", None, "192.0.2.1", b"example.com")]
    [True, True, True, False, False]
    """
    host = host.decode(errors="replace") if isinstance(host, bytes) else host
    return host in LOCAL_NAMES or host.startswith("127.")


def destination(event: str, arguments: tuple) -> str | bytes | None:
    """The host that a socket event is about; None if it concerns none, as with Unix sockets."""
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        return arguments[0]
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = arguments[:2]
        if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            return address[0]
    return None


def refuse(event: str, arguments: tuple) -> None:
    """Audit hook: raise for a socket operation that leaves the machine."""
    if event.startswith("socket.") and not is_local(host := destination(event, arguments)):
        raise NetworkBlockedError(f"{event} to {host!r}: there is no network in tests")


def environment(home: Path) -> dict[str, str]:
    """Variables for this process and its children: an empty HOME, no downloads, no network.

    Args:
        home: an empty folder.
    """
    (home / "tiktoken").mkdir()
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".local" / "share"),
            "IPYTHONDIR": str(home / ".ipython"), "JUPYTER_CONFIG_DIR": str(home / ".jupyter"),
            "HF_HOME": str(home / "huggingface"), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "TIKTOKEN_CACHE_DIR": str(home / "tiktoken"), "COURSE_PROGRESS": str(home / "progress.json"),
            "PYTHONPATH": os.pathsep.join(path)}


sys.addaudithook(refuse)
