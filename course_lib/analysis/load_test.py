"""`python -m course_lib load-test`: many clients at once against any OpenAI-compatible server, each reading a stream.

Before, every prompt is answered once alone. At temperature 0 each client then knows what its text must be: one that
gets another's text, or part of it, is seen. (Two logits that are nearly equal may change places in a batch: such an
answer differs from some token on. On the shipped model none is known.)
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx

from course_lib.analysis.acceptance import BEGINNINGS, QUESTIONS, STORIES
from course_lib.analysis.stalls import percentile
from course_lib.command_line import Parser, UsageError, in_range
from course_lib.server.command import KEY_VARIABLE
from course_lib.server.limits import is_own_name

PROMPTS = (*BEGINNINGS, *STORIES, *QUESTIONS)
SHOWN = (50, 90, 99)  # percentiles
TIMEOUT = httpx.Timeout(60.0)
# A server's memory may be this much higher at the end than after a quarter of the time, whichever is more. A heap that
# settles stays below both. A server that kept the cache of each answer (`pocket`: 5 kB a token, 64 tokens) would be
# 32 MB higher after a hundred answers.
GROWTH_BYTES, GROWTH_SHARE = 32_000_000, 0.05
SECONDS_TO_JUDGE = 20  # a shorter test sees a server that fills its buffers for the first time


@dataclass
class Answer:
    """What one client got for one request.

    Attributes:
        prompt: what it asked.
        text: what came.
        times: seconds from sending the request to each piece of text.
        done: whether the stream ended as it should.
        error: what went wrong; None: nothing.
    """

    prompt: str
    text: str = ""
    times: list[float] = field(default_factory=list)
    done: bool = False
    error: str | None = None


@dataclass
class Report:
    """What all clients saw.

    Attributes:
        answers: every request that was sent.
        expected: the answer to each prompt, alone.
        seconds: from the first request to the last answer.
        memory: resident bytes of the server, second by second, where its process is known.
    """

    answers: list[Answer]
    expected: Mapping[str, str]
    seconds: float
    memory: list[int] = field(default_factory=list)

    @property
    def errors(self) -> list[Answer]:
        """Answers that ended with an error."""
        return [answer for answer in self.answers if answer.error]

    @property
    def lost(self) -> list[Answer]:
        """Streams that ended too early, without an error."""
        return [answer for answer in self.answers if not answer.done and not answer.error]

    @property
    def different(self) -> list[Answer]:
        """Complete answers with another text than alone."""
        return [answer for answer in self.answers
                if answer.done and not answer.error and answer.text != self.expected[answer.prompt]]

    @property
    def ok(self) -> bool:
        """Whether there were answers, all were complete and right, and no growth of memory is known."""
        return bool(self.answers) and not (self.errors or self.lost or self.different or self.grows)

    @property
    def settled(self) -> int:
        """Resident bytes of the server after a quarter of the time, when its caches are warm."""
        return self.memory[len(self.memory) // 4]

    @property
    def allowed_growth(self) -> float:
        """Bytes that the memory may have grown since then."""
        return max(GROWTH_BYTES, GROWTH_SHARE * self.settled)

    @property
    def grows(self) -> bool | None:
        """Whether the memory grows more than that; None: it is not known, or not for `SECONDS_TO_JUDGE`."""
        if len(self.memory) < SECONDS_TO_JUDGE:
            return None
        return self.memory[-1] - self.settled > self.allowed_growth

    def lines(self) -> Iterator[str]:
        """The report, as it is printed."""
        pieces = sum(len(answer.times) for answer in self.answers)
        yield (f"{len(self.answers)} answers in {self.seconds:.1f} s: {len(self.answers) / self.seconds:.1f} answers "
               f"and {pieces / self.seconds:.0f} pieces of text per second")
        yield f"{len(self.errors)} errors, {len(self.lost)} lost, {len(self.different)} with another text than alone"
        begun = [answer.times for answer in self.answers if answer.times]
        for name, values in (("first piece", [times[0] for times in begun]),
                             ("gap", [b - a for times in begun for a, b in pairwise(times)])):
            if values:
                shown = ", ".join(f"{1000 * percentile(values, p):.0f} ms ({p} %)" for p in SHOWN)
                yield f"{name}: {shown}"
        if self.memory:
            last, allowed = self.memory[-1], f"the {self.allowed_growth / 1e6:.0f} MB that are allowed"
            verdict = {None: "too short a test to judge", True: f"MORE than {allowed}", False: f"within {allowed}"}
            yield (f"memory of the server: {last / 1e6:.0f} MB, {(last - self.settled) / 1e6:+.0f} MB since a quarter "
                   f"of the time ({verdict[self.grows]}), at most {max(self.memory) / 1e6:.0f} MB")
        for answer in [*self.errors, *self.lost, *self.different][:3]:
            yield f"{answer.prompt!r}: {answer.error or answer.text!r}, alone {self.expected[answer.prompt]!r}"


async def ask(client: httpx.AsyncClient, model: str, prompt: str, max_tokens: int) -> Answer:
    """One streamed completion at temperature 0."""
    answer, sent = Answer(prompt), time.perf_counter()
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True}
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                said = (await response.aread())[:200].decode(errors="replace")
                answer.error = f"status {response.status_code}: {said}"
                return answer
            async for line in response.aiter_lines():
                take_line(answer, line, time.perf_counter() - sent)
    except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:  # or no event of OpenAI's
        answer.error = f"{type(error).__name__}: {error}"
    return answer


def take_line(answer: Answer, line: str, seconds: float) -> None:
    """Add one line of the event stream."""
    if not line.startswith("data: "):
        return
    data = line.removeprefix("data: ")
    if data == "[DONE]":
        answer.done = True
        return
    event = json.loads(data)
    if "error" in event:
        answer.error = str(event["error"])
    for choice in event.get("choices", ()):
        if choice["text"]:
            answer.text += choice["text"]
            answer.times.append(seconds)


async def load_test(url: str, *, clients: int = 32, seconds: float = 60, max_tokens: int = 64,
                    prompts: Sequence[str] = PROMPTS, api_key: str | None = None, pid: int | None = None) -> Report:
    """Let clients ask one thing after the other until the time is over; what has begun then is read to its end.

    Args:
        url: of the server, without /v1.
        clients: at the same time.
        seconds: for how long new requests are sent.
        max_tokens: of an answer.
        prompts: each client begins with another one.
        api_key: if the server wants one.
        pid: of the server's process, to watch its memory; on Linux.

    Raises:
        ConnectionError: the server does not answer as one of OpenAI's kind.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=clients + 1, max_keepalive_connections=clients + 1)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT, limits=limits) as client:
        model = await first_model(client)
        alone = [await ask(client, model, prompt, max_tokens) for prompt in dict.fromkeys(prompts)]
        for answer in alone:
            if answer.error or not answer.done:
                raise ConnectionError(f"{answer.prompt!r} alone: {answer.error or 'the stream ended too early'}")
        answers: list[Answer] = []
        started = time.perf_counter()

        async def reader(first: int) -> None:
            i = first
            while time.perf_counter() - started < seconds:
                answers.append(await ask(client, model, prompts[i % len(prompts)], max_tokens))
                i += 1

        memory: list[int] = []
        watcher = asyncio.create_task(watch(pid, memory))
        try:
            await asyncio.gather(*(reader(i) for i in range(clients)))
        finally:
            watcher.cancel()
        return Report(answers, {answer.prompt: answer.text for answer in alone}, time.perf_counter() - started, memory)


