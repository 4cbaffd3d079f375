"""What clients may ask for in a conversation: messages, tools, and what the answer must be."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from course_lib.config import StructuredOutputsParams, require
from course_lib.server.errors import ApiError
from course_lib.server.requests import Listed, Request, Strict, about
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
    content: str | Listed[TextPart] | None = None
    name: str | None = None
    tool_calls: Listed[MessageToolCall] | None = None
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
    """What the text must be, in OpenAI's form; any JSON, "json_object", is nothing that an automaton could read."""

    type: Literal["text", "json_schema"]
    json_schema: NamedSchema | None = None


class ChatCompletionRequest(Request):
    """The body of POST /v1/chat/completions: a conversation to continue."""

    prompt_field: ClassVar[str] = "messages"
    logprobs_field: ClassVar[str] = "top_logprobs"
    messages: Annotated[Listed[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Listed[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
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

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """None as well if the model is not to call any."""
        return None if self.tool_choice == "none" else [tool.for_template() for tool in self.tools or []] or None

    def constraints(self) -> dict[str, StructuredOutputsParams]:
        """Also from `response_format`, and from a tool choice that leaves no choice."""
        found = super().constraints()
        if self.response_format is not None and self.response_format.type != "text":
            schema = self.response_format.json_schema
            with about("response_format"):
                require(schema is not None, "response_format.json_schema", schema, "given where type is json_schema")
                found["response_format"] = StructuredOutputsParams(json=schema.json_schema)
        if self.tool_choice not in (None, "none", "auto"):
            with about("tool_choice"):
                found["tool_choice"] = call_tag(self.callable_tools())
        return found

    def callable_tools(self) -> list[dict[str, Any]]:
        """The tools of which the model has to call one.

        Raises:
            ValueError: there is none, or none of that name.
        """
        tools = self.offered_tools() or []
        require(bool(tools), "tool_choice", self.tool_choice, "none or left out where there are no tools")
        if self.tool_choice == "required":
            return tools
        name, names = self.tool_choice.function.name, [tool["function"]["name"] for tool in tools]
        require(name in names, "tool_choice", name, f"one of {', '.join(names)}")
        return [tools[names.index(name)]]

    def prompts(self) -> list[list[dict[str, Any]]]:
        """The one conversation, as the template gets it; the arguments of its calls have to be JSON objects."""
        with about("messages"):
            return [for_template([message.for_template() for message in self.messages])]
