"""What clients may ask for in a conversation: messages, tools, and what the answer must be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from course_lib.config import StructuredOutputsParams, require
from course_lib.json_schema import schema_pattern
from course_lib.server.errors import ApiError
from course_lib.server.requests import Request, Shown, Strict, about
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
    """One turn of the conversation; "developer" is OpenAI's newer name of "system"."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Shown[TextPart] | None = None
    name: str | None = None
    tool_calls: Shown[MessageToolCall] | None = None
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
        """As chat templates expect it: text in one piece, no empty fields, a role that they know."""
        message = self.model_dump(exclude_none=True)
        if self.role == "developer":
            message["role"] = "system"
        if isinstance(self.content, list):
            message["content"] = "".join(part.text for part in self.content)
        return message


def at_least_one(messages: list[Message]) -> list[Message]:
    """Refuse a conversation that has not begun."""
    if not messages:
        raise ValueError("a list of at least one message")
    return messages


def arguments_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """Refuse a schema that is not of named arguments; templates look into it."""
    if schema and (schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), dict)):
        raise ValueError("a JSON schema of type object, whose properties are an object")
    return schema


class Function(Strict):
    """A function that the model may call.

    Attributes:
        parameters: a JSON schema.
        strict: where the model has the choice, it writes text or one call, whose arguments obey the schema.
    """

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: Annotated[dict[str, Any] | None, AfterValidator(arguments_schema)] = None
    strict: bool | None = None


class Tool(Strict):
    """What the model may use; there are only functions."""

    type: Literal["function"]
    function: Function

    def for_template(self) -> dict[str, Any]:
        """With the parameters of a function that has none written out."""
        parameters = {"type": "object", "properties": {}, **(self.function.parameters or {})}
        function = {"name": self.function.name, "description": self.function.description or "",
                    "parameters": parameters}
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

    prompt_field: ClassVar[str] = "messages"
    logprobs_field: ClassVar[str] = "top_logprobs"
    messages: Annotated[Shown[Message], AfterValidator(at_least_one)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Shown[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None  # false: one call at most
    response_format: ResponseFormat | None = None

    @property
    def tokens_field(self) -> str:
        """OpenAI's new name for it before the old."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    def wanted_logprobs(self) -> int | None:
        """Here one says whether, and another how many."""
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, f"top_logprobs = {self.top_logprobs} is not allowed: must be left out unless "
                                f"logprobs is true", param="top_logprobs", code="invalid_value")
        return (self.top_logprobs or 0) if self.logprobs else None

    def count_prompts(self) -> int:
        """A conversation is one."""
        return 1

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """None as well if the model is not to call any."""
        return None if self.tool_choice == "none" else [tool.for_template() for tool in self.tools or []] or None

    def constraints(self) -> dict[str, StructuredOutputsParams]:
        """Also from `response_format`, and from tools of which one must be called, or may be called only so."""
        found = super().constraints()
        kind = self.response_format.type if self.response_format is not None else "text"
        if kind == "json_object":
            found["response_format"] = StructuredOutputsParams(json_object=True)
        if kind == "json_schema":
            schema = self.response_format.json_schema
            with about("response_format"):
                require(schema is not None, "response_format.json_schema", schema, "given where type is json_schema")
                found["response_format"] = StructuredOutputsParams(json=schema.json_schema)
        if self.tool_choice not in (None, "none", "auto"):
            with about("tool_choice"):
                found["tool_choice"] = self.call_of(self.callable_tools())
        elif self.offered_tools() and (self.parallel_tool_calls is False or any(t.function.strict for t in self.tools)):
            found["tools"] = self.call_of(self.tools, text=True)
        return found

    def callable_tools(self) -> list[Tool]:
        """The tools of which the model has to call one.

        Raises:
            ValueError: there is none, or none of that name.
        """
        tools = self.tools or []
        require(bool(tools), "tool_choice", self.tool_choice, "none or left out where there are no tools")
        if self.tool_choice == "required":
            return tools
        name, names = self.tool_choice.function.name, [tool.function.name for tool in tools]
        require(name in names, "tool_choice", name, f"one of {', '.join(names)}")
        return [tools[names.index(name)]]

    def call_of(self, tools: Iterable[Tool], *, text: bool = False) -> StructuredOutputsParams:
        """A call of one of these tools, or with `text` also text without a call."""
        return call_tag([tool.for_template() for tool in tools], text=text)

    def find_fault(self, field: str) -> None:
        """A tool whose schema holds what no grammar here can say is named by its place."""
        if field not in ("tools", "tool_choice"):
            return
        for tool in self.tools if field == "tools" else self.callable_tools():
            path = f"tools[{self.tools.index(tool)}].function.parameters"
            with about(path):
                schema_pattern(tool.for_template()["function"]["parameters"], path)

    def prompts(self) -> list[list[dict[str, Any]]]:
        """The one conversation, as the template gets it; the arguments of its calls have to be JSON objects."""
        with about("messages"):
            return [for_template([message.for_template() for message in self.messages])]
