"""Three servers with one mistake each, to be told apart by their numbers and by what their readers get.

Who reads on looks up the answer. Of the seven in `MISTAKES` three are in `SERVERS`. A server is the engine of
`course_lib`, with a scheduler or a manager of pages that is wrong in one place. Three tests look at it from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from course_lib.analysis.slots import Slots
from course_lib.config import SamplingParams
from course_lib.engine import Engine
from course_lib.generate import LanguageModel, encode_prompt
from course_lib.paging import BlockManager, BlockTable, Prefix, hash_block
from course_lib.scheduler import Batch, Scheduler

MISTAKES = {
    "leak": "keeps the pages of requests whose reader has left",
    "overtaking": "lets short requests overtake a long one",
    "not chained": "finds a page by its own tokens, whatever came before them",
    "static": "gives no slot away before its whole batch has ended",
    "reserved": "reserves pages for the longest possible answer",
    "too early": "finds pages before the pass that computes them",
    "wrong victim": "takes the pages of the oldest request, and not of the newest, when memory is full",
}
Server = Callable[..., Engine]


class Leaking(Scheduler):
    """Forgets the request at an abort, but not the table."""

    def abort(self, request_id: str) -> None:
        """End a request wherever it is."""
        for sequence in [*self.running, *self.waiting]:
            if sequence.request_id == request_id:
                sequence.finish_reason = "abort"
                (self.running if sequence.table else self.waiting).remove(sequence)


class Overtaking(Scheduler):
    """The shortest of those who wait comes first."""

    def admit(self, batch: Batch) -> None:
        """Let those who wait begin, while there is room."""
        self.waiting = deque(sorted(self.waiting, key=lambda sequence: len(sequence.token_ids)))
        super().admit(batch)


class Unchained(BlockManager):
    """Hashes each page alone, and compares the tokens of that page alone."""

    def find_prefix(self, token_ids: Sequence[int]) -> tuple[list[int], Prefix | None]:
        """Pages with the tokens of the beginning of a text."""
        found, prefix, size = [], None, self.block_size
        for start in range(0, len(token_ids) - size, size):
            tokens = tuple(token_ids[start : start + size])
            block_id = self.index.get(hash_block(0, tokens))
            if block_id is None or self.prefixes[block_id].token_ids != tokens:
                break
            found.append(block_id)
            prefix = self.prefixes[block_id]
        return found, prefix

    def cache_full_blocks(self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Enter the pages that are full by now into the index."""
        size = self.block_size
        for i in range(table.num_full_blocks, num_computed_tokens // size):
            tokens = tuple(token_ids[i * size : (i + 1) * size])
            prefix = Prefix(None, tokens, hash_block(0, tokens))
            if prefix.hash not in self.index:
                self.index[prefix.hash], self.prefixes[table.block_ids[i]] = table.block_ids[i], prefix
            table.num_full_blocks = i + 1


def server(scheduler: type[Scheduler] = Scheduler, blocks: type[BlockManager] = BlockManager) -> Server:
    """What makes an engine with these parts; it is called as `Engine` is."""
    def make(lm: LanguageModel, **options: int | bool) -> Engine:
        engine = Engine(lm, **options)
        engine.scheduler.__class__, engine.blocks.__class__ = scheduler, blocks
        return engine

    return make


right = server()
SERVERS: dict[str, Server] = {"A": server(Overtaking), "B": server(blocks=Unchained), "C": server(Leaking)}


# What is seen from outside

QUESTIONS = ("What is rain? What is a volcano?", "What is a volcano?",
             "What is the capital of France? What is gravity?", "What is gravity?")


def distinct(n: int, length: int) -> list[int]:
    """The n-th prompt of some length; none begins as another does."""
    return [100 + n, *range(200, 199 + length)]


class Round(NamedTuple):
    """Four readers who came and left: the tokens that they got, and the pages in use when nobody is there any more."""

    tokens: int
    pages: int


def readers_leave(server: Server, lm: LanguageModel, rounds: int = 10) -> list[Round]:
    """Four readers at a time ask for long answers, and leave after three passes; there are 64 pages."""
    engine, seen = server(lm, num_blocks=64), []
    for i in range(rounds):
        for j in range(4):
            engine.add_request(f"{i} {j}", distinct(4 * i + j, 20), SamplingParams(max_tokens=50, ignore_eos=True))
        tokens = sum(len(engine.step()) for _ in range(3))
        for j in range(4):
            engine.abort_request(f"{i} {j}")
        seen.append(Round(tokens, engine.stats().blocks_used))
    return seen


def long_among_short(server: Server, lm: LanguageModel, n: int = 20) -> list[int]:
    """Passes until the first token of each of n requests, one of which comes every six passes.

    The sixth reads 160 tokens, the others 16; all write 16. There are 11 pages of 16 tokens and four slots. Only the
    server's scheduler takes part: which tokens a model would choose changes none of these numbers.
    """
    slots = Slots(server(lm, max_num_seqs=4, num_blocks=11).scheduler)
    passes, came, first = 0, {}, {}
    while len(came) < n or slots.scheduler.has_unfinished():
        if passes % 6 == 0 and len(came) < n:
            name = str(len(came))
            slots.scheduler.add(name, distinct(len(came), 160 if len(came) == 5 else 16), max_tokens=16)
            came[name] = passes
        passes += 1
        for name in slots.step().tokens:
            first.setdefault(name, passes)
    return [first[name] - at for name, at in came.items()]


class Reply(NamedTuple):
    """An answer: the tokens of its prompt, how many of them were found in the prefix index, and its text."""

    question: str
    prompt_tokens: int
    found: int
    text: str


def replies(server: Server, lm: LanguageModel, questions: Sequence[str] = QUESTIONS,
            max_tokens: int = 20) -> list[Reply]:
    """Answers at temperature 0 to questions of different readers, one after the other; pages of four tokens."""
    engine, written = server(lm, block_size=4), []
    for question in questions:
        ids, before, tokens = encode_prompt(lm.tokenizer, [{"role": "user", "content": question}]), engine.stats(), []
        engine.add_request(question, ids, SamplingParams(temperature=0, max_tokens=max_tokens))
        while engine.has_unfinished_requests():
            tokens += [output.result().token_id for output in engine.step()]
        found = engine.stats().prefix_hits - before.prefix_hits
        text = lm.tokenizer.decode([token for token in tokens if token not in lm.eos_token_ids])
        written.append(Reply(question, len(ids), found, text))
    return written
