"""One choice of an answer in the making: the engine's ids become text, tool calls and a reason to finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course_lib.config import SamplingParams
from course_lib.detokenize import decode_stream
from course_lib.generate import Step
from course_lib.tool_calls import CLOSE, OPEN, BadCall, ToolCall, ToolCallStream


@dataclass(frozen=True)
class Delta:
    """What one pass has added to a choice that a client can be shown.

    Attributes:
        text: whole characters that no stop string can begin with.
        calls: tool calls that are complete.
        steps: the passes since the last delta, more than one where text had to wait.
        finish_reason: "stop", "length" or "tool_calls" in the last delta of a choice, else None.
        stop_reason: the stop string, or the id of `stop_token_ids`, that ended the choice; else None.
    """

    text: str
    calls: tuple[ToolCall, ...]
    steps: tuple[Step, ...]
    finish_reason: str | None
    stop_reason: str | int | None = None


class Choice:
    """Takes the engine's outputs for one request.

    Args:
        index: of the choice in the answer.
        tokenizer: as `lm.tokenizer`.
        params: the request's settings.
        tools: read tool calls; without, what the model writes is text.

    Attributes:
        calls: how many tool calls were read.
        steps: all passes so far.
        finish_reason: as in the last delta.
    """

    def __init__(self, index: int, tokenizer: Any, params: SamplingParams, *, tools: bool = False) -> None:
        self.index, self.tokenizer, self.params, self.tools = index, tokenizer, params, tools
        self.reader = (ToolCallStream if tools else decode_stream)(tokenizer, params.stop)
        self.steps: list[Step] = []
        self.shown = self.calls = 0
        self.blank = ""  # white space that is dropped if a tool call follows it
        self.finish_reason: str | None = None

    def push(self, step: Step, finish_reason: str | None) -> Delta | None:
        """Take a pass of the engine; None: nothing can be shown yet.

        Args:
            finish_reason: the engine's. "stop" says that the step's token is an end token, and no part of the text.
        """
        self.steps.append(step)
        events = [] if finish_reason == "stop" else pieces(self.reader.push(step.token_id))
        ended = finish_reason is not None or self.reader.stopped is not None
        if ended:
            events += pieces(self.reader.flush())
        text = "".join(map(text_of, events))
        calls = tuple(event for event in events if isinstance(event, ToolCall))
        self.calls += len(calls)
        if ended:
            stopped = finish_reason == "stop" or self.reader.stopped is not None
            self.finish_reason = "length" if not stopped else "tool_calls" if self.calls else "stop"
        text = self.without_blanks(text) if self.tools else text
        if not (text or calls or ended):
            return None
        steps, self.shown = tuple(self.steps[self.shown :]), len(self.steps)
        return Delta(text, calls, steps, self.finish_reason, self.stop_reason(finish_reason) if ended else None)

    def stop_reason(self, finish_reason: str | None) -> str | int | None:
        """Which of the client's own stops has ended the choice, in vLLM's words."""
        last = self.steps[-1].token_id
        return last if finish_reason == "stop" and last in self.params.stop_token_ids else self.reader.stopped

    def without_blanks(self, text: str) -> str:
        """Hold white space back until text follows it: between calls it is no content."""
        text, self.blank = self.blank + text, ""
        if text.isspace() and (self.calls or self.finish_reason is None):
            self.blank, text = text, ""
        return text


def pieces(read: str | list[str | ToolCall | BadCall]) -> list[str | ToolCall | BadCall]:
    """What either reader gives, as a list."""
    return [read] if isinstance(read, str) else read


def text_of(event: str | ToolCall | BadCall) -> str:
    """The text of an event; a call that cannot be read is text, as the model wrote it, so that nothing is lost."""
    if isinstance(event, BadCall):
        if event.text == CLOSE:
            return CLOSE
        return OPEN + event.text + ("" if event.error.startswith("not closed") else CLOSE)
    return event if isinstance(event, str) else ""
