"""Loaded when Python starts, it shuts the process off from every network except its own machine.

`offline_check` copies this file into an environment, beside a `.pth` file that imports it, so it is in every Python
of that environment, pip's own children included. It works by an audit hook, which Python's socket module asks before
it resolves a name, connects or sends, and which cannot be removed.
"""

from __future__ import annotations

import socket
import sys


def destination(event: str, arguments: tuple) -> str | None:
    """The host that a socket event is about; None if it concerns none, as with Unix sockets."""
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = arguments[:2]
        host = address[0] if sock.family in (socket.AF_INET, socket.AF_INET6) and address else None
    else:
        return None
    return host.decode(errors="replace") if isinstance(host, bytes) else host


def is_local(host: str | None) -> bool:
    """True for this machine.

    >>> [is_local(host) for host in ("127.0.0.1", "::1", None, "192.0.2.1")]
    [True, True, True, False]
    """
    return host in (None, "", "localhost", "::1") or host.startswith("127.")


def refuse(event: str, arguments: tuple) -> None:
    """Audit hook: raise for a socket operation that leaves the machine.

    Raises:
        OSError: it would.
    """
    if event.startswith("socket.") and not is_local(host := destination(event, arguments)):
        raise OSError(f"{event} to {host!r}: this environment is cut off from the network")


if __name__ == "cut_off":  # the copy, which has no package around it
    sys.addaudithook(refuse)
