"""The pages about the library, written from its source without importing it: a page a stage, a page a room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from book.tools.docstrings import as_markdown, escaped
from book.tools.places import FILES, ONLY_NAMED, PACKAGES, ROOMS, ROOT

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LIBRARY = ROOT / "course_lib"
WIDTH = 88


def pages() -> dict[str, str]:
    """All of them, by their names without a suffix."""
    made = {"api/index": index()}
    for path in sorted(LIBRARY.glob("*.py")):
        if not path.stem.startswith("__"):
            made[f"api/{path.stem}"] = module_text(path, path.stem, level=1)
    for folder in sorted({*PACKAGES, *ROOMS}):
        made[f"api/{folder}"] = "\n\n".join(room(LIBRARY / folder))
    return made


def index() -> str:
    """What the library holds: the two tables of README, with links."""
    readme = (ROOT / "README.md").read_text("utf-8")
    pipeline, rooms = (table(readme, head) for head in ("| module | what it answers |", "| room | what is in it |"))
    return "\n\n".join(["# The library", "The top of `course_lib` is the pipeline, one module a stage. Every page is "
                        "written from the docstrings, and most of them hold examples that run as tests.", pipeline,
                        "Four rooms lie around it. Imports only go down: [how the rooms lie](../architecture.html).",
                        rooms, "## What `from course_lib import …` gives", front()])


def table(readme: str, head: str) -> str:
    """A table of README in which each module of the first column is a link to its page."""
    text = readme[readme.index(head):].split("\n\n")[0]
    lines = []
    for line in text.split("\n"):
        first, rest = line[1:].split("|", 1)
        linked = re.sub(r"`(\w+)`", lambda name: f"[`{name[1]}`]({name[1]}.html)" if page_exists(name[1]) else name[0],
                        first)
        lines.append(f"|{linked}|{rest}")
    return "\n".join(lines)


def page_exists(name: str) -> bool:
    """Whether a stage or a room of this name has a page."""
    return (LIBRARY / f"{name}.py").exists() or name in {*PACKAGES, *ROOMS}


def front() -> str:
    """The names of the front door, each with a link to where it is defined."""
    tree = ast.parse((LIBRARY / "__init__.py").read_text("utf-8"))
    links = [f"[`{alias.name}`]({node.module.split('.')[1]}.html#{alias.name})" for node in tree.body
             if isinstance(node, ast.ImportFrom) and node.module and node.module.count(".") == 1
             for alias in node.names]
    return ", ".join(sorted(links, key=str.lower)) + "."


def room(folder: Path) -> Iterator[str]:
    """A folder of modules: what it is, then each module."""
    yield f"# {folder.name}"
    yield docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name and (len(parts) == 1 or parts[0] not in ONLY_NAMED or parts[1] == "__init__"):
            yield module_text(path, name, level=2)


def module_text(path: Path, name: str, *, level: int) -> str:
    """A module: its docstring, then its public functions and classes in the order of the file."""
    tree = ast.parse(path.read_text("utf-8"))
    source = f"{FILES}/{path.relative_to(ROOT).as_posix()}.txt"
    parts = [f"{'#' * level} {escaped(name)}", anchor(name), docstring(tree), f"[Source](../{source})"]
    for node in public(tree):
        parts += definition(node, node.name, prefix="" if level == 1 else f"{name}.", headings=level == 1)
    return "\n\n".join(filter(None, parts))


def definition(node: Definition, title: str, *, prefix: str, headings: bool) -> Iterator[str]:
    """A function, or a class with its public methods.

    Args:
        headings: name them in headings, which the list of contents shows; on the page of a room they are too many.
    """
    yield f"{'###' if '.' in title else '##'} `{title}`" if headings else f"**`{title}`**"
    yield anchor(prefix + title)
    yield f"```python\n{signature(node)}\n```"
    yield docstring(node)
    if isinstance(node, ast.ClassDef):
        for method in public(node):
            yield from definition(method, f"{title}.{method.name}", prefix=prefix, headings=headings)


def public(node: ast.Module | ast.ClassDef) -> list[Definition]:
    """What is defined in it under a name without an underscore at its front, and says what it is."""
    return [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not child.name.startswith("_") and ast.get_docstring(child)]


def docstring(node: ast.Module | Definition) -> str:
    """Its docstring in Markdown, or nothing."""
    return as_markdown(ast.get_docstring(node) or "")


def anchor(name: str) -> str:
    """A place that a link can name."""
    return f'<div id="{name}" class="place"></div>'


def signature(node: Definition) -> str:
    """The head of a definition, on several lines if it is long."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        start = next((child for child in node.body if isinstance(child, ast.FunctionDef) and child.name == "__init__"),
                     None)
        head = f"class {node.name}({bases})" if bases else f"class {node.name}"
        return head if start is None else f"{head}\n\n{node.name}{parameters(start, own=True)}"
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    marks = "".join(f"@{ast.unparse(mark)}\n" for mark in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{marks}{word} {node.name}{parameters(node, room=WIDTH - len(node.name) - len(returns) - 4)}{returns}"


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, *, own: bool = False, room: int = WIDTH) -> str:
    """The parameters in brackets, without self where it is the class that is called."""
    names = list(written(node.args))[own:]
    line = ", ".join(names)
    if len(line) + 2 <= room:
        return f"({line})"
    return "(\n" + "".join(f"    {name},\n" for name in names) + ")"


def written(arguments: ast.arguments) -> Iterator[str]:
    """Each parameter with its type and its default, and the marks between them."""
    placed = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(placed) - len(arguments.defaults)) + arguments.defaults
    for i, (each, default) in enumerate(zip(placed, defaults), start=1):
        yield one(each, default)
        if i == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg or arguments.kwonlyargs:
        yield f"*{ast.unparse(arguments.vararg)}" if arguments.vararg else "*"
    yield from map(one, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def one(parameter: ast.arg, default: ast.expr | None) -> str:
    """A parameter as the style guide of Python writes it."""
    equals = "" if default is None else f"{' = ' if parameter.annotation else '='}{ast.unparse(default)}"
    return ast.unparse(parameter) + equals
