"""One call of a client from its prompts to the last delta: submitted, counted, read, and dropped if nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from course_lib.server.choice import Choice, Delta
from course_lib.server.engine_thread import Arrival, EngineThread
from course_lib.server.errors import ApiError, timed_out
from course_lib.server.jobs import Job
from course_lib.server.limits import Limits
from course_lib.server.metrics import Metrics, RequestMetrics


class Generation:
    """The choices of one job while they are made.

    Args:
        job: what to do.
        tokenizer: as `lm.tokenizer`.
        thread: runs the engine.
        metrics: counts.
        limits: for the message when the time is up.
        deadline: when that is, by the event loop's clock.

    Attributes:
        choices: in the order of the job's settings.
        made: what has become of them and is not read yet; an error is the last.
    """

    def __init__(self, job: Job, tokenizer: Any, thread: EngineThread, metrics: Metrics, limits: Limits,
                 deadline: float) -> None:
        self.job, self.metrics, self.limits, self.deadline, self.closed = job, metrics, limits, deadline, False
        self.choices = [Choice(i, tokenizer, params, tools=job.tools) for i, params in enumerate(job.params)]
        self.made: asyncio.Queue[tuple[Choice, Delta] | Exception] = asyncio.Queue()
        requests = [(job.prompt_of(i), params) for i, params in enumerate(job.params)]
        self.ticket = thread.submit(requests, self.receive)
        self.counted = [RequestMetrics(metrics, len(ids), self.ticket.submitted_at) for ids, _ in requests]

    @property
    def completion_tokens(self) -> int:
        """New tokens of all choices so far."""
        return sum(len(choice.steps) for choice in self.choices)

    async def start(self) -> None:
        """Return when the engine has taken the requests.

        Raises:
            ApiError: it refuses one, or takes too long.
        """
        try:
            await self.in_time(self.ticket.accepted)
        except ApiError:
            self.close("error")
            raise
        except asyncio.CancelledError:
            self.close()
            raise

    def receive(self, result: Arrival | ApiError) -> None:
        """Take a token when the engine has made it: count it, make text of it, and see whether the choice is complete.

        A reader may be slow. The engine is done with a choice as soon as that is known here.
        """
        if isinstance(result, ApiError):
            self.fail(result)
            return
        choice, counted, step = self.choices[result.index], self.counted[result.index], result.output.step
        counted.count(result.at, step.seconds)
        if self.closed or choice.finish_reason is not None:
            return  # the engine had gone on before it heard of it
        try:
            delta = choice.push(step, result.output.finish_reason)
        except Exception as error:  # of a tokenizer; the reader must hear of it
            self.fail(error)
            return
        if choice.finish_reason is not None:
            self.ticket.finish(choice.index)
            counted.finish(choice.finish_reason)
        if delta is not None:
            self.made.put_nowait((choice, delta))

    def fail(self, error: Exception) -> None:
        """The call ends with an error."""
        self.close("error")
        self.made.put_nowait(error)

    async def deltas(self) -> AsyncIterator[tuple[Choice, Delta]]:
        """What can be shown of any choice, as it comes, until all are finished.

        Raises:
            ApiError: the engine failed, or the time is up.
        """
        unfinished = len(self.choices)
        try:
            while unfinished:
                made = await self.in_time(self.made.get())
                if isinstance(made, Exception):
                    raise made
                unfinished -= made[1].finish_reason is not None
                yield made
        except ApiError:
            self.close("error")
            raise
        finally:
            self.close()

    async def in_time(self, waiting: Any) -> Any:
        """The result of what is awaited, if it comes before the deadline.

        Raises:
            ApiError: it does not.
        """
        try:
            async with asyncio.timeout_at(self.deadline):
                return await waiting
        except TimeoutError as error:
            raise timed_out("the answer", self.limits.request_seconds) from error

    def close(self, reason: str = "abort") -> None:
        """Drop what is not finished, for this reason; a second call does nothing."""
        if not self.closed:
            self.closed = True
            unfinished = sum(choice.finish_reason is None for choice in self.choices)
            self.metrics.success[reason].inc(unfinished)
            self.ticket.close()
