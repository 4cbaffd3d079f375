"""Logits to a token: penalties, temperature, top-k, top-p, min-p, in this order, then one draw.

Each filter takes logits (B, V) and returns new ones in float32 (float64 stays), with -inf where a token
was removed. A setting is one number, or one for each row; a row's result never depends on its neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.config import SamplingParams, is_int, require

Setting = float | Sequence[float]
Ids = Sequence[Sequence[int]] | Tensor
LOOKS = (1024, 16384)  # how many tokens top-p sorts before it resorts to sorting the whole vocabulary


def apply_temperature(logits: Tensor, temperature: Setting) -> Tensor:
    """Divide each row by its temperature, >= 0. The row's maximum is moved to 0 first: softmax cannot
    see that, and a tiny temperature cannot overflow. At 1 the row stays as it is; at 0, the limit, only
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
    B, V = x.shape
    ks = settings("top_k", k, x, lambda k: is_int(k) and k >= 0, "an integer >= 0 (0: off)")
    ks = [k if 0 < k < V else V for k in ks]
    longest = max((k for k in ks if k < V), default=0)
    if longest == 0:
        return x.clone()
    counts = torch.tensor(ks, device=x.device).view(-1, 1).expand(B, 1)
    return x.masked_fill(~largest_mask(x, counts, x.topk(longest).values), -torch.inf)


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
    if all(p == 1 for p in ps):
        return x.clone()
    total = precise(x).logsumexp(-1, keepdim=True)  # (B, 1)
    slack = torch.finfo(x.dtype).eps * (x.amax(-1, keepdim=True).abs() + math.log(V))
    limit = torch.tensor(ps, dtype=total.dtype, device=total.device).view(-1, 1) - slack.to(total)
    everything = rows_where(ps, 1, total)
    for n in (*(n for n in LOOKS if n < V), V):
        largest = x.topk(n).values  # (B, n)
        reached = (precise(largest) - total).exp().cumsum(-1)
        if (everything | (reached[:, -1:] >= limit)).all():
            break
    counts = 1 + (reached[:, :-1] < limit).sum(-1, keepdim=True)  # the first token always stays
    counts = counts.masked_fill(everything, V).to(x.device)
    return x.masked_fill(~largest_mask(x, counts, largest), -torch.inf)


def apply_min_p(logits: Tensor, min_p: Setting) -> Tensor:
    """Keep tokens at least `min_p` times as likely as the likeliest, in [0, 1]; exact hits stay.

    Probabilities need not be known: the test is logit >= max + ln(min_p), less the rounding of the
    logits. Source: Nguyen et al. 2024.

    >>> apply_min_p(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0.5).isfinite().tolist()
    [[True, True, False]]
    """
    x = widen(logits)
    fractions = settings("min_p", min_p, x, lambda p: 0 <= p <= 1, "in [0, 1]")
    logs = [math.log(f) if f > 0 else -math.inf for f in fractions]
    distance = torch.tensor(logs, dtype=x.dtype, device=x.device).view(-1, 1)
    top = x.amax(-1, keepdim=True)
    slack = torch.finfo(x.dtype).eps * (top.abs() - distance)
    return x.masked_fill(x < top + distance - slack, -torch.inf)


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
    x = widen(logits).clone()
    r = settings("repetition_penalty", repetition_penalty, x, lambda r: 0 < r < math.inf, "finite and > 0")
    p = settings("presence_penalty", presence_penalty, x, math.isfinite, "finite")
    f = settings("frequency_penalty", frequency_penalty, x, math.isfinite, "finite")
    r, p, f = (values * (len(x) if len(values) == 1 else 1) for values in (r, p, f))
    prompts, outputs = id_lists("prompt_ids", prompt_ids, x), id_lists("output_ids", output_ids, x)
    for row, *penalties in zip(x, prompts, outputs, r, p, f, strict=True):
        penalise(row, *penalties)
    return x


