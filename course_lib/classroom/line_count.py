"""How many lines of a module are code."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType


def code_lines(module: ModuleType | str) -> int:
    """Lines that hold code: no blank ones, comments or docstrings.

    Args:
        module: a module, or source text.

    >>> code_lines("'A text.'\\n\\n# a remark\\nx = (1,\\n     2)\\n")
    2
    """
    source = module if isinstance(module, str) else inspect.getsource(module)
    docstrings = {number for node in ast.walk(ast.parse(source))
                  if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
                  for number in range(node.lineno, node.end_lineno + 1)}
    return sum(bool(line.strip()) and not line.strip().startswith("#") and number not in docstrings
               for number, line in enumerate(source.splitlines(), 1))
