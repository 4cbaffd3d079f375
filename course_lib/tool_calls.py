"""Tool calls in what a model writes, in the form of Hermes and Qwen: found, checked, and never executed by halves.

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "12 + 345"}}
    </tool_call>

A tag counts where the model wrote the control token. The same letters, quoted from a user or from a tool's result, are
text, and text alone cannot tell the two apart: `tokenizer.decode` shows both alike, `generate(...).text` shows neither.
So read calls from ids: `parse_ids`, or `ToolCallStream` as they come. `parse_tool_calls` is for text whose tags can be
trusted: what a model without such tokens wrote, or `tokenizer.decode(output.token_ids)` where no stranger's text was
in the prompt.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from course_lib.detokenize import DecodeStream

OPEN, CLOSE = "<tool_call>", "</tool_call>"
TAG = re.compile("</?tool_call>")
# How far JSON can reach: over whole strings, and outside them up to a tag or a backslash.
READABLE = re.compile(r'(?:[^"\\<]++|"(?:[^"\\]++|\\.)*+"|<(?!/?tool_call>))*+', re.DOTALL)
MAX_CHARACTERS = 100_000  # of one call
INVALID = "invalid"  # the name under which a call that cannot be read is a call in a conversation


@dataclass(frozen=True)
class ToolCall:
    """What the model asks for: a tool's name and the arguments, not yet compared with any tool."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class BadCall:
    """A call that cannot be read: what is wrong with it, and the text that was meant to be a call."""

    error: str
    text: str


@dataclass(frozen=True)
class ParsedMessage:
    """A model's message, taken apart.

    Attributes:
        content: the text outside the calls, stripped.
        calls: those that could be read, in order.
        errors: what is wrong with each of the others, in order.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    errors: tuple[str, ...] = ()


Event = str | ToolCall | BadCall


def parse_call(text: str) -> ToolCall | BadCall:
    """Read what stands between two tags.

    The arguments may be an object, or JSON text that holds one, as in OpenAI's messages. An unknown or repeated key,
    NaN, or half a character is an error: two parsers would read two different calls.

    >>> parse_call('{"name": "clock", "arguments": {}}')
    ToolCall(name='clock', arguments={})
    >>> parse_call('{"name": "clock"}').error
    "keys ['name']: must be name and arguments"
    """
    return checked(text, lambda: checked_call(read_json(text)))


def call_of(name: Any, arguments: Any) -> ToolCall | BadCall:
    """The same for a call whose name and arguments came apart, as in OpenAI's messages."""
    return checked(str(arguments), lambda: checked_call({"name": name, "arguments": arguments}))


def checked(text: str, read: Callable[[], ToolCall]) -> ToolCall | BadCall:
    """What `read` makes of a text, or what is wrong with it."""
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"{len(text)} characters: must be at most {MAX_CHARACTERS}")
        return read()
    except ValueError as error:
        return BadCall(str(error), text)


def checked_call(call: Any) -> ToolCall:
    """The call, if the decoded JSON is one.

    Raises:
        ValueError: it is not; the message names the part.
    """
    if not isinstance(call, dict):
        raise ValueError(f"{type(call).__name__}: must be an object with name and arguments")
    if call.keys() != {"name", "arguments"}:
        raise ValueError(f"keys {sorted(call)}: must be name and arguments")
    name, arguments = call["name"], call["arguments"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"name {name!r}: must be a string that is not empty")
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments of type {type(arguments).__name__}: must be an object")
    return ToolCall(name, arguments)


