"""Logits to a token: penalties, temperature, top-k, top-p, min-p, in this order, then one draw.

Each filter takes logits (B, V) and returns new ones in float32 (float64 stays), with -inf where a token
was removed. A setting is one number, or one for each row; a row's result never depends on its neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.config import SamplingParams, is_int, is_number, require

Setting = float | Sequence[float]
Ids = Sequence[Sequence[int]] | Tensor
PART = 2**16  # numbers that are worked on at a time, so that they stay in a processor's cache


def apply_temperature(logits: Tensor, temperature: Setting) -> Tensor:
    """Divide each row by its temperature, >= 0. The row's maximum is moved to 0 first: softmax cannot
    see that, and a tiny temperature cannot overflow. At 1 the row does not change; at 0, the limit, only
    the largest logit is left, the lowest id among equals.

    >>> apply_temperature(torch.tensor([[3.0, 2.0, 3.0]] * 2), [0.5, 0]).tolist()
    [[0.0, -2.0, 0.0], [3.0, -inf, -inf]]
    """
    x = widen(logits)
    temperatures = settings("temperature", temperature, x, lambda t: 0 <= t < math.inf, "finite and >= 0")
    limits = torch.finfo(x.dtype)
    divisors = [min(max(t, limits.tiny), limits.max) for t in temperatures]  # no 0 or inf after rounding
    top = x.amax(-1, keepdim=True)
    scaled = x - top.clamp(min=limits.min)  # the clamp: a row of nothing but -inf stays one
    scaled /= torch.tensor(divisors, dtype=x.dtype, device=x.device).view(-1, 1)
    if 1 in temperatures:
        scaled = torch.where(rows_where(temperatures, 1, x), x, scaled)
    if 0 in temperatures:
        only_first = torch.full_like(x, -torch.inf).scatter(-1, x.argmax(-1, keepdim=True), top)
        scaled = torch.where(rows_where(temperatures, 0, x), only_first, scaled)
    return scaled


def apply_top_k(logits: Tensor, k: int | Sequence[int]) -> Tensor:
    """Keep the k largest logits of each row, exactly k: ties at the border go to the lowest ids. 0: all.

    >>> apply_top_k(torch.tensor([[1.0, 2.0, 2.0, 2.0, 3.0]]), 3).tolist()
    [[-inf, 2.0, 2.0, -inf, 3.0]]
    """
    x = widen(logits)
    V = x.shape[1]
    ks = settings("top_k", k, x, lambda k: is_int(k) and k >= 0, "an integer >= 0 (0: off)")
    off = [not 0 < k < V for k in ks]
    longest = max((k for k in ks if 0 < k < V), default=0)
    if longest == 0:
        return x.clone()
    last = torch.tensor([[min(k or longest, longest) - 1] for k in ks], device=x.device)
    return keep(x, largest_mask(x, last, x.topk(longest).values), off)


def apply_top_p(logits: Tensor, p: Setting) -> Tensor:
    """Keep the smallest set of most likely tokens whose probability reaches p, in (0, 1]; 1 keeps all.

    A token stays while the probability before it, summed in float64, is below p, so the one that crosses
    p stays; equally likely tokens leave from the highest id down. If each logit is off by a relative u, a
    sum of probabilities is off by at most u * E|logit| <= u * (|max| + ln V). A sum within twice that of p
    (u is half of eps) has reached it, so that exact hits count. Source: Holtzman et al. 2020.

    >>> apply_top_p(torch.tensor([[0.2, 0.5, 0.3]]).log(), 0.8).isfinite().tolist()
    [[False, True, True]]
    """
    x = widen(logits)
    V = x.shape[1]
    ps = settings("top_p", p, x, lambda p: 0 < p <= 1, "in (0, 1]")
    off = [p == 1 for p in ps]
    if all(off):
        return x.clone()
    largest, eps = descending(x), torch.finfo(x.dtype).eps
    reached = precise(largest).softmax(-1).cumsum(-1)  # (B, V)
    wanted = [[p - eps * (abs(top) + math.log(V)) if p < 1 else -1.0]
              for p, top in zip(ps, x.amax(-1).tolist(), strict=True)]
    wanted = torch.tensor(wanted, dtype=reached.dtype, device=reached.device)  # (B, 1)
    last = (reached[:, :-1] < wanted).sum(-1, keepdim=True)  # at place 0 stands the first token, which stays
    return keep(x, largest_mask(x, last.to(x.device), largest), off)


def apply_min_p(logits: Tensor, min_p: Setting) -> Tensor:
    """Keep tokens at least `min_p` times as likely as the likeliest, in [0, 1]; exact hits stay.

    Probabilities need not be known: the test is logit >= max + ln(min_p), less the rounding of the
    logits. Source: Nguyen et al. 2024.

    >>> apply_min_p(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0.5).isfinite().tolist()
    [[True, True, False]]
    """
    x = widen(logits)
    fractions = settings("min_p", min_p, x, lambda p: 0 <= p <= 1, "in [0, 1]")
    eps = torch.finfo(x.dtype).eps
    borders = []
    for fraction, top in zip(fractions, x.amax(-1).tolist(), strict=True):
        distance = math.log(fraction) if fraction > 0 else -math.inf
        borders.append([top + distance - eps * (abs(top) - distance)])
    return x.masked_fill(x < torch.tensor(borders, dtype=x.dtype, device=x.device), -torch.inf)


def apply_penalties(logits: Tensor, prompt_ids: Ids, output_ids: Ids, *, repetition_penalty: Setting = 1.0,
                    presence_penalty: Setting = 0.0, frequency_penalty: Setting = 0.0) -> Tensor:
    """Lower (or, with the opposite sign, raise) the logits of tokens that were there before.

    Args:
        prompt_ids, output_ids: what each row was given and has generated so far, B lists of ids.
        repetition_penalty: for tokens of both, once: a positive logit is divided by it, a negative one
            multiplied, so that above 1 both go down (Keskar et al. 2019; as corrected in `transformers`).
        presence_penalty: subtracted from the logit of each token in the output (OpenAI, vLLM).
        frequency_penalty: subtracted as many times as the token is in the output.
    """
    x = widen(logits).clone(memory_format=torch.contiguous_format)
    r = settings("repetition_penalty", repetition_penalty, x, lambda r: 0 < r < math.inf, "finite and > 0")
    p = settings("presence_penalty", presence_penalty, x, math.isfinite, "finite")
    f = settings("frequency_penalty", frequency_penalty, x, math.isfinite, "finite")
    prompts, outputs = id_lists("prompt_ids", prompt_ids, x), id_lists("output_ids", output_ids, x)
    places, factors, terms = [], [], []  # one entry for each token that changes; V may be 151,936
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        less = {i: f[row] * times + p[row] for i, times in Counter(output).items()}
        changed = list(less if r[row] == 1 else {*prompt, *less})
        places += [row * x.shape[1] + i for i in changed]
        factors += [r[row]] * len(changed)
        terms += [less.get(i, 0.0) for i in changed]
    flat, places = x.view(-1), torch.tensor(places, dtype=torch.long, device=x.device)
    old, limits = precise(flat[places]), torch.finfo(x.dtype)
    factor, term = torch.tensor([factors, terms], dtype=old.dtype, device=old.device).unbind()
    new = torch.where(old < 0, old * factor, old / factor).clamp(limits.min, limits.max)
    new = (new - term).clamp(limits.min, limits.max)  # finite logits stay finite
    flat[places] = torch.where(old.isinf(), old, new).to(x)
    return x


def filter_logits(logits: Tensor, params: SamplingParams | Sequence[SamplingParams],
                  prompt_ids: Ids | None = None, output_ids: Ids | None = None) -> Tensor:
    """The whole chain: the logits (B, V) whose softmax is the distribution that `sample` draws from.

    Args:
        logits: (B, V), the model's.
        params: for all rows, or one for each. A row with `temperature=0` keeps exactly one token.
        prompt_ids, output_ids: B lists of ids; needed where a row sets a penalty.

    Raises:
        ValueError: a shape does not fit, or a penalty is set and the ids are not given.
    """
    x = widen(logits)
    rows = params_of_rows(params, x)
    if any(map(has_penalties, rows)):
        require(prompt_ids is not None and output_ids is not None, "prompt_ids, output_ids",
                (prompt_ids, output_ids), "given where a penalty is set")
        names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
        x = apply_penalties(x, prompt_ids, output_ids, **{n: [getattr(p, n) for p in rows] for n in names})
    if any(p.temperature != 1 for p in rows):
        x = apply_temperature(x, [p.temperature for p in rows])
    if any(p.top_k != 0 for p in rows):
        x = apply_top_k(x, [p.top_k for p in rows])
    if any(p.top_p != 1 for p in rows):
        x = apply_top_p(x, [p.top_p for p in rows])
    if any(p.min_p != 0 for p in rows):
        x = apply_min_p(x, [p.min_p for p in rows])
    return x.clone() if x is logits else x


def sample(logits: Tensor, params: SamplingParams | Sequence[SamplingParams],
           generators: torch.Generator | Sequence[torch.Generator | None] | None = None, *,
           prompt_ids: Ids | None = None, output_ids: Ids | None = None) -> Tensor:
    """Choose the next token of each row: ids (B,).

    Args:
        logits, params, prompt_ids, output_ids: as for `filter_logits`.
        generators: one for each row (for B = 1 it need not be in a list); a row with `temperature=0`
            needs none. A row takes one number from its own generator, whatever the other rows do.

    Raises:
        ValueError: as `filter_logits`; a row's largest logit is NaN or infinite; a generator is missing.
    """
    x = widen(logits)
    rows = params_of_rows(params, x)
    top = x.amax(-1).tolist()
    require(all(map(math.isfinite, top)), "largest logit of each row", top, "finite")
    if all(p.temperature == 0 and not has_penalties(p) for p in rows):
        return x.argmax(-1)
    if generators is None or isinstance(generators, torch.Generator):
        generators = [generators] * (1 if generators else len(x))
    require(len(generators) == len(x), "len(generators)", len(generators), f"{len(x)}, one for each row")
    chosen = []
    with torch.no_grad():  # no gradient goes through a choice, and small operations cost less without
        for part in parts_of_rows(x):
            given = (None if ids is None else ids[part] for ids in (prompt_ids, output_ids))
            probs = filter_logits(logits[part], rows[part], *given).softmax(-1)
            uniforms = [uniform(g) if p.temperature else 0.0 for p, g in zip(rows[part], generators[part], strict=True)]
            chosen.append(draw(probs, torch.tensor(uniforms, dtype=torch.float64)))
    return torch.cat(chosen)


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Invert the cumulative distribution: the first id whose running sum exceeds u of the total, (B,).

    One number for each draw, so that a generator's place in its stream says how many tokens it chose,
    and sums in float64, so that rare tokens keep their width (the exponential race of vLLM spends V
    numbers to spare a GPU the sum). A token of probability 0 is never drawn: its sum exceeds nothing.

    Args:
        probs: (B, V), >= 0; need not sum to 1.
        uniforms: (B,), in [0, 1).

    >>> draw(torch.tensor([[0.0, 0.5, 0.5]] * 3), torch.tensor([0.0, 0.49, 0.5])).tolist()
    [1, 1, 2]
    """
    chosen = []
    for part in parts_of_rows(probs):
        sums = precise(probs[part]).cumsum(-1)
        levels = uniforms[part].to(sums).view(-1, 1) * sums[:, -1:]
        chosen.append(torch.searchsorted(sums, levels, right=True).view(-1).to(probs.device))
    return torch.cat(chosen)


