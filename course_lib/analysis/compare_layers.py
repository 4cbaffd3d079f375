"""Two models, one input: how far apart they are after each module, and the first that differs.

The models meet by the names of their modules, which are Llama's names here and in `transformers`; the
names of GPT-2 are translated. Everything both have is compared, in the order in which it runs, down to
the single projection, so the first difference is where to look. It has one of two causes. Where both
models gave the module the same input, the module itself is at fault, its weights or its code. Where its
input differs already, the code that prepared this input is: that of a module further up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.config import require
from course_lib.weights import GPT2_NAMES

COARSE = re.compile(r"embed_tokens|layers\.\d+|norm|lm_head")


class Gap(NamedTuple):
    """How far two tensors are apart.

    Attributes:
        max_abs: the largest absolute difference; infinite where the shapes differ or NaN is met.
        scale: the largest absolute value of the reference.
    """

    max_abs: float
    scale: float

    def within(self, tolerance: float) -> bool:
        """Whether rounding explains it: a share `tolerance` of the largest value, or less."""
        return self.max_abs <= tolerance * self.scale


@dataclass(frozen=True)
class LayerDifference:
    """What two modules of one name did.

    Attributes:
        name: of the module, in Llama's names.
        output: how far their results are apart.
        input: how far what they were given is apart; None where that was no vectors.
        note: the shapes of the outputs, where they differ.
    """

    name: str
    output: Gap
    input: Gap | None
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """What `compare_layers` found; `print` shows one line per layer and the first difference."""

    rows: tuple[LayerDifference, ...]
    tolerance: float

    @property
    def first(self) -> LayerDifference | None:
        """The first module, in the order in which they finish, whose outputs differ; None: there is none."""
        return next((row for row in self.rows if not row.output.within(self.tolerance)), None)

    @property
    def culprit(self) -> str | None:
        """The module to look into: the innermost one that got equal input and ended in the difference."""
        if self.first is None:
            return None
        inputs = {row.name: row.input for row in self.rows}
        name = self.first.name
        while name and inputs.get(name) is not None and not inputs[name].within(self.tolerance):
            name = name.rpartition(".")[0].removesuffix("layers")
        return name or "the model itself"

    def __str__(self) -> str:
        lines = [f"{'module':12}  {'max |Δ|':>8}  of values up to"]
        for row in self.rows:
            if COARSE.fullmatch(row.name):
                differs = "" if row.output.within(self.tolerance) else "  differs"
                lines.append(f"{row.name:12}  {row.output.max_abs:8.1e}  {row.output.scale:8.1e}{differs}")
        return "\n".join([*lines, self.verdict()])

    def verdict(self) -> str:
        """Where to look, in one line."""
        if self.first is None:
            return f"No difference in {len(self.rows)} modules."
        given = "on the same input" if self.culprit == self.first.name else "and its input differs already"
        return f"First difference: {self.first.name}{self.first.note}, {given}. Look into {self.culprit}."


@torch.no_grad()
def compare_layers(model: nn.Module, reference: nn.Module, input_ids: Tensor, *,
                   tolerance: float = 1e-4) -> Comparison:
    """Run both models over `input_ids` (B, T) and compare the output of every module that both have.

    Args:
        model: the one in doubt; the rows follow the order in which its modules finish.
        reference: the one that is right, from here or from `transformers`.
        tolerance: what is put down to rounding, as a share of the largest value.

    Raises:
        ValueError: the two have no module of the same name.
    """
    ours, theirs = record(model, input_ids), record(reference, input_ids)
    common = [name for name in ours if name in theirs]
    require(bool(common), "reference", type(reference).__name__, "a model with modules of the same names")
    return Comparison(tuple(difference(name, *ours[name], *theirs[name]) for name in common), tolerance)


def record(model: nn.Module, input_ids: Tensor) -> dict[str, tuple[Tensor | None, Tensor]]:
    """Input and output of every module, by its Llama name, in the order in which they finish."""
    seen: dict[str, tuple[Tensor | None, Tensor]] = {}

    def hook(name: str) -> Any:
        def keep(_: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
            result = next(tensors(output), None)
            if result is not None and name not in seen:
                seen[name] = next(tensors((*args, *kwargs.values())), None), result
        return keep

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(hook(llama_name(name)), with_kwargs=True))
        model(input_ids)
    return seen


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a value: itself, or those in a tuple or list."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from tensors(item)


def llama_name(name: str) -> str:
    """The name of a module in Llama's naming, without the prefix that `transformers` gives it.

    >>> [llama_name(name) for name in ("model.layers.0.mlp", "transformer.h.3.attn.c_proj", "lm_head")]
    ['layers.0.mlp', 'layers.3.self_attn.o_proj', 'lm_head']
    """
    path = name.removeprefix("model.").removeprefix("transformer.").split(".")
    if path[-1] == "c_proj":
        path[-1] = "o_proj" if path[-2] == "attn" else "down_proj"
    return ".".join(GPT2_NAMES.get(part, part) for part in path)


def difference(name: str, our_input: Tensor | None, ours: Tensor, their_input: Tensor | None,
               theirs: Tensor) -> LayerDifference:
    """One row: what two modules of this name were given and made of it."""
    vectors = all(x is not None and x.is_floating_point() for x in (our_input, their_input))
    note = "" if ours.shape == theirs.shape else f" (shape {tuple(ours.shape)}, not {tuple(theirs.shape)})"
    return LayerDifference(name, gap(ours, theirs), gap(our_input, their_input) if vectors else None, note)


def gap(one: Tensor, reference: Tensor) -> Gap:
    """How far two tensors are apart."""
    reference = reference.cpu().double()
    scale = reference.abs().max().item()
    if one.shape != reference.shape:
        return Gap(float("inf"), scale)
    largest = (one.cpu().double() - reference).abs().max().item()
    return Gap(float("inf") if math.isnan(largest) else largest, scale)
