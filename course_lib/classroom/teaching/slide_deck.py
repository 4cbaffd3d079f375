"""Slides from the tags of a notebook's cells.

A cell tagged `slide` begins a slide, and one tagged `slide-more` is added to the slide above it; other cells are not
shown. Of a Markdown cell a slide shows what can be taken in at a glance: headings, drawings, block quotes, lists,
tables and code. A paragraph goes to the speaker's notes, unless it is bold throughout or sets a task. A folded answer
comes with the next key press, and what follows it on the slide with the one after. Of a code cell a slide shows what
it gave; with `slide-code` its source, too. The first slide is made of the title cell, and the last one of "What you
can now say".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from nbformat import NotebookNode

from course_lib.classroom.teaching.blocks import (
    Block,
    answer_html,
    markdown_blocks,
    output_blocks,
    plain,
    running_heads,
    source_block,
    summary,
    title_of,
)

BEGIN, MORE, CODE = "slide", "slide-more", "slide-code"
TAGS = {BEGIN, MORE, CODE}
CLOSING = "What you can now say"
SHOWN = {"heading", "bold", "drawing", "quote", "table", "code", "list", "figure", "output"}
PICTURE, CODE_ROWS, TEXT_ROWS = 0.5, 21, 18  # of a slide, and on a slide
CARDS = ("Exercise ", "Pencil ", "Open question")  # headings over a text that sets a task


@dataclass
class Slide:
    """One slide.

    Attributes:
        title: plain text.
        heading: what stands at its top, as HTML; empty if its cells have no heading.
        section: the section that it belongs to, plain text.
        blocks: what is shown.
        notes: what only the speaker sees, as HTML.
        cells: ids of the cells that it is made of.
    """

    title: str
    heading: str = ""
    section: str = ""
    kind: str = "plain"
    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)


def tags_of(cell: NotebookNode) -> set[str]:
    """The tags of a cell."""
    return set(cell.metadata.get("tags", ()))


def deck(notebook: NotebookNode, folder: Path) -> list[Slide]:
    """All slides of a notebook, the first and the last included.

    Args:
        folder: where the notebook's images are.

    Raises:
        FileNotFoundError: an image is missing.
    """
    slides = [title_slide(notebook, folder)]
    closing = closing_cell(notebook)
    for cell, section in zip(notebook.cells[1:], running_heads(notebook)[1:]):
        tags = tags_of(cell)
        if cell is closing or not tags & {BEGIN, MORE}:
            continue
        if BEGIN in tags or len(slides) == 1:
            slides.append(Slide(section, section=section))
        add(slides[-1], cell, folder)
    if closing is not None:
        slides.append(closing_slide(closing, folder))
    return slides


def closing_cell(notebook: NotebookNode) -> NotebookNode | None:
    """The cell that says what the reader can say at the end."""
    return next((cell for cell in notebook.cells if cell.cell_type == "markdown"
                 and re.search(rf"^#+ {CLOSING}", cell.source, re.M)), None)


def add(slide: Slide, cell: NotebookNode, folder: Path) -> None:
    """Put the blocks of a cell on a slide: those to show, and the others into its notes."""
    slide.cells.append(cell.get("id", ""))
    if cell.cell_type == "code":
        slide.blocks += [source_block(cell)] if CODE in tags_of(cell) else []
        slide.blocks += output_blocks(cell)
        return
    task = False
    for block in markdown_blocks(cell.source, folder):
        if block.kind == "heading":
            task = block.text.startswith(CARDS)
            if not slide.heading:
                slide.heading, slide.title = inner(block), block.text
                slide.section = "" if block.level < 3 else slide.section
                continue
        if block.kind in SHOWN or block.kind == "answer" or (task and block.kind == "paragraph"):
            slide.blocks.append(block)
        else:
            slide.notes.append(block.html)


def title_slide(notebook: NotebookNode, folder: Path) -> Slide:
    """Title, question, strip of the course; the rest of the cell is for the speaker, but for drawings and lists."""
    slide = Slide(title_of(notebook), kind="title", cells=[notebook.cells[0].get("id", "")])
    heading, *rest = markdown_blocks(notebook.cells[0].source, folder)
    slide.heading = inner(heading)
    question = opening_question(rest)
    for block in rest:
        shown = block.kind in ("drawing", "list")
        if question and question in block.html:
            slide.blocks.append(Block("question", f"<p>{question}</p>", plain(question)))
            if block.kind == "bold":
                continue
        (slide.blocks.append(block) if shown else slide.notes.append(block.html))
    return slide


def opening_question(blocks: list[Block]) -> str:
    """The first bold text that ends with a question mark, or the first that is bold at all, as HTML; "" without."""
    bold = re.findall(r"<strong>(.*?)</strong>", "".join(b.html for b in blocks if b.kind in ("paragraph", "bold")),
                      re.S)
    return next((text for text in bold if text.endswith("?")), bold[0] if bold else "")


def closing_slide(cell: NotebookNode, folder: Path) -> Slide:
    """What the reader can say; what comes after the next heading is for the speaker."""
    slide, inside = Slide(CLOSING, kind="closing", cells=[cell.get("id", "")]), False
    for block in markdown_blocks(cell.source, folder):
        if block.kind == "heading":
            inside = block.text.startswith(CLOSING)
            if inside:
                slide.heading = inner(block)
                continue
        (slide.blocks if inside else slide.notes).append(block if inside else block.html)
    return slide


def inner(heading: Block) -> str:
    """The HTML inside a heading."""
    return re.sub(r"^\s*<h\d[^>]*>|</h\d>\s*$", "", heading.html)


def shown_html(slide: Slide) -> Iterator[str]:
    """The blocks as they stand on the slide.

    An answer is a fragment, which appears with a key press, and so is all that comes after it: a drawing or an output
    would give the answer away.
    """
    step = 0
    for block in slide.blocks:
        words, html = block.kind, block.html
        if block.kind == "answer":
            step, html = step + 2, f'<p class="label">{escape(summary(block.html))}</p>{answer_html(block.html)}'
        elif block.kind == "quote":
            words += " " + re.match(r"\w*", block.text)[0].lower()
        later = f' data-fragment-index="{step - (block.kind == "answer")}"' if step else ""
        yield f'<div class="block {words}{" fragment" if step else ""}"{later}>{html}</div>'


def without_output(notebook: NotebookNode) -> Iterator[str]:
    """Ids of the cells whose output is to be shown, and which have none, as in an edition for students."""
    for cell in notebook.cells:
        tags = tags_of(cell)
        if cell.cell_type == "code" and tags & {BEGIN, MORE} and CODE not in tags and not cell.get("outputs"):
            yield cell.get("id")


def warnings(notebook: NotebookNode, slides: list[Slide]) -> Iterator[str]:
    """What the tags of a notebook will not do as they seem to say."""
    if not any(BEGIN in tags_of(cell) for cell in notebook.cells):
        yield f"no cell is tagged {BEGIN!r}: there are only the first and the last slide"
    begun = False
    for cell in notebook.cells:
        tags, name = tags_of(cell), f"cell {cell.get('id')}"
        begun |= BEGIN in tags
        if MORE in tags and not begun:
            yield f"{name} is tagged {MORE!r}, and no slide has begun above it"
        if {BEGIN, MORE} <= tags:
            yield f"{name} is tagged both {BEGIN!r} and {MORE!r}: it begins a slide"
        if CODE in tags and (cell.cell_type != "code" or not tags & {BEGIN, MORE}):
            yield f"{name}: {CODE!r} is for code cells, beside {BEGIN!r} or {MORE!r}"
        if "hide-cell" in tags and tags & TAGS:
            yield f"{name} is folded away in the notebook (hide-cell), but shown on a slide"
        if odd := sorted(tag for tag in tags - TAGS if tag.startswith("slide")):
            yield f"{name}: no such tag: {', '.join(odd)}; there are {', '.join(sorted(TAGS))}"
    for name in without_output(notebook):
        yield f"cell {name} has no output to show; {CODE!r} would show its source"
    for index, slide in enumerate(slides, 1):
        if not slide.blocks:
            yield f"slide {index}, {slide.title!r}, shows nothing but its heading: its text is in the notes"
        if slide.kind == "plain" and (load := weight(slide)) > 1:
            yield f"slide {index}, {slide.title!r}, is about {load:.1f} times full: it is continued on another"


def weight(slide: Slide) -> float:
    """About how full a slide is; 1 is full. The page itself measures, and does what is needed."""
    total = 0.0
    for block in slide.blocks:
        if block.kind in ("drawing", "figure"):
            total += PICTURE
        elif block.kind in ("code", "output"):
            total += (block.text.rstrip().count("\n") + 2) / CODE_ROWS
        else:
            total += (1 + len(block.text) // 90 + max(1, block.html.count("<li"), block.html.count("<tr"))) / TEXT_ROWS
    return total
