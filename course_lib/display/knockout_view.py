"""A model's answer with a part knocked out beside the intact one, as data, as HTML and as a still picture.

Pure functions; nothing is fetched, and text from a model or a reader is escaped before it becomes markup.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from course_lib.analysis.residual import knocked_out
from course_lib.config import SamplingParams
from course_lib.display import plots
from course_lib.display.views import THEME, count, percent, visible
from course_lib.generate import LanguageModel, generate

STYLE = """\
.course-knockout ol{display:flex;flex-wrap:wrap;gap:4px;list-style:none;margin:6px 0;padding:2px}
.course-knockout li{border:1px solid var(--line);border-radius:3px;padding:2px 6px 3px;min-width:48px;\
text-align:center;background:color-mix(in srgb,var(--kept) calc(var(--p)*60%),transparent)}
.course-knockout li.lost{border:2px dashed var(--ink)}
.course-knockout bdi{display:block;font-family:var(--mono);font-size:15px;white-space:pre-wrap;overflow-wrap:anywhere}
.course-knockout .was,.course-knockout .is{display:block;font-size:12px}.course-knockout .was{color:var(--faint)}
.course-knockout .answer{white-space:pre-wrap;border-left:3px solid var(--kept);padding-left:10px}
.course-knockout .answer.other{border-left:3px dashed var(--ink)}"""
PARTS = {"attention": ("self_attn",), "MLP": ("mlp",), "attention and MLP": ("self_attn", "mlp"), "nothing": ()}


class Answer(NamedTuple):
    """A greedy answer: its text and its ids, with the end token."""

    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class KnockoutView:
    """The intact answer and the one without some parts.

    Attributes:
        what: the parts that were knocked out, in words.
        intact, without: the two greedy answers.
        pieces: the tokens of the intact answer.
        before, after: the probability of each of them, given those before it, with all parts and without.
    """

    what: str
    intact: Answer
    without: Answer
    pieces: tuple[bytes, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def first_lost(self) -> int | None:
        """Where the two answers part: the place of the first token that is another one; None: nowhere."""
        pairs = enumerate(zip(self.intact.token_ids, self.without.token_ids))
        place = next((i for i, (one, other) in pairs if one != other), None)
        shorter = min(len(self.intact.token_ids), len(self.without.token_ids))
        return shorter if place is None and self.intact.token_ids != self.without.token_ids else place


def names_of(layer: int, part: str) -> list[str]:
    """The modules that a layer and one of `PARTS` name.

    >>> names_of(3, "attention")
    ['layers.3.self_attn']
    """
    return [f"layers.{layer}.{kind}" for kind in PARTS[part]]


def greedy_answer(lm: LanguageModel, prompt_ids: Sequence[int], max_tokens: int) -> Answer:
    """What the model says at temperature 0."""
    output = generate(lm, list(prompt_ids), SamplingParams(temperature=0, max_tokens=max_tokens))
    return Answer(output.text.strip(), output.token_ids)


@torch.inference_mode()
def answer_probabilities(lm: LanguageModel, prompt_ids: Sequence[int], answer: Answer) -> tuple[float, ...]:
    """The probability of each token of an answer, given the prompt and the tokens before it."""
    ids = torch.tensor([[*prompt_ids, *answer.token_ids]], device=lm.model.embed_tokens.weight.device)
    probs = lm.model(ids[:, :-1])[0, len(prompt_ids) - 1 :].double().softmax(-1)  # (tokens of the answer, V)
    return tuple(probs.gather(-1, ids[0, len(prompt_ids) :, None])[:, 0].tolist())


def knockout_view(lm: LanguageModel, prompt_ids: Sequence[int], names: Collection[str], what: str, *,
                  max_tokens: int = 44) -> KnockoutView:
    """Run the model with all parts, and without those of these names."""
    intact = greedy_answer(lm, prompt_ids, max_tokens)
    before = answer_probabilities(lm, prompt_ids, intact)
    with knocked_out(lm.model, names):
        without = greedy_answer(lm, prompt_ids, max_tokens)
        after = answer_probabilities(lm, prompt_ids, intact)
    pieces = tuple(lm.tokenizer.decode_single_token_bytes(i) for i in intact.token_ids)
    return KnockoutView(what, intact, without, pieces, before, after)


def knockout_summary(view: KnockoutView) -> str:
    """The finding in words."""
    if view.first_lost is None:
        lowest = min(view.after)
        return (f"Without {view.what} the answer stays the same, all {count(len(view.pieces), 'token')} of it; "
                f"the least certain one has {percent(lowest)}.")
    if view.first_lost == len(view.pieces):
        return f"Without {view.what} the model goes on where the intact one stops."
    piece = visible(view.pieces[view.first_lost])
    return (f"Without {view.what} the answers part at token {view.first_lost + 1}: '{piece}' had "
            f"{percent(view.before[view.first_lost])} and has {percent(view.after[view.first_lost])}.")


def knockout_html(view: KnockoutView) -> str:
    """Both answers, and the tokens of the intact one with their probabilities before and after.

    A dashed border marks the first token that greedy decoding no longer writes.
    """
    lost = view.first_lost
    items = "".join(
        f'<li class="{"lost" if i == lost else ""}" style="--p:{after:.3f}"><bdi>{escape(visible(piece))}</bdi>'
        f'<span class="was">{escape(percent(before))}</span><span class="is">{escape(percent(after))}</span></li>'
        for i, (piece, before, after) in enumerate(zip(view.pieces, view.before, view.after)))
    return (f'<div class="course course-knockout" data-lost="{"" if lost is None else lost}" '
            f'data-least="{min(view.after):.6f}"><style>{THEME}{STYLE}</style>'
            f'<p class="faint">All parts in place:</p><p class="answer intact">{escape(view.intact.text)}</p>'
            f'<p class="faint">Without {escape(view.what)}:</p>'
            f'<p class="answer {"same" if lost is None else "other"}">{escape(view.without.text)}</p>'
            f'<p class="summary" role="status">{escape(knockout_summary(view))}</p>'
            '<p class="faint">The tokens of the intact answer, with their probability before and after:</p>'
            f'<ol tabindex="0" aria-label="tokens of the intact answer: probability with all parts, without '
            f'{escape(view.what)}">{items}</ol></div>')


def knockout_figure(view: KnockoutView, limit: int = 16) -> Figure:
    """The still picture: the first tokens of the intact answer, their probability before and after."""
    labels = [visible(piece) for piece in view.pieces[:limit]]
    before, after = view.before[:limit], view.after[:limit]
    notes = [f"{percent(was)} → {percent(now)}" for was, now in zip(before, after)]
    return plots.bars(labels, after, reference=before, notes=notes, ylabel="token",
                      xlabel=f"probability without {view.what} (outline: with it)")
