"""How much one client may ask for, and who may ask at all."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from dataclasses import dataclass, fields
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from course_lib.config import is_int, is_number, require
from course_lib.server.errors import ApiError, shorten

# What anybody may read: nothing of a model or of a client.
OPEN_PATHS = ("/", "/page.css", "/page.js", "/favicon.ico", "/health")


@dataclass(frozen=True)
class Limits:
    """What is refused, and with which status.

    Args:
        max_body_bytes: of a request (413).
        max_prompt_tokens: of one prompt (400); None: as many as the context holds. More messages, tools or characters
            than could make this number of tokens are refused before anything else is done.
        max_tokens: new tokens of one choice (400); None: as many as the context holds.
        max_choices: prompts times `n` of a request (400), and never more than may run and wait.
        max_queue: choices that may wait, or be prepared, beside those that the engine runs (429).
        request_seconds: for the body of a request, and once more from its last byte to the last of its answer (408).

    Raises:
        ValueError: one is not positive; `max_queue` may be 0.
    """

    max_body_bytes: int = 2**20
    max_prompt_tokens: int | None = None
    max_tokens: int | None = None
    max_choices: int = 16
    max_queue: int = 64
    request_seconds: float = 300.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, lowest = getattr(self, field.name), 0 if field.name == "max_queue" else 1
            if field.name == "request_seconds":
                require(is_number(value) and value > 0, field.name, value, "a finite number > 0")
            elif value is not None or field.default is not None:
                require(is_int(value) and value >= lowest, field.name, value, f"an integer >= {lowest}")


class Guard:
    """Lets through what may be let through: the right host, the right key, not too large a body, not too many at once.

    Args:
        app: what is guarded.
        api_key: None: everybody may ask.
        local: refuse names of other hosts. A page in the reader's browser can have its own name point to this
            machine and so read what answers here (DNS rebinding); the name in its requests gives it away.
        max_body_bytes: of a request.
        max_requests: that are answered at a time, from the first byte of a body to the last of the answer; more get
            503. What `OPEN_PATHS` answer, they answer at once and always: a busy server is not a sick one.
    """

    def __init__(self, app: ASGIApp, *, api_key: str | None, local: bool, max_body_bytes: int,
                 max_requests: int) -> None:
        self.app, self.local, self.max_body_bytes, self.max_requests = app, local, max_body_bytes, max_requests
        self.requests = 0
        self.digest = None if api_key is None else digest(api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self.check(scope)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        self.requests += 1
        try:
            await self.app(scope, self.limited(receive), send)
        finally:
            self.requests -= 1

    def check(self, scope: Scope) -> None:
        """Look at the head of a request.

        Raises:
            ApiError: another host (403), a wrong key (401), another kind of body (415), too large a body (413), too
                many requests at a time (503).
        """
        headers = Headers(scope=scope)
        if self.local and not is_own_name(host_name(headers.get("host", ""))):
            raise ApiError(403, f"host = {shorten(headers.get('host'))} is not allowed: must be localhost or an "
                                "address of this machine alone, such as 127.0.0.1 or [::1]", code="unknown_host")
        if self.digest and scope["path"] not in OPEN_PATHS and not self.knows(headers.get("authorization", "")):
            raise ApiError(401, "the API key is missing or wrong: it goes into the header Authorization: Bearer KEY",
                           code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":  # other kinds a strange page may send without asking the browser's leave
                raise ApiError(415, f"content-type = {shorten(kind)} is not allowed: must be application/json",
                               code="unsupported_media_type")
            length = headers.get("content-length", "0")
            if length.isdecimal() and int(length) > self.max_body_bytes:
                raise self.too_large(length)
        if self.requests >= self.max_requests and scope["path"] not in OPEN_PATHS:
            raise ApiError(503, f"{self.requests} requests are being answered: at most {self.max_requests} can be",
                           code="overloaded", headers={"Retry-After": "1"})

    def knows(self, authorization: str) -> bool:
        """Whether the header brings the key; the time that this takes says nothing about it."""
        scheme, _, key = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(digest(key.strip()), self.digest)

    def limited(self, receive: Receive) -> Receive:
        """`receive`, but for a body whose size no header has told."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.max_body_bytes:
                raise self.too_large(f"{total} or more")
            return message

        return counted

    def too_large(self, size: str) -> ApiError:
        """The error for a body of this size."""
        return ApiError(413, f"a body of {size} bytes is not allowed: must be at most {self.max_body_bytes}",
                        code="body_too_large")


def digest(key: str) -> bytes:
    """Of the same length for every key, so that a comparison does not tell how long the right one is."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.lower() if host.count(":") > 1 else host.partition(":")[0].lower()


def is_own_name(name: str) -> bool:
    """Whether a name means this machine wherever it is said: no page of another site has it.

    >>> [is_own_name(name) for name in ("localhost", "127.0.1.1", "::1", "192.0.2.1", "localhost.example")]
    [True, True, True, False, False]
    """
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:  # a name, and not an address
        return False


def is_loopback(host: str) -> bool:
    """Whether every address of this name is of this machine alone.

    Raises:
        ValueError: the name has no address.
    """
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)} if host else {"0.0.0.0"}
    except (socket.gaierror, UnicodeError) as error:
        raise ValueError(f"host = {host!r} is not allowed: must be an address or a name of this machine") from error
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def check_access(host: str, api_key: Any) -> None:
    """Refuse to answer the whole network without a key.

    Raises:
        ValueError: the key is missing beyond loopback, or cannot stand in a header.
    """
    ok = api_key is None or (isinstance(api_key, str) and api_key.isascii() and api_key.isprintable()
                             and api_key.split() == [api_key])
    if not ok:  # and the message does not repeat it
        raise ValueError("this api_key is not allowed: must be printable ASCII without spaces, at least one character")
    if api_key is None and not is_loopback(host):
        raise ValueError(f"host = {host!r} is not allowed without an API key: others than this machine could ask")
