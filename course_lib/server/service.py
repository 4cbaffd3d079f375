"""What each address answers: the model, the two kinds of completion, the numbers, the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, Response

from course_lib.generate import LanguageModel, check_prompt, encode_prompt, end_ids
from course_lib.grammar import logits_processor_for
from course_lib.server.answers import Answer, ChatCompletion, Completion, usage
from course_lib.server.chat_requests import ChatCompletionRequest
from course_lib.server.engine_thread import EngineThread
from course_lib.server.errors import ApiError, from_range, shorten
from course_lib.server.generation import Generation, Job, check_lengths
from course_lib.server.limits import Limits
from course_lib.server.metrics import Metrics
from course_lib.server.requests import CompletionRequest, Request, about, parse
from course_lib.server.sending import DONE, GONE, EventStream, event, unless_gone
from course_lib.tool_calls import tag_ids

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

    async def body_of(self, http: HttpRequest) -> bytes:
        """The whole body, if the client sends it in time."""
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                return await http.body()
        except TimeoutError as error:
            raise ApiError(408, f"the body took longer than request_seconds = {self.limits.request_seconds:g}",
                           code="timeout") from error

    def check_model(self, name: str) -> None:
        """Refuse a name that no model has here."""
        if name != self.model:
            raise ApiError(404, f"model = {shorten(name)} is not allowed: must be {self.model!r}", param="model",
                           code="model_not_found")

    def job(self, body: Request) -> Job:
        """What to ask of the engine; not in the event loop, for a long prompt takes a while to encode.

        Raises:
            ApiError: the request cannot be answered.
        """
        self.check_model(body.model)
        if body.stream_options is not None and not body.stream:
            raise ApiError(400, "stream_options are not allowed without stream", param="stream_options",
                           code="invalid_value")
        prompts, tools = body.prompts(), body.offered_tools()
        n = 1 if body.n is None else body.n
        most = self.limits.max_choices // len(prompts)
        if not 1 <= n <= most:
            what, value = ("n", n) if n != 1 else ("len(prompt)", len(prompts))
            raise ApiError(400, f"{what} = {value} is not allowed: prompts times n must be in [1, "
                                f"{self.limits.max_choices}]", param="n" if n != 1 else "prompt", code="invalid_value")
        params = [body.sampling_params(max(1, body.wanted_tokens() or 1), choice) for choice in range(n)]
        ids = [self.encode(prompt, body.prompt_field, tools) for prompt in prompts]
        if body.wanted_tokens() is not None and body.wanted_tokens() < 1:
            raise ApiError(400, f"{body.tokens_field} = {body.wanted_tokens()} is not allowed: must be >= 1",
                           param=body.tokens_field, code="invalid_value")
        max_tokens = check_lengths(ids, body, self.lm.config.max_position_embeddings, self.limits)
        params = [body.sampling_params(max_tokens, choice) for choice in range(n)]
        with about(next(iter(body.constraints()), "structured_outputs")):
            # a grammar is built here and not in the engine's thread, where all would wait for it
            logits_processor_for(params[0], self.lm.tokenizer, end_ids(self.lm, params[0]))
        return Job(ids, params * len(ids), tools=tools is not None)

    def encode(self, prompt: Any, name: str, tools: list[dict[str, Any]] | None) -> list[int]:
        """Ids of one prompt; the text of a control token in it is data.

        Args:
            name: of the field that it comes from.
        """
        if tools and not tag_ids(self.lm.tokenizer):
            raise ApiError(400, f"tools are not supported by {self.model!r}: its tokenizer has no token <tool_call>",
                           param="tools", code="unsupported_parameter")
        try:
            if name == ChatCompletionRequest.prompt_field:
                return self.lm.tokenizer.apply_chat_template(prompt, tools=tools, add_generation_prompt=True)
            ids = encode_prompt(self.lm.tokenizer, prompt)
            if len(ids) < self.lm.config.max_position_embeddings:  # else the next check says more
                check_prompt(self.lm.config, ids)
            return ids
        except ValueError as error:
            raise from_range(error, name) from error
        except BaseException as error:  # a panic of tiktoken's Rust code, at a million spaces, is no Exception
            if type(error).__module__ != "pyo3_runtime":
                raise
            raise ApiError(400, f"{name} is not allowed: must be text that the tokenizer can cut (it gave up)",
                           param=name, code="invalid_value") from error

    def form(self, kind: type[Answer], body: Request) -> Answer:
        """The form of the answer that the request asks for."""
        usage_too = bool(body.stream and body.stream_options and body.stream_options.include_usage)
        return kind(self.model, self.lm.tokenizer, with_logprobs=body.wanted_logprobs() is not None,
                    with_token_ids=bool(body.return_token_ids), with_seconds=bool(body.return_step_seconds),
                    with_usage=usage_too)

    async def answer(self, http: HttpRequest, request: type[Request], kind: type[Answer]) -> Response:
        """Answer a request of one kind by an answer of another, in one piece or as a stream."""
        body = parse(request, await self.body_of(http))
        deadline = asyncio.get_running_loop().time() + self.limits.request_seconds
        job = await run_in_threadpool(self.job, body)
        form = self.form(kind, body)
        if self.thread.in_flight + len(job.params) > self.capacity:
            raise ApiError(429, f"{self.thread.in_flight} requests are in flight: at most {self.capacity} can be",
                           code="queue_full", headers={"Retry-After": "1"})
        generation = Generation(job, self.lm.tokenizer, self.thread, self.metrics, self.limits, deadline)
        if await unless_gone(http, generation.start()) is GONE:
            return GONE
        if body.stream:
            return EventStream(self.events(generation, form), generation.close, deadline)
        return await unless_gone(http, self.collect(generation, form))

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
