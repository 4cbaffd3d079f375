"""The two forms of an answer, in OpenAI's objects: a completion and a chat completion, whole or in pieces."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.generate import Step
from course_lib.server.choice import Delta
from course_lib.server.jobs import Job
from course_lib.tool_calls import ToolCall

LOWEST = -9999.0  # what OpenAI reports for a token that cannot come: JSON has no infinity


def new_id(prefix: str) -> str:
    """A name that nobody can guess, always of the same length."""
    return f"{prefix}-{secrets.token_hex(12)}"


@dataclass
class Answer:
    """What all objects of one answer have in common.

    Args:
        model: the name that the client knows it by.
        tokenizer: for the text of single tokens.
        job: what was asked of the engine.
        with_logprobs, with_token_ids, with_seconds: what each choice brings besides text.
        with_usage: every piece of a stream has the field `usage`; it is null in all but the last.
    """

    model: str
    tokenizer: Any
    job: Job
    with_logprobs: bool = False
    with_token_ids: bool = False
    with_seconds: bool = False
    with_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    prefix, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def __post_init__(self) -> None:
        self.id = new_id(self.prefix)

    def envelope(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """The fields around the choices."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices, **more}

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> dict[str, Any]:
        """A piece of a stream."""
        return self.envelope(self.chunk_object, choices, **({"usage": usage} if self.with_usage else {}))

    def whole(self, choices: Sequence[Sequence[Delta]], usage: dict[str, int]) -> dict[str, Any]:
        """The answer in one piece, from the deltas of each choice."""
        finished = [self.finished(index, deltas) for index, deltas in enumerate(choices)]
        return self.envelope(self.whole_object, finished, usage=usage, **self.prompt())

    def prompt(self) -> dict[str, Any]:
        """Where token ids were asked for, those of the prompt, in the place that vLLM gives them."""
        return {}

    def ended(self, delta: Delta) -> dict[str, Any]:
        """How the choice ended, if it has; `stop_reason` is vLLM's."""
        stop = {} if delta.finish_reason is None else {"stop_reason": delta.stop_reason}
        return {"finish_reason": delta.finish_reason, **stop}

    def measured(self, steps: Sequence[Step]) -> dict[str, Any]:
        """The fields of a choice that are there only if they were asked for, in vLLM's names where it has them."""
        ids = {"token_ids": [step.token_id for step in steps]} if self.with_token_ids else {}
        return ids | ({"step_seconds": [step.seconds for step in steps]} if self.with_seconds else {})

    def token(self, token_id: int) -> str:
        """The text of one token, replacement characters where it is cut inside a character."""
        return self.tokenizer.decode([token_id])


class Completion(Answer):
    """Text that continues a prompt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.offsets: dict[int, int] = {}  # characters of each choice so far

    def first(self, index: int) -> list[dict[str, Any]]:
        """A stream of text begins with text."""
        return []

    def pieces(self, index: int, delta: Delta, number: int) -> list[dict[str, Any]]:
        """The one choice of a chunk."""
        return [self.choice(index, delta)]

    def finished(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        """A choice of the whole answer."""
        steps = tuple(step for delta in deltas for step in delta.steps)
        whole = replace(deltas[-1], text="".join(delta.text for delta in deltas), steps=steps)
        ids = {"prompt_token_ids": self.job.prompt_of(index)} if self.with_token_ids else {}
        return self.choice(index, whole) | ids

    def choice(self, index: int, delta: Delta) -> dict[str, Any]:
        """Text and what belongs to it."""
        return {"index": index, "text": delta.text, "logprobs": self.logprobs(index, delta.steps),
                **self.ended(delta), **self.measured(delta.steps)}

    def logprobs(self, index: int, steps: Sequence[Step]) -> dict[str, list] | None:
        """Four lists with an entry for each token; where tokens share a character, offsets are those of the pieces.

        The top tokens are the likeliest and the one that was chosen, as OpenAI has it.
        """
        if not self.with_logprobs:
            return None
        tokens = [self.token(step.token_id) for step in steps]
        offset, offsets = self.offsets.get(index, 0), []
        for token in tokens:
            offsets.append(offset)
            offset += len(token)
        self.offsets[index] = offset
        return {"tokens": tokens, "token_logprobs": [max(step.logprob, LOWEST) for step in steps],
                "top_logprobs": [{self.token(i): max(logprob, LOWEST) for i, logprob in
                                  (*reversed(step.top), (step.token_id, step.logprob))} for step in steps],
                "text_offset": offsets}


class ChatCompletion(Answer):
    """The assistant's turn in a conversation."""

    prefix, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def prompt(self) -> dict[str, Any]:
        """One for all choices."""
        return {"prompt_token_ids": self.job.prompts[0]} if self.with_token_ids else {}

    def first(self, index: int) -> list[dict[str, Any]]:
        """A stream begins with the role."""
        return [self.part(index, {"role": "assistant", "content": ""})]

    def pieces(self, index: int, delta: Delta, number: int) -> list[dict[str, Any]]:
        """The choices of the chunks for one delta: text, then for each call its name and its arguments.

        Args:
            number: how many calls came before.
        """
        changes: list[dict[str, Any]] = [{"content": delta.text}] if delta.text else []
        for i, call in enumerate(delta.calls, number):
            entry = {"index": i, **function_call(call)}
            arguments = entry["function"].pop("arguments")
            entry["function"]["arguments"] = ""
            changes += [{"tool_calls": [entry]}, {"tool_calls": [{"index": i, "function": {"arguments": arguments}}]}]
        *others, last = changes or [{}]
        return [*(self.part(index, change) for change in others),
                {**self.part(index, last, delta.steps), **self.ended(delta)}]

    def part(self, index: int, change: dict[str, Any], steps: Sequence[Step] = ()) -> dict[str, Any]:
        """The choice of a chunk, before the last one."""
        return {"index": index, "delta": change, "logprobs": self.logprobs(steps) if steps else None,
                "finish_reason": None, **(self.measured(steps) if steps else {})}

    def finished(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        """A choice of the whole answer."""
        text = "".join(delta.text for delta in deltas)
        calls = [function_call(call) for delta in deltas for call in delta.calls]
        steps = [step for delta in deltas for step in delta.steps]
        message = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        return {"index": index, "message": message | ({"tool_calls": calls} if calls else {}),
                "logprobs": self.logprobs(steps), **self.ended(deltas[-1]), **self.measured(steps)}

    def logprobs(self, steps: Sequence[Step]) -> dict[str, Any] | None:
        """An entry for each token, the end token included, with its bytes: its text may be cut inside a character."""
        if not self.with_logprobs:
            return None
        return {"content": [{**self.entry(step.token_id, step.logprob),
                             "top_logprobs": [self.entry(*candidate) for candidate in step.top]} for step in steps],
                "refusal": None}

    def entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        """A token and its natural log-probability."""
        return {"token": self.token(token_id), "logprob": max(logprob, LOWEST),
                "bytes": list(self.tokenizer.decode_bytes([token_id]))}


def function_call(call: ToolCall) -> dict[str, Any]:
    """A call in OpenAI's form, with an id that its result can name."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": new_id("call"), "type": "function", "function": {"name": call.name, "arguments": arguments}}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """What an answer has cost, in tokens."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens}
