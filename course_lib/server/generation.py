"""One call of a client from its prompts to the last delta: submitted, read, measured, and dropped if nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.config import SamplingParams
from course_lib.server.choice import Choice, Delta
from course_lib.server.engine_thread import Arrival, EngineThread
from course_lib.server.errors import ApiError
from course_lib.server.limits import Limits
from course_lib.server.metrics import Metrics
from course_lib.server.requests import Request


@dataclass(frozen=True)
class Job:
    """What a request asks of the engine: one prompt and one setting for each choice.

    Attributes:
        prompts: ids of the prompts; `n` choices follow each.
        params: of the choices, as many as prompts times n.
        tools: read tool calls in what the model writes.
    """

    prompts: list[list[int]]
    params: list[SamplingParams]
    tools: bool = False

    @property
    def n(self) -> int:
        """Choices of each prompt."""
        return len(self.params) // len(self.prompts)


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
    """

    def __init__(self, job: Job, tokenizer: Any, thread: EngineThread, metrics: Metrics, limits: Limits,
                 deadline: float) -> None:
        self.job, self.metrics, self.limits, self.deadline = job, metrics, limits, deadline
        self.choices = [Choice(i, tokenizer, params, tools=job.tools) for i, params in enumerate(job.params)]
        self.last_at: dict[int, float] = {}
        self.ticket = thread.submit([(job.prompts[i // job.n], params) for i, params in enumerate(job.params)])

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
            self.close("abort")
            raise

    async def deltas(self) -> AsyncIterator[tuple[Choice, Delta]]:
        """What can be shown of any choice, as it comes, until all are finished.

        Raises:
            ApiError: the engine failed, or the time is up.
        """
        reason = "abort"
        try:
            while self.ticket.running:
                arrival = await self.in_time(self.ticket.next())
                choice = self.choices[arrival.index]
                if choice.finish_reason is not None:
                    continue  # the engine had gone on before it heard of a stop string
                self.measure(arrival)
                delta = choice.push(arrival.output.step, arrival.output.finish_reason)
                if choice.finish_reason is not None:
                    self.finish(choice, arrival.at)
                if delta is not None:
                    yield choice, delta
        except ApiError:
            reason = "error"
            raise
        finally:
            self.close(reason)

    async def in_time(self, waiting: Any) -> Any:
        """The result of what is awaited, if it comes before the deadline.

        Raises:
            ApiError: it does not.
        """
        try:
            async with asyncio.timeout_at(self.deadline):
                return await waiting
        except TimeoutError as error:
            raise ApiError(408, f"the answer took longer than request_seconds = {self.limits.request_seconds:g}",
                           code="timeout") from error

    def measure(self, arrival: Arrival) -> None:
        """Count a token, and how long it took: a prompt once for each choice."""
        last = self.last_at.get(arrival.index)
        if last is None:
            self.metrics.time_to_first_token.observe(arrival.at - self.ticket.submitted_at)
            self.metrics.prompt_tokens.inc(len(self.job.prompts[arrival.index // self.job.n]))
        else:
            self.metrics.inter_token_latency.observe(arrival.at - last)
        self.last_at[arrival.index] = arrival.at
        self.metrics.generation_tokens.inc()

    def finish(self, choice: Choice, at: float) -> None:
        """A choice is complete; if by a stop string, the engine does not know yet."""
        self.ticket.finish(choice.index)
        self.metrics.e2e_latency.observe(at - self.ticket.submitted_at)
        self.metrics.success["length" if choice.finish_reason == "length" else "stop"].inc()

    def close(self, reason: str = "abort") -> None:
        """Drop what is not finished."""
        if self.ticket.running:
            self.metrics.success[reason].inc(len(self.ticket.running))
        self.ticket.close()


def check_lengths(prompts: Sequence[Sequence[int]], body: Request, context: int, limits: Limits) -> int:
    """The new tokens that each choice may have: as many as the client asked for, or as fit after the longest prompt.

    Args:
        prompts: ids.
        body: the request, which says how many, and in which field.
        context: positions of the model.

    Raises:
        ApiError: a prompt, or what is to follow it, is too long.
    """
    longest, wanted, name = max(map(len, prompts)), body.wanted_tokens(), body.tokens_field
    most = min(context - 1, limits.max_prompt_tokens or context)
    if longest > most:
        raise ApiError(400, f"a prompt of {longest} tokens is not allowed: must be at most {most} (the context holds "
                            f"{context}, prompt and answer together)", param=body.prompt_field,
                       code="context_length_exceeded")
    room = min(context - longest, limits.max_tokens or context)
    if wanted is not None and wanted > room:
        raise ApiError(400, f"{name} = {wanted} is not allowed: must be in [1, {room}] after a prompt of {longest} "
                            f"tokens", param=name, code="context_length_exceeded")
    return room if wanted is None else wanted
