"""What the shipped model knows, asked in wordings that training never showed, by greedy decoding.

    python -m course_lib evaluate             # every question
    python -m course_lib evaluate --sample 20 # so many of each kind
    python -m course_lib evaluate --card      # and write the result into the model card
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import torch

from course_lib.checkpoint import MODELS, LanguageModel, load
from course_lib.command_line import Parser, in_range, usage_errors
from course_lib.config import SamplingParams, require
from course_lib.generate import generate
from course_lib.training.corpus import TOOLS, Writer, capitals, encyclopedia

SEED = 2
# What the course needs of `pocket` to teach with it: shares of right answers. A call of the calculator copies
# digits; one of the dictionary copies a word that nobody has seen, letter by letter.
THRESHOLDS = {"encyclopedia": 0.95, "capitals": 0.95, "calculator": 0.98, "dictionary": 0.95,
              "pronouns": 0.90, "draft acceptance": 0.70}


class Question(NamedTuple):
    """A prompt, and whether an answer to it is right."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    is_right: Callable[[str], bool]
    max_tokens: int = 48


@dataclass(frozen=True)
class Score:
    """How many of how many were right, and the wrong answers with their questions."""

    right: float
    asked: int
    wrong: tuple[tuple[str, str], ...] = ()

    @property
    def share(self) -> float:
        """In [0, 1]."""
        return self.right / self.asked


def user(text: str) -> list[dict[str, Any]]:
    """A conversation of one question."""
    return [{"role": "user", "content": text}]


def encyclopedia_questions(writer: Writer) -> Iterator[Question]:
    """Each entry once; right means that the answer holds the entry's keys."""
    for entry in writer.rng.sample(encyclopedia(), len(encyclopedia())):
        yield Question(user(writer.question("encyclopedia", ask=entry.ask)), None, entry.is_right)


def capital_questions(writer: Writer) -> Iterator[Question]:
    """Each country once; right means that the capital's name occurs."""
    countries = sorted(capitals())
    for country in writer.rng.sample(countries, len(countries)):
        name = capitals()[country]
        yield Question(user(writer.question("capital", country=country)), None,
                       lambda answer, name=name: name in answer)


def tool_questions(writer: Writer, tool: str) -> Iterator[Question]:
    """Unseen operands or words, without end; right means the call is exact, name and argument."""
    while True:
        question, called, *_ = getattr(writer, f"{tool}_exchange")(tuple(TOOLS))
        function = called["tool_calls"][0]["function"]
        (argument, value), = function["arguments"].items()
        call = f'{{"name": "{tool}", "arguments": {{"{argument}": "{value}"}}}}'
        yield Question([question], list(TOOLS.values()), lambda answer, call=call: answer.strip() == call)


def pronoun_questions(writer: Writer) -> Iterator[Question]:
    """Unseen sentences, without end; right means the very answer."""
    while True:
        text, ask, right = writer.pronoun()
        yield Question(user(f"{text} {ask}"), None, lambda answer, right=right: answer == right)


def ask(lm: LanguageModel, question: Question) -> str:
    """The model's greedy answer; a tool call counts up to its closing tag."""
    ids = lm.tokenizer.apply_chat_template(question.messages, tools=question.tools,
                                           add_generation_prompt=True)
    close = lm.tokenizer.special_tokens["</tool_call>"]
    params = SamplingParams(temperature=0, max_tokens=question.max_tokens, stop_token_ids=(close,))
    return generate(lm, ids, params).text


def score(lm: LanguageModel, questions: Iterator[Question], n: int) -> Score:
    """Ask the first n questions, or all if there are fewer."""
    right, asked, wrong = 0, 0, []
    for question, _ in zip(questions, range(n)):
        answer = ask(lm, question)
        asked += 1
        if question.is_right(answer):
            right += 1
        else:
            wrong.append((question.messages[-1]["content"], answer))
    return Score(right, asked, tuple(wrong))


