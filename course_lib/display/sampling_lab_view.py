"""What each step of the sampling chain does to the whole vocabulary, as data and as HTML or SVG text.

Pure functions, like those of `course_lib.display.sampling_view`, whose colours, hatching and log-log plot they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.config import SamplingParams, require
from course_lib.display.sampling_view import (
    DISTRIBUTION,
    HATCH,
    DistributionView,
    Filter,
    apply_filter,
    probabilities,
    ranks_svg,
)
from course_lib.display.views import THEME, count, percent, visible
from course_lib.generate import CompletionOutput
from course_lib.sampling import filter_logits

NEUTRAL = SamplingParams()
STEPS = {"penalties": ("repetition_penalty", "presence_penalty", "frequency_penalty"),
         "temperature": ("temperature",), "top-k": ("top_k",), "top-p": ("top_p",), "min-p": ("min_p",)}
NAMED = 3  # tokens that a sentence about a step names

CHAIN = """\
.course-chain{overflow-x:auto}.course-chain svg{min-width:640px}
.course-chain .steps{margin:4px 0;padding-left:20px}.course-chain .steps li{margin:2px 0}
.course-chain .params{user-select:all}.course-chain .token{white-space:pre;font-family:var(--mono)}
.course-chain .small{font-size:12px}.course-chain .below{display:flex;flex-wrap:wrap;gap:16px}
.course-chain .steps{flex:1 1 320px}.course-chain .ranks{flex:1 1 300px;max-width:370px;min-width:0}"""
TEXTS = """\
.course-texts{display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:16px}
.course-texts ol{list-style:none;margin:4px 0;padding:0}
.course-texts li{border-left:3px solid var(--kept);padding-left:10px;margin:8px 0;white-space:pre-wrap}
.course-texts .stale li{border-left-style:dotted}.course-texts code{user-select:all}"""


@dataclass(frozen=True)
class Stage:
    """The distribution after one step of the chain; tensors (V,), in the order of `ChainView.ids`.

    Attributes:
        name: "model" for what comes in, else a key of `STEPS`.
        setting: what was set, such as `top_k=40`.
        probs: probabilities, of the tokens that are left.
        kept: True for the tokens that are left; a probability may have rounded to 0 all the same.
        removed: True for those that this step removed.
        removed_mass: their probability before it, together.
        moved: the probability that changed its token, half the sum of the absolute differences.
    """

    name: str
    setting: str
    probs: Tensor
    kept: Tensor
    removed: Tensor
    removed_mass: float
    moved: float

    @property
    def n_kept(self) -> int:
        """Tokens that are left."""
        return int(self.kept.sum())

    @property
    def n_removed(self) -> int:
        """Tokens that this step removed."""
        return int(self.removed.sum())


@dataclass(frozen=True)
class ChainView:
    """Every step that is switched on, in order, on the whole vocabulary.

    Attributes:
        ids: (V,), by the model's probability; among equals the lowest id first.
        stages: "model", then the steps.
    """

    ids: Tensor
    stages: tuple[Stage, ...]

    @property
    def model(self) -> Stage:
        """What comes in."""
        return self.stages[0]

    @property
    def last(self) -> Stage:
        """What is drawn from."""
        return self.stages[-1]

    @property
    def distribution(self) -> DistributionView:
        """Before and after the whole chain, as the smaller widget of notebook 00 shows it."""
        shaped = [stage for stage in self.stages if stage.name in ("model", "penalties", "temperature")][-1]
        return DistributionView(self.ids, self.model.probs, shaped.probs, self.last.probs, self.last.kept)


def chain_view(logits: Tensor, params: SamplingParams, *, filter: Filter = filter_logits,
               prompt_ids: Sequence[int] = (), output_ids: Sequence[int] = ()) -> ChainView:
    """Filter one position's logits (1, V) with the first setting, the first two, and so on.

    Args:
        filter: called as `filter_logits` is, with (1, V); with ids only where a penalty is set.
        prompt_ids, output_ids: what a penalty counts.

    Raises:
        ValueError: the logits, or what the filter returns, are no distribution.
    """
    require(logits.dim() == 2 and len(logits) == 1, "logits.shape", tuple(logits.shape), "(1, V)")
    row = logits.detach()
    before = probabilities("logits", row)
    ids = before.sort(descending=True, stable=True).indices
    nothing = torch.zeros(len(ids), dtype=torch.bool)
    stages = [Stage("model", "", before[ids], row[0].cpu().isfinite()[ids], nothing, 0.0, 0.0)]
    used = NEUTRAL
    for name, fields in STEPS.items():
        used = replace(used, **{field: getattr(params, field) for field in fields})
        if setting := changed(used, fields):
            filtered = apply_filter(filter, row, used, prompt_ids, output_ids)
            stages.append(next_stage(name, setting, stages[-1], filtered, ids))
    return ChainView(ids, tuple(stages))


def changed(params: SamplingParams, fields: Sequence[str]) -> str:
    """Those of the fields that are not neutral, as they stand in a call."""
    return ", ".join(f"{field}={getattr(params, field):g}" for field in fields
                     if getattr(params, field) != getattr(NEUTRAL, field))


def next_stage(name: str, setting: str, before: Stage, filtered: Tensor, ids: Tensor) -> Stage:
    """The stage after `before`, of filtered logits (1, V)."""
    probs = probabilities(name, filtered)[ids]
    kept = (filtered[0].cpu() > -torch.inf)[ids]
    removed = before.kept & ~kept
    return Stage(name, setting, probs, kept, removed, float(before.probs[removed].sum()),
                 float((probs - before.probs).abs().sum()) / 2)


def share(p: float, kept: bool) -> str:
    """A probability as text; what was removed says so, and what is left never reads 0.

    >>> share(0.25, True), share(0.0, False), share(0.0, True), share(1e-9, True)
    ('25.0 %', 'removed', '<0.01 %', '<0.01 %')
    """
    return percent(max(p, 1e-300)) if kept else "removed"


# The table of the likeliest tokens, a column for each stage

TOP, ROW, LABEL_END, LEFT, RIGHT, NUMBERS, LETTER = 58, 21, 118, 128, 880, 62, 6.8


def chain_svg(view: ChainView, tokenizer: Any, *, top: int = 12) -> str:
    """Rows for the `top` likeliest tokens and for all others together, a column of bars for each stage.

    Beneath each column stands how many tokens are left. `data-kept` lists those counts, `data-stages` the
    names of the stages.
    """
    top = min(top, len(view.ids))
    labels = [visible(tokenizer.decode_single_token_bytes(id)) for id in view.ids[:top].tolist()]
    rest = len(view.ids) - top
    rows = labels + [f"other {rest:,}"] * (rest > 0)
    bottom = TOP + len(rows) * ROW
    head = "".join(f'<text class="token end{" faint" * (i >= top)}" x="{LABEL_END}" y="{TOP + i * ROW + 14}">'
                   f'{escape(label if len(label) <= 13 else label[:12] + "…")}</text>' for i, label in enumerate(rows))
    scale = max(float(stage.probs.max()) for stage in view.stages)
    scale = max(scale, *(float(stage.probs[top:].sum()) for stage in view.stages))
    width = (RIGHT - LEFT) / max(len(view.stages), 4)
    columns = "".join(column_svg(view, i, top, LEFT + i * width, width, scale) for i in range(len(view.stages)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {RIGHT} {bottom + 30}" role="img" '
            f'aria-label="{escape(description(view, labels[0]))}" '
            f'data-kept="{" ".join(str(stage.n_kept) for stage in view.stages)}" '
            f'data-stages="{" ".join(stage.name for stage in view.stages)}" '
            f'data-top="{float(view.last.probs[0]):.6f}">{HATCH}{head}'
            f'<text class="faint end" x="{LABEL_END}" y="{bottom + 20}">left</text>{columns}</svg>')


def description(view: ChainView, likeliest: str) -> str:
    """The picture in two sentences."""
    steps = ", ".join(f"{stage.n_kept:,} tokens left after {stage.name}" for stage in view.stages[1:])
    return (f"Next-token distribution step by step. The model's likeliest token, {likeliest}, has "
            f"{percent(float(view.model.probs[0]))} at first and "
            f"{share(float(view.last.probs[0]), bool(view.last.kept[0]))} at the end; "
            f"{steps or 'no step is switched on'}.")


def column_svg(view: ChainView, i: int, top: int, x: float, width: float, scale: float) -> str:
    """One stage: heading, a bar and a share for each row, and how many tokens are left."""
    stage, before = view.stages[i], view.stages[max(i - 1, 0)]
    rows = list(zip(stage.probs[:top].tolist(), stage.kept[:top].tolist(), before.probs[:top].tolist()))
    if top < len(view.ids):
        rows.append((float(stage.probs[top:].sum()), bool(stage.kept[top:].any()), float(before.probs[top:].sum())))
    factor = (width - NUMBERS) / scale
    fits = int(width / LETTER)
    setting = stage.setting if len(stage.setting) <= fits else f"{stage.setting[:fits - 1]}…"
    parts = [f'<text class="head" x="{x:.1f}" y="{TOP - 34}">{stage.name}</text>'
             f'<text class="faint small" x="{x:.1f}" y="{TOP - 16}">{escape(setting)}</text>'
             f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{TOP + len(rows) * ROW}"/>']
    for row, (p, kept, p_before) in enumerate(rows):
        y = TOP + row * ROW
        kind, length = ("after", p) if kept else ("cut", p_before)
        parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y + 4}" width="{max(length * factor, 0.5):.1f}" '
                     f'height="12"/><text class="small{"" if kept else " faint"}" '
                     f'x="{x + length * factor + 4:.1f}" y="{y + 14}">{escape(share(p, kept))}</text>')
    parts.append(f'<text class="head" x="{x:.1f}" y="{TOP + len(rows) * ROW + 20}">{stage.n_kept:,}</text>')
    return "".join(parts)


def step_sentences(view: ChainView, tokenizer: Any) -> list[str]:
    """What each step did, with the mass it removed or moved and the likeliest tokens that it took."""
    return [step_sentence(stage, before, view.ids, tokenizer) for before, stage in zip(view.stages, view.stages[1:])]


def step_sentence(stage: Stage, before: Stage, ids: Tensor, tokenizer: Any) -> str:
    """One step in words."""
    if stage.n_removed == 0:
        return (f"{stage.setting} removed nothing and moved {percent(stage.moved)} of the probability to other "
                "tokens." if stage.moved else f"{stage.setting} changed nothing here.")
    order = before.probs.masked_fill(~stage.removed, -1).argsort(descending=True, stable=True)[:NAMED]
    named = [f"{visible(tokenizer.decode_single_token_bytes(int(ids[i])))} ({share(float(before.probs[i]), True)})"
             for i in order[: stage.n_removed].tolist()]
    return (f"{stage.setting} removed {count(stage.n_removed, 'token')}, "
            f"{share(stage.removed_mass, True)} of what came in; the likeliest of them: {', '.join(named)}. "
            f"{count(stage.n_kept, 'token')} left.")


def chain_summary(view: ChainView) -> str:
    """How many tokens are left, and how much of the model's probability they hold."""
    V, kept = len(view.ids), view.last.kept
    if bool(kept.all()):
        return f"All {V:,} tokens can be drawn."
    mass, rest = float(view.model.probs[kept].sum()), float(view.model.probs[~kept].sum())
    return (f"{view.last.n_kept:,} of {V:,} tokens can be drawn; the model gave them {percent(mass)}, and "
            f"{share(rest, True)} to the {V - view.last.n_kept:,} removed.")


