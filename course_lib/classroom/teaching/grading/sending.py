"""What the judge sends to a student's process: arguments, pickled, since that direction may be trusted.

Functions of a check and objects that count what is done to them stay in the judge. The student's process gets a proxy
for each, and every call of it is a message.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.classroom.attempt import fingerprint
from course_lib.classroom.cache_ladder import Buffers
from course_lib.classroom.checks.nb00 import CountedPositions, CountingModel
from course_lib.classroom.teaching.grading.values import as_sent
from course_lib.tokenizer import Tokenizer

# Objects whose methods run in the judge, since a check reads there what they have counted.
COUNTED = {CountingModel: ("forward",), CountedPositions: ("get_seq_length",)}


class Known(NamedTuple):
    """An object that the student's process has from an earlier call: there, too, it stays one object.

    Attributes:
        value: as the judge has it.
        looks: what it held when it was sent or last changed by a call.
    """

    value: Any
    looks: Any


def looks_of(value: Any) -> Any:
    """What an object holds that stays one object from call to call; None for all others."""
    if isinstance(value, torch.Generator):
        return fingerprint(value.get_state())
    if isinstance(value, Buffers):
        return fingerprint(vars(value))
    return fingerprint(value) if isinstance(value, nn.Module | Tokenizer) and type(value) not in COUNTED else None


class Outbox:
    """Pickles what goes to the student's process and keeps the functions that stay here.

    Args:
        known: what was sent before; what is sent for the first time is added.

    Attributes:
        functions: those that the student's process may call, by number.
        raised: what they raised.
        fresh: what was added to `known`; pickled last, so that the other process can number it in the same way.
    """

    def __init__(self, known: list[Known] | None = None) -> None:
        self.functions: list[Callable] = []
        self.raised: list[Exception] = []
        self.known, self.fresh = known, []

    def pickled(self, value: Any) -> bytes:
        """The bytes that `worker.Inbox` reads."""
        file = io.BytesIO()
        Outgoing(file, self).dump(value)
        return file.getvalue()

    def number_of(self, function: Callable) -> int:
        """Its number, which is new if the function is."""
        if function not in self.functions:
            self.functions.append(function)
        return self.functions.index(function)

    def place_of(self, value: Any) -> int | None:
        """The number under which the student's process has an object, unchanged; else it is noted as new."""
        if self.known is None or any(value is one for one in self.fresh) or (looks := looks_of(value)) is None:
            return None
        for number, one in enumerate(self.known):
            if one.value is value and one.looks == looks:
                return number
        self.known.append(Known(value, looks))
        self.fresh.append(value)
        return None


class Outgoing(pickle.Pickler):
    """A pickler that keeps functions back, and writes tensors with their strides."""

    def __init__(self, file: io.BytesIO, outbox: Outbox) -> None:
        super().__init__(file, protocol=5)
        self.outbox = outbox

    def persistent_id(self, value: Any) -> tuple[int, str | None] | None:
        """Number and name of a function that no import finds, or the number of what is known; None for all else."""
        if isinstance(value, MethodType) or (isinstance(value, FunctionType) and not importable(value)):
            return self.outbox.number_of(value), value.__name__
        if isinstance(value, nn.Module | Tokenizer | Buffers | torch.Generator):
            place = self.outbox.place_of(value)
            return None if place is None else (place, None)
        return None

    def reducer_override(self, value: Any) -> Any:
        """How tensors, generators and objects that count are made again."""
        if isinstance(value, Tensor):
            return tensor_parts(value)
        if isinstance(value, torch.Generator):
            return new_generator, (value.get_state(),)
        for kind, methods in COUNTED.items():
            if type(value) is kind:
                return new_counted, (kind, dict(vars(value)), {name: getattr(value, name) for name in methods})
        return NotImplemented


def importable(function: FunctionType) -> bool:
    """Whether it can be had by its name."""
    return getattr(sys.modules.get(function.__module__), function.__qualname__, None) is function


def tensor_parts(value: Tensor) -> tuple[Callable, tuple]:
    """The bytes of a tensor, and how they are read."""
    sent = as_sent(value)
    whole = sent.new_empty(0).set_(sent.untyped_storage())
    data = whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    layout = tuple(sent.shape), sent.stride(), sent.storage_offset()
    return new_tensor, (data, value.dtype, layout, value.requires_grad, isinstance(value, nn.Parameter))


def new_tensor(data: bytes, dtype: torch.dtype, layout: tuple, needs_gradient: bool, parameter: bool) -> Tensor:
    """The tensor of `tensor_parts`."""
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype) if data else torch.zeros(0, dtype=dtype)
    value = flat.as_strided(*layout)
    return nn.Parameter(value, needs_gradient) if parameter else value.requires_grad_(needs_gradient)


def new_generator(state: Tensor) -> torch.Generator:
    """A generator in this state."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def new_counted(kind: type, state: dict[str, Any], methods: dict[str, Callable]) -> Any:
    """An object whose methods of these names are in the judge."""
    value = kind.__new__(kind)
    vars(value).update(state)
    vars(value).update(methods)
    return value
