"""What a check says when an answer is wrong, and the comparisons that find the first difference."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any

import torch

KINDS = {bool: "a bool", Integral: "an integer", Real: "a number", str: "a str", bytes: "bytes",
         list: "a list", tuple: "a tuple", Mapping: "a dict", torch.Tensor: "a tensor"}


class CheckFailed(Exception):
    """An answer that a check refuses.

    Args:
        expected: what a right answer gives, as text.
        got: what this answer gave, as text.
        where: the first place where the two differ.
        likely: the mistake that usually causes this difference.
    """

    def __init__(self, expected: str, got: str, where: str, likely: str) -> None:
        super().__init__(f"{where}; likely: {likely}")
        self.expected, self.got, self.where, self.likely = expected, got, where, likely


def expect_equal(got: Any, expected: Any, likely: str, *, where: str = "result") -> None:
    """Refuse `got` unless it is the same plain data: numbers, text, bytes, lists, tuples, dicts.

    A list is not a tuple and True is not 1; any mapping passes for a dict. NaN equals nothing.

    Raises:
        CheckFailed: they differ.
    """
    if difference := first_difference(got, expected, where):
        raise CheckFailed(show(expected), show(got), difference, misfit(got, expected) or likely)


def expect_diagnosis(got: Any, right: Mapping[str, str], mistakes: Collection[str], evidence: Mapping[str, str], *,
                     noun: str = "mistake") -> None:
    """Refuse `got` unless it names the mistake of each suspect.

    Args:
        right: the mistakes by the letters of the suspects.
        mistakes: all names to choose from.
        evidence: for each letter, what a wrong diagnosis leaves unexplained.
        noun: what they are, if they are no mistakes.

    Raises:
        CheckFailed: a letter is missing or unknown, or a mistake has another name or is not the one.
    """
    letters = sorted(got) if isinstance(got, dict) else got
    expect_equal(letters, sorted(right), f"return a dict with the letters {', '.join(sorted(right))} as keys",
                 where="the letters")
    for letter, name in got.items():
        if not (isinstance(name, str) and name in mistakes):
            raise CheckFailed(f"one of {', '.join(mistakes)}", show(name), f"result[{letter!r}]",
                              f"name the {noun}s as the list above does")
        if name != right[letter]:
            raise CheckFailed(f"the {noun} that explains all that it shows", show(name), f"result[{letter!r}]",
                              f"look at {letter} again: {evidence[letter]}")


def expect_close(got: Any, expected: torch.Tensor | Real, likely: str, *, rtol: float = 1e-5,
                 atol: float = 1e-6, where: str = "result") -> None:
    """Refuse `got` unless it is a tensor of the same shape, dtype and nearly the same values.

    With a number expected, a tensor of one element passes too. Integers and booleans must be equal,
    an infinity must be the same infinity, and NaN is always refused.

    Raises:
        CheckFailed: they differ.
    """
    if isinstance(expected, torch.Tensor):
        difference = tensor_difference(got, expected, where, rtol, atol)
    else:
        number = got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got
        if isinstance(number, Real) and not isinstance(number, bool):
            close = math.isclose(number, expected, rel_tol=rtol, abs_tol=atol)
            difference = None if close else f"{where} {versus(number, expected)}"
        else:
            difference = f"{where} is {kind(got)}, expected a number{no_return(got)}"
    if difference:
        raise CheckFailed(show(expected), show(got), difference, words_for(got, expected, likely))


def words_for(got: Any, expected: Any, likely: str) -> str:
    """The likely mistake: in the kind, the shape or the dtype where these differ, before anything in the values.

    An axis of another size may come from either, and both are said.
    """
    if isinstance(expected, Real) and isinstance(got, torch.Tensor) and got.numel() == 1:
        return likely  # it passes for a number
    words = misfit(got, expected)
    same_axes = isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor) and got.dim() == expected.dim()
    if words and same_axes and got.shape != expected.shape:
        return f"{words}; {likely}"
    return words or likely


def expect_number(got: Any, expected: Real, likely: str, *, rtol: float = 1e-5, atol: float = 1e-6,
                  where: str = "result") -> None:
    """Refuse `got` unless it is a plain number, no tensor, and nearly the expected one.

    Raises:
        CheckFailed: it is not.
    """
    expect_close(got, expected, likely, rtol=rtol, atol=atol, where=where)
    if isinstance(got, torch.Tensor):
        raise CheckFailed(show(expected), show(got), f"{where} is a tensor, expected a number",
                          "return a plain number: .item() takes it out of a tensor of one element")


def misfit(got: Any, expected: Any) -> str | None:
    """What is wrong with the kind, the shape or the dtype, which is said before anything about the values.

    >>> misfit((1, 2), [1, 2])
    'return a list, not a tuple'
    >>> misfit(torch.ones(2, 3), torch.ones(3, 2))
    'the axes are in another order: return the shape (3, 2), not (2, 3)'
    """
    if got is None:
        return "nothing comes back: a `return` is missing, or one of the branches has none"
    if isinstance(expected, torch.Tensor):
        return tensor_misfit(got, expected) if isinstance(got, torch.Tensor) else f"return a tensor, not {kind(got)}"
    if kind(got) != kind(expected) and not (isinstance(expected, Real) and isinstance(got, Real)):
        if not isinstance(got, torch.Tensor):
            return f"return {kind(expected)}, not {kind(got)}"
        return (f"return {kind(expected)}, not a tensor: .item() takes it out" if got.numel() == 1 else
                f"return {kind(expected)}, not a tensor: .item() takes out one number, .tolist() a list")
    if isinstance(expected, list | tuple):
        inner = (misfit(one, other) for one, other in zip(got, expected) if one is not None)  # None may be an answer
        return next(filter(None, inner), None)
    return None


def tensor_misfit(got: torch.Tensor, expected: torch.Tensor) -> str | None:
    """What is wrong with the shape or, where that is right, with the dtype."""
    shape, wanted = tuple(got.shape), tuple(expected.shape)
    if shape != wanted:
        mistake = ("there is an axis too many" if len(shape) > len(wanted) else
                   "an axis is missing" if len(shape) < len(wanted) else
                   "the axes are in another order" if sorted(shape) == sorted(wanted) else
                   "an axis has another size")
        return f"{mistake}: return the shape {wanted}, not {shape}"
    if got.dtype != expected.dtype:
        return (f"the result has another type than the exercise asks for: return {dtype(expected)}, not {dtype(got)}; "
                ".to(...) converts, and new tensors take dtype=...")
    return None


def first_difference(got: Any, expected: Any, where: str) -> str | None:
    """The first place where plain data differ, in words; None where they are equal.

    >>> first_difference([1, 2, 9], [1, 2, 3], "ids")
    'ids[2] is 9, expected 3'
    >>> first_difference({"a": 1}, {"a": 1, "b": 2}, "counts")
    "counts has no 'b'"
    """
    if kind(got) != kind(expected):
        return f"{where} is {kind(got)}, expected {kind(expected)}{no_return(got)}"
    if isinstance(expected, Mapping):
        return mapping_difference(got, expected, where)
    if isinstance(expected, list | tuple):
        for i, (one, other) in enumerate(zip(got, expected)):
            if difference := first_difference(one, other, f"{where}[{i}]"):
                return difference
        if len(got) != len(expected):
            return f"{where} has length {len(got)}, expected {len(expected)}"
        return None
    return None if got == expected else f"{where} {versus(got, expected)}"


def mapping_difference(got: Mapping, expected: Mapping, where: str) -> str | None:
    """`first_difference` of two dicts: first what is expected, in its order, then what is too much."""
    for key, value in expected.items():
        if key not in got:
            return f"{where} has no {show(key)}"
        if difference := first_difference(got[key], value, f"{where}[{show(key)}]"):
            return difference
    extra = [key for key in got if key not in expected]
    return f"{where} has {show(extra[0])}, which is not expected" if extra else None


def tensor_difference(got: Any, expected: torch.Tensor, where: str, rtol: float, atol: float) -> str | None:
    """The first difference of two tensors in kind, shape, dtype, then in row-major order of the values.

    >>> tensor_difference(torch.tensor([[1.0, torch.nan]]), torch.tensor([[1.0, 2.0]]), "weights", 0, 0)
    'weights[0, 1] is nan, expected 2'
    """
    if not isinstance(got, torch.Tensor):
        return f"{where} is {kind(got)}, expected a tensor{no_return(got)}"
    if got.shape != expected.shape:
        return f"{where} has shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"{where} has dtype {dtype(got)}, expected {dtype(expected)}"
    got, expected = got.detach().cpu(), expected.detach().cpu()
    if expected.is_floating_point():
        wrong = ~torch.isclose(got.double(), expected.double(), rtol=rtol, atol=atol)
    else:
        wrong = got != expected
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    place = f"{where}{list(index)}" if index else where
    return f"{place} {versus(got[index].item(), expected[index].item())}"


def kind(value: Any) -> str:
    """The sort of a value in words; sorts that Python code may exchange have the same word."""
    if value is None:
        return "None"
    return next((name for base, name in KINDS.items() if isinstance(value, base)),
                f"of type {type(value).__name__}")


def no_return(got: Any) -> str:
    """A question, where nothing came."""
    return " (is a `return` missing?)" if got is None else ""


def versus(got: Any, expected: Any) -> str:
    """`is 1, expected 2`, in as many digits as it takes to see that they differ."""
    for digits in (6, 17):
        one, other = show(got, digits=digits), show(expected, digits=digits)
        if one != other:
            break
    return f"is {one}, expected {other}"


def show(value: Any, limit: int = 160, digits: int = 6) -> str:
    """A value in one line of at most about `limit` characters, the same on every run and machine.

    >>> show(torch.tensor([[0.1, 2.0]]))
    'float32 tensor of shape (1, 2): 0.1, 2'
    >>> show(object())
    '<object object>'
    """
    if isinstance(value, torch.Tensor):
        numbers = [show(x, digits=digits) for x in value.detach().flatten()[:8].tolist()]
        more = ", ..." if value.numel() > 8 else ""
        return f"{dtype(value)} tensor of shape {tuple(value.shape)}: {', '.join(numbers)}{more}"
    try:
        if isinstance(value, Real) and not isinstance(value, Integral):
            return f"{float(value):.{digits}g}"
        text = repr(dict(value) if isinstance(value, Mapping) else value)
    except Exception:  # a class of the reader's own
        return f"a {type(value).__name__} that cannot be shown"
    return cut(without_addresses(text).replace("\n", " "), limit)


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= limit else f"{text[:limit]} ..."


def without_addresses(text: str) -> str:
    """The text of an object or an error without what changes from run to run."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def dtype(tensor: torch.Tensor) -> str:
    """The name of a tensor's dtype without the package."""
    return str(tensor.dtype).removeprefix("torch.")
