"""A model's next message in a conversation with tools, from a model in this process or from an OpenAI endpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from openai import APIError

from course_lib.config import SamplingParams
from course_lib.generate import LanguageModel, Step, check_prompt, decode_steps, end_ids
from course_lib.tool_calls import BadCall, ToolCall, ToolCallStream, call_of, pieces
from course_lib.tool_messages import call_tag, for_template, to_call, to_message
from course_lib.tools import Tool

Call = ToolCall | BadCall
RESPONSE = "<tool_response>"


@dataclass(frozen=True)
class Turn:
    """One message of the model.

    Attributes:
        message: as it joins the conversation, in OpenAI's form, with an id for every call.
        calls: in order, those that cannot be read too.
        finish_reason: "tool_calls" if there are calls, "stop", or "length".
        prompt_tokens, tokens: read, and written.
        passes: of the model; None where it is not known.
        seconds: for all of it.
    """

    message: dict[str, Any]
    calls: tuple[Call, ...]
    finish_reason: str
    prompt_tokens: int
    tokens: int
    passes: int | None
    seconds: float


class ChatModel(Protocol):
    """What the loop asks of a model."""

    def turn(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], number: int) -> Turn:
        """The next message; ids of calls that are made here begin with `number`.

        Raises:
            ContextFull: there is no room for it.
            APIError: an endpoint failed.
        """


def call_id(number: int, i: int) -> str:
    """The id of a call: the number of the message in the run, and of the call in the message."""
    return f"call_{number}_{i}"


class ContextFull(ValueError):
    """The conversation leaves no room in the model's context."""


@dataclass(frozen=True)
class LocalModel:
    """A model in this process."""

    lm: LanguageModel
    params: SamplingParams
    grammar: bool = False

    def turn(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], number: int) -> Turn:
        """As `ChatModel.turn`."""
        prompt_ids, params = self.request(messages, tools)
        return self.read(messages, decode_steps(self.lm, prompt_ids, params), params, number)

    def read(self, messages: Sequence[Mapping[str, Any]], steps: Iterator[Step], params: SamplingParams,
             number: int) -> Turn:
        """The next message after these, from its tokens (`read_turn`)."""
        return read_turn(self.lm, steps, params, number)

    def request(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> tuple[list[int], SamplingParams]:
        """What to generate from, and how.

        Raises:
            ContextFull: there is no room left.
        """
        schemas, params = [tool.schema for tool in tools], self.params
        ids = self.prompt_ids(for_template(messages), schemas or None)
        try:
            check_prompt(self.lm.config, ids)
        except ValueError as error:
            raise ContextFull(str(error)) from error
        if self.grammar and tools:
            params = replace(params, structured_outputs=call_tag(schemas, text=True))
        return ids, params

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], schemas: Sequence[Mapping] | None) -> list[int]:
        """The conversation, in which only the template's own control tokens are control tokens."""
        return self.lm.tokenizer.apply_chat_template(messages, tools=schemas, add_generation_prompt=True)


def read_turn(lm: LanguageModel, steps: Iterator[Step], params: SamplingParams, number: int) -> Turn:
    """Take a model's tokens until its message is over.

    After a call only more calls belong to the message. If anything else comes, the model has begun to write the result
    of its own call, or what it would say to it: it is stopped there, and that text is thrown away.

    Args:
        steps: no more are taken than are needed.
        params: say what ends a message, stop strings included.
        number: as for `ChatModel.turn`.
    """
    message, ends = ToolCallStream(lm.tokenizer, params.stop), end_ids(lm, params)
    response = lm.tokenizer.special_tokens.get(RESPONSE)
    taken, content, calls, finish_reason = [], "", [], "length"
    for step in steps:
        taken.append(step)
        events = [] if step.token_id in ends else message.push(step.token_id)
        said = "".join(event for event in events if isinstance(event, str))
        own_result = step.token_id == response or bool(calls and said.strip())
        calls += [event for event in events if not isinstance(event, str)]
        content += "" if calls else said
        if step.token_id in ends or own_result or message.stopped is not None:
            finish_reason = "stop"
            break
    rest = message.flush()
    calls += [event for event in rest if not isinstance(event, str)]
    content += "" if calls else "".join(event for event in rest if isinstance(event, str))
    ids = [call_id(number, i) for i in range(len(calls))]
    return Turn(to_message(content.strip(), calls, call_ids=ids), tuple(calls),
                "tool_calls" if calls else finish_reason, sum(step.positions for step in taken[:1]),
                len(taken), sum(step.positions > 0 for step in taken), sum(step.seconds for step in taken))


@dataclass(frozen=True)
class Endpoint:
    """A model that is reached through OpenAI's interface; the server, and not this side, says what is a call.

    What a server cannot read as a call it returns as text. Such text is a `BadCall` here too, so that the model is told
    of it. A call in the text that could be read is a quotation: the server has not taken it for a call.
    """

    client: Any
    model: str
    options: Mapping[str, Any]

    def turn(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], number: int) -> Turn:
        """As `ChatModel.turn`; the server's calls keep their ids, and whatever else they carry."""
        started = time.perf_counter()
        offer = {"tools": [tool.schema for tool in tools]} if tools else {}
        try:
            reply = self.client.chat.completions.create(model=self.model, messages=list(messages), **offer,
                                                        **self.options)
        except APIError as error:
            if error.code == "context_length_exceeded":
                raise ContextFull(str(error)) from error
            raise
        choice, usage, seconds = reply.choices[0], reply.usage, time.perf_counter() - started
        content, unread = without_calls(choice.message.content or "") if tools else (choice.message.content or "", [])
        calls, shown = [], []
        for one in choice.message.tool_calls or ():
            call, id = call_of(one.function.name, one.function.arguments), one.id or call_id(number, len(calls))
            shown.append(one.model_dump(exclude_none=True) | ({"id": id} if isinstance(call, ToolCall) else
                                                              to_call(call, id)))
            calls.append(call)
        shown += [to_call(call, call_id(number, i)) for i, call in enumerate(unread, len(calls))]
        calls += unread
        message = to_message(content, (), call_ids=()) | ({"tool_calls": shown} if shown else {})
        return Turn(message, tuple(calls), "tool_calls" if calls else choice.finish_reason,
                    usage.prompt_tokens if usage else 0, usage.completion_tokens if usage else 0, None, seconds)


def without_calls(text: str) -> tuple[str, list[BadCall]]:
    """A text that a server returned, without the calls in it that cannot be read, and those calls.

    >>> without_calls('Hm. <tool_call>{"name": "f"}</tool_call>')[0]
    'Hm.'
    """
    read = list(pieces(text))
    return ("".join(piece for piece, event in read if not isinstance(event, BadCall)).strip(),
            [event for _, event in read if isinstance(event, BadCall)])
