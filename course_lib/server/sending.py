"""How an answer goes out: as server-sent events, or in one piece, and not at all if the client has gone away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

DONE = "data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """Server-sent events, one for each chunk of HTTP.

    Args:
        events: each as `event` writes it.
        close: called when the response ends, whatever ends it and however early.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str], close: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client is gone."""
        try:
            await super().__call__(scope, receive, send)
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
    """The result of `work`; if the client goes away before it is there, cancel the work."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else Response(status_code=499)  # which nobody reads
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def disconnected(http: Request) -> None:
    """Return when the client is gone; its request must have been read."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
