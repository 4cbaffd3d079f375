"""What a calculator buys, in right answers, and what it costs, in tokens and passes, by the number of digits."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from course_lib.agent import Run, RunStep, answer_calls
from course_lib.chat_models import ContextFull, LocalModel, Turn
from course_lib.checkpoint import LanguageModel
from course_lib.config import SamplingParams, StructuredOutputsParams, require
from course_lib.engine import Engine
from course_lib.tool_calls import BadCall, ToolCall
from course_lib.tools import CALCULATOR, Tool, by_name, dictionary_tool

OPERATIONS: dict[str, tuple[Callable[[int, int], int], str]] = {
    "+": (operator.add, "plus"), "-": (operator.sub, "minus"), "*": (operator.mul, "times")}
MAX_DIGITS = 8
GREEDY = SamplingParams(temperature=0, max_tokens=128)
GUESS = replace(GREEDY, structured_outputs=StructuredOutputsParams(regex=r" -?[0-9]{1,17}\."))
TOOLS = (CALCULATOR, dictionary_tool({}))
NUMBER = re.compile(r"-?\d+")


class Problem(NamedTuple):
    """Two operands of the same number of digits."""

    a: int
    symbol: str
    b: int

    @property
    def expression(self) -> str:
        """As a right call says it."""
        return f"{self.a} {self.symbol} {self.b}"

    @property
    def value(self) -> str:
        """The right answer."""
        return str(OPERATIONS[self.symbol][0](self.a, self.b))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The question."""
        return [{"role": "user", "content": f"What is {self.expression}?"}]

    @property
    def begun(self) -> dict[str, Any]:
        """The beginning of an answer, up to its number."""
        return {"role": "assistant", "content": f"{self.a} {OPERATIONS[self.symbol][1]} {self.b} is"}


def problems(symbol: str, digits: int, n: int, *, seed: int = 0) -> list[Problem]:
    """n problems whose operands have exactly this many digits, the same ones for a seed.

    >>> problems("+", 2, 2)
    [Problem(a=94, symbol='+', b=24), Problem(a=74, symbol='+', b=65)]
    """
    require(symbol in OPERATIONS, "symbol", symbol, f"one of {', '.join(OPERATIONS)}")
    require(1 <= digits <= MAX_DIGITS, "digits", digits, f"in [1, {MAX_DIGITS}]")
    rng, first = Random(f"{seed} {symbol} {digits}"), 10 ** (digits - 1)
    return [Problem(rng.randrange(first, 10 * first), symbol, rng.randrange(first, 10 * first)) for _ in range(n)]


@dataclass(frozen=True)
class Attempt:
    """How one problem went.

    Attributes:
        called: whether a call came that could be run.
        copied: whether its expression is that of the problem.
        right: whether the last number of the answer is the right one.
        copy_error: what is wrong with the first call's expression (`copy_error`).
        call, result: the expression of the first call, or all its text if it cannot be read, and what the model was
            told for it; empty without a call that was answered.
        read, tokens, passes: tokens that the model read, all turns together, and wrote, and the passes it took.
    """

    problem: Problem
    answer: str
    called: bool
    copied: bool
    right: bool
    copy_error: str
    call: str
    result: str
    tokens: int
    passes: int
    read: int


def attempt(problem: Problem, done: Run) -> Attempt:
    """What a run came to."""
    asked = [(step.call, step.result.content) for step in done.steps if step.call]
    calls = [call for call, _ in asked if isinstance(call, ToolCall)]
    first = expression(calls[0]) if calls else None
    call, result = (expression(asked[0][0]), asked[0][1]) if asked else ("", "")
    numbers, answer = NUMBER.findall(done.answer or ""), done.answer or ""
    turns = [step.turn for step in done.steps if step.turn]
    return Attempt(problem, answer, bool(calls), first == problem.expression,
                   bool(numbers) and numbers[-1] == problem.value, copy_error(problem.expression, first), call, result,
                   sum(turn.tokens for turn in turns), sum(turn.passes for turn in turns),
                   sum(turn.prompt_tokens for turn in turns))


def expression(call: ToolCall | BadCall) -> str:
    """What a call asks to work out, or all its text if it cannot be read.

    >>> expression(ToolCall("calculator", {"expression": "1 + 2"})), expression(BadCall("not closed", ' {"name": '))
    ('1 + 2', '{"name":')
    """
    return call.text.strip() if isinstance(call, BadCall) else str(call.arguments.get("expression", ""))


def copy_error(wanted: str, written: str | None) -> str:
    """How an expression differs from the one that was to be copied.

    >>> [copy_error("12 + 345", text) for text in ("12 + 345", "12 + 35", "12 + 3455", "12 + 354", "12 - 345", None)]
    ['copied well', 'digits lost', 'digits added', 'digits changed', 'another form', 'no valid call']
    """
    if written is None:
        return "no valid call"
    if written == wanted:
        return "copied well"
    if re.sub(r"\d+", "n", written) != re.sub(r"\d+", "n", wanted):
        return "another form"
    lengths = [len(new) - len(old) for old, new in zip(NUMBER.findall(wanted), NUMBER.findall(written), strict=True)]
    return "digits lost" if min(lengths) < 0 else "digits added" if max(lengths) > 0 else "digits changed"


