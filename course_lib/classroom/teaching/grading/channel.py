"""Messages between the judge and a student's process: a length, JSON, and bytes beside it."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from course_lib.classroom.teaching.grading.values import Malformed

LENGTHS = struct.Struct(">QQ")
MOST_JSON, MOST_BYTES = 4 << 20, 64 << 20  # of one message; a right answer to a check needs some kilobytes


class OutOfTime(Exception):
    """The time for this answer is over."""


class Gone(Exception):
    """The other process has ended."""


class Channel:
    """One end of a socket.

    Args:
        end: a connected stream socket.
        deadline: in the seconds of `time.monotonic`; None for the student's process, which may wait.
    """

    def __init__(self, end: socket.socket, deadline: float | None = None) -> None:
        self.end, self.deadline = end, deadline

    def send(self, content: bytes, blobs: bytes | bytearray = b"") -> None:
        """Send one message.

        Raises:
            OutOfTime: the other process does not take it.
            Gone: it has ended.
        """
        try:
            for data in (LENGTHS.pack(len(content), len(blobs)), content, blobs):
                self.limit()
                self.end.sendall(data)
        except TimeoutError as error:
            raise OutOfTime from error
        except OSError as error:
            raise Gone from error

    def receive(self) -> tuple[bytes, bytes]:
        """The next message.

        Raises:
            OutOfTime: none comes.
            Gone: the other process has ended.
            Malformed: the message is too long.
        """
        lengths = LENGTHS.unpack(self.take(LENGTHS.size))
        if self.deadline is not None and (lengths[0] > MOST_JSON or lengths[1] > MOST_BYTES):
            raise Malformed(f"a message of {sum(lengths):,} bytes")
        return self.take(lengths[0]), self.take(lengths[1])

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        data = bytearray()
        while len(data) < n:
            try:
                self.limit()
                more = self.end.recv(min(n - len(data), 1 << 20))
            except TimeoutError as error:
                raise OutOfTime from error
            except OSError as error:
                raise Gone from error
            if not more:
                raise Gone
            data += more
        return bytes(data)

    def limit(self) -> None:
        """Let the next operation on the socket wait as long as there is time."""
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise OutOfTime
            self.end.settimeout(left)


def read_message(channel: Channel) -> tuple[dict[str, Any], bytes]:
    """The next message of a student's process: its JSON, a dict, and the bytes beside it.

    Raises:
        OutOfTime, Gone: as `Channel.receive` does.
        Malformed: it is no such message.
    """
    content, blobs = channel.receive()
    try:
        message = json.loads(content)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed("a message that is no JSON") from error
    if not isinstance(message, dict):
        raise Malformed("a message that is no dict")
    return message, blobs


def write_message(channel: Channel, message: dict[str, Any], blobs: bytes | bytearray = b"") -> None:
    """Send a message to the judge."""
    channel.send(json.dumps(message).encode("ascii"), blobs)
