"""The widget *who is it for*: a customer's limits, which settings keep to them, and which of them is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as W

from course_lib.analysis.customers import CUSTOMERS, WANTED, WORDS, Limit
from course_lib.analysis.levers import BETTER, Row
from course_lib.display.levers_page import levers_html, still
from course_lib.display.levers_view import LIMITED, OWN, Choose, LeversView, Pareto, Wish, levers_view, verdict
from course_lib.display.levers_view import levers_summary as summary
from course_lib.display.widgets import LABELLED, Live, Message, Picture

NO_LIMIT = ("no limit", 0.0)
TIMES = (0.15, 0.2, 0.25, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0)
NEARLY = {"perplexity": (1.0, 1.005, 1.01, 1.02, 1.05, 1.1), "capitals": (0.8, 0.85, 0.9, 0.95, 0.97, 1.0),
          "tool_calls": (0.8, 0.85, 0.9, 0.95, 0.97, 1.0)}
SHORT = {"ttft_s": "first token", "gap_s": "gap", "nbytes": "memory", "perplexity": "perplexity",
         "capitals": "capitals", "tool_calls": "tool calls"}


def levers_widget(rows: Sequence[Row], pareto: Pareto, choose: Choose, *, customer: str = "chat", x: str = "gap_s",
                  y: str = "dollars_per_million") -> LeversPanel:
    """Choose a customer or limits of your own; see which settings keep to them, and what the better ones break.

    Args:
        rows: of one run of `measure`, with the plain setting.
        pareto: of (rows, better), better: column to "less" or "more"; the panel runs on it.
        choose: of (rows, limits, objective), limits: column to a bound in the column's unit; one of the rows or None.
            The panel runs on it.
        customer, x, y: at first; the customer is one of `course_lib.analysis.customers.CUSTOMERS`.

    Raises:
        ValueError: there is no such customer or column, the rows are not of one run, or a function returns what is not
            of the rows.
    """
    return LeversPanel(rows, pareto, choose, Wish.of(customer, x=x, y=y))


class LeversPanel(Live):
    """What `levers_widget` returns."""

    def __init__(self, rows: Sequence[Row], pareto: Pareto, choose: Choose, start: Wish) -> None:
        self.rows, self.functions = rows, (pareto, choose)
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.customer = W.Dropdown(options=[*CUSTOMERS, OWN], value=start.name, description="customer", **wide)
        self.objective = W.Dropdown(options=[(words, name) for name, words in WANTED.items()], value=start.objective,
                                    description="wants", **wide)
        self.x, self.y = (W.Dropdown(options=[(WORDS[name], name) for name in BETTER], value=value, description=axis,
                                     **wide) for axis, value in (("across", start.x), ("up", start.y)))
        self.limits = {name: W.SelectionSlider(options=choices(name), description=SHORT[name],
                                               continuous_update=False, **wide) for name in LIMITED}
        self.setting = False  # whether a customer sets the knobs at this moment
        self.take(start)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        self.customer.observe(self.on_customer, "value")
        for knob in (self.objective, *self.limits.values()):
            knob.observe(self.on_own, "value")
        for knob in (self.x, self.y):
            knob.observe(self.on_change, "value")
        grid = W.GridBox([self.customer, self.objective, self.x, self.y, *self.limits.values()],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))
        super().__init__([grid, self.message, self.picture], figure=lambda: still(first), alt=summary(first),
                         turn="customer, limits and axes",
                         shown=f"Customer: {first.wish.name}. {verdict(first)}")
        self.add_class("course-levers")

    def take(self, wish: Wish) -> None:
        """Set the knobs to what somebody wants."""
        self.setting = True
        try:
            self.objective.value = wish.objective
            times = {limit.column: limit.times_plain for limit in wish.limits}
            for name, knob in self.limits.items():
                knob.value = times.get(name, NO_LIMIT[1])
        finally:
            self.setting = False

    def update(self) -> LeversView:
        """Ask both functions, and draw.

        Raises:
            ValueError: both axes are the same column, or a function returns what is not of the rows.
        """
        limits = tuple(Limit(name, knob.value) for name, knob in self.limits.items() if knob.value)
        wish = Wish(self.customer.value, limits, self.objective.value, self.x.value, self.y.value)
        view = levers_view(self.rows, wish, *self.functions)
        self.picture.value = levers_html(view)
        return view

    def on_customer(self, change: Any) -> None:
        """Somebody else, or the same limits as one's own."""
        if self.setting:
            return
        with self.message:
            if change["new"] != OWN:
                self.take(Wish.of(change["new"], x=self.x.value, y=self.y.value))
            self.update()

    def on_own(self, change: Any) -> None:
        """A limit or a want of one's own."""
        if self.setting:
            return
        self.setting, self.customer.value = True, OWN
        self.setting = False
        self.on_change(change)

    def on_change(self, change: Any) -> None:
        """Another limit, want or axis."""
        with self.message:
            self.update()


def choices(column: str) -> list[tuple[str, float]]:
    """The limits of a column to choose from, with those of the customers, in multiples of the plain setting's value.

    >>> choices("capitals")[:3]
    [('no limit', 0.0), ('≥ 0.8 × plain', 0.8), ('≥ 0.85 × plain', 0.85)]
    """
    theirs = {limit.times_plain for customer in CUSTOMERS.values() for limit in customer.limits
              if limit.column == column}
    side = "≤" if BETTER[column] == "less" else "≥"
    words = [(f"{side} {n:g} × plain", n) for n in sorted({*NEARLY.get(column, TIMES), *theirs})]
    return [NO_LIMIT, *words] if side == "≥" else [*words, NO_LIMIT]
