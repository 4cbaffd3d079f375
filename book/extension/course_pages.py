"""What Sphinx does not do by itself: exercises that fold, places named as on GitHub, pages without a kernel."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

EXERCISE = re.compile(r"Exercise \d+\.\d+")
ENDS = "</details><!-- exercise -->"
# One numbers sections when all are read, the other works for LaTeX alone.
SAFE = ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex")
KERNEL = {"init_thebe_core", "update_thebe_context"}
OPENS = '<details class="exercise" open><summary>'


def fold_exercises(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Open a block before the heading of each exercise; the notebook's text has put its end in place."""
    for section in doctree.findall(nodes.section):
        title = section.next_node(nodes.title)
        ends = any(ENDS in raw.astext() for raw in section.findall(nodes.raw))
        if ends and EXERCISE.match(title.astext()):
            section.insert(section.index(title), nodes.raw("", OPENS, format="html"))
            section.insert(section.index(title) + 1, nodes.raw("", "</summary>", format="html"))


def name_as_github_does(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give each heading the name, too, by which the Markdown files link to it; docutils leaves out digits in front."""
    taken = set(doctree.ids)
    for section in doctree.findall(nodes.section):
        title = section.next_node(nodes.title).astext()
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        if name not in taken:
            taken.add(name)
            section["ids"].append(name)


def without_kernel(app: Sphinx) -> None:
    """Take back the scripts that would let a page run code on a machine elsewhere."""
    for event in app.events.listeners.values():
        event[:] = [listener for listener in event if getattr(listener.handler, "__name__", "") not in KERNEL]


def read_in_parallel(app: Sphinx) -> None:
    """Say of extensions that do not say so themselves that pages may be read side by side."""
    for name in SAFE:
        app.extensions[name].parallel_read_safe = True


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("config-inited", lambda app, config: without_kernel(app))
    app.connect("builder-inited", read_in_parallel)
    app.connect("doctree-resolved", name_as_github_does)
    app.connect("doctree-resolved", fold_exercises)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
