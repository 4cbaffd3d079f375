"""What a function needs in order to run elsewhere: its source, and a line or a source for each global name it reads.

A function typed into a cell leans on what other cells have made. Modules and what they hold become import lines, plain
values become assignments, the reader's own functions and classes their source, and so on for the names that those
read. Of any other value the statement that made it is kept, if a cell has one; what else there is, is named.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from course_lib.classroom.attempt import is_readers
from course_lib.classroom.cell_statements import last_statement
from course_lib.classroom.value_lines import CannotBeWritten, import_from, import_of, literal


class Written(NamedTuple):
    """A function as text.

    Attributes:
        name: that `source` defines.
        source: its definition, without `@exercise`; comments as they were typed.
        needs: code that has to run before, for each name that it makes; in an order that works.
        again: those of the names whose code is a statement of the reader's, which may make another value than before.
    """

    name: str
    source: str
    needs: dict[str, str]
    again: tuple[str, ...] = ()


def write_down(function: Callable[..., Any], also: str = "") -> Written:
    """A function's source and what it needs.

    Args:
        also: another name under which the function knows itself, as in a check.

    Raises:
        CannotBeWritten: the source is not known, or a name in it has a value that cannot be written down.
    """
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        raise CannotBeWritten("it is no function with a `def`")
    if not is_readers(plain.__code__.co_filename):
        raise CannotBeWritten(f"it is not yours but {plain.__module__}'s")
    if plain.__closure__:
        raise CannotBeWritten(f"it was defined inside another function, whose {plain.__code__.co_freevars[0]} it uses: "
                              "define it in a cell by itself")
    name, source = definition(plain)
    needs, again = {}, []
    collect(source, plain.__globals__, needs, again, {name, also})
    if also and also != name and also in global_names(source):
        source = f"{source}\n{also} = {name}"
    return Written(name, source, needs, tuple(again))


def collect(source: str, names: Mapping[str, Any], needs: dict[str, str], again: list[str], done: set[str]) -> None:
    """Add to `needs` what the global names in a source are made of, the deepest first, and to `again` which of them
    a statement of the reader's makes.

    A name that is not bound to anything stays away, as it did in the notebook.

    Raises:
        CannotBeWritten: one cannot be written down.
    """
    for name in sorted(global_names(source) & names.keys() - done):
        done.add(name)
        code, deeper = code_for(name, names[name])
        if code is None:
            code, deeper = statement_for(name, names), names
            again.append(name)
        if deeper is not None:
            collect(code, deeper, needs, again, done)
        needs[name] = code


def code_for(name: str, value: Any) -> tuple[str | None, Mapping[str, Any] | None]:
    """Code that binds a name to this very value, and the global names that it reads, if it may read some.

    Raises:
        CannotBeWritten: it is of the reader's own, and cannot be had.
    """
    if isinstance(value, ModuleType):
        return import_of(name, value), None
    own = own_function(value)
    if own is not None:
        found, source = definition(own)
        return (source if found == name else f"{source}\n{name} = {found}"), own.__globals__
    return literal(name, value) or import_from(name, value), None


def statement_for(name: str, names: Mapping[str, Any]) -> str:
    """The reader's statement that made the value of a name.

    Raises:
        CannotBeWritten: there is none, or it makes other names as well.
    """
    statement = last_statement(name, names)
    if statement is None:
        raise CannotBeWritten(f"it uses {name}, a {type(names[name]).__name__}, and no statement {name} = ... in your "
                              "cells makes it: make it inside the function")
    return statement


def own_function(value: Any) -> FunctionType | OwnClass | None:
    """The function, or the class with its methods, if the reader wrote it outside other functions."""
    plain = inspect.unwrap(value) if callable(value) else value
    if isinstance(plain, FunctionType) and is_readers(plain.__code__.co_filename):
        return None if plain.__closure__ else plain
    if isinstance(plain, type) and (methods := own_methods(plain)):
        return OwnClass(plain, methods[0])
    return None


def own_methods(cls: type) -> list[FunctionType]:
    """Methods of a class that were typed by the reader."""
    functions = [getattr(member, "fget", None) or getattr(member, "__func__", member) for member in vars(cls).values()]
    return [f for f in functions if isinstance(f, FunctionType) and is_readers(f.__code__.co_filename)
            and f.__code__.co_filename != "<string>"]  # a dataclass writes that one


class OwnClass:
    """A class of the reader's: Python knows the source of its methods, and in their file is that of the class."""

    def __init__(self, cls: type, method: FunctionType) -> None:
        self.__name__, self.__globals__ = cls.__name__, method.__globals__
        self.file = method.__code__.co_filename


def definition(own: FunctionType | OwnClass) -> tuple[str, str]:
    """The name and the source of a definition, without `@exercise`.

    Raises:
        CannotBeWritten: Python does not know the source, or it is no statement of its own.
    """
    try:
        text = class_source(own) if isinstance(own, OwnClass) else textwrap.dedent(inspect.getsource(own))
        [node] = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise CannotBeWritten(f"the source of {own.__name__} is not known") from error
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Lambda):
        return node.targets[0].id, text.strip()
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        raise CannotBeWritten(f"{own.__name__} is no function with a `def`")
    lines = text.splitlines()
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "exercise":
            for i in range(decorator.lineno - 1, decorator.end_lineno):
                lines[i] = None
    return node.name, "\n".join(line for line in lines if line is not None).strip()


def class_source(own: OwnClass) -> str:
    """The last definition of a class in the cell of one of its methods."""
    lines = linecache.getlines(own.file)
    nodes = [node for node in ast.parse("".join(lines)).body
             if isinstance(node, ast.ClassDef) and node.name == own.__name__]
    node = nodes[-1] if nodes else None
    if node is None:
        raise OSError(f"no class {own.__name__} in {own.file}")
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "".join(lines[first - 1 : node.end_lineno])


def compile_text(source: str, filename: str = "<answer>") -> CodeType:
    """Compile a text whose annotations are not looked at."""
    return compile(source, filename, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)


def global_names(source: str) -> set[str]:
    """The global names that a definition reads, those of Python itself left out."""
    return set(read_names(compile_text(source))) - vars(builtins).keys()


def read_names(code: CodeType) -> Iterator[str]:
    """The names that a piece of code, and all that is defined in it, looks up outside its functions."""
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("LOAD_") and ("GLOBAL" in instruction.opname or "NAME" in instruction.opname):
            yield instruction.argval
    for inner in code.co_consts:
        if inspect.iscode(inner):
            yield from read_names(inner)


def load_written(written: Written, filename: str, also: str = "") -> Callable[..., Any]:
    """Run a text in a new module, and take the function out of it.

    The text is code: who can write it can do what this user can do. It is the reader's own, from the reader's own
    file, and runs with the same rights as it did in the notebook.

    Args:
        filename: under which errors name its lines.
        also: another name under which the function knows itself.

    Raises:
        Whatever the text raises.
    """
    title = filename.strip("<>")
    module = sys.modules[title] = ModuleType(title)  # where dataclasses look for the one that they are made in
    names = vars(module)
    for name, code in written.needs.items():
        run(code, f"<{name} of {title}>", names)
    run(written.source, filename, names)
    if also:
        names.setdefault(also, names[written.name])
    return names[written.name]


def run(code: str, filename: str, names: dict[str, Any]) -> None:
    """Execute a text; its lines are remembered, so that errors can show them."""
    linecache.cache[filename] = len(code), None, code.splitlines(True), filename
    exec(compile_text(code, filename), names)

