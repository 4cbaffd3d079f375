"""`python -m course_lib class slides 03`: one HTML file with slides, made from the tags of the notebook's cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.teaching import slide_deck
from course_lib.classroom.teaching.notebook_files import notebook_file, read_notebook
from course_lib.classroom.teaching.slide_deck import Slide, deck, shown_html, warnings, without_output
from course_lib.classroom.teaching.templates import TEMPLATES, read
from course_lib.classroom.whole_file import write_whole
from course_lib.command_line import Parser

WIDTH, HEIGHT = 1280, 720


def page(path: Path) -> str:
    """The slides of a notebook as the text of one HTML file, which needs no network.

    Raises:
        UsageError: the file is no notebook.
        FileNotFoundError: an image is missing.
    """
    slides = deck(read_notebook(path), path.parent)
    return TEMPLATES.get_template("slides.html").render(
        slides=slides, shown=shown_html, title=slides[0].title, width=WIDTH, height=HEIGHT,
        styles=[read("reveal/reveal.css"), read("assets/slides.css")],
        scripts=[script(read(name)) for name in ("reveal/reveal.js", "reveal/notes.js", "assets/slides.js")])


def script(text: str) -> str:
    r"""JavaScript that may stand inside `<script>`: what looks like markup is inside its strings, and is escaped.

    >>> print(script("x = '<!-- </script>'"))
    x = '\x3c!-- \x3c/script>'
    """
    for opening in ("<!--", "<script", "</script"):
        text = text.replace(opening, rf"\x3c{opening[1:]}")
    return text


def listing(slides: Sequence[Slide]) -> list[str]:
    """A line for each slide: its number, title, and cells."""
    return [f"{index:3}  {slide.title}  [{', '.join(slide.cells)}]" for index, slide in enumerate(slides, 1)]


def slides(argv: Sequence[str]) -> int:
    """The command line; with --check the status is 1 if there are warnings."""
    parser = Parser(prog="python -m course_lib class slides", description=__doc__,
                    epilog=" ".join(slide_deck.__doc__.split("\n\n", 1)[1].split()))
    parser.add_argument("notebook", metavar="03", help="number of a notebook")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: 03_attention.slides.html, here")
    parser.add_argument("--check", action="store_true", help="write nothing: list the slides, and warn")
    options = parser.parse_args(argv)
    path = notebook_file(options.notebook)
    notebook = read_notebook(path)
    if options.check:
        made = deck(notebook, path.parent)
        found = list(warnings(notebook, made))
        print(*listing(made), *(f"warning: {line}" for line in found), sep="\n")
        return int(bool(found))
    out = options.out or Path(f"{path.stem}.slides.html")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, page(path))
    if empty := list(without_output(notebook)):
        print(f"warning: {path} was not run: {len(empty)} of its cells have no output to show: {', '.join(empty)}")
    print(f"{out}: open it in a browser; S shows the speaker's notes, ? the other keys")
    return 0
