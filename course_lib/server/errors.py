"""Errors in OpenAI's form: a status, and an object that says what is wrong and with which parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

# The parts of pydantic's places that are no names of fields: the members of a union.
UNION_MEMBER = re.compile(r"str|int|float|bool|none|.*[\[(].*|[A-Z].*")
# The beginnings of pydantic's messages, and what replaces them after "must be".
BEGINNINGS = {"Input should be ": "", "Value error, ": "", "String should match pattern ": "text of the pattern "}
SHUTTING_DOWN = "shutting_down"  # the code of an error
LONGEST, LONGEST_MESSAGE = 80, 500  # characters of a value that a message repeats, and of a message of the library


class Unsupported(ValueError):
    """A parameter that this server does not have."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name)
        self.name, self.value = name, value


class ApiError(Exception):
    """What went wrong with one request.

    Args:
        status: of HTTP, from 400.
        message: for a person; names the parameter, its value and what is allowed.
        param: the parameter alone, such as `messages[0].role`.
        code: for a program, such as "model_not_found".
        headers: more headers of the response.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None,
                 headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def to_dict(self) -> dict[str, Any]:
        """The body of the response, or the data of an event in a stream."""
        kind = "server_error" if self.status >= 500 else "rate_limit_error" if self.status == 429 else \
            "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The error as a response of its own; OpenAI's clients do not repeat what would fail again."""
        once = {"x-should-retry": "false"} if self.status == 408 or self.code == SHUTTING_DOWN else {}
        return JSONResponse(self.to_dict(), self.status, headers={**(self.headers or {}), **once})


async def respond(request: Request, error: ApiError) -> JSONResponse:
    """The handler that an app has for an `ApiError`."""
    return error.response()


async def respond_to_http(request: Request, error: Any) -> JSONResponse:
    """The handler for what the framework refuses: an unknown path (404), a wrong method (405)."""
    message = f"{request.method} {shorten(request.url.path)}: {error.detail}"
    code = "unknown_url" if error.status_code == 404 else "method_not_allowed" if error.status_code == 405 else None
    return ApiError(error.status_code, message, code=code, headers=error.headers).response()


async def respond_to_fault(request: Request, error: Exception) -> JSONResponse:
    """The handler for our own mistakes; the framework logs the traceback, the client learns nothing of the insides."""
    return ApiError(500, "the server made a mistake; its log says more", code="internal_error").response()


def shorten(value: Any) -> str:
    """A value as a message shows it.

    >>> shorten("abc")
    "'abc'"
    """
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def path_of(place: Sequence[str | int]) -> str:
    """Where in the body, as OpenAI writes it.

    >>> path_of(("messages", 0, "content", "list[TextPart]", 1, "type"))
    'messages[0].content[1].type'
    """
    names = [part for part in place if isinstance(part, int) or not UNION_MEMBER.fullmatch(part)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in names).lstrip(".")


def from_validation(error: ValidationError) -> ApiError:
    """What pydantic found, as one error: 400 for a body that is no JSON and for what is not supported, else 422."""
    found = error.errors(include_url=False)
    first = found[0]  # and of the members of a union, the one that went furthest
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first['ctx']['error']}", code="invalid_json")
    param = path_of(first["loc"])
    first = max((one for one in found if path_of(one["loc"]).startswith(param)), key=lambda one: len(one["loc"]))
    param = path_of(first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Unsupported):
        name = f"{param}.{cause.name}".lstrip(".")
        return ApiError(400, f"{name} = {shorten(cause.value)} is not supported by this server", param=name,
                        code="unsupported_parameter")
    if first["type"] == "missing":
        return ApiError(422, f"{param} is missing", param=param, code="missing_parameter")
    same = [other for other in found if path_of(other["loc"]) == param]
    allowed = " or ".join(dict.fromkeys(allowed_by(other["msg"]) for other in same))
    return ApiError(422, f"{param or 'body'} = {shorten(first['input'])} is not allowed: must be {allowed}",
                    param=param or None, code="invalid_type")


def allowed_by(message: str) -> str:
    """What one of pydantic's messages allows, as it goes on after "must be".

    >>> allowed_by("Input should be a valid string")
    'a valid string'
    """
    for beginning, instead in BEGINNINGS.items():
        if message.startswith(beginning):
            return instead + message.removeprefix(beginning)
    return message


def timed_out(what: str, seconds: float) -> ApiError:
    """The error for what took longer than it may: `the answer`, or `the body`."""
    return ApiError(408, f"{what} took longer than request_seconds = {seconds:g}", code="timeout")


def shutting_down() -> ApiError:
    """What a request hears that comes too late, or is not finished in time."""
    return ApiError(503, "the server is shutting down", code=SHUTTING_DOWN)


def from_range(error: ValueError, param: str | None = None) -> ApiError:
    """A `ValueError` of the library, which says `name = value is not allowed`, as an error about that parameter."""
    message = str(error)
    name, equals, _ = message.partition(" = ")
    name = name.removeprefix("len(").removesuffix(")")
    message = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
    return ApiError(400, message, param=param or (name if equals and name.isidentifier() else None),
                    code="invalid_value")
