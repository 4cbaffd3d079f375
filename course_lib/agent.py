"""An agent is a loop: the model writes a message, its calls are run, their results are read, until it calls nothing.

What a tool returns is data. It goes through the chat template, where the text of a control token stays text, and only
what the model itself writes with control tokens is a call. That keeps a result from forging a turn or a call. It cannot
keep the model from obeying what it reads; what must not happen then is kept out of its reach (`Tool.protected`).

Source: Yao et al. 2022, ReAct; Schick et al. 2023, Toolformer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openai import APIError

from course_lib.chat_models import Call, ChatModel, ContextFull, Endpoint, LocalModel, Turn
from course_lib.config import SamplingParams, is_int, require
from course_lib.generate import LanguageModel
from course_lib.tool_calls import INVALID, ToolCall
from course_lib.tools import Tool, ToolResult, by_name, execute


@dataclass(frozen=True)
class RunStep:
    """One entry of a run's record: the model's turn, or a call with its result.

    Attributes:
        message: what joined the conversation.
        turn: the model's, else None.
        call, result: of a tool, else None.
    """

    message: dict[str, Any]
    turn: Turn | None = None
    call: Call | None = None
    result: ToolResult | None = None

    @property
    def seconds(self) -> float:
        """Of the model or of the tool."""
        return self.turn.seconds if self.turn else self.result.seconds

    @property
    def tokens(self) -> int:
        """That the model wrote."""
        return self.turn.tokens if self.turn else 0

    @property
    def passes(self) -> int | None:
        """Of the model; None where it is not known."""
        return self.turn.passes if self.turn else 0


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        messages: the whole conversation, from the first message given.
        steps: what was added, in order.
        finish_reason: "stop", "length" if a message or the context came to its limit, "max_steps", or "error" if an
            endpoint failed after the first message.
        error: why no further message could be written, if so.
    """

    messages: tuple[Mapping[str, Any], ...]
    steps: tuple[RunStep, ...]
    finish_reason: str
    error: str | None = None

    @property
    def answer(self) -> str | None:
        """The message that called nothing; None if there was none."""
        last = self.steps[-1]
        return last.message["content"] or "" if last.turn and not last.turn.calls else None

    @property
    def results(self) -> list[ToolResult]:
        """Of all calls, in order."""
        return [step.result for step in self.steps if step.result]


def run(lm: LanguageModel, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], *, max_steps: int = 4,
        params: SamplingParams | None = None, grammar: bool = False) -> Run:
    """Let a model answer with the help of tools.

    Args:
        lm: as `load()` returns it.
        messages: the conversation so far, in OpenAI's form.
        tools: all that exist for the model.
        max_steps: messages of the model at most, >= 1. The calls of the last one are not run: nobody would read them.
        params: of each message; greedy and at most 128 tokens if None.
        grammar: allow only messages that are text alone, or one call that fits a tool.

    Raises:
        ValueError: an argument is out of its range, or the conversation leaves no room in the context.
    """
    return loop(LocalModel(lm, params or SamplingParams(temperature=0, max_tokens=128), grammar), messages, tools,
                max_steps=max_steps)


def run_endpoint(client: Any, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], *,
                 max_steps: int = 4, **options: Any) -> Run:
    """The same with a model that an OpenAI endpoint serves.

    Args:
        client: an `openai.OpenAI`.
        model: its name there.
        options: of `client.chat.completions.create`, such as temperature.

    Raises:
        ValueError: as `run`.
        openai.APIError: the endpoint failed in the first turn; later on, the run ends with what it has.
    """
    return loop(Endpoint(client, model, options), messages, tools, max_steps=max_steps)


def loop(model: ChatModel, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], *, max_steps: int) -> Run:
    """The agent: at most `max_steps` turns, and between them the calls of each, one after another."""
    require(is_int(max_steps) and max_steps >= 1, "max_steps", max_steps, "an integer >= 1")
    known, conversation, steps = by_name(tools), list(messages), []
    for number in range(max_steps):
        try:
            turn = model.turn(conversation, tools, number)
        except (ContextFull, APIError) as error:
            if not steps:
                raise
            reason = "length" if isinstance(error, ContextFull) else "error"
            return Run(tuple(conversation), tuple(steps), reason, str(error))
        steps.append(RunStep(turn.message, turn))
        conversation.append(turn.message)
        if not turn.calls:
            return Run(tuple(conversation), tuple(steps), turn.finish_reason)
        if number < max_steps - 1:
            answered = answer_calls(turn, known, steps, tainted=holds_untrusted(messages, known))
            steps += answered
            conversation += [step.message for step in answered]
    return Run(tuple(conversation), tuple(steps), "max_steps")


def answer_calls(turn: Turn, tools: Mapping[str, Tool], before: Sequence[RunStep], *,
                 tainted: bool = False) -> list[RunStep]:
    """Run the calls of a turn, one after another, each with a message that the model will read.

    Args:
        before: the run so far, in which the model may have read untrusted results.
        tainted: whether it had read one before the run began.
    """
    steps, tainted = [], tainted or any(is_untrusted(step, tools) for step in before)
    for call, shown in zip(turn.calls, turn.message.get("tool_calls", ()), strict=True):
        result = execute(call, tools, tainted=tainted)
        message = {"role": "tool", "tool_call_id": shown["id"], "content": result.content}
        steps.append(RunStep(message, call=call, result=result))
    return steps


def is_untrusted(step: RunStep, tools: Mapping[str, Tool]) -> bool:
    """Whether a step is the result of a tool that says what strangers may have written."""
    return isinstance(step.call, ToolCall) and step.call.name in tools and tools[step.call.name].untrusted


def holds_untrusted(messages: Sequence[Mapping[str, Any]], tools: Mapping[str, Tool]) -> bool:
    """Whether a conversation holds a result of an untrusted tool, or one of which it does not say whose it is.

    To a call that cannot be read the loop itself has answered.
    """
    names: dict[Any, str] = {}  # of the tools, by the calls' ids; another run may use the same ids again
    for message in messages:
        names |= {call.get("id"): call["function"]["name"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id"), "")
            if name != INVALID and (name not in tools or tools[name].untrusted):
                return True
    return False
