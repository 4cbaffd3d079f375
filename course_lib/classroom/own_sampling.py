"""Logits to ids with the reader's functions, the check of a draft, and weights moved to the reader's grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.classroom.engine_slots import Parts
from course_lib.config import SamplingParams
from course_lib.rounding import dequantize, unpack_int4
from course_lib.sampling import Ids, draw, has_penalties, params_of_rows, sample, uniform, widen
from course_lib.speculative import verify

PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
OFF = {name: getattr(SamplingParams(), name) for name in (*PENALTIES, "top_k", "top_p", "min_p")}
SAMPLING = ("apply_penalties", "apply_temperature", "apply_top_k", "apply_top_p", "apply_min_p", "softmax", "sample")


def own_filters(parts: Parts, logits: Tensor, params: Sequence[SamplingParams], prompt_ids: Ids | None,
                output_ids: Ids | None) -> Tensor:
    """The chain of exercises 07.5 and 07.1 to 07.4; what is not set is left out, as in `filter_logits`."""
    def of(name: str) -> list:
        return [getattr(one, name) for one in params]

    x = widen(logits)
    if any(map(has_penalties, params)):
        x = parts.apply_penalties(x, prompt_ids, output_ids, **{name: of(name) for name in PENALTIES})
    if any(t != 1 for t in of("temperature")):
        x = parts.apply_temperature(x, of("temperature"))
    if any(of("top_k")):
        x = parts.apply_top_k(x, of("top_k"))
    if any(p != 1 for p in of("top_p")):
        x = parts.apply_top_p(x, of("top_p"))
    if any(of("min_p")):
        x = parts.apply_min_p(x, of("min_p"))
    return x


def own_sample(parts: Parts, logits: Tensor, params: SamplingParams | Sequence[SamplingParams],
               generators: torch.Generator | Sequence[torch.Generator | None] | None = None, *,
               prompt_ids: Ids | None = None, output_ids: Ids | None = None) -> Tensor:
    """`course_lib.sampling.sample` with the reader's filters, and with exercise 07.6 for the draw."""
    rows = params_of_rows(params, widen(logits))
    if not parts.own(*SAMPLING):
        return sample(logits, params, generators, prompt_ids=prompt_ids, output_ids=output_ids)
    if generators is None or isinstance(generators, torch.Generator):
        generators = [generators] * len(rows)
    with torch.no_grad():
        x = own_filters(parts, logits.cpu(), rows, prompt_ids, output_ids)  # the answers make tensors on the CPU
        if parts.own("sample"):  # the filters have done their work
            plain = [replace(one, temperature=1.0 if one.temperature else 0.0, **OFF) for one in rows]
            return parts.sample(x, plain, generators).to(logits.device)
        levels = [uniform(g) if one.temperature else 0.0 for one, g in zip(rows, generators, strict=True)]
        return draw(parts.softmax(x), torch.tensor(levels, dtype=torch.float64)).to(logits.device)


def own_verify(parts: Parts, p_rows: Tensor, q_rows: Tensor, proposal: Sequence[int], uniforms: Tensor) -> list[int]:
    """`course_lib.speculative.verify` with exercise 12.3, or with 12.1 and 12.2 in a loop."""
    if parts.own("verify"):
        return parts.verify(p_rows, q_rows, proposal, uniforms)
    if not parts.own("accept", "residual"):
        return verify(p_rows, q_rows, proposal, uniforms)
    for i, token_id in enumerate(proposal):
        if not parts.accept(p_rows[i, token_id], q_rows[i, token_id], uniforms[i]):
            rest = parts.residual(p_rows[i], q_rows[i])
            return [*proposal[:i], draw(rest[None], uniforms[-1:]).item()]
    return [*proposal, draw(p_rows[len(proposal)][None], uniforms[-1:]).item()]


def rounded_weights(weights: Mapping[str, Tensor], parts: Parts, bits: int,
                    group_size: int | None) -> dict[str, Tensor]:
    """The weights of a model, each matrix moved to the grid of exercises 11.1 to 11.6, as numbers again.

    Symmetric above 4 bits. Up to 4 the codes use the whole range, and lie two in a byte for a moment. The tables of
    tokens do not change.
    """
    rounded = {}
    for name, weight in weights.items():
        is_matrix = weight.dim() == 2 and not name.startswith(("embed_", "lm_head"))
        rounded[name] = round_matrix(weight, parts, bits, group_size) if is_matrix else weight
    return rounded


def round_matrix(weight: Tensor, parts: Parts, bits: int, group_size: int | None) -> Tensor:
    """A matrix (N, K), every weight moved to its grid."""
    groups = parts.split_groups(weight.float(), group_size or "channel")  # (N, K / G, G)
    if bits > 4:
        scale, zero_point = parts.symmetric_scale(groups, bits), 0
    else:
        scale, zero_point = parts.asymmetric_scale(groups, bits)
    codes = parts.quantize_tensor(groups, scale, bits, zero_point=zero_point)
    if bits <= 4:
        codes = unpack_int4(parts.pack_int4(codes.view(weight.shape))).view(groups.shape)
    return dequantize(codes, scale, zero_point=zero_point).view(weight.shape).to(weight.dtype)