def kinds(seed: int) -> dict[str, Iterator[Question]]:
    """The questions of every kind, in the order that the seed gives."""
    def writer() -> Writer:
        return Writer(seed, held_out=True)

    return {"encyclopedia": encyclopedia_questions(writer()), "capitals": capital_questions(writer()),
            "calculator": tool_questions(writer(), "calculator"),
            "dictionary": tool_questions(writer(), "dictionary"), "pronouns": pronoun_questions(writer())}


def evaluate(lm: LanguageModel, *, sample: int = 300, seed: int = SEED) -> dict[str, Score]:
    """Ask up to `sample` questions of every kind."""
    return {kind: score(lm, questions, sample) for kind, questions in kinds(seed).items()}


@torch.inference_mode()
def draft_acceptance(target: LanguageModel, draft: LanguageModel, *, sample: int = 60,
                     temperature: float = 0.8, seed: int = SEED) -> Score:
    """The share of the draft's tokens that speculative sampling would accept.

    At a position where the target's distribution is p and the draft's q, a token drawn from q is
    accepted with probability sum(min(p, q)) (Leviathan et al. 2023). The mean is taken over texts
    that the target writes at this temperature, as answers to held-out questions of every kind.
    """
    writer, rng, accepted, positions = Writer(seed, held_out=True), Random(seed), 0.0, 0
    for number in range(sample):
        kind = rng.choice(["encyclopedia", "capital", "calculator", "dictionary", "pronoun", "story"])
        messages = getattr(writer, f"{kind}_exchange")(tuple(TOOLS))[:1]
        prompt = target.tokenizer.apply_chat_template(messages, tools=list(TOOLS.values()),
                                                      add_generation_prompt=True)
        params = SamplingParams(temperature=temperature, seed=number, max_tokens=96)
        ids = torch.tensor([[*prompt, *generate(target, prompt, params).token_ids]],
                           device=next(target.model.parameters()).device)
        p, q = ((lm.model(ids)[0, len(prompt) - 1 : -1].float() / temperature).softmax(-1)
                for lm in (target, draft))
        accepted += torch.minimum(p, q).sum().item()
        positions += len(p)
    return Score(accepted, positions)


def report(scores: dict[str, Score]) -> str:
    """A Markdown table: share, count, threshold, verdict."""
    lines = ["| asked | right | of | share | needed | |", "|---|---:|---:|---:|---:|---|"]
    for kind, result in scores.items():
        needed = THRESHOLDS[kind]
        verdict = "ok" if result.share >= needed else "too low"
        lines.append(f"| {kind} | {result.right:.0f} | {result.asked} | {result.share:.1%} | {needed:.0%} "
                     f"| {verdict} |")
    return "\n".join(lines)


def samples(lm: LanguageModel, prompt: str = "What is gravity?") -> str:
    """The showpiece question, at temperature 0 and at 0.8, as a Markdown list."""
    settings = [SamplingParams(temperature=0), *(SamplingParams(temperature=0.8, seed=n) for n in range(3))]
    return "\n".join(f"- `{params!r}`: {generate(lm, prompt, params).text.strip()}" for params in settings)


CARD = """\
# pocket

A language model small enough to look into: {parameters:,} parameters, {layers} layers of width {width}, {heads}
query heads over {kv_heads} key/value heads, a context of {context:,} tokens, a vocabulary of {vocabulary:,}. It is an
ordinary checkpoint of the Llama architecture with a ChatML template and loads in `transformers` as it is.
`pocket-draft` ({draft_parameters:,} parameters) has the same tokenizer and guesses for it.

It was trained from scratch on text that `course_lib.training.corpus` writes from a seed: short stories, an
encyclopedia of {entries} things, the capitals of {countries} countries, everyday sentences, and conversations in
which arithmetic goes through a calculator and unknown words through a dictionary. It knows that and nothing
else; asked for anything beyond, it makes something up or declines. It is for teaching, not for use.

## What it knows

Greedy answers to questions in wordings, operands, words and sentences that training never showed
(`python -m course_lib evaluate` prints this again):

{table}

Right means: an encyclopedia answer holds the entry's key words, a capital is named, a tool call is exact to the
character, the pronoun is resolved in a full sentence. Draft acceptance is the mean of sum(min(p, q)) at
temperature 0.8.

*What is gravity?*

{samples}

## How it was made

| | pocket | pocket-draft |
|---|---|---|
{training}

So small a model finds late that what stood before can be copied, which names, operands and tool results ask of it.
One training document in four is therefore a drill in copying, and in the guided steps a second loss tells five
attention heads of `pocket` where to look (`course_lib.training.guidance`). Nothing holds them there afterwards.

`make train` rebuilds the tokenizer and both models, then this card; an interrupted run resumes. The corpus is the
same everywhere, byte for byte. The weights are not: floating-point sums depend on the machine.
`training_log.jsonl` holds the loss curve.
"""


