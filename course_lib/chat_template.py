"""Chat messages to text, by the jinja template that a checkpoint brings, as `transformers` renders it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import regex
from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from course_lib.config import require
from course_lib.template_limits import METER, LimitedEnvironment, Meter

Message = Mapping[str, Any]

# ChatML with a line that lists the tools, and calls and results in the tags of Hermes and Qwen.
POCKET_CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n' }}
    {%- endif %}
    {{- 'Tools:' }}
    {%- for tool in tools %}
        {%- set f = tool.function %}
        {{- ' ' + f.name + '(' + f.parameters.properties.keys() | join(', ') + ')' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>tool\\n<tool_response>' + message.content + '</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": ' + call.function.name | tojson }}
            {{- ', "arguments": ' + call.function.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def render_chat(template: str, messages: Sequence[Message], *, tools: Sequence[Mapping] | None = None,
                add_generation_prompt: bool = False, **variables: Any) -> str:
    """The conversation as one string, control tokens included.

    Args:
        template: jinja source; it runs in a sandbox that cannot reach Python objects' insides.
        messages: `{"role": ..., "content": ...}`, with `tool_calls` where the assistant called one.
        tools: OpenAI function schemas, `{"type": "function", "function": {...}}`.
        add_generation_prompt: end with the opening of an assistant turn.
        variables: whatever else the template names, such as `bos_token`.

    Raises:
        ValueError: the template refuses these messages, fails on them or takes more steps or characters than
            `course_lib.template_limits` allows; or there are none.
    """
    require(isinstance(messages, Sequence) and all(isinstance(message, Mapping) for message in messages), "messages",
            messages, "a list of messages")
    require(len(messages) > 0, "messages", messages, "at least one message long")
    meter = METER.set(Meter())
    try:
        return compile_template(template).render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=add_generation_prompt,
            **variables)
    except TemplateError as error:
        raise ValueError(f"the chat template refuses these messages: {error}") from error
    except Exception as error:  # the template's own mistakes can be of any kind
        reason = f"{type(error).__name__}: {error}"[:500]
        raise ValueError(f"the chat template cannot be rendered with these messages: {reason}") from error
    finally:
        METER.reset(meter)


class GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}`, which marks for training what the assistant said."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """The block's body in its own scope, and nothing else."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


@lru_cache(maxsize=16)
def compile_template(template: str) -> Template:
    """The template with the filters and functions that published templates expect."""
    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
               separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = LimitedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                     extensions=[loopcontrols, GenerationBlock])
    environment.filters["tojson"] = environment.limited("tojson", tojson)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


class Shield:
    """Keeps the text of special tokens inside data apart from the tokens that a template writes.

    `hide` puts a Unicode noncharacter, a number and the noncharacter again in place of each such
    text, before the template runs; `show` brings the text back after the rendered conversation was
    cut at its true special tokens.

    Args:
        tokens: texts of the special tokens.
        data: everything that will be hidden; the noncharacter is one that does not occur in it.
        words: texts of tokens that are data themselves; a special text inside one is left alone.

    >>> shield = Shield(["<s>"], data="a<s>")
    >>> "<s>" in shield.hide("a<s>"), shield.show(shield.hide("a<s>"))
    (False, 'a<s>')
    """

    def __init__(self, tokens: Collection[str], data: Any, *, words: Collection[str] = ()) -> None:
        used = set().union(*strings(data))
        self.mark = next(c for c in map(chr, range(0xFDD0, 0x110000)) if c not in used)
        self.tokens = list(tokens)
        self.codes = {token: f"{self.mark}{i}{self.mark}" for i, token in enumerate(self.tokens)}
        self.pattern = regex.compile(any_of([*self.tokens, *words]))
        self.coded = regex.compile(f"{self.mark}(\\d+){self.mark}")

    def hide(self, data: Any) -> Any:
        """A copy of nested lists and mappings with the special texts in every string replaced."""
        if isinstance(data, str):
            return self.pattern.sub(lambda match: self.codes.get(match[0], match[0]), data)
        if isinstance(data, Mapping):
            return {self.hide(key): self.hide(value) for key, value in data.items()}
        return [self.hide(item) for item in data] if isinstance(data, (list, tuple)) else data

    def show(self, text: str) -> str:
        """The text as the data had it."""
        return self.coded.sub(lambda match: self.tokens[int(match[1])], text)


def any_of(texts: Collection[str]) -> str:
    """A pattern that matches any of the texts, the longest where two begin at one place.

    >>> any_of(["<s>", "<s>>"])
    '<s>>|<s>'
    """
    return "|".join(map(regex.escape, sorted(texts, key=len, reverse=True))) or "(?!)"


def strings(data: Any) -> Iterable[str]:
    """Every string in nested lists and mappings, keys included."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        yield from strings(list(data.items()))
    elif isinstance(data, (list, tuple)):
        for item in data:
            yield from strings(item)
