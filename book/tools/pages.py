"""The pages that are no notebooks: home, glossary, claims, model card, and the Markdown files of the repository."""

from __future__ import annotations

import posixpath
from pathlib import Path

from book.tools.markdown import with_links, with_pictures
from book.tools.notebooks import both_papers
from book.tools.places import NAMED, ROOT, Places, relative
from course_lib.classroom.course_claims import course_claims
from course_lib.classroom.course_map import CHAPTERS
from course_lib.classroom.glossary import Term

MAP = "<!-- the map -->"  # where the home page wants it


def markdown_page(source: str, places: Places, *, root: Path = ROOT) -> tuple[str, str]:
    """The page of a Markdown file of the repository: its name and its text, with links and pictures of the site."""
    page = places.page(source)
    text = with_links((root / source).read_text("utf-8"),
                      lambda link: places.address(link, source=source, page=page))

    def picture(found: str) -> str:
        address = posixpath.basename(found[found.rindex("](") + 2:-1])
        return both_papers(f"{found[:found.rindex('](')]}]({relative(f'images/{address}', page)})")

    return page, with_pictures(text, picture)


def repository_pages(places: Places, *, root: Path = ROOT) -> dict[str, str]:
    """The pages of the site's own folder, of the instructors' and of CONTRIBUTING and the model card."""
    sources = [*sorted(path.relative_to(root).as_posix() for folder in ("book/*.md", "teaching/**/*.md")
                       for path in root.glob(folder)), *(source for source in NAMED if source != "README.md")]
    made = dict(markdown_page(source, places, root=root) for source in sources)
    made["index"] = made["index"].replace(MAP, course_map())
    return made


def course_map() -> str:
    """The notebooks with their minutes, as a table."""
    lines = ["| | notebook | you build | the lever | min |", "|---|---|---|---|---|"]
    for chapter in CHAPTERS:
        lines.append(f"| {chapter.number} | [{chapter.title}]({chapter.file}.html) | {chapter.builds} | "
                     f"{chapter.lever} | {chapter.core_minutes} + {chapter.further_minutes} |")
    return "\n".join(lines)


def glossary_page(terms: tuple[Term, ...]) -> str:
    """All terms, each with its meaning and a link to the cell that defines it."""
    files = {chapter.number: chapter for chapter in CHAPTERS}
    parts = ["# Glossary", "Every term of the course, in a sentence or two, with a link to the cell that defines it. "
             "In a notebook, the first use of a term links here.", letters(terms)]
    letter = ""
    for term in terms:
        if initial(term) != letter:
            letter = initial(term)
            parts.append(f"## {letter}")
        chapter = files[term.notebook]
        also = f" *(also: {', '.join(term.also)})*" if term.also else ""
        parts.append(f'<div id="{term.slug}" class="place"></div>\n\n**{term.term}**{also}\\\n'
                     f"{term.text} [{term.notebook}, {chapter.title}]({chapter.file}.html#cell-id={term.cell})"
                     "{.defined}")
    return "\n\n".join(parts)


def initial(term: Term) -> str:
    """The letter under which a term is found."""
    first = term.term[0].upper()
    return first if first.isascii() and first.isalpha() else "Other signs"


def letters(terms: tuple[Term, ...]) -> str:
    """A line of links to the letters."""
    initials = dict.fromkeys(initial(term) for term in terms)
    return " · ".join(f"[{letter}](#{letter.lower().replace(' ', '-')})" for letter in initials)


def claims_page(places: Places) -> str:
    """What people say, what was measured, the verdict."""
    rows = ["| | said | measured | verdict |", "|---|---|---|---|"]
    for claim in course_claims():
        link = with_links(claim.link, lambda link: places.address(link, source="notebooks/x.ipynb", page="claims"))
        cells = (str(claim.number), claim.said, f"{claim.measured} {link}", f"**{claim.verdict}** {claim.truth}")
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n\n".join([
        "# What people say, measured", f"{len(rows) - 2} things that people say about language models. Each is "
        "measured in a cell of a notebook, and the link leads to it. The numbers are those that the notebooks have "
        "stored. [Notebook 17](17_every_lever.html) shows the same table with the numbers of your own run.",
        "\n".join(rows)])
