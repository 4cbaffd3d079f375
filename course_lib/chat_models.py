"""A model's next message in a conversation with tools, from a model in this process or from an OpenAI endpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from course_lib.config import SamplingParams
from course_lib.generate import LanguageModel, Step, check_prompt, decode_steps, end_ids
from course_lib.tool_calls import BadCall, ToolCall, ToolCallStream, call_of
from course_lib.tool_messages import call_tag, for_template, to_message
from course_lib.tools import Tool

Call = ToolCall | BadCall
RESPONSE = "<tool_response>"


@dataclass(frozen=True)
class Turn:
    """One message of the model.

    Attributes:
        message: as it joins the conversation, in OpenAI's form.
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
        """The next message; the ids of its calls begin with `number`."""


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
        return read_turn(self.lm, decode_steps(self.lm, prompt_ids, params), params, number)

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
    good = [(call, call_id(number, i)) for i, call in enumerate(calls) if isinstance(call, ToolCall)]
    bad = "".join(call.text for call in calls if isinstance(call, BadCall))
    return Turn(to_message((content + bad).strip(), [call for call, _ in good], call_ids=[id for _, id in good]),
                tuple(calls), "tool_calls" if calls else finish_reason, sum(step.positions for step in taken[:1]),
                len(taken), sum(step.positions > 0 for step in taken), sum(step.seconds for step in taken))


@dataclass(frozen=True)
class Endpoint:
    """A model that is reached through OpenAI's interface; the server, and not this side, says what is a call."""

    client: Any
    model: str
    options: Mapping[str, Any]

    def turn(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], number: int) -> Turn:
        """As `ChatModel.turn`; a call's arguments that are no JSON are shown to the endpoint as {}."""
        started = time.perf_counter()
        offer = {"tools": [tool.schema for tool in tools]} if tools else {}
        reply = self.client.chat.completions.create(model=self.model, messages=list(messages), **offer, **self.options)
        choice, seconds = reply.choices[0], time.perf_counter() - started
        calls = tuple(call_of(one.function.name, one.function.arguments)
                      for one in choice.message.tool_calls or ())
        shown = [call if isinstance(call, ToolCall) else ToolCall(one.function.name or "unknown", {})
                 for call, one in zip(calls, choice.message.tool_calls or ())]
        ids = [call_id(number, i) for i in range(len(shown))]
        message = to_message(choice.message.content or "", shown, call_ids=ids)
        usage = reply.usage
        return Turn(message, calls, choice.finish_reason, usage.prompt_tokens if usage else 0,
                    usage.completion_tokens if usage else 0, None, seconds)
