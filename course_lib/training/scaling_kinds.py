"""The loss of some runs of the family by kind of text.

    python -m course_lib.training.scaling_kinds size-8-tokens-8000k     # trains it again: an hour on one CPU core

The log has one loss for each run, and one for each part of the held-out text, but every part mixes all kinds of text.
Here a writer notes the kind of what it writes, runs are trained again, and their losses are taken kind by kind.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from course_lib.command_line import Parser
from course_lib.config import require
from course_lib.model import CausalLM
from course_lib.tokenizer import Tokenizer
from course_lib.training.corpus.writer import DOCUMENT_WEIGHTS, EXCHANGE_WEIGHTS, Messages, Writer
from course_lib.training.scaling import chosen, token_losses, tokenizer, trained, validation_text
from course_lib.training.train import VALIDATION_SEED

Tools = tuple[str, ...]
BY_KIND = Path(__file__).with_name("scaling_kinds.csv")
KINDS = ("encyclopedia", "tool calls and answers", "tool results", "stories", "questions", "the rest")
ENCYCLOPEDIA, CALLS, RESULTS, STORIES, QUESTIONS, REST = range(len(KINDS))
OF_ROLE = {"user": QUESTIONS, "tool": RESULTS}  # whatever it is about
OF_DOCUMENT = {"story": STORIES, "long": STORIES, "encyclopedia": ENCYCLOPEDIA}
OF_EXCHANGE = {"story": STORIES, "encyclopedia": ENCYCLOPEDIA, "calculator": CALLS, "dictionary": CALLS}


class NotingWriter(Writer):
    """Writes the text of `Writer` and notes the kind of each part of the last document."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.whole = REST  # the kind of what belongs to no message
        self.said: list[tuple[int, str, str]] = []  # kind, role and text of each message
        for kind in DOCUMENT_WEIGHTS:
            setattr(self, f"{kind}_document", partial(self.note_document, kind, getattr(self, f"{kind}_document")))
        for kind in EXCHANGE_WEIGHTS:
            setattr(self, f"{kind}_exchange", partial(self.note_exchange, kind, getattr(self, f"{kind}_exchange")))

    def note_document(self, kind: str, write: Callable[[], str]) -> str:
        """What `write` writes."""
        self.whole, self.said = OF_DOCUMENT.get(kind, REST), []
        return write()

    def note_exchange(self, kind: str, write: Callable[[Tools], Messages], tools: Tools) -> Messages:
        """The messages of `write`."""
        messages = write(tools)
        for message in messages:
            call = message.get("tool_calls")
            text = next(iter(call[0]["function"]["arguments"].values())) if call else message["content"]
            of_message = OF_ROLE.get(message["role"], OF_EXCHANGE.get(kind, REST))
            self.said.append((of_message, message["role"], text))
        return messages

    def noted(self) -> tuple[bytes, np.ndarray]:
        """The next document, and the kind of each of its bytes, as an index into `KINDS`."""
        text = self.document().encode()
        kinds, place = np.full(len(text), self.whole, dtype=np.uint8), 0
        for kind, role, said in self.said:
            turn = f"<|im_start|>{role}\n".encode()
            start = text.index(said.encode(), text.index(turn, place) + len(turn))
            place = start + len(said.encode())
            kinds[start:place] = kind
        return text, kinds


def kinds_of_tokens(encoder: Tokenizer, seed: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The first tokens of the text of a seed, and the kind of each: that of its last byte."""
    writer, ids, kinds = NotingWriter(seed), [], []
    while len(ids) < tokens:
        text, of_bytes = writer.noted()
        new = encoder.encode(text.decode(), allowed_special="all")
        ends = np.cumsum([len(encoder.decode_bytes([i])) for i in new])
        ids += new
        kinds.append(of_bytes[ends - 1])
    return np.array(ids[:tokens]), np.concatenate(kinds)[:tokens]


def measure(model: CausalLM) -> dict[str, tuple[float, float]]:
    """For each kind its share of the held-out text and the model's loss on it, in nats per token."""
    losses = token_losses(model).flatten().numpy().astype(np.float64)
    ids, kinds = kinds_of_tokens(tokenizer(), VALIDATION_SEED, len(losses) + 1)
    require(np.array_equal(ids, validation_text()[: len(ids)]), "text", "another one", "the held-out text")
    return {name: (float((kinds[1:] == i).mean()), float(losses[kinds[1:] == i].mean()))
            for i, name in enumerate(KINDS)}


def shares(path: Path = BY_KIND) -> dict[str, float]:
    """The share that each kind has of the tokens of the held-out text."""
    return {row["kind"]: float(row["share"]) for row in rows(path)}


def losses_by_kind(path: Path = BY_KIND) -> dict[str, dict[str, float]]:
    """For each run that is stored, by name, its loss on each kind of text, in nats per token."""
    found: dict[str, dict[str, float]] = {}
    for row in rows(path):
        found.setdefault(row["run"], {})[row["kind"]] = float(row["loss"])
    return found


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of the file: run, kind, share, loss."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def store(run: str, measured: dict[str, tuple[float, float]], path: Path = BY_KIND) -> None:
    """Add a run to the file."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(("run", "kind", "share", "loss"))
        writer.writerows((run, kind, f"{share:.5f}", f"{loss:.5f}") for kind, (share, loss) in measured.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Train runs of the family again and store their losses by kind of text."""
    parser = Parser(prog="python -m course_lib.training.scaling_kinds", description=main.__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names, as python -m course_lib scaling --list prints")
    parser.add_argument("--results", type=Path, default=BY_KIND, help="the file to add to (default: the package's)")
    args = parser.parse_args(argv)
    for run in chosen(args.runs):
        store(run.name, measure(trained(run)[0]), args.results)
        print(f"{run.name}: stored", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
