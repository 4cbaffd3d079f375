"""What comes from a student's process, read in the judge: nothing in it can run, and what does not fit is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.classroom.checks.compare import cut
from course_lib.classroom.teaching.grading.values import (
    ARRAY_KINDS,
    CONTAINERS,
    DTYPES,
    MOST_AXES,
    PLAIN,
    RECORDS,
    TEXT_SHOWN,
    Malformed,
    as_sent,
    learning,
    parts,
    whole,
)

Gradients = Callable[[int, Tensor], list[Tensor | None]]
NAME_SHOWN = 60


class Opaque:
    """An object that stayed in the student's process: its type's name is known and a text, and it equals nothing.

    The class that a check sees is made by `opaque`, since checks name the type of what they refuse.
    """

    text = ""

    def __repr__(self) -> str:
        return self.text


def opaque(name: str, text: str) -> Opaque:
    """A value of a type of this name, shown as this text."""
    name = cut("".join(c if c.isidentifier() or c.isdigit() else "_" for c in name) or "object", NAME_SHOWN)
    return type(name, (Opaque,), {"text": cut(text, TEXT_SHOWN)})()


class FromStudent(torch.autograd.Function):
    """A tensor that the student's process computed; its gradients are computed there, too."""

    @staticmethod
    def forward(ctx: Any, gradients: Callable[[Tensor], list], value: Tensor, *arguments: Tensor) -> Tensor:
        """The value itself."""
        ctx.gradients, ctx.shapes = gradients, [(one.shape, one.dtype) for one in arguments]
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        """Gradients of the arguments, which the worker computes."""
        found = ctx.gradients(gradient)
        if len(found) != len(ctx.shapes) or any(one is not None and (one.shape, one.dtype) != wanted
                                                for one, wanted in zip(found, ctx.shapes)):
            raise Malformed("gradients that do not fit the arguments")
        return None, None, *found


class Reader:
    """Reads what a `Writer` wrote, in the judge; nothing in it can run, and what does not fit is refused.

    Args:
        blobs: the bytes beside the JSON.
        arguments: of the call, as the judge has them.
        gradients: asked with the number of a result and the gradient of what is made of it, it gives the gradient
            of each argument that needs one.
    """

    def __init__(self, blobs: bytes, arguments: Any = (), gradients: Gradients | None = None) -> None:
        self.blobs, self.kept, self.gradients = blobs, list(parts(arguments)), gradients
        self.readers: dict[str, Callable[[Any], Any]] = {
            "dict": self.read_dict, "bytes": self.take, "tensor": self.read_tensor, "array": self.read_array,
            "view": self.read_view, "argument": self.read_argument, "complex": self.read_complex,
            "integer": self.read_integer, "fraction": self.read_fraction, "namespace": self.read_namespace,
            "record": self.read_record, "object": self.read_object}

    def read(self, written: Any) -> Any:
        """The value.

        Raises:
            Malformed: no `Writer` writes this.
        """
        try:
            return self.read_any(written)
        except Malformed:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError,
                MemoryError) as error:
            raise Malformed(f"a value cannot be read: {type(error).__name__}") from error

    def read_any(self, written: Any) -> Any:
        """A value of any kind."""
        if isinstance(written, PLAIN):
            return written
        [(kind, content)] = written.items()
        if kind in CONTAINERS:
            return CONTAINERS[kind](self.read_any(item) for item in content)
        return self.readers[kind](content)

    def read_dict(self, content: list) -> dict:
        """Pairs of key and value."""
        return {self.read_any(key): self.read_any(item) for key, item in content}

    def take(self, place: list[int]) -> bytes:
        """The bytes at a place of the message, as first byte and length."""
        begin, length = whole(place[0]), whole(place[1])
        if begin + length > len(self.blobs):
            raise Malformed("a value lies outside the message")
        return bytes(self.blobs[begin : begin + length])

    def read_tensor(self, content: list) -> Tensor:
        """A tensor; one that depends on arguments can ask the worker for gradients."""
        name, shape, place, needs_gradient = content
        dtype, data = DTYPES[name], bytearray(self.take(place))
        fits(shape, dtype.itemsize, len(data))
        if not data:
            return torch.zeros(shape, dtype=dtype)
        if dtype == torch.bool:  # a byte other than 0 and 1 would be equal to neither
            flat = torch.frombuffer(data, dtype=torch.uint8) != 0
        else:
            flat = torch.frombuffer(data, dtype=dtype)
        value = flat.reshape(shape)
        if type(needs_gradient) is int and self.gradients:
            return FromStudent.apply(partial(self.gradients, whole(needs_gradient)), value, *learning(self.kept))
        return value.requires_grad_(needs_gradient is True and dtype.is_floating_point)

    def read_array(self, content: list) -> Any:
        """An array or a number of NumPy."""
        name, shape, place, single = content
        dtype, data = np.dtype(str(name)), self.take(place)
        if dtype.kind not in ARRAY_KINDS:
            raise Malformed("an array of objects")
        fits(shape, dtype.itemsize, len(data))
        array = np.frombuffer(data, dtype=dtype)
        array = (array != 0 if dtype.kind == "b" else array).reshape(shape).copy()
        return array[()] if single is True else array

    def read_argument(self, number: int) -> Any:
        """An argument that the judge has sent, itself."""
        return self.kept[whole(number)]

    def read_view(self, content: list) -> Tensor:
        """A view of such an argument."""
        number, offset, shape, stride = content
        base = self.kept[whole(number)]
        if not isinstance(base, Tensor) or len(shape) != len(stride) or len(shape) > MOST_AXES:
            raise Malformed("a view of what is no tensor")
        return as_sent(base).as_strided([*map(whole, shape)], [*map(whole, stride)], whole(offset))

    def read_complex(self, content: list) -> complex:
        """Two floats."""
        return complex(float(content[0]), float(content[1]))

    def read_integer(self, content: str) -> int:
        """An integer of any size, in hexadecimal digits."""
        return int(content, 16)

    def read_fraction(self, content: list) -> Fraction:
        """Numerator and denominator."""
        return Fraction(int(content[0], 16), int(content[1], 16))

    def read_namespace(self, content: list) -> SimpleNamespace:
        """Names and values."""
        return SimpleNamespace(**{str(name): self.read_any(item) for name, item in content})

    def read_record(self, content: list) -> Any:
        """A record of the course that is on the list, and of no other class."""
        return RECORDS[content[0]](**{str(name): self.read_any(item) for name, item in content[1]})

    def read_object(self, content: list) -> Opaque:
        """What is left of an object of any other kind: its type and how it is shown."""
        return opaque(str(content[0]), str(content[1]))


def fits(shape: list, size: int, nbytes: int) -> None:
    """Refuse a shape that needs another number of bytes.

    Raises:
        Malformed: it does, or has too many axes.
    """
    if len(shape) > MOST_AXES or math.prod(map(whole, shape)) * size != nbytes:
        raise Malformed("a shape that does not fit its numbers")
