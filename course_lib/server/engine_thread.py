"""The thread that owns the engine: commands go in by a queue, tokens come out into the event loop.

Nobody else touches the engine, so nothing in it needs a lock. Between two passes the thread obeys what has arrived
(add a request, drop one), so that a client that has gone away costs one more pass at most; without requests it sleeps.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from course_lib.config import SamplingParams
from course_lib.engine import Engine, EngineOutput
from course_lib.server.errors import ApiError, from_range, shutting_down

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrival:
    """A token of one of a ticket's requests: which, what the engine said, and when (of `time.perf_counter`)."""

    index: int
    output: EngineOutput
    at: float


@dataclass(eq=False)
class Ticket:
    """The requests of one client's call; every method runs in the event loop.

    Attributes:
        running: the requests that the engine has not finished, each with its index.
        receive: takes what comes after the acceptance, at once, whether anybody waits for it or not.
        submitted_at: when, of `time.perf_counter`.
        accepted: done when the engine has taken all requests; an `ApiError` if it refuses one.
    """

    thread: EngineThread
    running: dict[str, int]
    receive: Callable[[Arrival | ApiError], None]
    submitted_at: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.accepted: asyncio.Future[None] = self.thread.loop.create_future()

    def finish(self, index: int) -> None:
        """This request needs no more tokens: the engine drops it if it has not ended by itself."""
        for request_id in [key for key, i in self.running.items() if i == index]:
            self.ended(request_id)
            self.thread.drop(request_id)

    def close(self) -> None:
        """No request needs any more tokens."""
        for index in list(self.running.values()):
            self.finish(index)

    def ended(self, request_id: str) -> None:
        """The engine is done with this request: its place is free, though its reader may still have to read."""
        if self.running.pop(request_id, None) is not None:
            self.thread.in_flight -= 1

    def deliver(self, result: Arrival | ApiError | None) -> None:
        """Take what the engine's thread has for this call; None: the requests are accepted."""
        if isinstance(result, Arrival) and result.output.finish_reason is not None:
            self.ended(result.output.request_id)
        if self.accepted.done():
            if result is not None:
                self.receive(result)
        elif isinstance(result, ApiError):
            self.accepted.set_exception(result)
        else:
            self.accepted.set_result(None)


