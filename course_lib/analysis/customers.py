"""Who an engine is for: what each of three customers cannot do without, what they want most, and how a choice does.

Times and bytes are limited in multiples of the plain engine's, measured in the same run, so that the limits mean the
same on a fast machine and on a slow one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.analysis.levers import BETTER, PLAIN, Row
from course_lib.config import require

WORDS = {"tokens_per_s": "tokens per second", "ttft_s": "time to first token", "gap_s": "gap", "nbytes": "memory",
         "perplexity": "perplexity", "capitals": "capitals", "tool_calls": "tool calls",
         "dollars_per_million": "cost per million tokens"}
WANTED = {"tokens_per_s": "most tokens per second", "ttft_s": "soonest first token", "gap_s": "shortest gap",
          "nbytes": "least memory", "perplexity": "lowest perplexity", "capitals": "most capitals",
          "tool_calls": "most tool calls", "dollars_per_million": "lowest cost"}


@dataclass(frozen=True)
class Limit:
    """A bound on one number, as a multiple of the plain engine's.

    Args:
        column: of `levers.BETTER`; what is better there decides which side is worse.
        times_plain: > 0.
    """

    column: str
    times_plain: float

    def __post_init__(self) -> None:
        require(self.column in BETTER, "column", self.column, f"one of {', '.join(BETTER)}")
        require(self.times_plain > 0, "times_plain", self.times_plain, "> 0")

    def holds(self, row: Row, plain: Row) -> bool:
        """Whether a setting keeps to it."""
        value, border = getattr(row, self.column), self.times_plain * getattr(plain, self.column)
        return value <= border if BETTER[self.column] == "less" else value >= border

    def __str__(self) -> str:
        side = "at most" if BETTER[self.column] == "less" else "at least"
        return f"{WORDS[self.column]} {side} {self.times_plain:g} times plain's"


@dataclass(frozen=True)
class Customer:
    """A need.

    Attributes:
        objective: the column that should be as good as possible within the limits.
        tokens_per_s: new tokens that all its readers need together, or that a deadline needs; None where there is one
            machine whatever it does.
    """

    name: str
    story: str
    limits: tuple[Limit, ...]
    objective: str
    tokens_per_s: float | None = None


ANSWERS = (Limit("capitals", 0.9), Limit("tool_calls", 0.9))  # of 24 questions, one or two are chance
CUSTOMERS: dict[str, Customer] = {
    "phone": Customer(
        "phone", "One reader, who wants the next word soon. There is room for little more than a quarter of `plain`'s "
        "memory.",
        (Limit("nbytes", 0.27), Limit("perplexity", 1.05), *ANSWERS), "gap_s"),
    "chat": Customer(
        "chat", "10,000 users, each of whom asks for 100 tokens every five minutes. They leave if the first word, or "
        "any later one, takes more than four times as long as for a single user.",
        (Limit("ttft_s", 4.0), Limit("gap_s", 4.0), Limit("perplexity", 1.05), *ANSWERS), "dollars_per_million",
        10_000 * 100 / 300),
    "nightly": Customer(
        "nightly", "100 million tokens in eight hours. Nobody waits for any of them, and nobody checks them before "
        "they are used.", (Limit("perplexity", 1.01), *ANSWERS), "dollars_per_million", 100e6 / (8 * 3600)),
}


def customers_table(customers: Mapping[str, Customer] = CUSTOMERS) -> str:
    """Markdown, a row for each customer: who it is, the limits in multiples of the plain engine's numbers, the wish."""
    lines = ["| | who | limits, in multiples of `plain` | wants |", "|---|---|---|---|"]
    for customer in customers.values():
        limits = " · ".join(f"{WORDS[limit.column]} {'≤' if BETTER[limit.column] == 'less' else '≥'} "
                            f"{limit.times_plain:g}" for limit in customer.limits)
        lines.append(f"| **{customer.name}** | {customer.story} | {limits} | {WANTED[customer.objective]} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """How a setting serves a customer.

    Attributes:
        broken: the limits that it breaks, in words; empty: it is allowed.
        best: of the allowed settings, the one with the best objective; None where none is allowed.
        times_best: its own objective in multiples of that one's: 1 is the best, 2 twice as bad; infinite without any.
    """

    setting: str
    broken: tuple[str, ...]
    best: str | None
    times_best: float

    @property
    def allowed(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    def __str__(self) -> str:
        if self.broken:
            return f"{self.setting}: not allowed ({'; '.join(self.broken)})"
        return f"{self.setting}: {self.times_best:.2f} times the best, which is {self.best}"


def score(customer: Customer, choice: str, rows: Sequence[Row]) -> Verdict:
    """What a customer would say of a choice.

    Args:
        choice: the name of a setting among the rows.
        rows: of one run, with the plain setting's.

    Raises:
        ValueError: there is no such setting, or the plain one was not measured.
    """
    by_name = {row.name: row for row in rows}
    require(choice in by_name, "choice", choice, f"one of {sorted(by_name)}")
    require(PLAIN.name in by_name, "rows", sorted(by_name), f"one of them {PLAIN.name!r}")
    broken = {name: broken_limits(customer, row, by_name[PLAIN.name]) for name, row in by_name.items()}

    def worse(name: str) -> float:
        value = getattr(by_name[name], customer.objective)
        return value if BETTER[customer.objective] == "less" else 1 / value

    best = min((name for name in by_name if not broken[name]), key=worse, default=None)
    return Verdict(choice, broken[choice], best, worse(choice) / worse(best) if best else math.inf)


def broken_limits(customer: Customer, row: Row, plain: Row) -> tuple[str, ...]:
    """What a setting does not keep to, with what it has instead."""
    return tuple(f"{limit}, is {getattr(row, limit.column) / getattr(plain, limit.column):.2f}"
                 for limit in customer.limits if not limit.holds(row, plain))


def machines(customer: Customer, row: Row) -> int:
    """How many machines like this one serve a customer's tokens; 1 where the number of readers is not said."""
    return max(1, math.ceil(customer.tokens_per_s / row.tokens_per_s)) if customer.tokens_per_s else 1
