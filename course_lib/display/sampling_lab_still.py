"""The still of the sampling laboratory: the columns of every setting, one SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

from course_lib.config import SamplingParams
from course_lib.display.sampling_lab_view import RIGHT, ROW, STEPS, TOP, ChainView, chain_summary, chain_svg, changed
from course_lib.display.sampling_view import DISTRIBUTION
from course_lib.display.views import THEME


class Still(NamedTuple):
    """The columns of several settings under each other, as one SVG: what a saved notebook shows of the laboratory.

    Attributes:
        title: what is to be seen, in a few words.
        description: the same, with every step's count.
        body: the columns, placed.
        height: of all, in units; the width is `RIGHT`.
    """

    title: str
    description: str
    body: str
    height: int

    def svg(self) -> str:
        """The text of an SVG file."""
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {RIGHT} {self.height}" role="img">'
                f"<title>{escape(self.title)}</title><style>{THEME}{DISTRIBUTION}</style>"
                f'<rect width="100%" height="100%" fill="#fff"/>'
                f'<g class="course course-distribution">{self.body}</g></svg>')


def still(views: Mapping[str, tuple[ChainView, SamplingParams]], text: str, tokenizer: Any, *, top: int = 8) -> Still:
    """Each setting's name, its knobs and its columns.

    Args:
        views: by name of the setting.
        text: what the next token follows.
    """
    parts, said, y = [], [], 0
    rows = TOP + (top + (top < len(next(iter(views.values()))[0].ids))) * ROW + 30  # high, as in `chain_svg`
    for name, (view, params) in views.items():
        knobs = ", ".join(filter(None, (changed(params, fields) for fields in STEPS.values()))) or "all knobs neutral"
        columns = chain_svg(view, tokenizer, top=top).replace("<svg ", f'<svg y="{y + 22}" height="{rows}" ', 1)
        parts.append(f'<text class="head" x="8" y="{y + 20}">{escape(f"{name}: {knobs}")}</text>{columns}')
        said.append(f"{name}, {knobs}: {chain_summary(view)}")
        y += rows + 34
    description = f"Next token after {text!r}, a column for each step. {' '.join(said)}"
    return Still("The sampling chain, step by step", description, "".join(parts), y)
