"""What in a Markdown text is prose, what is code, and where its links go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from course_lib.classroom.glossary import Term, first_uses

BLANK = "\0"  # what is written over everything that a search must not see
FENCE = r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?^ {0,3}\1[ \t]*$"
INLINE = r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)"
LINK = r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)\s]*(?:\s+\"[^\"]*\")?\)"
NOT_PROSE = [
    (r"<details.*?</details>", re.S),
    (r"^<(?!/?(?:em|strong|b|i|sub|sup|code|kbd|a)\b)[a-z].*?(?=\n\s*\n|\Z)", re.S | re.M),  # a block of HTML
    (r"^ {0,3}#{1,6} .*$", re.M),  # a heading
    (r"^ {0,3}\|.*$", re.M),  # a row of a table
    (r"^(?: {4}|\t).*$", re.M),  # code by indentation, or a line that belongs to a list
    (r"<a\b.*?</a>", re.S),
    ("!" + LINK.removeprefix(r"(?<!\\)") + r"(?:\n\*[^\n]*\*$)?", re.M),  # a picture, and its caption in italics
    (LINK, 0),
    (r"</?[a-zA-Z][^>]*>|<!--.*?-->|https?://\S+", re.S),
]


def code(text: str) -> str:
    """The text with everything but code in it as it was, and the code blanked, character for character.

    >>> code("see `a[0](1)` there").replace(BLANK, ".")
    'see ......... there'
    """
    for expression, flags in ((FENCE, re.S | re.M), (INLINE, re.S)):
        text = re.sub(expression, blanked, text, flags=flags)
    return text


def prose(text: str) -> str:
    """The text with everything blanked that is not running text: code, headings, tables, links, pictures, HTML.

    >>> prose("# A cache\\nThe [cache](a.md) is a cache.").replace(BLANK, ".")
    '.........\\nThe ............. is a cache.'
    """
    text = code(text)
    for expression, flags in NOT_PROSE:
        text = re.sub(expression, blanked, text, flags=flags)
    return text


def blanked(match: re.Match[str]) -> str:
    """As many blanks as were matched; line breaks stay."""
    return re.sub(r"[^\n]", BLANK, match[0])


def with_links(text: str, new: Callable[[str], str]) -> str:
    """The text with every address in a Markdown link or an `href` passed through `new`; code and pictures stay.

    >>> with_links("[a](b.md) and `[a](b.md)` and ![a](b.svg)", str.upper)
    '[a](B.MD) and `[a](b.md)` and ![a](b.svg)'
    """
    return replaced(text, addresses(text), new)


def with_pictures(text: str, new: Callable[[str], str]) -> str:
    """The text with every Markdown picture, `![alt](address)`, passed whole through `new`."""
    found = re.finditer("!" + LINK.removeprefix(r"(?<!\\)"), code(text))
    return replaced(text, (match.span() for match in found), new)


def addresses(text: str) -> Iterator[tuple[int, int]]:
    """Where the addresses of links stand."""
    visible = code(text)
    for match in re.finditer(r"(?<!!)" + LINK, visible):
        start = match.start() + match[0].rindex("](") + 2
        yield start, start + len(re.match(r"[^)\s]*", visible[start:])[0])
    for match in re.finditer(r"""\bhref=(["'])(.*?)\1""", visible):
        yield match.span(2)


def replaced(text: str, spans: Iterator[tuple[int, int]], new: Callable[[str], str]) -> str:
    """The text with each span passed through `new`."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + new(text[start:end]) + text[end:]
    return text


def with_terms(text: str, terms: tuple[Term, ...], seen: set[str], *, page: str = "glossary.html") -> str:
    """The text with the first use of each term linked to the glossary; its meaning is the link's title.

    Args:
        seen: slugs of the terms that the notebook has used before; grows.
        page: the glossary, from where the text stands.
    """
    for use in reversed(first_uses(prose(text), terms, seen=seen)):
        meaning = re.sub(r"[`*]", "", use.term.text).replace("\\", "\\\\").replace('"', "&quot;")
        link = f'[{text[use.start:use.end]}]({page}#{use.term.slug} "{meaning}")'
        text = text[:use.start] + link + text[use.end:]
    return text
