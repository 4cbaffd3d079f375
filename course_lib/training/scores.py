"""What the shipped model knows, measured: greedy answers, stories, perplexity, and how well the draft guesses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.checkpoint import LanguageModel
from course_lib.config import SamplingParams
from course_lib.generate import generate
from course_lib.training.corpus import TOOLS, Writer, people, stories
from course_lib.training.corpus.facts import is_held_out
from course_lib.training.questions import SEED, STORY_TOKENS, Question, kinds, story_questions, user

# What the course needs of `pocket` to teach with it: shares of right answers. A call of the calculator copies
# digits; one of the dictionary copies a word that nobody has seen, letter by letter.
THRESHOLDS = {"encyclopedia": 0.95, "how it works": 0.90, "capitals": 0.95, "follow-ups": 0.90, "calculator": 0.98,
              "dictionary": 0.95, "pronouns": 0.90, "stories asked for": 0.85, "small talk": 0.85, "declines": 0.90,
              "consistent stories": 0.80, "draft acceptance": 0.65}
# Of new stories of known plans. Below, temperature would hardly show; above, they would not hold together.
PERPLEXITY = (3.0, 8.0)


@dataclass(frozen=True)
class Score:
    """How many of how many were right, by family of wordings, and the wrong answers with their questions."""

    right: float
    asked: int
    wrong: tuple[tuple[str, str], ...] = ()
    families: tuple[tuple[str, int, int], ...] = ()  # wording, right, asked

    @property
    def share(self) -> float:
        """In [0, 1]."""
        return self.right / self.asked


def ask(lm: LanguageModel, question: Question) -> str:
    """The model's greedy answer; where tools are on offer, with its control tokens, up to the end of a call."""
    ids = lm.tokenizer.apply_chat_template(question.messages, tools=question.tools,
                                           add_generation_prompt=True)
    close = lm.tokenizer.special_tokens["</tool_call>"]
    params = SamplingParams(temperature=0, max_tokens=question.max_tokens, stop_token_ids=(close,))
    output = generate(lm, ids, params)
    return lm.tokenizer.decode(output.token_ids) if question.tools else output.text


def score(lm: LanguageModel, questions: Iterator[Question], n: int) -> Score:
    """Ask the first n questions, or all if there are fewer."""
    right, asked, wrong = Counter(), Counter(), []
    for question in islice(questions, n):
        answer = ask(lm, question)
        asked[question.family] += 1
        if question.is_right(answer):
            right[question.family] += 1
        else:
            wrong.append((question.messages[-1]["content"], answer))
    families = tuple((family, right[family], asked[family]) for family in asked if family)
    return Score(right.total(), asked.total(), tuple(wrong), families)


def evaluate(lm: LanguageModel, *, sample: int = 300, seed: int = SEED) -> dict[str, Score]:
    """Ask up to `sample` questions of every kind."""
    scores = {kind: score(lm, questions, sample) for kind, questions in kinds(seed).items()}
    return scores | {"consistent stories": consistent_stories(lm, sample=min(sample, 100), seed=seed)}


def consistent_stories(lm: LanguageModel, *, sample: int, seed: int = SEED) -> Score:
    """Stories asked for at temperature 0.8: not empty, and their last third names nobody new (`newcomers`)."""
    right, wrong = 0, []
    for number, question in enumerate(islice(story_questions(Writer(seed, held_out=True)), sample)):
        params = SamplingParams(temperature=0.8, seed=number, max_tokens=STORY_TOKENS)
        text = generate(lm, question.messages, params).text
        if text.strip() and not newcomers(text):
            right += 1
        else:
            wrong.append((question.messages[0]["content"], text))
    return Score(right, sample, tuple(wrong))


def newcomers(text: str) -> set[str]:
    """Names of people and animals that occur in the last third of a text, and not before."""
    names = people()
    known = {*names["girls"], *names["boys"], *names["women"], *names["men"], *(a["name"] for a in names["animals"])}
    words = re.findall(r"\w+", text)
    border = 2 * len(words) // 3
    return known & set(words[border:]) - set(words[:border])


