"""The widget *slots of a server*: arrivals, lengths, slots and pages under three policies, over time and in numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ipywidgets as W

from course_lib.analysis.serving import PassCost
from course_lib.analysis.slot_rules import Admit, Grow
from course_lib.display.batching_picture import batching_drawing, batching_html
from course_lib.display.batching_view import (
    COST,
    SPREADS,
    WORDS,
    BatchingView,
    Setting,
    batching_finding,
    batching_summary,
    batching_view,
    last_start,
)
from course_lib.display.roofline_view import digits
from course_lib.display.widgets import LABELLED, Live, Message, Picture, seed_field

SLOTS, PAGES = (1, 2, 4, 8, 16), (8, 12, 16, 24, 32, 48, 64, 128)


def batching_widget(grow: Grow, admit: Admit, *, policy: str = "continuous", slots: int = 4, pages: int = 24,
                    block_size: int = 16, rate: float = 50.0, spread: str = "wide", seed: int = 0,
                    cost: PassCost | Sequence[float] | None = COST) -> BatchingPanel:
    """Choose how requests arrive and how they are served; see the slots over time, what is wasted and who waits.

    Args:
        grow: from (table, num_tokens, free, block_size) the new table and what is free then, or None; the panel gives
            pages out by it.
        admit: how many of those who wait may begin; the panel asks it in every pass.
        policy: "static", "continuous" or "chunked" (prompts in pieces of 16 tokens), at first.
        slots, pages, rate, spread, seed: at first; `rate` in requests a second, `math.inf` for all at once.
        block_size: tokens in a page.
        cost: seconds of a pass, of each answer in it, and of each prompt token; None: time is counted in passes.

    Raises:
        ValueError: a setting cannot be, or one of the two functions returns what cannot be.
    """
    model = None if cost is None else PassCost(*cost)
    return BatchingPanel(grow, admit, Setting(policy, slots, pages, block_size, rate, spread, seed, model))


class BatchingPanel(Live):
    """What `batching_widget` returns."""

    def __init__(self, grow: Grow, admit: Admit, start: Setting) -> None:
        self.functions, self.start = (grow, admit), start
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.policy = W.Dropdown(options=[(words, name) for name, words in WORDS.items()], value=start.policy,
                                 description="policy", **wide)
        self.spread = W.Dropdown(options=list(SPREADS), value=start.spread, description="lengths", **wide)
        self.slots = W.SelectionSlider(options=sorted({start.slots, *SLOTS}), value=start.slots, description="slots",
                                       continuous_update=False, **wide)
        self.pages = W.SelectionSlider(options=sorted({start.pages, *PAGES}), value=start.pages, description="pages",
                                       continuous_update=False, **wide)
        self.rate = W.SelectionSlider(options=rates(start), value=start.rate, description="arrivals",
                                      continuous_update=False, **wide)
        self.seed = seed_field(start.seed)
        self.since = W.FloatSlider(0.0, min=0.0, max=1.0, step=0.02, description="time", readout=False, **wide)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        knobs = [self.policy, self.spread, self.slots, self.pages, self.rate, self.seed]
        for knob in knobs:
            knob.observe(self.on_change, "value")
        self.since.observe(self.on_time, "value")
        grid = W.GridBox(knobs, layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))
        super().__init__([grid, self.since, self.message, self.picture], figure=lambda: batching_drawing(first),
                         turn="policy, lengths, slots, pages, arrivals and seed, and move along the time line",
                         alt=batching_summary(first), shown=batching_finding(first))
        self.add_class("course-batching")

    def update(self) -> BatchingView:
        """Serve the requests anew, and show the beginning.

        Raises:
            ValueError: the pages are too few for the longest request, or a function returns what cannot be.
        """
        setting = Setting(self.policy.value, self.slots.value, self.pages.value, self.start.block_size,
                          self.rate.value, self.spread.value, self.seed.value, self.start.cost)
        self.view = batching_view(setting, *self.functions)
        self.draw()
        return self.view

    def draw(self) -> None:
        """The time line at the place that is chosen."""
        self.picture.value = batching_html(self.view, self.since.value * last_start(self.view))

    def on_change(self, change: Any) -> None:
        """Other requests, or another way to serve them."""
        with self.message:
            self.update()

    def on_time(self, change: Any) -> None:
        """Another stretch of the same time line."""
        self.draw()


def rates(setting: Setting) -> list[tuple[str, float]]:
    """Arrivals to choose from: an eighth of the given rate up to eight times, and all at once.

    >>> [words for words, _ in rates(Setting(rate=40.0))]
    ['5/s', '10/s', '20/s', '40/s', '80/s', '160/s', '320/s', 'all at once']
    """
    unit = "/s" if setting.cost else " a pass"
    middle = Setting().rate if math.isinf(setting.rate) else setting.rate
    return [*((f"{digits(middle * 2.0**i)}{unit}", middle * 2.0**i) for i in range(-3, 4)), ("all at once", math.inf)]
