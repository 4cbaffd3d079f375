"""uvicorn as this server needs it: where it listens, how long a connection may be idle, and how it all ends."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from course_lib.server.errors import ApiError

IDLE_SECONDS = 20.0  # that a connection may wait for the head of a request, or for its client to read anything
MAX_CONNECTIONS = 1_000
ACCEPTED_AT_ONCE = 100  # connections that may be open for a moment beyond that
SPARE_FILES = 128  # that are not connections: the model's, the log's, and those that were accepted at once
SECONDS_TO_END = 3.0  # for the last events, once the engine has stopped


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        ValueError: the port is taken, or the address is not of this machine; the message says which.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(ACCEPTED_AT_ONCE)
    except OSError as error:
        listener.close()
        raise ValueError(f"host = {host!r}, port = {port} is not allowed: {error.strerror}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The address of a listening socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def max_connections() -> int:
    """As many as this process may have open without running out of files: on macOS 256 are usual."""
    files = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # Windows does not say
    return MAX_CONNECTIONS if files < 0 else max(ACCEPTED_AT_ONCE, min(MAX_CONNECTIONS, files - SPARE_FILES))


class Connection(H11Protocol):
    """A connection that ends if nothing moves on it, or if too many are open and it has waited longest.

    uvicorn alone waits for the first request for ever, and for a head that comes byte by byte. When the process can
    open no more files, nobody else is let in.

    Attributes:
        since: when it began to wait, by the event loop's clock.
        unsent: bytes that the client had not read then.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request. If too many connections are open, the one that has waited longest is closed."""
        super().connection_made(transport)
        self.timer: asyncio.TimerHandle | None = None
        self.wait()
        if len(self.connections) > max_connections():
            oldest = min((one for one in self.connections if not one.is_busy()), key=lambda one: one.since)
            oldest.transport.abort()
            self.connections.discard(oldest)

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nothing left to wait for."""
        self.timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self.wait()

    def is_busy(self) -> bool:
        """Whether a request is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def wait(self) -> None:
        """See in a while whether something has moved."""
        if self.timer is not None:
            self.timer.cancel()
        self.since, self.unsent = self.loop.time(), self.transport.get_write_buffer_size()
        self.timer = self.loop.call_later(IDLE_SECONDS, self.look)

    def look(self) -> None:
        """End the connection, unless a request is being answered or the client reads, however slowly."""
        if self.is_busy() and not self.flow.write_paused:
            return
        if self.transport.get_write_buffer_size() < self.unsent:
            self.wait()
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in OpenAI's form, unless another answer has begun."""
        if not (self.is_busy() and self.cycle.response_started):
            body = bytes(ApiError(400, msg, code="invalid_http").response().body)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                                 b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's server, which says when it is ready, and whose answers end in order: without a log below an error.

    Args:
        app: as `create_app` makes it.
        seconds_to_finish: that answers may still take when it is to stop; the others end with an error then.

    Attributes:
        ready: set when it answers.
    """

    def __init__(self, app: FastAPI, *, seconds_to_finish: float = 0.0) -> None:
        super().__init__(uvicorn.Config(
            app, loop="asyncio", http=Connection, ws="none", lifespan="on", log_config=None, access_log=False,
            log_level="error", server_header=False, proxy_headers=False, backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=round(seconds_to_finish + 4 * SECONDS_TO_END)))  # which it does not come to
        self.service, self.seconds_to_finish, self.ready = app.state.service, seconds_to_finish, threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, and return when those that have begun are answered, or have heard why not."""
        ending = asyncio.create_task(self.end_answers())
        await super().shutdown(sockets)
        ending.cancel()

    async def end_answers(self) -> None:
        """Stop the engine when the time to finish is over, and in the end close what is still open."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while clock() < began + self.seconds_to_finish:
            await asyncio.sleep(0.05)
        await self.service.stop()
        await asyncio.sleep(SECONDS_TO_END)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; the second one says that it is not to take that long."""
        if self.should_exit:
            self.seconds_to_finish = 0.0
        else:
            super().handle_exit(sig, frame)