@torch.inference_mode()
def story_perplexity(lm: LanguageModel, *, unseen_plans: bool, sample: int = 100, seed: int = SEED) -> float:
    """Perplexity per token of stories that training did not hold.

    Args:
        unseen_plans: of plans that training never showed; otherwise of its own plans, filled anew.
    """
    writer, total, tokens = Writer(seed), 0.0, 0
    plans = [plan for plan in stories() if is_held_out(plan.title) == unseen_plans]
    device = next(lm.model.parameters()).device
    for _ in range(sample):
        text = writer.story(writer.rng.choice(plans))[0]
        ids = torch.tensor([lm.tokenizer.encode(text)[: lm.config.max_position_embeddings]], device=device)
        logits = lm.model(ids)[0, :-1].float()
        total += F.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        tokens += len(logits)
    return math.exp(total / tokens)


@torch.inference_mode()
def draft_acceptance(target: LanguageModel, draft: LanguageModel, *, sample: int = 60,
                     temperature: float = 0.8, seed: int = SEED) -> Score:
    """The share of the draft's tokens that speculative sampling would accept.

    The mean of `acceptance` over texts that the target writes at this temperature, as answers to held-out
    questions of six kinds.
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
        accepted += acceptance(p, q).sum().item()
        positions += len(p)
    return Score(accepted, positions)


def acceptance(p: Tensor, q: Tensor) -> Tensor:
    """The probability sum(min(p, q)) that a token drawn from q is accepted where p is wanted (Leviathan et al. 2023).

    Args:
        p, q: (..., V), distributions of the target and of the draft.

    Returns:
        (...)

    >>> acceptance(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.0, 0.75]]))
    tensor([0.5000])
    """
    return torch.minimum(p, q).sum(-1)


def report(scores: dict[str, Score]) -> str:
    """A Markdown table: share, count, threshold, verdict."""
    lines = ["| asked | right | of | share | needed | |", "|---|---:|---:|---:|---:|---|"]
    for kind, result in scores.items():
        needed = THRESHOLDS[kind]
        verdict = "ok" if result.share >= needed else "too low"
        lines.append(f"| {kind} | {result.right:.0f} | {result.asked} | {result.share:.1%} | {needed:.0%} "
                     f"| {verdict} |")
    return "\n".join(lines)


def report_families(scores: dict[str, Score]) -> str:
    """A Markdown table of every wording that was asked, those that did worst first."""
    rows = [(right / asked, kind, family, right, asked) for kind, result in scores.items()
            for family, right, asked in result.families]
    lines = ["| wording | kind | right | of |", "|---|---|---:|---:|"]
    return "\n".join(lines + [f"| {family} | {kind} | {right} | {asked} |"
                              for _, kind, family, right, asked in sorted(rows, key=lambda row: row[0])])


def report_perplexity(lm: LanguageModel) -> str:
    """A Markdown list: how surprised the model is by stories."""
    low, high = PERPLEXITY
    known, unseen = (story_perplexity(lm, unseen_plans=which) for which in (False, True))
    verdict = "ok" if low <= known <= high else "outside"
    return (f"- stories of plans that it knows, filled anew: {known:.2f} (wanted: {low:.0f} to {high:.0f}; {verdict})\n"
            f"- stories of plans that it never saw: {unseen:.1f}")


def samples(lm: LanguageModel, question: str = "What is gravity?") -> str:
    """Answers to the showpiece question, at temperature 0 and at 0.8, as a Markdown list."""
    settings = [SamplingParams(temperature=0), *(SamplingParams(temperature=0.8, seed=n) for n in range(3))]
    return "\n".join(f"- `{params!r}`: {generate(lm, user(question), params).text.strip()}" for params in settings)
