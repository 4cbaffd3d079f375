"""One colour code for drawings, plots and widgets: a role has the same colour wherever it is seen.

What is a query is blue in a drawing, in a plot and in a widget. The strong hues are those of Okabe and Ito (2008),
which people with any common colour blindness tell apart. Weights are grey. What is kept is solid, what is removed is
hatched, so that a print without colours says the same.
"""

from __future__ import annotations

from typing import NamedTuple


class Shade(NamedTuple):
    """A colour on light paper and on dark paper, as CSS writes it."""

    light: str
    dark: str


ROLES = {
    # data and weights of attention
    "query": Shade("#0072b2", "#5ab4e8"), "key": Shade("#d55e00", "#f5904a"), "value": Shade("#009e73", "#41c79c"),
    "cache": Shade("#cc79a7", "#dd8fba"), "weights": Shade("#8b9097", "#9aa1a9"),
    # paper and pen
    "ink": Shade("#1b1b1b", "#e8eaed"), "faint": Shade("#5f6368", "#a9b0b8"), "line": Shade("#c3c7cc", "#535a63"),
    "paper": Shade("#ffffff", "#1f2328"), "plain": Shade("#f3f4f6", "#2b3138"),
    "mark": Shade("#fbeeb0", "#5f5310"),  # the background of what to look at
    # the levers of a stage; memory has the colour of the cache
    "cost": Shade("#f3c25c", "#8a6210"), "latency": Shade("#9fd2f1", "#1f5c80"),
    "memory": Shade("#e3b3cf", "#7d4466"), "quality": Shade("#cfd67a", "#545a17"),
}
LEVERS = ("cost", "latency", "memory", "quality")