def card(lm: LanguageModel, draft: LanguageModel, scores: dict[str, Score]) -> str:
    """The model card, every number read from the models, their training logs and this evaluation."""
    facts = [json.loads((MODELS / name / "training.json").read_text()) for name in ("pocket", "pocket-draft")]
    for fact in facts:
        start, end = fact["config"]["guided"]
        fact["guided"] = f"{start:,} to {end:,}" if end else "none"
    rows = {"command": "`{command}`", "seed": "{config[seed]}", "steps": "{last[step]:,}",
            "guided steps": "{guided}",
            "tokens read": "{last[tokens]:,}", "wall time": "{last[seconds]:,.0f} s",
            "last validation loss": "{last[val_loss]:.3f}", "machine": "{machine}", "note": "{note}"}
    training = "\n".join(f"| {name} | " + " | ".join(form.format(**fact) for fact in facts) + " |"
                         for name, form in rows.items())
    c = lm.config
    return CARD.format(
        parameters=parameters(lm), draft_parameters=parameters(draft), layers=c.num_hidden_layers,
        width=c.hidden_size, heads=c.num_attention_heads, kv_heads=c.num_key_value_heads,
        context=c.max_position_embeddings, vocabulary=c.vocab_size, entries=len(encyclopedia()),
        countries=len(capitals()), table=report(scores), samples=samples(lm), training=training)


def parameters(lm: LanguageModel) -> int:
    """Weights, a tied head counted once."""
    return sum(parameter.numel() for parameter in lm.model.parameters())


def require_tools(*models: LanguageModel) -> None:
    """Raise ValueError for a model that cannot be asked: one without a chat template, or without tool calls."""
    for lm in models:
        can = lm.tokenizer.chat_template is not None and "</tool_call>" in lm.tokenizer.special_tokens
        require(can, "model", lm.name, "one with a chat template and the token </tool_call>")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and the wrong answers; exit code 1 if a share is too low."""
    parser = Parser(prog="python -m course_lib evaluate", description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="pocket", help="name or folder (default: pocket)")
    parser.add_argument("--draft", default="pocket-draft", help="name or folder (default: pocket-draft)")
    parser.add_argument("--sample", type=in_range(1), default=300, help="questions of each kind (default: 300)")
    parser.add_argument("--card", action="store_true", help="write the result into pocket's README.md")
    args = parser.parse_args(argv)
    with usage_errors():
        lm, draft = load(args.model), load(args.draft)
        require_tools(lm, draft)
    scores = evaluate(lm, sample=args.sample)
    scores["draft acceptance"] = draft_acceptance(lm, draft, sample=min(args.sample, 60))
    for kind, result in scores.items():
        for question, answer in result.wrong:
            print(f"{kind}: {question!r} -> {answer!r}", file=sys.stderr)
    print(f"{report(scores)}\n\n{samples(lm)}")
    if args.card:
        (MODELS / "pocket" / "README.md").write_text(card(lm, draft, scores), encoding="utf-8")
    return 0 if all(scores[kind].share >= needed for kind, needed in THRESHOLDS.items()) else 1
