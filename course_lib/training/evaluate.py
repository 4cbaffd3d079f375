"""What the shipped model knows, asked in wordings that training never showed, by greedy decoding.

    python -m course_lib evaluate             # every question
    python -m course_lib evaluate --sample 20 # at most 20 of each kind
    python -m course_lib evaluate --card      # and write the result into the model card
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from course_lib.checkpoint import MODELS, LanguageModel, load
from course_lib.command_line import Parser, in_range, usage_errors
from course_lib.config import require
from course_lib.training.card import card
from course_lib.training.scores import (
    THRESHOLDS,
    draft_acceptance,
    evaluate,
    report,
    report_families,
    report_perplexity,
    samples,
)


def require_tools(*models: LanguageModel) -> None:
    """Raise ValueError for a model that cannot be asked: one without a chat template, or without tool calls."""
    for lm in models:
        can = lm.tokenizer.chat_template is not None and "</tool_call>" in lm.tokenizer.special_tokens
        require(can, "model", lm.name, "one with a chat template and the token </tool_call>")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and the wrong answers.

    Returns:
        The exit code: 1 if a share is too low, unless the card was written, which tells it.
    """
    parser = Parser(prog="python -m course_lib evaluate", description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="pocket", help="name or folder (default: pocket)")
    parser.add_argument("--draft", default="pocket-draft", help="name or folder (default: pocket-draft)")
    parser.add_argument("--sample", type=in_range(1), default=300, help="questions of each kind (default: 300)")
    parser.add_argument("--card", action="store_true", help="write the result into pocket's README.md")
    args = parser.parse_args(argv)
    for name in ("model", "draft", "sample"):  # the card describes the shipped models, asked everything
        if args.card and getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name} does not go with --card")
    with usage_errors():
        lm, draft = load(args.model), load(args.draft)
        require_tools(lm, draft)
    scores = evaluate(lm, sample=args.sample)
    scores["draft acceptance"] = draft_acceptance(lm, draft, sample=min(args.sample, 60))
    for kind, result in scores.items():
        for question, answer in result.wrong:
            print(f"{kind}: {question!r} -> {answer!r}", file=sys.stderr)
    perplexity, answers = report_perplexity(lm), samples(lm)
    print(f"{report(scores)}\n\n{perplexity}\n\n{answers}\n\n{report_families(scores)}")
    if args.card:
        text = card(lm, draft, scores, perplexity=perplexity, samples=answers)
        (MODELS / "pocket" / "README.md").write_text(text, encoding="utf-8")
        return 0
    return 0 if all(scores[kind].share >= needed for kind, needed in THRESHOLDS.items()) else 1
