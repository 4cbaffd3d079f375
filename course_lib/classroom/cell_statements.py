"""Which statement of a notebook's cells, or of a file, gave a global name its value."""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Iterator, Mapping
from typing import Any

BINDS = ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME")


def last_statement(name: str, names: Mapping[str, Any]) -> str | None:
    """The source of the last statement that bound a name, if it is an assignment to this name alone, or a class.

    What was done to the value afterwards is not seen, so whether the statement gives it again has to be tried.

    Args:
        names: the global names among which it is.

    >>> last_statement("b", {"In": ["a = 1; b = {a}", "c = b"]})
    'b = {a}'
    """
    for text in texts(names):
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):  # never run, as in a cell that was stopped by it
            continue
        for node in reversed(body):
            if binds(node, name):
                return source_of(node, text) if binds_nothing_else(node) else None
    return None


def texts(names: Mapping[str, Any]) -> Iterator[str]:
    """Where the names were bound, the latest first: the cells that IPython keeps as `In`, or the file of a module."""
    cells = names.get("In")
    if isinstance(cells, list):
        yield from (cell for cell in reversed(cells) if isinstance(cell, str))
    elif isinstance(names.get("__file__"), str):
        yield "".join(linecache.getlines(names["__file__"]))


def binds(node: ast.stmt, name: str) -> bool:
    """Whether a statement outside functions gives a name a value, or takes it away."""
    code = compile(ast.Module([node], []), "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return any(i.opname in BINDS and i.argval == name for i in dis.get_instructions(code))


def binds_nothing_else(node: ast.stmt) -> bool:
    """Whether it is of the form `name = value`, or defines a class."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    assigns = isinstance(node, ast.Assign | ast.AnnAssign) and len(targets) == 1 and isinstance(targets[0], ast.Name)
    return assigns or isinstance(node, ast.ClassDef)


def source_of(node: ast.stmt, text: str) -> str:
    """The text of a statement, with the decorators of a class."""
    decorators = [f"@{ast.get_source_segment(text, one)}" for one in getattr(node, "decorator_list", ())]
    return "\n".join([*decorators, ast.get_source_segment(text, node)])
