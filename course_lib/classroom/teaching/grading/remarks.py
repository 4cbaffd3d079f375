"""What a teacher may want to look at in an answer. It is found by reading, so it proves nothing either way."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_lib.classroom.checks import find
from course_lib.classroom.teaching.grading.program import Program

# Names that no exercise needs, and with which an answer can reach for what is not its own.
ODD = {"exec", "eval", "compile", "__import__", "globals", "ctypes", "gc", "socket", "subprocess", "settrace",
       "setprofile", "_getframe", "f_back", "_exit", "fork", "kill", "setsid", "__subclasses__", "__globals__",
       "importlib", "b64decode", "marshal", "modules"}
ANSWERS = {"answers", "checks", "finished", "mutants", "solution"}


def remarks(program: Program) -> list[str]:
    """What stands out in the statements of an answer."""
    finished = find(program.exercise_id).finished.__name__
    nodes = [node for step in program.steps if not step.finished for node in ast.walk(step.node)]
    said = list(program.remarks)
    if any(takes_from_library(node, {finished}) for node in nodes):
        said.append("calls course_lib's version")
    elif any(takes_from_library(node, ANSWERS) for node in nodes):
        said.append("reads course_lib's answers or checks")
    if odd := sorted({name for node in nodes for name in names_in(node)} & ODD):
        said.append(f"uses {', '.join(odd)}")
    return said


def takes_from_library(node: ast.AST, names: set[str]) -> bool:
    """Whether a node imports one of the names from `course_lib`, or reads it as an attribute."""
    if isinstance(node, ast.ImportFrom):
        words = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
        return "course_lib" in words and bool(words & names)
    return isinstance(node, ast.Attribute) and node.attr in names


def names_in(node: ast.AST) -> Iterator[str]:
    """The names that a node says."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (getattr(node, "module", "") or "").split(".")
        yield from (part for alias in node.names for part in alias.name.split("."))
