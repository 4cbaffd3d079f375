"""One line that gives a global name its value again: an import, or a plain value."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from course_lib.classroom.attempt import is_readers

LONGEST_VALUE = 10_000  # characters of a value that is written down
PLAIN = (bool, int, float, complex, str, bytes, type(None))


class CannotBeWritten(ValueError):
    """A name that a function reads has a value that no source gives again; the message says which."""


def import_of(name: str, module: ModuleType) -> str:
    """The line that imports a module under this name.

    Raises:
        CannotBeWritten: it is a file of the reader's, which is not everywhere to be found.
    """
    full = module.__name__
    if is_readers(getattr(module, "__file__", None) or "<frozen>"):
        raise CannotBeWritten(f"it uses the module {full}, which is a file of your own: copy what it uses into a cell")
    return f"import {full}" if name == full else f"import {full} as {name}"


def import_from(name: str, value: Any) -> str | None:
    """The line that takes a value out of a package, or None: by its own account, or from where it is found."""
    if isinstance(value, torch.dtype):
        known = str(value).removeprefix("torch.")
        return f"from torch import {known}" + (f" as {name}" if name != known else "")
    own = getattr(value, "__name__", name)
    for known in dict.fromkeys((own, name)):
        for module in homes(value, known):
            return f"from {module} import {known}" + (f" as {name}" if name != known else "")
    return None


def homes(value: Any, known: str) -> Iterator[str]:
    """Modules of packages in which a value has this name: its own, then the one with the shortest name.

    A module that was not imported, such as that of a kept answer, is none of them, nor is the notebook, whatever the
    name is under which `sys.modules` has it: PyTorch makes it `__mp_main__` as well.
    """
    if not isinstance(known, str) or not known.isidentifier():
        return
    loaded = {name: module for name, module in list(sys.modules.items())
              if isinstance(module, ModuleType) and vars(module).get(known) is value and is_imported(module)
              and not is_readers(getattr(module, "__file__", None) or "<frozen>")}
    own = getattr(value, "__module__", None)
    yield from sorted(loaded, key=lambda name: (name != own, len(name), name))


def is_imported(module: ModuleType) -> bool:
    """Whether another process finds the module by its name."""
    return module is not sys.modules["__main__"] and getattr(module, "__spec__", None) is not None


def literal(name: str, value: Any) -> str | None:
    """`name = value` where the value is plain: numbers, text, and lists, tuples, sets and dicts of them."""
    if not is_plain(value):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} = float({str(value)!r})"
    text = repr(value)
    try:
        if len(text) > LONGEST_VALUE or ast.literal_eval(text) != value:
            return None
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # inf within a list, a set without items
        return None
    return f"{name} = {text}"


def is_plain(value: Any) -> bool:
    """Whether `repr` of it is a program that makes it."""
    if type(value) in (list, tuple, set):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(is_plain(part) for pair in value.items() for part in pair)
    return type(value) in PLAIN
