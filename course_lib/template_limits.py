"""A sandbox for chat templates that also ends: steps are counted, and sizes are limited.

A checkpoint's template is a program by somebody else. Jinja's sandbox keeps it away from Python's objects, but not
from loops without an end and strings without a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

import regex
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 200_000  # rounds of loops, calls, and for every sixteen items of a list that is worked on, one
MAX_SECONDS = 20  # for what the counting misses, such as a search through a long text in every round
MAX_LENGTH = 20_000_000  # characters of one text, items of one nested list
MAX_TOTAL = 500_000_000  # characters of all texts that are made

GROWTH: dict[str, Callable[..., int]] = {  # what a method or filter will make, where it can be much from little
    "replace": lambda text, old="", new="", *_, **__: (str(text).count(str(old)) + 1) * len(str(new)),
    "join": lambda one, other="", *_, **__: sized(one) * sized(other),
    "indent": lambda text, width=4, *_, **__: (str(text).count("\n") + 1) * length_of(width),
    "expandtabs": lambda text, size=8, *_, **__: str(text).count("\t") * length_of(size),
    "format": lambda text, *values, **__: widest(text, values),
    "tojson": lambda value, *_, indent=0, **__: length_of(indent),
    **dict.fromkeys(("batch", "slice"), lambda items, n=0, *_, **__: length_of(n)),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), lambda text, width=80, *_, **__: length_of(width)),
}


class Meter:
    """What one rendering has used so far."""

    def __init__(self) -> None:
        self.steps = self.total = 0
        self.end = time.monotonic() + MAX_SECONDS

    def step(self, *values: Any) -> None:
        """Count a step, and more for long lists that it works on."""
        self.steps += 1 + sum(len(value) // 16 for value in values if isinstance(value, (list, tuple, Mapping, range)))
        if self.steps > MAX_STEPS:
            raise SecurityError(f"it takes more than {MAX_STEPS:,} steps")
        if time.monotonic() > self.end:
            raise SecurityError(f"it takes more than {MAX_SECONDS} seconds")

    def weigh(self, value: Any) -> Any:
        """The value itself, unless it is too large; what it holds is counted."""
        if isinstance(value, str):
            self.total += len(value)
            self.limit(len(value))
            if self.total > MAX_TOTAL:
                raise SecurityError(f"it makes more than {MAX_TOTAL:,} characters")
        elif isinstance(value, (list, tuple, Mapping)):
            self.count_items(value)
        elif isinstance(value, int) and value.bit_length() > 10_000:
            raise SecurityError("it computes with numbers of more than 10,000 bits")
        return value

    def count_items(self, value: Any) -> None:
        """Count every item of nested lists, as often as it would be printed."""
        pending, n = [value], 0
        while pending:
            item = pending.pop()
            n += len(item) if isinstance(item, str) else 1
            self.limit(n)
            if isinstance(item, (list, tuple, Mapping)):
                self.step(item)
                pending += [*item.keys(), *item.values()] if isinstance(item, Mapping) else item

    def limit(self, length: int) -> None:
        """Refuse a length beyond the limit."""
        if length > MAX_LENGTH:
            raise SecurityError(f"it makes more than {MAX_LENGTH:,} characters at once")


METER: ContextVar[Meter] = ContextVar("METER")


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """A sandboxed environment whose templates are counted by the `Meter` in `METER` while they run."""

    intercepted_binops = frozenset("+ - * / // % **".split())

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self.weigh, **options)
        self.globals.pop("lipsum", None)  # random words, any number of them
        self.filters = {name: self.limited(name, function) for name, function in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return Counted().visit(super()._parse(source, name, filename))

    def step(self) -> str:
        """Count one round of a loop or one call of a macro; nothing is printed."""
        METER.get().step()
        return ""

    def weigh(self, value: Any) -> Any:
        """The value, if its size is allowed; while a template is compiled, any."""
        meter = METER.get(None)
        return value if meter is None else meter.weigh(value)

    def concat(self, chunks: Iterable[str]) -> str:
        """What a template, macro or block prints, joined."""
        meter, kept, length = METER.get(None) or Meter(), [], 0
        for chunk in chunks:
            kept.append(chunk)
            length += len(chunk)
            meter.limit(length)
        return "".join(kept)

    def tilde(self, *values: Any) -> str:
        """The operator ~."""
        return self.weigh("".join(str(self.weigh(value)) for value in values))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operator on numbers, texts or lists."""
        if operator == "*":
            METER.get().limit(max(length_of(left) * sized(right), length_of(right) * sized(left)))
        if operator == "%" and isinstance(left, str):
            METER.get().limit(widest(left, right))
        if operator == "**":
            METER.get().limit(length_of(right) * length_of(left).bit_length())
        return self.weigh(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of a method or function."""
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if owner is __self:  # one of the counting calls
            return __obj(*args)
        METER.get().step(owner, *args)
        growth = GROWTH.get(getattr(__obj, "__name__", ""))
        if growth is not None and isinstance(owner, str):
            METER.get().limit(growth(owner, *args, **kwargs))
        return __self.weigh(super().call(__context, __obj, *args, **kwargs))

    def limited(self, name: str, function: Callable) -> Callable:
        """A filter that counts a step and weighs what it makes."""
        @wraps(function)
        def counted(*args: Any, **options: Any) -> Any:
            values = args[1:] if hasattr(function, "jinja_pass_arg") else args  # without jinja2's own context
            METER.get().step(*values)
            if name in GROWTH:
                METER.get().limit(GROWTH[name](*values, **options))
            return self.weigh(function(*args, **options))

        return counted


class Counted(NodeTransformer):
    """Puts the counting calls into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        """A step for every round."""
        self.generic_visit(node)
        node.body.insert(0, step_node(node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        """A step for every call."""
        self.generic_visit(node)
        node.body.insert(0, step_node(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        """The text is weighed."""
        self.generic_visit(node)
        return call_node("tilde", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Call:
        """So is a list, a tuple or a dict that is written out."""
        self.generic_visit(node)
        return call_node("weigh", [node], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        """Unless names are unpacked into it."""
        return self.visit_List(node) if node.ctx == "load" else node

    visit_Dict = visit_List


def call_node(method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    """A call of a method of the environment, out of a template's reach."""
    return nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None).set_lineno(line)


def step_node(line: int) -> nodes.ExprStmt:
    """A statement that counts a step."""
    return nodes.ExprStmt(call_node("step", [], line)).set_lineno(line)


def length_of(value: Any) -> int:
    """A number as a length; 0 for what is none."""
    if not isinstance(value, (int, float)) or value != value:
        return 0
    return int(min(abs(value), 2**70))


def sized(value: Any) -> int:
    """How long a text or list is; 0 for what has no length."""
    return len(value) if isinstance(value, (str, list, tuple)) else 0


def widest(text: Any, values: Any) -> int:
    """The largest width that a format or, with a star, its values ask for."""
    numbers = [int(number[:12]) for number in regex.findall(r"\d+", str(text))]
    if "*" in str(text):
        numbers += map(length_of, values if isinstance(values, tuple) else (values,))
    return max(numbers, default=0)