def penalise(row: Tensor, prompt: Sequence[int], output: Sequence[int],
             repetition: float, presence: float, frequency: float) -> None:
    """Apply the three penalties to one row (V,), in place; finite logits stay finite."""
    times = Counter(output)
    seen = torch.tensor(sorted(times.keys() | set(prompt)), dtype=torch.long, device=row.device)
    old, limits = precise(row[seen]), torch.finfo(row.dtype)
    counts = torch.tensor([times[i] for i in seen.tolist()]).to(old)
    new = torch.where(old < 0, old * repetition, old / repetition).clamp(limits.min, limits.max)
    new = (new - frequency * counts - presence * (counts > 0)).clamp(limits.min, limits.max)
    row[seen] = torch.where(old.isinf(), old, new).to(row)


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
    top = x.amax(-1).tolist()
    require(all(map(math.isfinite, top)), "largest logit of each row", top, "finite")
    rows = params_of_rows(params, x)
    if all(p.temperature == 0 and not has_penalties(p) for p in rows):
        return x.argmax(-1)
    x = filter_logits(logits, params, prompt_ids, output_ids)
    rows = rows * len(x) if len(rows) == 1 else rows
    if generators is None or isinstance(generators, torch.Generator):
        generators = [generators] * (1 if generators else len(x))
    require(len(generators) == len(x), "len(generators)", len(generators), f"{len(x)}, one for each row")
    uniforms = [uniform(g) if p.temperature else 0.0 for p, g in zip(rows, generators, strict=True)]
    return draw(x.softmax(-1), torch.tensor(uniforms, dtype=torch.float64))


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
    sums = precise(probs).cumsum(-1)
    levels = uniforms.to(sums).view(-1, 1) * sums[:, -1:]
    return torch.searchsorted(sums, levels, right=True).view(-1).to(probs.device)


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
    counts = torch.full((B, 1), min(n, V), device=logprobs.device)
    ids = largest_mask(logprobs, counts, values).nonzero()[:, 1].view(B, -1)  # (B, n), ids ascending
    values, order = logprobs.gather(-1, ids).sort(descending=True, stable=True)
    return values, ids.gather(-1, order)


def largest_mask(x: Tensor, counts: Tensor, largest: Tensor) -> Tensor:
    """True at the `counts` (B, 1) largest of each row of x (B, V), ties to the lowest ids.

    `largest` (B, n) holds the n largest values of each row, descending; a count beyond n means all.
    """
    n = largest.shape[1]
    border = largest.gather(-1, counts.clamp(max=n) - 1).masked_fill(counts > n, -torch.inf)
    above, tied = x > border, x == border  # (B, V)
    room = counts - above.sum(-1, keepdim=True)
    return above | (tied & (tied.cumsum(-1) <= room))


def widen(logits: Tensor) -> Tensor:
    """Logits (B, V) in float32 at least: bfloat16 steps are as wide as the gaps between likely tokens."""
    require(logits.dim() == 2, "logits.shape", tuple(logits.shape), "(B, V)")
    return logits if logits.dtype == torch.float64 else logits.float()


def precise(x: Tensor) -> Tensor:
    """The values in float64; on the CPU where the device has no float64 (Apple's GPU)."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def settings(name: str, value: Any, x: Tensor, ok: Callable[[Any], bool], allowed: str) -> list:
    """One setting for all rows of x, or one for each, as a list of 1 or B checked values."""
    values = list(value) if isinstance(value, Sequence) else [value]
    for v in values:
        require(ok(v), name, v, allowed)
    require(len(values) in (1, len(x)), f"len({name})", len(values), f"1 or {len(x)}, one for each row")
    return values


def rows_where(values: list, special: float, x: Tensor) -> Tensor:
    """True for the rows whose setting is `special`: (1, 1) or (B, 1), on the device of x."""
    return torch.tensor([v == special for v in values], device=x.device).view(-1, 1)


def params_of_rows(params: SamplingParams | Sequence[SamplingParams], x: Tensor) -> list[SamplingParams]:
    """As a list of 1 (for all rows) or of B."""
    return settings("params", params, x, lambda p: isinstance(p, SamplingParams), "SamplingParams")


def has_penalties(params: SamplingParams) -> bool:
    """Whether the ids so far matter."""
    return (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1, 0, 0)


def id_lists(name: str, ids: Ids, x: Tensor) -> list[list[int]]:
    """B lists of ids, each in [0, V)."""
    rows = ids.tolist() if isinstance(ids, Tensor) else list(ids)
    require(len(rows) == len(x) and not any(is_int(row) for row in rows), name, rows,
            f"{len(x)} lists of ids, one for each row")
    for row in rows:
        require(all(0 <= i < x.shape[1] for i in row), name, row, f"in [0, {x.shape[1]})")
    return rows
