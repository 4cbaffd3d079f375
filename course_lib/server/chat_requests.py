"""What clients may ask for in a conversation: messages, tools, and what the answer must be."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from course_lib.config import StructuredOutputsParams, require
from course_lib.server.errors import ApiError, from_range
from course_lib.server.requests import Request, Strict
from course_lib.tool_messages import call_tag, for_template


class TextPart(Strict):
    """A piece of a message; OpenAI's other kinds, pictures and sounds, are not for a language model of text."""

    type: Literal["text"]
    text: str


class FunctionCall(Strict):
    """The function of a call that the assistant made; the arguments are JSON text."""

    name: str
    arguments: str


class MessageToolCall(Strict):
    """A call that the assistant made earlier in the conversation."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None  # where a client has gathered it from a stream


class Message(Strict):
    """One turn of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def is_complete(self) -> Self:
        """Refuse what the template would turn into an empty or a misplaced turn."""
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("a turn with content, or one of the assistant with tool_calls")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("a turn of the assistant where it has tool_calls")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("a turn with tool_call_id where the role is tool, else without")
        return self

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it: text in one piece, no empty fields."""
        message = self.model_dump(exclude_none=True)
        if isinstance(self.content, list):
            message["content"] = "".join(part.text for part in self.content)
        return message


class Function(Strict):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: Literal[False] | None = None


class Tool(Strict):
    """What the model may use; there are only functions."""

    type: Literal["function"]
    function: Function

    def for_template(self) -> dict[str, Any]:
        """With the parameters of a function that has none written out."""
        parameters = {"type": "object", "properties": {}, **self.function.parameters}
        function = {"name": self.function.name, "description": self.function.description, "parameters": parameters}
        return {"type": "function", "function": function}


class FunctionName(Strict):
    """One of the functions."""

    name: str


class NamedTool(Strict):
    """The one tool that the model has to call."""

    type: Literal["function"]
    function: FunctionName


class NamedSchema(Strict):
    """A JSON schema; its name and description are the client's."""

    name: str
    json_schema: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(Strict):
    """What the text must be, in OpenAI's form."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class ChatCompletionRequest(Request):
    """The body of POST /v1/chat/completions: a conversation to continue."""

    logprobs_field: ClassVar[str] = "top_logprobs"
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    response_format: ResponseFormat | None = None

    def wanted_tokens(self) -> int | None:
        """OpenAI's new name for it before the old."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def wanted_logprobs(self) -> int | None:
        """Here one says whether, and another how many."""
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, f"top_logprobs = {self.top_logprobs} is not allowed: must be left out unless "
                                f"logprobs is true", param="top_logprobs", code="invalid_value")
        return (self.top_logprobs or 0) if self.logprobs else None

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """The tools as the template gets them; none if the model is not to call any."""
        return None if self.tool_choice == "none" else [tool.for_template() for tool in self.tools or []] or None

    def constraints(self) -> list[StructuredOutputsParams]:
        """Also from `response_format`, and from a tool choice that leaves no choice."""
        found = super().constraints()
        if self.response_format is not None and self.response_format.type != "text":
            schema = self.response_format.json_schema
            require((schema is None) == (self.response_format.type == "json_object"), "response_format",
                    self.response_format.type, "json_object, or json_schema with the field json_schema")
            found.append(StructuredOutputsParams(json=schema.json_schema if schema else {"type": "object"}))
        if self.tool_choice not in (None, "none", "auto"):
            found.append(call_tag(self.callable_tools()))
        return found

    def callable_tools(self) -> list[dict[str, Any]]:
        """The tools of which the model has to call one."""
        tools = self.offered_tools() or []
        require(bool(tools), "tool_choice", self.tool_choice, "none or left out where there are no tools")
        if self.tool_choice == "required":
            return tools
        name, names = self.tool_choice.function.name, [tool["function"]["name"] for tool in tools]
        require(name in names, "tool_choice", name, f"one of {', '.join(names)}")
        return [tools[names.index(name)]]

    def conversation(self) -> list[dict[str, Any]]:
        """The messages as the template gets them.

        Raises:
            ApiError: the arguments of a call are not a JSON object.
        """
        try:
            return for_template([message.for_template() for message in self.messages])
        except ValueError as error:
            raise from_range(error, "messages") from error
