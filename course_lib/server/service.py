"""What each address answers: the model, the two kinds of completion, the numbers, the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, Response

from course_lib.generate import LanguageModel
from course_lib.server.answers import Answer, ChatCompletion, Completion, usage
from course_lib.server.chat_requests import ChatCompletionRequest
from course_lib.server.engine_thread import EngineThread
from course_lib.server.errors import ApiError, shorten, shutting_down, timed_out
from course_lib.server.generation import Generation
from course_lib.server.jobs import Job, Jobs
from course_lib.server.limits import Limits
from course_lib.server.metrics import Metrics
from course_lib.server.requests import CompletionRequest, Request, parse
from course_lib.server.sending import DONE, GONE, EventStream, event, unless_gone

PREPARING_THREADS = 2  # more would only take turns, with each other and with the engine
PAGE = Path(__file__).parent / "page"
PAGE_FILES = {"/": ("index.html", "text/html"), "/page.css": ("page.css", "text/css"),
              "/page.js": ("page.js", "text/javascript")}
# Nothing on the page comes from elsewhere, and no other page shows it in a frame.
PAGE_HEADERS = {"Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'", "Cache-Control": "no-cache",
                "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class Service:
    """Answers requests with one model.

    Args:
        lm: as `load()` returns it.
        model: the name under which clients know it.
        thread: runs the engine.
        limits: what is refused.
        capacity: choices that may be in flight at a time.
    """

    def __init__(self, lm: LanguageModel, model: str, thread: EngineThread, limits: Limits, capacity: int) -> None:
        self.lm, self.model, self.thread, self.limits, self.capacity = lm, model, thread, limits, capacity
        self.metrics = Metrics(model, lambda: thread.stats)
        self.jobs, self.preparing = Jobs(lm, limits, capacity), 0  # choices that are not the engine's yet
        self.threads = ThreadPoolExecutor(PREPARING_THREADS, thread_name_prefix="prepare")
        self.waiting: set[asyncio.Timeout] = set()
        self.created = int(time.time())

    def describe(self) -> dict[str, Any]:
        """The model as /v1/models shows it."""
        return {"id": self.model, "object": "model", "created": self.created, "owned_by": "course_lib",
                "max_model_len": self.lm.config.max_position_embeddings}

    async def models(self) -> JSONResponse:
        """The list of the one model."""
        return JSONResponse({"object": "list", "data": [self.describe()]})

    async def one_model(self, name: str) -> JSONResponse:
        """The model of this name."""
        self.check_model(name)
        return JSONResponse(self.describe())

    async def health(self) -> Response:
        """Status 200 while the engine's thread is alive, else 503."""
        return Response(status_code=200 if self.thread.thread.is_alive() else 503)

    async def numbers(self) -> Response:
        """What Prometheus reads."""
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def no_icon(self) -> Response:
        """What browsers ask for unasked."""
        return Response(status_code=204)

    async def page(self, http: HttpRequest) -> Response:
        """A file of the page."""
        name, kind = PAGE_FILES[http.url.path]
        if not (PAGE / name).is_file():
            raise ApiError(404, f"{name} is missing in this copy", code="unknown_url")
        return FileResponse(PAGE / name, media_type=kind, headers=PAGE_HEADERS)

    async def complete(self, http: HttpRequest) -> Response:
        """POST /v1/completions."""
        return await self.answer(http, CompletionRequest, Completion)

    async def chat(self, http: HttpRequest) -> Response:
        """POST /v1/chat/completions."""
        return await self.answer(http, ChatCompletionRequest, ChatCompletion)

    def check_model(self, name: str) -> None:
        """Refuse a name that no model has here."""
        if name != self.model:
            raise ApiError(404, f"model = {shorten(name)} is not allowed: must be {self.model!r}", param="model",
                           code="model_not_found")

    def form(self, kind: type[Answer], body: Request, job: Job) -> Answer:
        """The form of the answer that the request asks for."""
        usage_too = bool(body.stream and body.stream_options and body.stream_options.include_usage)
        return kind(self.model, self.lm.tokenizer, job, with_logprobs=body.wanted_logprobs() is not None,
                    with_token_ids=bool(body.return_token_ids), with_seconds=bool(body.return_step_seconds),
                    with_usage=usage_too)

    async def answer(self, http: HttpRequest, request: type[Request], kind: type[Answer]) -> Response:
        """Answer a request of one kind by an answer of another, in one piece or as a stream."""
        body = parse(request, await self.body_of(http), self.jobs.max_prompt_tokens)
        self.check_model(body.model)
        if body.stream_options is not None and not body.stream:
            raise ApiError(400, "stream_options are not allowed without stream", param="stream_options",
                           code="invalid_value")
        deadline = asyncio.get_running_loop().time() + self.limits.request_seconds
        generation = await unless_gone(http, self.begin(body, deadline))
        if generation is GONE:
            return GONE
        form = self.form(kind, body, generation.job)
        if body.stream:
            return EventStream(self.events(generation, form), generation.close, deadline)
        return await unless_gone(http, self.collect(generation, form))

    async def body_of(self, http: HttpRequest) -> bytes:
        """The whole body, if the client sends it in time."""
        try:
            async with self.within(asyncio.get_running_loop().time() + self.limits.request_seconds, "the body"):
                return await http.body()
        except ClientDisconnect as error:
            raise ApiError(499, "the client is gone") from error  # which nobody reads

    async def begin(self, body: Request, deadline: float) -> Generation:
        """Prepare a request and submit it; its places are taken from here on.

        Raises:
            ApiError: it is refused, or there is no place for it.
        """
        if self.thread.closed:
            raise shutting_down()
        choices, taken = self.jobs.count_choices(body), self.thread.in_flight + self.preparing
        if taken + choices > self.capacity:
            raise ApiError(429, f"{taken} requests are in flight: at most {self.capacity} can be", code="queue_full",
                           headers={"Retry-After": "1"})
        job = await self.prepared(body, choices, deadline)
        generation = Generation(job, self.lm.tokenizer, self.thread, self.metrics, self.limits, deadline)
        await generation.start()
        return generation

    async def prepared(self, body: Request, choices: int, deadline: float) -> Job:
        """Make the job in a thread. One that is not waited for any longer keeps its places until the thread is done."""
        loop, making = asyncio.get_running_loop(), self.threads.submit(self.jobs.make, body)
        self.preparing += choices
        try:
            async with self.within(deadline, "the answer"):
                return await asyncio.wrap_future(making)
        finally:
            if making.done():
                self.preparing -= choices
            else:
                making.add_done_callback(lambda _: loop.call_soon_threadsafe(self.leave, choices))

    def leave(self, choices: int) -> None:
        """Free the places of what was prepared."""
        self.preparing -= choices

    @asynccontextmanager
    async def within(self, deadline: float, what: str) -> AsyncIterator[None]:
        """What lies within it ends at the deadline, or when the server does.

        Raises:
            ApiError: it had to.
        """
        try:
            async with asyncio.timeout_at(deadline) as limit:
                self.waiting.add(limit)
                yield
        except TimeoutError as error:
            raise shutting_down() if self.thread.closed else timed_out(what, self.limits.request_seconds) from error
        finally:
            self.waiting.discard(limit)

    async def stop(self) -> None:
        """End what has begun: answers fail with 503, as do requests that are still read or prepared."""
        await asyncio.to_thread(self.thread.stop)
        for limit in list(self.waiting):
            limit.reschedule(0)
        await asyncio.to_thread(self.threads.shutdown, cancel_futures=True)

    async def collect(self, generation: Generation, form: Answer) -> JSONResponse:
        """The whole answer."""
        deltas: list[list[Any]] = [[] for _ in generation.choices]
        async for choice, delta in generation.deltas():
            deltas[choice.index].append(delta)
        return JSONResponse(form.whole(deltas, total(generation)))

    async def events(self, generation: Generation, form: Answer) -> AsyncIterator[str]:
        """The answer as events: the roles, a chunk for each delta, the usage if asked for, and the end."""
        calls = [0] * len(generation.choices)
        try:
            for choice in generation.choices:
                if first := form.first(choice.index):
                    yield event(form.chunk(first))
            async with aclosing(generation.deltas()) as deltas:
                async for choice, delta in deltas:
                    for piece in form.pieces(choice.index, delta, calls[choice.index]):
                        yield event(form.chunk([piece]))
                    calls[choice.index] += len(delta.calls)
            if form.with_usage:
                yield event(form.chunk([], total(generation)))
        except ApiError as error:  # the status has gone out: what is left is an event that clients know as an error
            yield event(error.to_dict())
        yield DONE


def total(generation: Generation) -> dict[str, int]:
    """The usage of a finished generation; a prompt counts once, however many choices follow it."""
    return usage(sum(map(len, generation.job.prompts)), generation.completion_tokens)
