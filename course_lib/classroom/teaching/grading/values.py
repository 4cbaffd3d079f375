"""What leaves a student's process on its way to the judge: plain data, written so that reading it runs nothing.

A pickle may call any function when it is read, so none is read from a student's process. What crosses is JSON with
raw bytes beside it: numbers, text, containers, tensors and arrays. An argument that comes back, or a view of one, is
named by its number. Of everything else only the name of its type and a short text cross, which equal nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.classroom.cache_ladder import Buffers
from course_lib.classroom.checks.compare import cut, without_addresses
from course_lib.costs import Flops

PLAIN = (bool, int, float, str, type(None))
LEAVES = (*PLAIN, bytes, complex, Fraction, set, frozenset, np.generic)  # Python may make one of two, or two of one
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128)}
ARRAY_KINDS = "biufc"
MOST_AXES = 32
RECORDS = {kind.__name__: kind for kind in (Flops,)}  # classes of the course that answers return, and checks know
LARGE = 1 << 64  # Python refuses to read long decimal numbers, so larger ones are written in hexadecimal
TEXT_SHOWN = 160
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class Malformed(ValueError):
    """What came from a student's process is no message of the protocol."""


def parts(value: Any) -> Iterator[Any]:
    """The objects in a value that a number can name, outermost first; both processes count in this order.

    Those are lists, dicts, tensors, functions and the like, each once, and what is in them; no tuple, number or text,
    of which Python may make one object of two.
    """
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, LEAVES) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            waiting += [*one.values()][::-1]
        elif isinstance(one, list | tuple):
            waiting += one[::-1]
        if not isinstance(one, tuple):
            yield one
        if isinstance(one, SimpleNamespace | Buffers) or (is_dataclass(one) and hasattr(one, "__dict__")):
            waiting += [*vars(one).values()][::-1]


class Writer:
    """Turns values into JSON and bytes, in the student's process.

    Args:
        arguments: of the call; one of them, or a view of a tensor in them, is written as its number.
    """

    def __init__(self, arguments: Any = ()) -> None:
        self.kept = list(parts(arguments))  # alive, so that no other object gets the id of one
        self.numbers = {id(one): i for i, one in enumerate(self.kept)}
        self.storages = {storage_of(one): i for i, one in enumerate(self.kept) if storage_of(one)}
        self.blobs = bytearray()
        self.graphs: list[Tensor] = []  # results with a gradient, which the judge may ask for

    def write(self, value: Any) -> Any:
        """The value as JSON; its bytes are appended to `blobs`."""
        if id(value) in self.numbers:
            return {"argument": self.numbers[id(value)]}
        if isinstance(value, Tensor):
            return self.write_tensor(value)
        if isinstance(value, np.ndarray | np.generic):
            return self.write_array(np.asarray(value), isinstance(value, np.generic))
        if isinstance(value, bytes | bytearray):
            return {"bytes": self.blob(value)}
        if isinstance(value, Mapping):
            return {"dict": [[self.write(key), self.write(item)] for key, item in value.items()]}
        for name, kind in CONTAINERS.items():
            if isinstance(value, kind):
                return {name: [self.write(item) for item in value]}
        return self.write_single(value)

    def write_single(self, value: Any) -> Any:
        """A value without parts."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):  # a subclass is written as what it is based on
            return int(value) if abs(value) < LARGE else {"integer": hex(value)}
        if isinstance(value, float):
            return float(value)
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, Fraction):
            return {"fraction": [hex(value.numerator), hex(value.denominator)]}
        if type(value) in RECORDS.values():
            return {"record": [type(value).__name__, [[name, self.write(item)] for name, item in vars(value).items()]]}
        if type(value) is SimpleNamespace:
            return {"namespace": [[name, self.write(item)] for name, item in vars(value).items()]}
        return {"object": [type(value).__name__, shown(value)]}

    def write_tensor(self, value: Tensor) -> Any:
        """Its bytes, type and shape, or of a kind that has no bytes how it is shown."""
        name = str(value.dtype).removeprefix("torch.")
        if name not in DTYPES or value.layout is not torch.strided or value.device.type == "meta":
            return {"object": ["Tensor", shown(value)]}
        graph = None
        if value.grad_fn is not None:
            self.graphs.append(value)
            graph = len(self.graphs) - 1
        elif (number := self.storages.get(storage_of(value))) is not None and value.dtype == self.kept[number].dtype:
            return {"view": [number, value.storage_offset(), [*value.shape], [*value.stride()]]}
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        flat = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain).flatten()  # strides of one number may be 0
        return {"tensor": [name, [*value.shape], self.blob(flat.view(torch.uint8).numpy().tobytes()),
                           value.requires_grad if graph is None else graph]}

    def write_array(self, value: np.ndarray, single: bool) -> Any:
        """Its bytes, type and shape; objects are only shown. `single` marks a number of NumPy."""
        if value.dtype.kind not in ARRAY_KINDS or value.dtype.itemsize > 16:
            return {"object": ["ndarray", shown(value)]}
        return {"array": [value.dtype.str, [*value.shape], self.blob(value.tobytes()), single]}

    def blob(self, data: bytes | bytearray) -> list[int]:
        """Append bytes; the place where they begin, and how many they are."""
        self.blobs += data
        return [len(self.blobs) - len(data), len(data)]


def storage_of(value: Any) -> int:
    """The address of a tensor's numbers; 0 for whatever has none."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not value.numel():
        return 0
    return value.untyped_storage().data_ptr()


def shown(value: Any) -> str:
    """A short text of an object, whatever its class does."""
    try:
        return cut(without_addresses(repr(value)), TEXT_SHOWN)
    except Exception:  # the student's own class
        return f"a {type(value).__name__} that cannot be shown"


def as_sent(value: Tensor) -> Tensor:
    """A tensor as the student's process gets it: with its strides, unless it shows little of what it is a view of."""
    value = value.detach()
    whole = value.untyped_storage().nbytes() // value.element_size()
    return value if whole <= 4 * value.numel() + 64 else value.clone(memory_format=torch.contiguous_format)


def learning(objects: Iterable[Any]) -> list[Tensor]:
    """The tensors that need a gradient."""
    return [one for one in objects if isinstance(one, Tensor) and one.requires_grad]


def whole(number: Any) -> int:
    """The number, if it is an integer from 0 on.

    Raises:
        Malformed: it is not.
    """
    if type(number) is not int or number < 0:
        raise Malformed("a size that is no size")
    return number
