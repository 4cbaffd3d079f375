"""The training text of the shipped models, written from data files a teacher can edit.

`documents(seed)` yields stories, encyclopedia entries, capitals, everyday texts and conversations
without end; the same seed gives the same text. The files in `data/` hold every fact and every wording;
`held_out.toml` holds wordings that training never shows. Story plans, operands, made-up words and pronoun
sentences are kept out by a hash of their text (`is_held_out`), so that the evaluation asks what training
never showed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

from course_lib.command_line import Parser, in_range
from course_lib.training.corpus.facts import (
    Entry,
    capitals,
    continents,
    data,
    encyclopedia,
    is_held_out,
    people,
    stories,
)
from course_lib.training.corpus.prose import Pronoun
from course_lib.training.corpus.writer import (
    END_OF_TEXT,
    PRETRAINING,
    TOOLS,
    TUNING,
    Mix,
    Writer,
    held_out_wordings,
)

__all__ = ["END_OF_TEXT", "PRETRAINING", "TOOLS", "TUNING", "Entry", "Mix", "Pronoun", "Writer", "capitals",
           "continents", "data", "documents", "encyclopedia", "held_out_wordings", "is_held_out", "main", "people",
           "stories", "training_documents"]


def documents(seed: int = 0, mix: Mix = PRETRAINING) -> Iterator[str]:
    """The course's text, document by document, without end."""
    writer = Writer(seed, mix=mix)
    while True:
        yield writer.document()


def training_documents(seed: int = 0, mix: Mix = PRETRAINING) -> Iterator[str]:
    """What the models read: `documents`, with drills among them.

    A model this small is slow to discover that it can copy from earlier text. Names, operands and tool
    results all depend on it. Text that repeats itself shows it early.
    """
    text, drill = documents(seed, mix), Writer(seed)
    for number in count(1):
        yield drill.drill_document() + END_OF_TEXT if number % mix.drill_every == 0 else next(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Print documents of the training text, to read them or to keep them."""
    parser = Parser(prog="python -m course_lib corpus", description=main.__doc__)
    parser.add_argument("--documents", type=in_range(0), default=10, help="how many (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="which text (default: 0, the one that was trained on)")
    args = parser.parse_args(argv)
    for text in islice(documents(args.seed), args.documents):
        print(text)
    return 0
