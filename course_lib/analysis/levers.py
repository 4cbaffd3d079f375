"""Every lever of the course in one table: what a setting costs, how long a reader waits, what it holds, how good it is.

Names are vLLM's where it has the lever. All numbers are measured in the run that shows them, and the settings take
turns, so that whatever else the machine does meets them alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from course_lib.analysis.lever_runs import QUESTIONS, Bench, Timing
from course_lib.analysis.lever_settings import Setting
from course_lib.checkpoint import LanguageModel
from course_lib.config import SamplingParams, require

PLAIN = Setting()
WARM = SamplingParams(temperature=0.8, seed=0)
# Each lever alone, and then a handful of combinations.
SETTINGS = (
    PLAIN, Setting("bfloat16"), Setting("int8"), Setting("int4"), Setting(kv_cache_dtype="int8"),
    Setting(draft="pocket-draft"), Setting(draft="counts"), Setting(max_num_seqs=8), Setting(max_num_seqs=32),
    Setting(enable_prefix_caching=True), Setting(params=WARM),
    Setting(params=replace(WARM, top_p=0.95)),
    Setting("int8", kv_cache_dtype="int8"), Setting("int4", kv_cache_dtype="int8"), Setting("int8", draft="counts"),
    Setting(max_num_seqs=8, enable_prefix_caching=True), Setting(max_num_seqs=32, enable_prefix_caching=True),
    Setting("int8", max_num_seqs=8, enable_prefix_caching=True),
    Setting("int8", max_num_seqs=32, enable_prefix_caching=True),
    Setting("int4", max_num_seqs=32, enable_prefix_caching=True))
# What is better in each column of a table. Two of them are one measurement: the price is the hour's over the tokens'.
BETTER: Mapping[str, str] = {
    "tokens_per_s": "more", "ttft_s": "less", "gap_s": "less", "nbytes": "less", "perplexity": "less",
    "capitals": "more", "tool_calls": "more", "dollars_per_million": "less"}


@dataclass(frozen=True)
class Row:
    """One setting, measured.

    Attributes:
        tokens_per_s: new tokens of all readers, over the whole time, prompts included.
        ttft_s: a reader's time to the first token, the median, where `max_num_seqs` of them ask at the same moment.
        gap_s: between a reader's tokens, the median of the readers' means.
        weight_bytes, cache_bytes: of all weights that are held, a draft's and packed copies included; and of the cache
            for `max_num_seqs` full contexts.
        perplexity: on new stories.
        capitals, tool_calls: shares of right answers, in [0, 1].
        dollars_per_million: new tokens, at the price of the machine.
    """

    setting: Setting
    tokens_per_s: float
    ttft_s: float
    gap_s: float
    weight_bytes: int
    cache_bytes: int
    perplexity: float
    capitals: float
    tool_calls: float
    dollars_per_million: float

    @property
    def nbytes(self) -> int:
        """Of weights and cache together."""
        return self.weight_bytes + self.cache_bytes

    @property
    def name(self) -> str:
        """Of the setting."""
        return self.setting.name


def measure(lm: LanguageModel, settings: Sequence[Setting] = SETTINGS, *, dollars_per_hour: float = 0.10,
            rounds: int = 2, questions: int = QUESTIONS) -> list[Row]:
    """Measure every setting: speed in `rounds` turns, of which the best counts, and quality once for each numerics.

    The first setting has two turns in a round, at its beginning and at its end: all others are compared with it. The
    best of twice as many turns is a little better by luck alone, so the others look a little worse than they are.

    Args:
        lm: in float32, as `load()` returns it.
        settings: with different names.
        dollars_per_hour: what the machine costs, > 0; two virtual cores of a cloud take about ten cents.
        rounds: >= 1.
        questions: of each kind, for the shares; >= 1.

    Returns:
        One row for each setting, in their order.

    Raises:
        ValueError: a number is out of range, or two settings are the same.
    """
    require(len({setting.name for setting in settings}) == len(settings) >= 1, "settings",
            [setting.name for setting in settings], "one or more, each once")
    require(dollars_per_hour > 0, "dollars_per_hour", dollars_per_hour, "> 0")
    require(rounds >= 1, "rounds", rounds, ">= 1")
    bench = Bench(lm, questions=questions)
    turns = [*zip(*([bench.time(setting) for setting in (*settings, settings[0])] for _ in range(rounds)))]
    turns[0] += turns.pop()
    rows = []
    for setting, timings in zip(settings, turns):
        timing, quality = best(timings), bench.quality(setting)
        rows.append(Row(setting, *timing, *bench.held_bytes(setting), *quality,
                        dollars_per_million(timing.tokens_per_s, dollars_per_hour)))
    return rows


def best(timings: Iterable[Timing]) -> Timing:
    """The fastest in each number: other work only ever adds time."""
    speeds, firsts, gaps = zip(*timings)
    return Timing(max(speeds), min(firsts), min(gaps))


def dollars_per_million(tokens_per_s: float, dollars_per_hour: float) -> float:
    """What a million tokens cost on a machine that is busy all the time.

    >>> round(dollars_per_million(1000, 3.6), 6)
    1.0
    """
    return dollars_per_hour / 3600 / tokens_per_s * 1e6


def pareto(rows: Sequence[Row], better: Mapping[str, str]) -> list[Row]:
    """The rows that nobody beats: no other is at least as good in every column, and better in one.

    Args:
        better: columns that count, each "less" or "more"; see `BETTER`.

    Raises:
        ValueError: there is no such column or direction, or none at all.
    """
    columns = {field.name for field in fields(Row)} - {"setting"} | {"nbytes"}
    require(bool(better) and set(better) <= columns, "better", sorted(better), f"some of {sorted(columns)}")
    require(set(better.values()) <= {"less", "more"}, "better", sorted(set(better.values())), '"less" or "more"')

    def worth(row: Row) -> tuple[float, ...]:
        return tuple(getattr(row, name) * (1 if way == "more" else -1) for name, way in better.items())

    def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return one != other and all(a >= b for a, b in zip(one, other))

    worths = [worth(row) for row in rows]
    return [row for row, mine in zip(rows, worths) if not any(beats(other, mine) for other in worths)]
