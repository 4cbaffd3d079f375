"""A docstring of the library as Markdown: its text, its sections as lists, its examples as code."""

from __future__ import annotations

import doctest
import re
from inspect import cleandoc

SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):[ \t]*(.*)")
ITEM = re.compile(r"([*\w][\w*, /|.`]*?): (.*)")


def as_markdown(docstring: str) -> str:
    """The docstring in Markdown.

    >>> as_markdown("Half of x.\\n\\nArgs:\\n    x: >= 0, a * b.")
    'Half of x.\\n\\n\\n**Args**\\n\\n- `x`: >= 0, a \\\\* b.'
    """
    parts: list[str] = []
    for part in doctest.DocTestParser().parse(cleandoc(docstring)):
        if isinstance(part, doctest.Example):
            parts.append(example(part))
        elif part.strip():
            parts.append(sections(part))
    joined = "\n\n".join(parts)
    return joined.replace("\n```\n\n```pycon\n", "\n")


def example(one: doctest.Example) -> str:
    """A line of a doctest with its result, fenced."""
    first, *rest = one.source.rstrip("\n").split("\n")
    lines = [f">>> {first}", *(f"... {line}" for line in rest), *one.want.splitlines()]
    return "\n".join(["```pycon", *lines, "```"])


def sections(text: str) -> str:
    """Paragraphs, and sections as lists."""
    done: list[str] = []
    lines = text.strip("\n").split("\n")
    while lines:
        line = lines.pop(0)
        found = SECTION.fullmatch(line)
        if not found:
            done.append(line if line.startswith("    ") else escaped(line))
            continue
        body = [found[2]] if found[2] else []
        while lines and (lines[0].startswith(" ") or not lines[0].strip()):
            body.append(lines.pop(0))
        done += ["", f"**{found[1]}**", "", *items(body), ""]
    return "\n".join(done).strip("\n")


def items(body: list[str]) -> list[str]:
    """The entries of a section; a line that is indented further goes on with the one before it."""
    indent = min((len(line) - len(line.lstrip()) for line in body if line.strip()), default=0)
    entries: list[str] = []
    for line in filter(str.strip, body):
        if entries and line.startswith(" " * (indent + 1)):
            entries[-1] += " " + line.strip()
        else:
            entries.append(line.strip())
    return [f"- {entry(text)}" for text in entries]


def entry(text: str) -> str:
    """`name: what it is`, with the name as code; text without a name is escaped only."""
    found = ITEM.fullmatch(text)
    return f"`{found[1].replace('`', '')}`: {escaped(found[2])}" if found else escaped(text)


def escaped(text: str) -> str:
    """Text in which nothing but `code` has a meaning in Markdown.

    >>> escaped("a*b in `c*d` <e>")
    'a\\\\*b in `c*d` \\\\<e>'
    """
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part[:1] == "`" and len(part) > 1 else re.sub(r"([\\*_<\[\]#|{}])", r"\\\1", part)
                   for part in parts)
