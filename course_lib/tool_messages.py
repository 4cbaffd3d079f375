"""Messages with tools in OpenAI's form: to what a chat template expects, from what a model wrote, as a grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.config import StructuredOutputsParams, require
from course_lib.tool_calls import CLOSE, INVALID, OPEN, BadCall, ToolCall, checked_call


def to_message(content: str, calls: Sequence[ToolCall | BadCall], *, call_ids: Sequence[str]) -> dict[str, Any]:
    """An assistant's message in OpenAI's form: the arguments as JSON text, each call with an id of its own."""
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [to_call(call, call_id) for call, call_id in zip(calls, call_ids, strict=True)]
    return message


def to_call(call: ToolCall | BadCall, call_id: str) -> dict[str, Any]:
    """A call in a message. One that cannot be read is `INVALID` with its text, so that a result can belong to it."""
    name, arguments = (INVALID, {"text": call.text}) if isinstance(call, BadCall) else (call.name, call.arguments)
    return {"id": call_id, "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def for_template(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them: arguments that are JSON text become objects, content never None.

    Raises:
        ValueError: a call's arguments are not JSON text of an object; the error names the message.
    """
    result = []
    for number, message in enumerate(messages):
        message = {**message, "content": message.get("content") or ""}
        if message.get("tool_calls"):
            try:
                message["tool_calls"] = [{**call, "function": vars(checked_call(
                    {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}))}
                    for call in message["tool_calls"]]
            except (KeyError, TypeError) as error:
                raise ValueError(f"messages[{number}].tool_calls: each must have function.name and "
                                 "function.arguments") from error
            except ValueError as error:
                raise ValueError(f"messages[{number}].tool_calls: {error}") from error
        result.append(message)
    return result


def call_tag(tools: Sequence[Mapping[str, Any]], *, text: bool = False) -> StructuredOutputsParams:
    """The structure of a message that calls one of these tools, its arguments of the tool's types.

    Args:
        tools: OpenAI function schemas, at least one.
        text: whether the message may also be text without a call, as the model likes.

    Raises:
        ValueError: there is no tool.
    """
    require(len(tools) > 0, "tools", tools, "at least one")
    calls = [{"type": "tag", "begin": f"{OPEN}\n", "end": f"\n{CLOSE}",
              "content": {"type": "json_schema", "json_schema": call_schema(tool["function"])}} for tool in tools]
    others = [{"type": "any_text"}] if text else []
    form = {"type": "or", "elements": [*calls, *others]}
    return StructuredOutputsParams(structural_tag={"type": "structural_tag", "format": form})


def call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of what stands between the tags of a call."""
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {"type": "object", "required": ["name", "arguments"],
            "properties": {"name": {"const": function["name"]}, "arguments": parameters}}