def parts_of_rows(x: Tensor) -> list[slice]:
    """The rows of x (B, V) in parts of `PART` numbers or one row: ten thousand rows may be one row, expanded."""
    B, V = x.shape
    n = max(1, PART // V)
    return [slice(i, i + n) for i in range(0, B, n)] or [slice(0)]


def uniform(generator: torch.Generator | None) -> float:
    """One number in [0, 1) with 53 random bits, from this generator and no other."""
    require(generator is not None, "generator", generator, "a torch.Generator where temperature > 0")
    return torch.rand((), generator=generator, dtype=torch.float64, device=generator.device).item()


def request_generator(seed: int | None) -> torch.Generator:
    """A request's own generator, on the CPU whatever the device, so that a seed means the same draws.

    `None` takes a seed from the operating system; `generator.initial_seed()` tells which.
    """
    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)


def logprobs_of(logits: Tensor) -> Tensor:
    """Natural logarithms of the probabilities of each row: (B, V), in float32 or wider."""
    return widen(logits).log_softmax(-1)


def top_candidates(logits: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n most likely tokens of each row, all if there are fewer: log-probabilities and ids, both (B, n).

    The likeliest comes first, and among equals the lowest id.
    """
    require(is_int(n) and n >= 1, "n", n, "an integer >= 1")
    logprobs = logprobs_of(logits)
    B, V = logprobs.shape
    values = logprobs.topk(min(n, V)).values
    last = torch.full((B, 1), min(n, V) - 1, device=logprobs.device)
    ids = largest_mask(logprobs, last, values).nonzero()[:, 1].view(B, -1)  # (B, n), ids ascending
    values, order = logprobs.gather(-1, ids).sort(descending=True, stable=True)
    return values, ids.gather(-1, order)


def descending(x: Tensor) -> Tensor:
    """The values of each row of x (B, V), the largest first. NumPy sorts with a processor's widest registers."""
    if not x.is_cpu:
        return x.sort(descending=True).values
    return torch.from_numpy(np.sort(x.detach().numpy())[:, ::-1].copy())


def largest_mask(x: Tensor, last: Tensor, largest: Tensor) -> Tensor:
    """True for the largest of each row of x (B, V), as many as to place `last` (B, 1), ties to the lowest ids.

    `largest` (B, n) holds the n largest values of each row, descending; 0 <= last < n.
    """
    border = largest.gather(-1, last)
    kept = x >= border  # (B, V)
    surplus = kept.sum(-1, keepdim=True) - last - 1
    if not surplus.any():
        return kept
    tied = kept & (x == border)
    return kept & ~(tied & (tied.cumsum(-1) > tied.sum(-1, keepdim=True) - surplus))


def keep(x: Tensor, kept: Tensor, off: list[bool]) -> Tensor:
    """The logits (B, V) with -inf where a token is not kept; the rows for which the filter is off stay."""
    if any(off):
        kept = kept | torch.tensor([[row] for row in off], device=x.device)
    return torch.where(kept, x, -torch.inf)


def widen(logits: Tensor) -> Tensor:
    """Logits (B, V) in float32 at least: bfloat16 steps are as wide as the gaps between likely tokens."""
    require(logits.dim() == 2, "logits.shape", tuple(logits.shape), "(B, V)")
    return logits if logits.dtype == torch.float64 else logits.float()


def precise(x: Tensor) -> Tensor:
    """The values in float64; on the CPU where the device has no float64 (Apple's GPU)."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def settings(name: str, value: Any, x: Tensor, ok: Callable[[Any], bool], allowed: str) -> list:
    """One setting for all rows of x, or one for each, as a list of B checked values."""
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    B = x.shape[0]
    for v in values:
        require(is_number(v) and ok(v), name, v, allowed)
    require(len(values) in (1, B), f"len({name})", len(values), f"1 or {B}, one for each row")
    return values * (B // len(values))


def rows_where(values: list, special: float, x: Tensor) -> Tensor:
    """True for the rows whose setting is `special`: (B, 1), on the device of x."""
    return torch.tensor([v == special for v in values], device=x.device).view(-1, 1)


def params_of_rows(params: SamplingParams | Sequence[SamplingParams], x: Tensor) -> list[SamplingParams]:
    """As a list of B."""
    if isinstance(params, SamplingParams):
        return [params] * x.shape[0]
    rows, B = list(params) if isinstance(params, Sequence) else [params], x.shape[0]
    for row in rows:
        require(isinstance(row, SamplingParams), "params", row, "SamplingParams")
    require(len(rows) in (1, B), "len(params)", len(rows), f"1 or {B}, one for each row")
    return rows * (B // len(rows))


def has_penalties(params: SamplingParams) -> bool:
    """Whether the ids so far matter."""
    return (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1, 0, 0)


def id_lists(name: str, ids: Ids, x: Tensor) -> list[list[int]]:
    """B lists of ids, each in [0, V)."""
    rows = ids.tolist() if isinstance(ids, Tensor) else list(ids)
    B, V = x.shape
    require(len(rows) == B and not any(is_int(row) for row in rows), name, rows,
            f"{B} lists of ids, one for each row")
    for row in rows:
        require(not row or (min(row) >= 0 and max(row) < V), name, row, f"in [0, {V})")
    return rows
