"""Which settings of the levers a customer may have, which one is chosen, and what the better ones break: as data and in
words.

Pure functions, which `levers_picture` draws. The front and the choice come from two functions that are given, and may
be a reader's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.analysis import levers
from course_lib.analysis.customers import CUSTOMERS, WANTED, WORDS, Limit
from course_lib.analysis.levers import BETTER, PLAIN, Row
from course_lib.config import require
from course_lib.display.levers_chart import amount
from course_lib.display.views import count

Pareto = Callable[[Sequence[Row], Mapping[str, str]], Sequence[Row]]
Choose = Callable[[Sequence[Row], Mapping[str, float], str], Row | None]

OWN = "your own"
LIMITED = ("ttft_s", "gap_s", "nbytes", "perplexity", "capitals", "tool_calls")  # columns that may have a limit
TEMPTING = 4  # settings that would be better and are not allowed: how many are told at most


@dataclass(frozen=True)
class Wish:
    """What somebody asks of the engine, and over which columns it is looked at.

    Attributes:
        name: of a customer, or `OWN`.
        limits: at most one for each column.
        objective: the column that should be as good as possible within them.
        x, y: two columns.
    """

    name: str
    limits: tuple[Limit, ...]
    objective: str
    x: str = "gap_s"
    y: str = "dollars_per_million"

    def __post_init__(self) -> None:
        for name in ("objective", "x", "y"):
            require(getattr(self, name) in BETTER, name, getattr(self, name), f"one of {', '.join(BETTER)}")
        require(self.x != self.y, "y", WORDS[self.y], "another column than x")
        columns = [limit.column for limit in self.limits]
        require(len(set(columns)) == len(columns), "limits", columns, "one for each column")

    @classmethod
    def of(cls, customer: str, **axes: str) -> Wish:
        """A customer's."""
        require(customer in CUSTOMERS, "customer", customer, f"one of {', '.join(CUSTOMERS)}")
        return cls(customer, CUSTOMERS[customer].limits, CUSTOMERS[customer].objective, **axes)

    def bounds(self, plain: Row) -> dict[str, float]:
        """The limits in the units of their columns."""
        return {limit.column: limit.times_plain * getattr(plain, limit.column) for limit in self.limits}


@dataclass(frozen=True)
class LeversView:
    """A table of settings as a customer sees it.

    Attributes:
        rows: all of them, with the plain one.
        front: those that `pareto` keeps of the two columns that are shown.
        chosen: what `choose` takes, or None.
        broken: of each setting by name, the limits that it breaks.
    """

    rows: tuple[Row, ...]
    wish: Wish
    front: tuple[Row, ...]
    chosen: Row | None
    broken: Mapping[str, tuple[Limit, ...]]

    @property
    def plain(self) -> Row:
        """The setting that limits are multiples of."""
        return next(row for row in self.rows if row.name == PLAIN.name)

    @property
    def allowed(self) -> list[Row]:
        """The settings that keep to all limits, the best first."""
        return [row for row in self.ranked if not self.broken[row.name]]

    @property
    def ranked(self) -> list[Row]:
        """All settings, the best for this customer first."""
        objective = self.wish.objective
        return sorted(self.rows, key=lambda row: getattr(row, objective), reverse=BETTER[objective] == "more")

    @property
    def tempting(self) -> list[Row]:
        """Those that would be better than the best that is allowed, the best first."""
        best = self.allowed[:1]
        return [row for row in self.ranked if self.broken[row.name]
                and (not best or better(row, best[0], self.wish.objective))]


def better(one: Row, other: Row, column: str) -> bool:
    """Whether a setting has the better value in a column."""
    difference = getattr(one, column) - getattr(other, column)
    return difference < 0 if BETTER[column] == "less" else difference > 0


def levers_view(rows: Sequence[Row], wish: Wish, pareto: Pareto, choose: Choose) -> LeversView:
    """Ask both functions.

    Args:
        rows: of one run, each setting once, with the plain one.
        pareto: of rows and columns with what is better there, as `course_lib.analysis.levers.pareto`.
        choose: of rows, bounds by column in its unit, and the objective: one of the rows, or None.

    Raises:
        ValueError: plain is missing, a setting occurs twice, or a function returns what is not of the rows.
    """
    rows = tuple(rows)
    names = [row.name for row in rows]
    require(len(rows) >= 2 and len(set(names)) == len(names), "rows", names, "two or more, each setting once")
    require(PLAIN.name in names, "rows", names, f"with {PLAIN.name!r}")
    plain = rows[names.index(PLAIN.name)]
    front = kept(pareto(list(rows), {name: BETTER[name] for name in (wish.x, wish.y)}), rows)
    chosen = choose(list(rows), wish.bounds(plain), wish.objective)
    require(chosen is None or known(chosen, rows), "choose(…)", shown(chosen), "one of the rows, or None")
    return LeversView(rows, wish, front, chosen, {
        row.name: tuple(limit for limit in wish.limits if not limit.holds(row, plain)) for row in rows})


