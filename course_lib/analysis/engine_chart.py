"""What an operator sees of an engine that has served some requests: its counters, the waits, and what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from course_lib.analysis.machine_speed import now
from course_lib.config import SamplingParams, require
from course_lib.engine import Engine, EngineStats
from course_lib.generate import Step, end_ids


@dataclass(frozen=True)
class Answer:
    """What one request got.

    Attributes:
        token_ids: an end token included; `text` leaves it out.
        finish_reason: "stop" or "length".
        ttft_s: from the beginning, when all had asked, to its first token.
        surprise: mean of -log p over its tokens, in nats, by the model that wrote them.
        preempted_at: how many tokens it had, each time that it lost its pages.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    ttft_s: float
    surprise: float
    preempted_at: tuple[int, ...]


@dataclass(frozen=True)
class Chart:
    """What some requests that came at the same moment went through.

    Attributes:
        answers: in the order of the requests.
        stats: the engine's own, at the end.
        computed: tokens that went through the model.
        prompt_tokens: of all requests together, as they came in.
        peak_blocks: the most pages in use after a pass.
        seconds: until the last token.
    """

    answers: tuple[Answer, ...]
    stats: EngineStats
    computed: int
    prompt_tokens: int
    peak_blocks: int
    seconds: float

    @property
    def written(self) -> int:
        """New tokens."""
        return sum(len(answer.token_ids) for answer in self.answers)

    def signs(self) -> Mapping[str, float]:
        """The numbers that a dashboard would show, by name; the last two depend on the machine."""
        ends = [answer.finish_reason for answer in self.answers]
        return {"prefix hits, share of what was looked for": self.stats.prefix_hits / max(1, self.stats.prefix_queries),
                "preemptions": self.stats.preemptions, "most pages in use": self.peak_blocks,
                "tokens computed for each new one": self.computed / self.written,
                "new tokens": self.written, "answers cut at max_tokens": ends.count("length"),
                "surprise, nats a token": fmean(answer.surprise for answer in self.answers),
                "median time to first token, ms": 1000 * median(answer.ttft_s for answer in self.answers),
                "new tokens a second": self.written / self.seconds}


def examine(engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Chart:
    """Give an idle engine all requests at once, and write down what happens until it is idle again.

    Args:
        prompts: ids, at least one list.
        params: of all; with a seed, request i draws with seed + i.
    """
    require(len(prompts) >= 1, "prompts", len(prompts), "one or more")
    require(not engine.has_unfinished_requests(), "engine", engine, "idle")
    steps: dict[str, list[Step]] = {str(i): [] for i in range(len(prompts))}
    firsts, reasons = {}, {}
    lost: dict[str, list[int]] = {name: [] for name in steps}
    started, computed, peak = now(), 0, 0
    for name, ids in zip(steps, prompts):
        engine.add_request(name, ids, seeded(params, int(name)))
    while engine.has_unfinished_requests():
        outputs = engine.step()
        computed, peak = computed + engine.batch.num_tokens, max(peak, engine.blocks.num_used_blocks)
        for sequence in engine.batch.preempted:
            lost[sequence.request_id].append(len(steps[sequence.request_id]))
        for output in outputs:
            steps[output.request_id].append(output.result())
            firsts.setdefault(output.request_id, now() - started)
            reasons[output.request_id] = output.finish_reason
    seconds, ends = now() - started, end_ids(engine.lm, params)
    answers = tuple(answer(engine, one, ends, reasons[name], firsts[name], lost[name]) for name, one in steps.items())
    return Chart(answers, engine.stats(), computed, sum(map(len, prompts)), peak, seconds)


def seeded(params: SamplingParams, i: int) -> SamplingParams:
    """The settings of request i."""
    return params if params.seed is None else replace(params, seed=params.seed + i)


def answer(engine: Engine, steps: Sequence[Step], ends: frozenset[int], reason: str, first: float,
           lost: Sequence[int]) -> Answer:
    """What a request got, from its steps."""
    ids = [step.token_id for step in steps]
    text = engine.lm.tokenizer.decode([token_id for token_id in ids if token_id not in ends])
    return Answer(text, tuple(ids), reason, first, -fmean(step.logprob for step in steps), tuple(lost))


def first_difference(one: Answer, other: Answer) -> int | None:
    """How many tokens two answers to the same request share before they part; None: they are the same."""
    if one.token_ids == other.token_ids:
        return None
    same = 0
    while one.token_ids[same : same + 1] == other.token_ids[same : same + 1] != ():
        same += 1
    return same