def with_calculator(lm: LanguageModel, asked: Sequence[Problem], *, grammar: bool = False) -> list[Attempt]:
    """Let the model answer with its tools, with or without a grammar on its calls."""
    runs = run_together(LocalModel(lm, GREEDY, grammar), [problem.messages for problem in asked], TOOLS, max_steps=3)
    return [attempt(*pair) for pair in zip(asked, runs, strict=True)]


def without_calculator(lm: LanguageModel, asked: Sequence[Problem], *, guess: bool = False) -> list[Attempt]:
    """Let the model answer alone; if it is to guess, its answer is begun for it, and it may only write a number."""
    model = BegunModel(lm, GUESS) if guess else LocalModel(lm, GREEDY)
    runs = run_together(model, [[*problem.messages, *[problem.begun] * guess] for problem in asked], (), max_steps=1)
    return [attempt(*pair) for pair in zip(asked, runs, strict=True)]


class BegunModel(LocalModel):
    """Goes on with the last message of a conversation, which somebody has begun for it."""

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], schemas: Sequence[Mapping] | None) -> list[int]:
        """The conversation, its last message left open."""
        return super().prompt_ids(messages[:-1], schemas) + self.lm.tokenizer.encode(messages[-1]["content"])


def run_together(model: LocalModel, conversations: Sequence[Sequence[Mapping[str, Any]]], tools: Sequence[Tool], *,
                 max_steps: int) -> list[Run]:
    """What `course_lib.agent.loop` does with each conversation, all of them in one engine, which is several times as
    fast: turn after turn, each with the conversations that still go on.

    A turn's `prompt_tokens` are the whole prompt's; what the engine finds in its prefix index, it does not compute
    again. Near ties may fall otherwise than alone.
    """
    engine, known = Engine(model.lm), by_name(tools)
    messages, steps = [list(conversation) for conversation in conversations], [[] for _ in conversations]
    reasons: dict[int, str] = {}
    for number in range(max_steps):
        going = [i for i in range(len(messages)) if i not in reasons]
        for i, turn in zip(going, turns(engine, model, [messages[i] for i in going], tools, number), strict=True):
            if turn is None:
                reasons[i] = "length"
                continue
            added = [RunStep(turn.message, turn)]
            if not turn.calls:
                reasons[i] = turn.finish_reason
            elif number < max_steps - 1:
                added += answer_calls(turn, known, steps[i])
            steps[i] += added
            messages[i] += [step.message for step in added]
    return [Run(tuple(messages[i]), tuple(steps[i]), reasons.get(i, "max_steps")) for i in range(len(messages))]


def turns(engine: Engine, model: LocalModel, conversations: Sequence[Sequence[Mapping[str, Any]]],
          tools: Sequence[Tool], number: int) -> list[Turn | None]:
    """The next turn of each conversation; None where the context is full."""
    params, taken, lengths = {}, {}, {}
    for i, messages in enumerate(conversations):
        try:
            ids, params[i] = model.request(messages, tools)
        except ContextFull:
            continue
        engine.add_request(str(i), ids, params[i])
        taken[i], lengths[i] = [], len(ids)
    while engine.has_unfinished_requests():
        for output in engine.step():
            taken[int(output.request_id)].append(output.result())
    return [replace(model.read(messages, iter(taken[i]), params[i], number), prompt_tokens=lengths[i])
            if i in taken else None for i, messages in enumerate(conversations)]


def wilson(right: int, asked: int, *, z: float = 1.96) -> tuple[float, float]:
    """The interval of shares that n independent trials do not speak against: 95 % at z = 1.96. Source: Wilson 1927.

    >>> tuple(round(border, 3) for border in wilson(20, 20))
    (0.839, 1.0)
    """
    require(asked >= 1 and 0 <= right <= asked, "right, asked", (right, asked), "0 <= right <= asked, asked >= 1")
    share, weight = right / asked, z * z / asked
    middle, half = share + weight / 2, z * math.sqrt(share * (1 - share) / asked + weight / (4 * asked))
    return max(0.0, (middle - half) / (1 + weight)), min(1.0, (middle + half) / (1 + weight))


def counts(attempts: Iterable[Attempt]) -> dict[str, float]:
    """How many were asked, called, copied, right; and the mean number of tokens, passes and prompt tokens."""
    attempts = list(attempts)
    n = len(attempts)
    return {"asked": n, "called": sum(one.called for one in attempts), "copied": sum(one.copied for one in attempts),
            "right": sum(one.right for one in attempts), "tokens": sum(one.tokens for one in attempts) / n,
            "passes": sum(one.passes for one in attempts) / n, "read": sum(one.read for one in attempts) / n}


def copy_errors(attempts: Iterable[Attempt]) -> Counter[str]:
    """How often each kind of copying error occurred."""
    return Counter(one.copy_error for one in attempts)
