"""Cells as blocks of HTML: headings, paragraphs, drawings, quotes, answers, code, outputs.

A block is what a sheet or a slide shows or leaves out as a whole. Pictures are inside, as data, so that a page made
of blocks is one file. Links to other notebooks are plain text, since the page may be far from them.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape, unescape
from mimetypes import guess_type
from pathlib import Path
from typing import NamedTuple

from nbconvert.filters import Highlight2HTML, ansi2html
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

KINDS = {"heading": "heading", "paragraph": "paragraph", "block_quote": "quote", "list": "list", "table": "table",
         "block_code": "code"}
DARK = re.compile(r"@media \(prefers-color-scheme: ?dark\)\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
highlight = Highlight2HTML()


class Block(NamedTuple):
    """A piece of a cell.

    Attributes:
        kind: heading, paragraph, bold (a paragraph that is bold throughout), drawing, quote, list, table, code,
            answer (folded away in the notebook), html, figure or output.
        html: how it looks.
        text: its words, without markup.
        level: of a heading, 1 to 6; else 0.
    """

    kind: str
    html: str
    text: str
    level: int = 0


class PageRenderer(IPythonRenderer):
    """Markdown to HTML for a page that stands alone, on light paper."""

    def __init__(self, folder: Path) -> None:
        super().__init__(escape=False, exclude_anchor_links=True)
        self.folder = folder

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """An image with its file inside."""
        return super().image(text, url if ":" in url else data_url(self.folder / url), title)

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link to the web; any other is its text alone."""
        return super().link(text, url, title) if url.startswith(("https://", "http://")) else text


def data_url(path: Path) -> str:
    """A file as an address that holds it. Of a drawing, the colours for dark paper are left out.

    Raises:
        FileNotFoundError: there is no such file.
    """
    data = path.read_bytes()
    if path.suffix == ".svg":
        data = DARK.sub("", data.decode()).encode()
    return f"data:{guess_type(path.name)[0]};base64,{b64encode(data).decode()}"


def markdown_blocks(source: str, folder: Path) -> list[Block]:
    """The blocks of a Markdown cell, in their order.

    Args:
        folder: where its images are.

    Raises:
        FileNotFoundError: an image is missing.
    """
    tokens, state = MarkdownWithMath(renderer=None).parse(source)
    renderer = MarkdownWithMath(renderer=PageRenderer(folder)).renderer
    blocks = []
    for token in (part for whole in tokens for part in apart(whole)):
        if token["type"] not in ("blank_line", "thematic_break"):
            html = renderer.render_tokens([token], state)
            blocks.append(Block(kind_of(token, html), html, plain(html), token.get("attrs", {}).get("level", 0)))
    return blocks


def apart(token: dict) -> list[dict]:
    """A block quote and the answers folded away inside it, one after the other; any other token alone."""
    if token["type"] != "block_quote":
        return [token]
    answers = [child for child in token["children"] if is_answer(child)]
    rest = [child for child in token["children"] if not is_answer(child)]
    return [token | {"children": rest}, *answers] if rest else answers


def is_answer(token: dict) -> bool:
    """Whether a token is HTML that is folded away."""
    return token["type"] == "block_html" and token["raw"].lstrip().startswith("<details")


def kind_of(token: dict, html: str) -> str:
    """The kind of the block that a token of the parser is."""
    if is_answer(token):
        return "answer"
    kind = KINDS.get(token["type"], "html")
    if kind == "paragraph":
        parts = {child["type"] for child in token["children"]} - {"softbreak"}
        return {("image",): "drawing", ("strong",): "bold"}.get(tuple(parts), kind)
    return kind


def plain(html: str) -> str:
    """The words of a piece of HTML, on one line.

    >>> plain("<p>A <em>few</em> words &amp;\\n more</p>")
    'A few words & more'
    """
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


def answer_html(html: str) -> str:
    """What is inside a `<details>`, without its summary.

    >>> answer_html("<details><summary>Answer</summary>0.28.</details>")
    '0.28.'
    """
    inner = re.sub(r"\s*<summary>.*?</summary>", "", html, flags=re.S)
    return re.sub(r"</?details[^>]*>", "", inner).strip()


def summary(html: str) -> str:
    """The line that is seen of a `<details>`, as plain text.

    >>> summary("<details><summary>Answer</summary>0.28.</details>")
    'Answer'
    """
    return plain(re.search(r"<summary>(.*?)</summary>", html, re.S)[1])


def source_block(cell: NotebookNode) -> Block:
    """The code of a cell, in colours."""
    return Block("code", highlight(cell.source), cell.source)


def output_blocks(cell: NotebookNode) -> Iterator[Block]:
    """What a code cell has printed and shown, as it is stored."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data:
            yield Block("figure" if "<img" in data["text/html"] else "output", data["text/html"],
                        data.get("text/plain", ""))
        elif "text/markdown" in data:
            yield from markdown_blocks(data["text/markdown"], Path())
        elif text := output.get("text") or data.get("text/plain"):
            yield Block("output", f'<pre class="output">{ansi2html(text.rstrip())}</pre>', text)


def running_heads(notebook: NotebookNode) -> list[str]:
    """For each cell the section that it begins in, as plain text: the last heading of level 2 before it."""
    section, heads = "", []
    for cell in notebook.cells:
        heads.append(section)
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^## (.+)$", re.sub(r"```.*?```", "", cell.source, flags=re.S), re.M):
                section = plain(MarkdownWithMath(renderer=IPythonRenderer(exclude_anchor_links=True)).render(heading))
    return heads


def title_of(notebook: NotebookNode) -> str:
    """The heading of the title cell, such as `03 · Attention`."""
    return re.sub(r"^#\s+", "", notebook.cells[0].source.split("\n", 1)[0])


def attribute(text: str) -> str:
    """A text for the inside of an HTML attribute."""
    return escape(text, quote=True)