def chain_html(view: ChainView, params: SamplingParams, tokenizer: Any, *, name: str = "") -> str:
    """The columns, what each step did, the whole vocabulary by rank, and the line to copy.

    Args:
        name: of this setting, where there are several.
    """
    steps = "".join(f"<li>{escape(sentence)}</li>" for sentence in step_sentences(view, tokenizer))
    bottom = TOP + 9 * ROW
    ranks = (f'<svg class="ranks" xmlns="http://www.w3.org/2000/svg" viewBox="478 14 330 {bottom + 26}" role="img" '
             f'aria-label="Probability of all {len(view.ids):,} tokens by rank, before and after; both axes are '
             f'logarithmic.">{ranks_svg(view.distribution, TOP - 10, bottom)}</svg>')
    return (f'<div class="course course-distribution course-chain"><style>{THEME}{DISTRIBUTION}{CHAIN}</style>'
            f'{chain_svg(view, tokenizer)}<p class="summary" role="status">{escape(chain_summary(view))}</p>'
            f'<div class="below"><ul class="steps">{steps}</ul>{ranks}</div>'
            f'<p>{escape(name and name + ": ")}<code class="params">{escape(repr(params))}</code></p></div>')


# Continuations under two settings


class Texts(NamedTuple):
    """What the model wrote under one setting: the setting, and a completion for each seed."""

    params: SamplingParams
    outputs: tuple[CompletionOutput, ...]


def texts_html(columns: Mapping[str, Texts], *, stale: Mapping[str, bool]) -> str:
    """Continuations side by side, a column for each setting; a seed's texts stand at the same height.

    Args:
        stale: which columns were written with another setting than the knobs show now.
    """
    parts = []
    for name, (params, outputs) in columns.items():
        old = " (written before the last change)" if stale[name] else ""
        items = "".join(f'<li><span class="faint">seed {(params.seed or 0) + i}:</span> {escape(output.text)}'
                        f'<span class="faint">{ENDS[output.finish_reason]}</span></li>'
                        for i, output in enumerate(outputs))
        parts.append(f'<section class="{"stale" if stale[name] else "fresh"}" data-column="{escape(name)}" '
                     f'data-texts="{len(outputs)}"><p><b>{escape(name)}</b>{old}<br><code>{escape(repr(params))}</code>'
                     f'</p><ol>{items}</ol></section>')
    return f'<div class="course"><style>{THEME}{TEXTS}</style><div class="course-texts">{"".join(parts)}</div></div>'


ENDS = {"stop": " (ends)", "length": " (cut off)"}