def kept(found: Any, rows: Sequence[Row]) -> tuple[Row, ...]:
    """What `pareto` returned, if it can be."""
    require(isinstance(found, list | tuple) and all(known(row, rows) for row in found), "pareto(…)", shown(found),
            "a list of some of the rows")
    names = [row.name for row in found]
    require(len(set(names)) == len(names), "pareto(…)", names, "each row once")
    return tuple(found)


def known(row: Any, rows: Sequence[Row]) -> bool:
    """Whether something is one of the rows."""
    return any(row is other for other in rows)


def shown(value: Any) -> Any:
    """A value for a message, rows by their names."""
    if isinstance(value, list | tuple):
        return [shown(one) for one in value]
    return value.name if isinstance(value, Row) else value


# In words


def times(view: LeversView, row: Row, column: str) -> str:
    """A value in multiples of the plain setting's."""
    return f"{getattr(row, column) / getattr(view.plain, column):.2f} × plain"


def breaks(view: LeversView, row: Row) -> str:
    """What a setting breaks, and how far."""
    return "; ".join(f"{WORDS[limit.column]} {times(view, row, limit.column)}, {side(limit)}"
                     for limit in view.broken[row.name])


def side(limit: Limit) -> str:
    """A limit without its column.

    >>> side(Limit("gap_s", 5)), side(Limit("capitals", 0.9))
    ('at most 5', 'at least 0.9')
    """
    return f"at {'most' if BETTER[limit.column] == 'less' else 'least'} {limit.times_plain:g}"


def verdict(view: LeversView) -> str:
    """Who is chosen, and why; or what is wrong with the choice."""
    wish, chosen, allowed = view.wish, view.chosen, view.allowed
    wanted, some = WANTED[wish.objective], count(len(allowed), "setting")
    if chosen is None:
        return (f"Nobody is chosen, but {some} {keep(len(allowed))} to all limits; {allowed[0].name} has the {wanted}."
                if allowed else f"Nobody is chosen: none of {len(view.rows)} settings keeps to all limits.")
    value = amount(wish.objective, getattr(chosen, wish.objective))
    if view.broken[chosen.name]:
        return f"{chosen.name} is chosen, but it is not allowed: {breaks(view, chosen)}."
    if better(allowed[0], chosen, wish.objective):
        best = amount(wish.objective, getattr(allowed[0], wish.objective))
        return f"{chosen.name} is chosen with {value}, but {allowed[0].name} is allowed, too, and has {best}."
    return (f"{chosen.name} is chosen: {value}, {times(view, chosen, wish.objective)}, the {wanted} of {some} that "
            f"{keep(len(allowed))} to all limits.")


def keep(n: int) -> str:
    """The verb for n settings."""
    return "keeps" if n == 1 else "keep"


def front_words(view: LeversView) -> str:
    """The front, and what is wrong with it."""
    right = levers.pareto(view.rows, {name: BETTER[name] for name in (view.wish.x, view.wish.y)})
    right_names, names = [row.name for row in right], [row.name for row in view.front]
    wrong = [f"{name} is on it, and another setting beats it" for name in names if name not in right_names]
    wrong += [f"{name} is not on it, and nobody beats it" for name in right_names if name not in names]
    if wrong:
        return f"The front is not right: {'; '.join(wrong[:3])}."
    return f"On the front of {WORDS[view.wish.x]} and {WORDS[view.wish.y]}: {', '.join(names)}."


def tempting_words(view: LeversView) -> list[tuple[str, str, str]]:
    """Settings that would be better and are not allowed: the name, the value, and what each breaks."""
    objective = view.wish.objective
    return [(row.name, f"{amount(objective, getattr(row, objective))}, {times(view, row, objective)}",
             breaks(view, row)) for row in view.tempting[:TEMPTING]]


def limit_words(wish: Wish) -> str:
    """All limits, in multiples of plain's values.

    >>> limit_words(Wish("", (Limit("gap_s", 5), Limit("capitals", 0.9)), "nbytes"))
    "gap at most 5 and capitals at least 0.9 times plain's"
    """
    if not wish.limits:
        return "none"
    *most, last = (f"{WORDS[limit.column]} {side(limit)}" for limit in wish.limits)
    return f"{', '.join(most)}{' and ' * bool(most)}{last} times plain's"


def levers_summary(view: LeversView) -> str:
    """All in words."""
    wish = view.wish
    told = [f"{name} ({value}) breaks: {broken}" for name, value, broken in tempting_words(view)]
    left = [f"{len(view.tempting) - TEMPTING} more"] * (len(view.tempting) > TEMPTING)
    more = f" Better, and not allowed: {'; '.join(told + left)}." if told else ""
    return (f"Customer: {wish.name}, wants the {WANTED[wish.objective]}. Limits: {limit_words(wish)}. "
            f"{verdict(view)}{more} {front_words(view)}")
