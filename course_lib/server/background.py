"""A server inside this process: in a thread of its own, so that a notebook can talk to it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI

from course_lib.generate import LanguageModel
from course_lib.server.app import create_app
from course_lib.server.limits import check_access, is_loopback

SECONDS_TO_START = 30


@dataclass(frozen=True)
class RunningServer:
    """Where a server is to be found.

    Attributes:
        url: without a slash at its end; OpenAI's clients want `base_url=server.url + "/v1"`.
        port: that it listens on.
        app: the application.
    """

    url: str
    port: int
    app: FastAPI


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
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ValueError(f"host = {host!r}, port = {port} is not allowed: {error.strerror}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The address of a listening socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configure(app: FastAPI, *, seconds_to_finish: int) -> uvicorn.Config:
    """uvicorn's settings, the same for the command and in the background: no log of its own below an error."""
    return uvicorn.Config(app, loop="asyncio", http="h11", ws="none", lifespan="on", log_config=None, access_log=False,
                          log_level="error", server_header=False, proxy_headers=False,
                          timeout_graceful_shutdown=seconds_to_finish)


@contextmanager
def serve_in_background(lm: LanguageModel, *, host: str = "127.0.0.1", port: int = 0, api_key: str | None = None,
                        **options: Any) -> Iterator[RunningServer]:
    """A server for as long as the block lasts; then its streams end with an error and its threads are joined.

    Args:
        lm: as `load()` returns it; while the server runs, only its engine should use the model.
        host: an address of this machine.
        port: 0: one that is free.
        api_key: needed where others than this machine could ask.
        options: `model`, `limits` and `engine` of `create_app`.

    Yields:
        A `RunningServer`, which answers already.

    Raises:
        ValueError: the port is taken, or one of the options is not allowed.
    """
    check_access(host, api_key)
    with listen(host, port) as listener:  # before an engine is made, which takes a while and half of the memory
        app = create_app(lm, api_key=api_key, local=is_loopback(host), **options)
        server = BackgroundServer(app)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), name="server",
                                  daemon=True)
        thread.start()
        try:
            server.ready.wait(SECONDS_TO_START)
            if not server.started:
                raise RuntimeError(f"the server did not start within {SECONDS_TO_START} s")
            yield RunningServer(url_of(listener), listener.getsockname()[1], app)
        finally:
            server.should_exit = True
            thread.join()


class BackgroundServer(uvicorn.Server):
    """uvicorn's server, which says when it is ready, and ends its streams before it waits for them."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(configure(app, seconds_to_finish=5))
        self.app, self.ready = app, threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the engine first: its requests fail, so that their answers end."""
        await asyncio.to_thread(self.app.state.service.thread.stop)
        await super().shutdown(sockets)