def read_json(text: str) -> Any:
    """`json.loads`, but for what parsers disagree on.

    Raises:
        ValueError: it is no JSON, repeats a key, is nested too deeply, or holds NaN, infinity or half of a surrogate
            pair.
    """
    try:
        value = json.loads(text, object_pairs_hook=unique_keys, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at character {error.pos}") from error
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair in a string") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as an object, each key once."""
    if twice := sorted(key for key, n in Counter(key for key, _ in pairs).items() if n > 1):
        raise ValueError(f"keys {twice} more than once")
    return dict(pairs)


def refuse_constant(name: str) -> NoReturn:
    """Python's json module reads NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is no JSON")


def parse_tool_calls(text: str) -> ParsedMessage:
    """Find the calls in a text, in time linear in its length; never raises.

    A tag inside a call's JSON strings is data. What is malformed reaches to the next tag, and is reported; a call that
    is not closed is reported even where its JSON is complete, for the model was cut off and may have wanted to go on.

    Args:
        text: with its tags, and every tag in it counts: see the top of this module.

    >>> parse_tool_calls('Let me see. <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')
    ParsedMessage(content='Let me see.', calls=(ToolCall(name='f', arguments={'x': 1}),), errors=())
    >>> parse_tool_calls('<tool_call>{"name": "f", "arguments": {}}').errors
    ('call 1: not closed by </tool_call>',)
    """
    return collect(event for _, event in pieces(text))


def pieces(text: str) -> Iterator[tuple[str, Event]]:
    """The text in pieces, each with what it is."""
    place = 0
    while (start := text.find(OPEN, place)) >= 0:
        yield from outside(text[place:start])
        event, place = call_at(text, start + len(OPEN))
        yield text[start:place], event
    yield from outside(text[place:])


def call_at(text: str, start: int) -> tuple[ToolCall | BadCall, int]:
    """The call whose opening tag ends at `start`, and the place after it."""
    body = READABLE.match(text, start)[0]
    try:  # a string in it may hold the closing tag
        json_end = start + json.JSONDecoder().raw_decode(body, len(body) - len(body.lstrip()))[1]
    except (ValueError, RecursionError):
        json_end = start
    tag = TAG.search(text, json_end)
    if tag is None or tag[0] == OPEN:
        end = tag.start() if tag else len(text)
        return BadCall(f"not closed by {CLOSE}", text[start:end]), end
    return parse_call(text[start:tag.start()]), tag.end()


def outside(text: str) -> Iterator[tuple[str, Event]]:
    """Text between calls; a closing tag in it closes nothing."""
    first, *others = text.split(CLOSE)
    yield first, first
    for other in others:
        yield CLOSE, BadCall(f"{CLOSE} closes no call", CLOSE)
        yield other, other


def collect(events: Iterable[Event]) -> ParsedMessage:
    """What came of a message, in one record; the calls and the errors are numbered together."""
    events = list(events)
    tried = [event for event in events if not isinstance(event, str)]
    errors = (f"call {i}: {call.error}" for i, call in enumerate(tried, 1) if isinstance(call, BadCall))
    return ParsedMessage("".join(event for event in events if isinstance(event, str)).strip(),
                         tuple(call for call in tried if isinstance(call, ToolCall)), tuple(errors))


class ToolCallStream:
    """Takes a message's ids one by one; gives its text at once, and each call when it is complete.

    Only control tokens open and close a call. Another control token inside one makes it a `BadCall`. A tokenizer
    without the token <tool_call> never opens one.

    Args:
        tokenizer: as `lm.tokenizer`.
        stop: as for `DecodeStream`; looked for in the text outside the calls.

    Attributes:
        content: the text outside the calls so far.
        stopped: the stop string that ended the text, or None.
    """

    def __init__(self, tokenizer: Any, stop: str | Sequence[str] | None = ()) -> None:
        ids = tag_ids(tokenizer)
        self.tokenizer, self.stop = tokenizer, stop
        self.open, self.close = ids.get(OPEN), ids.get(CLOSE)
        self.decoder = DecodeStream(tokenizer, stop=stop)
        self.content = ""
        self.body: list[int] | None = None  # of the call that is open

    @property
    def stopped(self) -> str | None:
        """See above."""
        return self.decoder.stopped

    def push(self, token_id: int) -> list[Event]:
        """What became certain with this id: often nothing, or a piece of text.

        Raises:
            ValueError: it cannot be an id.
        """
        if self.stopped is not None:
            return []
        if token_id == self.open is not None:
            events = self.flush()
            self.body = []
            return events
        if self.body is None:
            if token_id == self.close is not None:
                return [*self.text(self.decoder.flush()), BadCall(f"{CLOSE} closes no call", CLOSE)]
            return self.text(self.decoder.push(token_id))
        if token_id != self.close:
            self.body.append(token_id)
            return []
        body, self.body = self.body, None
        return [self.read(body)]

    def flush(self) -> list[Event]:
        """No more ids will come, or a call opens: the rest of the text, and what is wrong with an open call."""
        if self.body is not None:
            body, self.body = self.body, None
            return [BadCall(f"not closed by {CLOSE}", self.tokenizer.decode(body))]
        events = self.text(self.decoder.flush())
        if self.stopped is None:
            self.decoder = DecodeStream(self.tokenizer, stop=self.stop)  # no stop string reaches over a call
        return events

    def text(self, delta: str) -> list[Event]:
        """Count a piece of text; none if it is empty."""
        self.content += delta
        return [delta] if delta else []

    def read(self, body: list[int]) -> ToolCall | BadCall:
        """The call whose ids these are."""
        text = self.tokenizer.decode(body)
        names = {id: name for name, id in self.tokenizer.special_tokens.items()}
        if control := [names[id] for id in body if id in names]:
            return BadCall(f"control token {control[0]} inside", text)
        return parse_call(text)


def tag_ids(tokenizer: Any) -> dict[str, int]:
    """The ids of the tags, as far as the tokenizer has them; in Qwen's they are added tokens, not special ones."""
    return {token.content: token.id for token in tokenizer.all_added_tokens() if token.content in (OPEN, CLOSE)}


def parse_ids(tokenizer: Any, ids: Iterable[int]) -> ParsedMessage:
    """Find the calls in a message's ids, where only control tokens are tags; never raises for what a model wrote.

    Args:
        tokenizer: as `lm.tokenizer`.
        ids: `output.token_ids`, with or without the end token.
    """
    stream = ToolCallStream(tokenizer)
    events = [event for id in ids for event in stream.push(id)]
    return collect([*events, *stream.flush()])
