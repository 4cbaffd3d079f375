"""How an answer goes out: as server-sent events, or in one piece, and not at all if the client has gone away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

DONE = "data: [DONE]\n\n"
LATE_SECONDS = 2.0  # that the last event, which says that the time is up, may take to be sent
GONE = Response(status_code=499)  # which nobody reads
LOG = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """Server-sent events, one for each chunk of HTTP.

    Args:
        events: each as `event` writes it.
        close: called when the response ends, whatever ends it and however early.
        deadline: by the event loop's clock. `LATE_SECONDS` after it the response ends, even if the client still reads,
            slowly. None: there is none.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str], close: Callable[[], None], deadline: float | None = None) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.close, self.latest = close, None if deadline is None else deadline + LATE_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end, the client is gone, or it is too late."""
        try:
            async with asyncio.timeout_at(self.latest):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            LOG.warning("a client has not read its stream in time: the connection ends")
        finally:
            self.close()  # a generator that has not begun would not do it
            await self.body_iterator.aclose()


def event(data: Any) -> str:
    """A server-sent event.

    >>> event({"a": "é"})
    'data: {"a":"é"}\\n\\n'
    """
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def unless_gone(http: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`; if the client goes away before it is there, cancel the work and return `GONE`."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else GONE
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def disconnected(http: Request) -> None:
    """Return when the client is gone; its request must have been read."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
