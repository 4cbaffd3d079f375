"""A workload served by three policies: what it wastes, what its readers wait for, and its time line, as data.

Pure functions, which `batching_picture` draws. Pages and admission come from two functions that are given, and may be a
reader's.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.analysis.serving import POLICIES, PassCost, arrivals
from course_lib.analysis.slot_rules import Admit, Grow, Pool, Run, scheduler_for, serve_by
from course_lib.config import is_int, require
from course_lib.display.roofline_view import digits, duration
from course_lib.display.views import count, percent

REQUESTS = 100
CHUNK = 16  # tokens of a pass where prompts are read in chunks
SPREADS = {"all equal": ((32, 32), (16, 16)), "some": ((16, 48), (8, 24)), "wide": ((4, 60), (2, 30))}
WORDS = {"static": "static batches", "continuous": "continuous", "chunked": "chunked prefill"}
COST = PassCost(2e-3, 2e-4, 1e-4)  # round numbers of a small model on a laptop
ONE_PASS = PassCost(1.0, 0.0, 0.0)  # time counted in passes
ACROSS = 36  # decode passes of full slots that a time line shows


@dataclass(frozen=True)
class Setting:
    """What is asked.

    Attributes:
        policy: that the time line shows.
        slots: requests at the same time, 1 to 16.
        pages, block_size: of the cache.
        rate: requests that arrive in a second, or in a pass where `cost` is None; `math.inf`: all at once.
        spread: of the lengths, one of `SPREADS`.
        seed: of arrivals and lengths.
        cost: of a pass; None: time is counted in passes.
    """

    policy: str = "continuous"
    slots: int = 4
    pages: int = 24
    block_size: int = 16
    rate: float = 50.0
    spread: str = "wide"
    seed: int = 0
    cost: PassCost | None = COST

    def __post_init__(self) -> None:
        require(self.policy in POLICIES, "policy", self.policy, f"one of {', '.join(POLICIES)}")
        require(is_int(self.slots) and 1 <= self.slots <= CHUNK, "slots", self.slots, f"an integer in [1, {CHUNK}]")
        require(is_int(self.block_size) and self.block_size >= 1, "block_size", self.block_size, "an integer >= 1")
        require(self.spread in SPREADS, "spread", self.spread, f"one of {', '.join(SPREADS)}")
        require(self.rate > 0, "rate", self.rate, "> 0")
        prompt, answer = (high for _, high in SPREADS[self.spread])
        least = -(-(prompt + answer - 1) // self.block_size)
        require(is_int(self.pages) and self.pages >= least, "pages", self.pages,
                f">= {least}, what the longest request needs")
        require(self.cost is None or (min(self.cost) >= 0 and self.cost[0] > 0), "cost", self.cost,
                "seconds >= 0, those of a pass > 0")

    @property
    def window(self) -> float:
        """How much time a time line shows."""
        return ACROSS * PassCost(*(self.cost or ONE_PASS)).seconds(self.slots, 0)

    def time(self, value: float) -> str:
        """A time in words."""
        return duration(value) if self.cost and value else "0" if not value else digits(value)


@dataclass(frozen=True)
class BatchingView:
    """The same requests by each policy.

    Attributes:
        setting: what was asked.
        runs: by policy.
    """

    setting: Setting
    runs: dict[str, Run]

    @property
    def run(self) -> Run:
        """The one that is shown."""
        return self.runs[self.setting.policy]


def batching_view(setting: Setting, grow: Grow, admit: Admit) -> BatchingView:
    """Serve the requests three times.

    Args:
        grow, admit: of pages and of those who wait.

    Raises:
        ValueError: one of the functions returns what cannot be.
    """
    prompt, answer = SPREADS[setting.spread]
    requests = arrivals(REQUESTS, setting.rate, prompt=prompt, answer=answer, seed=setting.seed)
    pool = Pool(setting.slots, setting.pages, setting.block_size, CHUNK)
    cost = PassCost(*(setting.cost or ONE_PASS))
    return BatchingView(setting, {policy: serve_by(scheduler_for(policy, pool, grow, admit, requests), requests, cost)
                                  for policy in POLICIES})


# Numbers


def idle(run: Run) -> tuple[float, float]:
    """The share of slot time in which nothing useful is done, and in which, moreover, somebody waits."""
    busy = waited = 0.0
    for one, (start, end) in zip(run.passes, run.served.passes):
        working = sum(cell is not None and cell.kind != "pad" for cell in one.cells)
        busy += (end - start) * working
        waited += (end - start) * (len(one.cells) - working) * bool(one.waiting)
    whole = run.served.seconds * len(run.passes[0].cells)
    return 1 - busy / whole, waited / whole


def again(run: Run) -> int:
    """Tokens that were computed a second time, because their request had lost its pages."""
    at: Counter[str] = Counter()  # how far each has read, and how far it had ever read
    most: Counter[str] = Counter()
    total = 0
    for one in run.passes:
        for name in one.preempted:
            del at[name]
        for cell in filter(None, one.cells):
            name, end = cell.request_id, at[cell.request_id] + cell.num_tokens
            total += max(0, min(end, most[name]) - at[name])
            at[name], most[name] = end, max(end, most[name])
    return total


def padding(run: Run) -> int:
    """Places of a batch that were computed and belong to nobody."""
    told = sum(cell.num_tokens for one in run.passes for cell in one.cells if cell)
    return run.served.computed - told


class Measure(NamedTuple):
    """A row of the table: what it is, and its value by policy."""

    name: str
    values: tuple[str, ...]


def measures(view: BatchingView) -> list[Measure]:
    """All numbers, in words."""
    setting = view.setting
    per = "tokens/s" if setting.cost else "tokens a pass"
    unit = "" if setting.cost else ", in passes"

    def times(i: int) -> tuple[str, ...]:
        return tuple(f"{setting.time(run.served.percentiles(50)[i])} / {setting.time(run.served.percentiles(99)[i])}"
                     for run in view.runs.values())

    runs = view.runs.values()
    return [Measure(f"waits for a slot{unit}", times(0)), Measure(f"waits for its first token{unit}", times(1)),
            Measure(f"between its tokens{unit}", times(2)),
            Measure(f"throughput, {per}", tuple(digits(run.served.tokens_per_s) for run in runs)),
            Measure("computed as padding", tuple(percent(padding(run) / run.served.computed) for run in runs)),
            Measure("computed again", tuple(percent(again(run) / run.served.computed) for run in runs)),
            Measure("pages taken away", tuple(often(run.served.preemptions) for run in runs)),
            Measure("idle slots (while somebody waits)",
                    tuple("{} ({})".format(*map(percent, idle(run))) for run in runs)),
            Measure("places held and not used", tuple(percent(run.served.unused) for run in runs))]


def often(n: int) -> str:
    """How many times.

    >>> often(0), often(1), often(1200)
    ('never', 'once', '1,200 times')
    """
    return {0: "never", 1: "once"}.get(n, f"{n:,} times")


def arriving(setting: Setting) -> str:
    """How many requests come, and how fast, in words."""
    rate = ("all at once" if math.isinf(setting.rate) else
            f"{digits(setting.rate)} a {'second' if setting.cost else 'pass'}")
    return f"{REQUESTS} requests, {rate}"


def batching_finding(view: BatchingView) -> str:
    """What the readers of the policy that is shown wait for, in two sentences."""
    setting, run = view.setting, view.run
    half, late = (setting.time(run.served.percentiles(p)[0]) for p in (50, 99))
    unit = "" if setting.cost else " passes"
    return (f"{arriving(setting)}, in {count(setting.slots, 'slot')}: half of them wait {half}{unit} or less for one, "
            f"and one in a hundred more than {late}{unit}. The slots are idle for {percent(idle(run)[0])} of the time.")


def batching_summary(view: BatchingView) -> str:
    """The policy that is shown, in words."""
    setting, run = view.setting, view.run
    wait, first, gap = run.served.percentiles(50)
    late = run.served.percentiles(99)
    time = setting.time
    unit = "" if setting.cost else " passes"
    per = "tokens/s" if setting.cost else "tokens a pass"
    return (f"{arriving(setting)}, lengths: {setting.spread}; {count(setting.slots, 'slot')}, {setting.pages} "
            f"pages of {setting.block_size}; {WORDS[setting.policy]}. Median and 99th percentile: waiting "
            f"{time(wait)} and {time(late[0])}{unit}, first token {time(first)} and {time(late[1])}{unit}, gap "
            f"{time(gap)} and {time(late[2])}{unit}. {digits(run.served.tokens_per_s)} {per}. Idle slots "
            f"{percent(idle(run)[0])}, places held and not used {percent(run.served.unused)}, pages taken away "
            f"{often(run.served.preemptions)}.")


# The time line


class Mark(NamedTuple):
    """Something on the time line of a slot: from and to as shares of its width.

    `kind` is that of a cell, or "idle", or "out" where a request lost its pages.
    """

    slot: int
    kind: str
    left: float
    right: float
    request: str


class Level(NamedTuple):
    """A stretch of the lanes beneath: who waits, and the places of the pages, as shares of all of them."""

    left: float
    right: float
    waiting: int
    held: float
    used: float


def last_start(view: BatchingView) -> float:
    """The latest time at which a time line can begin and still be full."""
    return max(0.0, view.run.served.seconds - view.setting.window)


def shown(view: BatchingView, start: float) -> tuple[list[Mark], list[Level]]:
    """The time line from `start` on: what each slot does, and what is waiting and held."""
    window, marks, levels = view.setting.window, [], []
    places = view.setting.pages * view.setting.block_size
    before: dict[str, int] = {}
    ended = 0.0

    def stretch(begin: float, end: float) -> tuple[float, float] | None:
        left, right = max(0.0, (begin - start) / window), min(1.0, (end - start) / window)
        return (left, right) if left < right else None

    for one, (begin, end) in zip(view.run.passes, view.run.served.passes):
        if nobody := stretch(ended, begin):
            marks += [Mark(slot, "idle", *nobody, "") for slot in range(len(one.cells))]
        if seen := stretch(begin, end):
            marks += [Mark(slot, cell.kind if cell else "idle", *seen, cell.request_id if cell else "")
                      for slot, cell in enumerate(one.cells)]
            marks += [Mark(before[name], "out", seen[0], seen[0], name) for name in one.preempted]
            levels.append(Level(*seen, len(one.waiting), one.places / places, one.stored / places))
        before = {cell.request_id: slot for slot, cell in enumerate(one.cells) if cell}
        ended = end
    return joined(marks), levels


def joined(marks: list[Mark]) -> list[Mark]:
    """Idle stretches that touch, in one."""
    made: list[Mark] = []
    last: dict[int, int] = {}  # of each slot
    for mark in marks:
        i = last.get(mark.slot)
        if mark.kind == "idle" and i is not None and made[i].kind == "idle" and made[i].right == mark.left:
            made[i] = made[i]._replace(right=mark.right)
            continue
        if mark.kind != "out":
            last[mark.slot] = len(made)
        made.append(mark)
    return made


def names(marks: list[Mark]) -> list[tuple[int, float, str]]:
    """Where a request can be named: its slot, the place where it has read its text, and its number."""
    found, last = [], {}
    for mark in marks:
        if mark.kind in ("decode", "wait") and last.get(mark.slot) != mark.request:
            found.append((mark.slot, mark.left, mark.request))
        if mark.kind != "out":
            last[mark.slot] = mark.request if mark.kind in ("decode", "wait") else ""
    return found
