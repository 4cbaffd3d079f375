"""Tools for a model: a name, typed arguments, a function, a deadline; and two tools that `pocket` was trained with.

A call is a wish in a text that strangers may have written. So only the tools in the list exist, the arguments are
checked against the tool's schema before the function sees them, and whatever goes wrong becomes a short text, which the
model reads like any other result.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from course_lib.calculator import calculate
from course_lib.config import is_number, require
from course_lib.json_schema import check_pattern, check_value
from course_lib.tool_calls import INVALID, BadCall, ToolCall

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_RESULT = 1_000  # characters that a model gets to read
MAX_HANGING = 8  # calls of one function that have missed their deadline and still run
HANGING: dict[threading.Thread, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Tool:
    """Something that a model may call.

    Args:
        name: letters, digits, _ and -; not "invalid", under which calls that cannot be read are answered.
        description: for the model.
        parameters: a JSON schema of type object, of the kind that `course_lib.json_schema` reads.
        function: takes the arguments by name, and returns text, or what JSON can say. Not async, and called in a new
            thread each time.
        timeout: seconds after which a result does not count, > 0 and at most those that a thread can wait. Code that
            keeps Python's lock cannot be left before it ends: see `within_deadline`.
        untrusted: its results may be written by strangers, such as a web page or a mail.
        protected: it does not run once an untrusted result is in the conversation: the wish may be a stranger's.

    Raises:
        ValueError: one of them is not of this kind.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    timeout: float = 5.0
    untrusted: bool = False
    protected: bool = False

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and bool(NAME.fullmatch(self.name)) and self.name != INVALID, "name",
                self.name, f"1 to 64 letters, digits, _ and -, and not {INVALID}")
        check_pattern(self.parameters, f"{self.name}.parameters")
        require(self.parameters.get("type") == "object", f"{self.name}.parameters.type", self.parameters.get("type"),
                "object")
        require(callable(self.function), "function", self.function, "callable")
        require(not inspect.iscoroutinefunction(self.function), "function", self.function,
                "a plain function, not async; asyncio.run in a plain one runs a coroutine")
        require(is_number(self.timeout) and 0 < self.timeout <= threading.TIMEOUT_MAX, "timeout", self.timeout,
                f"in (0, {threading.TIMEOUT_MAX:g}]")

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's and Hugging Face's `tools` describe it."""
        return {"type": "function", "function": {"name": self.name, "description": self.description,
                                                 "parameters": dict(self.parameters)}}


@dataclass(frozen=True)
class ToolResult:
    """What a call came to: a text for the model, whether it reports an error, and how long the function took."""

    content: str
    is_error: bool = False
    seconds: float = 0.0


def by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools that exist.

    Raises:
        ValueError: two have one name.
    """
    names = [tool.name for tool in tools]
    require(len(set(names)) == len(names), "tools", names, "of different names")
    return dict(zip(names, tools))


def execute(call: ToolCall | BadCall, tools: Mapping[str, Tool], *, tainted: bool = False) -> ToolResult:
    """Run a call if it is valid, in every case with a result; never raises for what a model wrote or a tool does.

    Args:
        tools: all that exist, by name.
        tainted: whether the model has read an untrusted result, so that protected tools do not run.
    """
    if isinstance(call, BadCall):
        return failure(f"the call is not valid, {call.error}")
    if call.name not in tools:
        return failure(f"there is no tool {call.name[:64]!r}, only {', '.join(tools) or 'none'}")
    tool = tools[call.name]
    if tool.protected and tainted:
        return failure(f"{call.name} does not run after a result that others may have written")
    try:
        check_value(call.arguments, tool.parameters, "arguments")
    except ValueError as error:
        return failure(str(error))
    return within_deadline(tool, call.arguments)


def within_deadline(tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    """Run the function in a thread. A result that comes after the deadline is a failure.

    A function that waits, for a network or a lock, is left at its deadline. Python cannot stop its thread, though. It
    goes on, and may still do what it was about to do; nobody reads its result, and it does not keep the program from
    ending. While `MAX_HANGING` calls of a function hang, it is not called again.

    Code that keeps Python's lock, such as one long match of `re`, stops every thread, this one too: it is waited for,
    however long it takes, and fails then. Such work belongs into a process, as in `subprocess.run(..., timeout=...)`.
    """
    for thread in [thread for thread in tuple(HANGING) if not thread.is_alive()]:  # other threads may add to it
        HANGING.pop(thread, None)
    hanging = sum(function is tool.function for function in tuple(HANGING.values()))
    if hanging >= MAX_HANGING:
        return failure(f"{hanging} earlier calls of {tool.name} still run")
    outcome: list[ToolResult] = []
    thread = threading.Thread(target=lambda: outcome.append(call_function(tool, arguments)), daemon=True)
    started = time.perf_counter()
    thread.start()
    thread.join(tool.timeout)
    seconds, runs = time.perf_counter() - started, thread.is_alive()
    if runs:
        HANGING[thread] = tool.function
    if runs or seconds > tool.timeout:
        return failure(f"{tool.name} took longer than {tool.timeout:g} seconds", seconds)
    if not outcome:  # an error whose own text raises one
        return failure(f"{tool.name} failed, and cannot say why", seconds)
    return ToolResult(outcome[0].content, outcome[0].is_error, seconds)


def call_function(tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    """The function's result as bounded text; its errors too, whatever their kind."""
    try:
        value = tool.function(**deepcopy(arguments))  # what it does to them is not in the record
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("it is async, and a tool must be a plain function")
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
        return ToolResult(bounded(text))
    except BaseException as error:  # SystemExit as well: a tool must not end the program
        return failure(f"{tool.name} failed, {type(error).__name__}: {error}")


def failure(reason: str, seconds: float = 0.0) -> ToolResult:
    """An error for the model to read."""
    return ToolResult(bounded(f"error: {reason}"), True, seconds)


def bounded(text: str) -> str:
    """At most `MAX_RESULT` characters of a text, each of them whole."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_RESULT else f"{text[: MAX_RESULT - 3]}..."


def text_argument(name: str) -> dict[str, Any]:
    """The schema of a function with one string argument."""
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


CALCULATOR = Tool("calculator", "Work out an arithmetic expression.", text_argument("expression"), calculate)


def dictionary_tool(meanings: Mapping[str, str]) -> Tool:
    """A dictionary of these words, in capitals or not."""
    known = {word.lower(): meaning for word, meaning in meanings.items()}

    def look_up(word: str) -> str:
        require(word.strip().lower() in known, "word", word, "one that is in the dictionary")
        return known[word.strip().lower()]

    return Tool("dictionary", "Look up what a word means.", text_argument("word"), look_up)