async def first_model(client: httpx.AsyncClient) -> str:
    """The name under which the server knows its model."""
    try:
        response = await client.get("/v1/models")
        return response.raise_for_status().json()["data"][0]["id"]
    except (httpx.HTTPError, ValueError, LookupError) as error:
        raise ConnectionError(f"no models at {client.base_url}v1/models: {type(error).__name__}: {error}") from error


async def watch(pid: int | None, memory: list[int]) -> None:
    """Note a process's resident memory every second, as long as it lives."""
    while pid is not None and (size := resident_bytes(pid)):
        memory.append(size)
        await asyncio.sleep(1)


def resident_bytes(pid: int) -> int:
    """Memory that a process really has; 0 where that cannot be known."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def pid_of(url: str) -> int | None:
    """The process that listens at a URL; None: it is not on this machine, not ours to see, or this is not Linux."""
    address = httpx.URL(url)
    port = address.port or {"http": 80, "https": 443}.get(address.scheme)
    sockets = {f"socket:[{inode}]" for inode in listening(port)} if is_own_name(address.host) else set()
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        if not sockets.isdisjoint(open_files(process)):
            return int(process.name)
    return None


def open_files(process: Path) -> Iterator[str]:
    """What a process of Linux has open, as far as we may see it."""
    with suppress(OSError):  # another user's, or over by now
        for link in (process / "fd").iterdir():
            with suppress(OSError):  # closed by now
                yield os.readlink(link)


def listening(port: int | None) -> Iterator[str]:
    """The inodes of the TCP sockets that listen on a port, as Linux lists them."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                yield inode


def main(argv: Sequence[str] | None = None) -> int:
    """Many clients at once against an OpenAI-compatible server; status 1 if an answer was wrong, lost or an error, or
    if the server's memory grew."""
    parser = Parser(prog="python -m course_lib load-test", description=main.__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="without /v1 (default: %(default)s)")
    parser.add_argument("--clients", type=in_range(1, 10_000), default=32, help="at a time (default: %(default)s)")
    parser.add_argument("--seconds", type=in_range(0.1, kind=float), default=60.0, help="(default: %(default)s)")
    parser.add_argument("--max-tokens", type=in_range(1), default=64, help="of an answer (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get(KEY_VARIABLE) or None,
                        help=f"if the server wants one (default: {KEY_VARIABLE})")
    parser.add_argument("--pid", type=in_range(1), help="of the server, to watch its memory on Linux "
                        "(default: whatever listens at the URL on this machine)")
    args = parser.parse_args(argv)
    try:
        report = asyncio.run(load_test(args.url, clients=args.clients, seconds=args.seconds, max_tokens=args.max_tokens,
                                       api_key=args.api_key, pid=args.pid or pid_of(args.url)))
    except (ConnectionError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise UsageError(str(error)) from error
    for line in report.lines():
        print(line, flush=True)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
