"""A server inside this process: in a thread of its own, so that a notebook can talk to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from course_lib.generate import LanguageModel
from course_lib.server.app import create_app
from course_lib.server.limits import check_access, is_loopback
from course_lib.server.listening import Server, listen, url_of

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
        server = Server(app)
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