class EngineThread:
    """Runs an engine for the coroutines of one event loop.

    Args:
        make_engine: gives an engine without requests: at the start, and in place of one that has raised an exception.

    Attributes:
        max_num_seqs: requests that the engine runs at a time.
        stats: the engine's numbers after its last pass or command.
        in_flight: requests that were submitted and that the engine has not finished.
        failures: engines that raised an exception.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self.make_engine = make_engine
        self.engine: Engine | None = make_engine()
        self.max_num_seqs, self.stats = self.engine.scheduler.max_num_seqs, self.engine.stats()
        self.in_flight = self.failures = 0
        self.closed, self.lock = False, threading.Lock()  # so that no command follows the last one
        self.commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.tickets: dict[str, tuple[Ticket, int]] = {}  # of the requests that the engine has; its thread's own
        self.numbers = itertools.count()
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to work for this loop."""
        self.loop = loop
        self.thread.start()

    def stop(self) -> None:
        """End the thread and let go of the engine; requests that it has fail with 503. A second call does nothing."""
        with self.lock:
            self.closed = True
            self.commands.put(lambda: None)  # wakes it
        if self.thread.ident is not None:
            self.thread.join()

    def submit(self, requests: Sequence[tuple[Sequence[int], SamplingParams]],
               receive: Callable[[Arrival | ApiError], None]) -> Ticket:
        """Hand requests to the engine; call it in the event loop.

        Args:
            requests: prompt ids and settings of each; the ticket numbers them in this order.
            receive: as for `Ticket`.

        Raises:
            ApiError: the engine was stopped.
        """
        ids = [f"{next(self.numbers)}" for _ in requests]
        ticket = Ticket(self, {request_id: index for index, request_id in enumerate(ids)}, receive)
        with self.lock:
            if self.closed:
                raise shutting_down()
            self.commands.put(lambda: self._add(ticket, dict(zip(ids, requests))))
        self.in_flight += len(ids)
        return ticket

    def drop(self, request_id: str) -> None:
        """Forget a request, whether the engine has it or not; call it in the event loop."""
        self.commands.put(lambda: self._drop(request_id))

    # What follows runs in the engine's thread.

    def _run(self) -> None:
        try:
            while not self.closed:
                if not self._turn():
                    self._replace()
        except BaseException as error:
            LOG.critical("there is no engine any more: no request can be answered", exc_info=error)
        finally:
            with self.lock:
                self.closed = True
            self._obey(wait=False)
            self._fail(shutting_down())
            self.engine = None  # and with it the memory of its pages

    def _turn(self) -> bool:
        """Obey, and make a pass if there is something to do; False if the engine has failed."""
        try:
            self._obey(wait=not self.engine.has_unfinished_requests())
            if self.engine.has_unfinished_requests():
                self._step()
            self.stats = self.engine.stats()
            return True
        except BaseException as error:  # whatever it is, Rust's panics included: the clients must hear of it
            LOG.error("the engine failed; its requests end, a fresh one goes on", exc_info=error)
            return False  # and with the traceback goes what held the engine

    def _obey(self, *, wait: bool) -> None:
        """Execute the commands that have arrived; wait for one if there is nothing else to do."""
        if wait:
            self.commands.get()()
        while not self.commands.empty():  # one by one: those after one that fails are for the next engine
            self.commands.get()()

    def _step(self) -> None:
        outputs = self.engine.step()
        now, results = time.perf_counter(), []
        for output in outputs:
            ticket, index = self.tickets[output.request_id]
            results.append((ticket, Arrival(index, output, now) if output.error is None else failed(output.error)))
            if output.finish_reason is not None:
                del self.tickets[output.request_id]
        self._publish(results)

    def _replace(self) -> None:
        self.failures += 1
        self._fail(ApiError(500, "the engine failed, at this request or at one beside it; the server's log says more",
                            code="engine_error"))
        self.engine = None  # first: two at a time may be more than fits into memory, and packing the weights is for one
        self.engine = self.make_engine()

    def _add(self, ticket: Ticket, requests: dict[str, tuple[Sequence[int], SamplingParams]]) -> None:
        for index, request_id in enumerate(requests):
            self.tickets[request_id] = ticket, index
        if self.closed:
            return  # and all tickets are told
        try:
            for request_id, (prompt_ids, params) in requests.items():
                self.engine.add_request(request_id, prompt_ids, params)
        except ValueError as error:
            for request_id in requests:
                self._drop(request_id)
            self._publish([(ticket, from_range(error))])
        else:
            self._publish([(ticket, None)])

    def _drop(self, request_id: str) -> None:
        if self.tickets.pop(request_id, None) is not None and self.engine is not None:
            self.engine.abort_request(request_id)

    def _fail(self, error: ApiError) -> None:
        tickets = dict.fromkeys(ticket for ticket, _ in self.tickets.values())
        self.tickets.clear()
        self._publish([(ticket, error) for ticket in tickets])

    def _publish(self, results: list[tuple[Ticket, Arrival | ApiError | None]]) -> None:
        """Wake the event loop once for all that a pass has brought."""
        if results and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(deliver_all, results)


def deliver_all(results: list[tuple[Ticket, Arrival | ApiError | None]]) -> None:
    """In the event loop: give each ticket what is for it."""
    for ticket, result in results:
        ticket.deliver(result)


def failed(error: str) -> ApiError:
    """What a client is told whose request can get no more tokens."""
    LOG.error("a request has failed; the others go on: %s", error)
    return ApiError(500, f"the answer cannot go on: {error}", code="request_error")
