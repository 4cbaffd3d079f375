"""The server as an ASGI application: what answers at which address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from course_lib.config import require
from course_lib.engine import Engine
from course_lib.generate import LanguageModel
from course_lib.server.engine_thread import EngineThread
from course_lib.server.errors import ApiError, respond, respond_to_fault, respond_to_http
from course_lib.server.limits import Guard, Limits
from course_lib.server.service import PAGE_FILES, Service

SPARE_REQUESTS = 256  # that are read, checked or refused beside those that the engine takes; the next one gets 503


def create_app(lm: LanguageModel, *, model: str | None = None, api_key: str | None = None, local: bool = True,
               limits: Limits | None = None, engine: Callable[[], Engine] | None = None) -> FastAPI:
    """An OpenAI-compatible server as an ASGI application; its engine runs from startup to shutdown.

    Args:
        lm: as `load()` returns it.
        model: the name under which clients know it; None: the last part of `lm.name`.
        api_key: what clients must send as bearer token; None: nothing.
        local: answer only requests to this machine's own names.
        limits: what is refused; None: the defaults.
        engine: makes the engine; None: a `course_lib.engine.Engine` with its defaults.

    Raises:
        ValueError: there is not enough memory for the engine.
    """
    limits, model = limits or Limits(), model or Path(lm.name).name
    require(bool(model), "model", model, "a name that is not empty")
    thread = EngineThread(engine or partial(Engine, lm))
    service = Service(lm, model, thread, limits, thread.max_num_seqs + limits.max_queue)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        thread.start(asyncio.get_running_loop())
        yield
        await service.stop()

    handlers = {ApiError: respond, HTTPException: respond_to_http, Exception: respond_to_fault}
    app = FastAPI(title="course_lib", lifespan=lifespan, exception_handlers=handlers,
                  openapi_url=None, docs_url=None, redoc_url=None)  # the pages of these load scripts from elsewhere
    app.state.service = service
    for path, method, answer in (
            ("/v1/models", "GET", service.models), ("/v1/models/{name:path}", "GET", service.one_model),
            ("/v1/completions", "POST", service.complete), ("/v1/chat/completions", "POST", service.chat),
            ("/health", "GET", service.health), ("/metrics", "GET", service.numbers),
            ("/favicon.ico", "GET", service.no_icon), *((path, "GET", service.page) for path in PAGE_FILES)):
        app.add_api_route(path, answer, methods=[method], response_model=None)
    app.add_middleware(Guard, api_key=api_key, local=local, max_body_bytes=limits.max_body_bytes,
                       max_requests=service.capacity + SPARE_REQUESTS)
    return app

