"""The training text of the shipped models, written from data files a teacher can edit.

`documents(seed)` yields stories, encyclopedia entries, capitals, everyday sentences and conversations
without end; the same seed gives the same text. The files in `data/` hold every fact and every wording,
and say which wordings are kept out of training. Operands, made-up words and pronoun sentences are kept
out by a hash of their text (`is_held_out`), so that the evaluation asks what training never showed.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count, islice
from operator import add, floordiv, mul, sub
from random import Random
from typing import Any, NamedTuple

from course_lib.chat_template import POCKET_CHAT_TEMPLATE, render_chat
from course_lib.command_line import Parser, in_range
from course_lib.training.corpus.grammar import expand

END_OF_TEXT = "<|endoftext|>"
Messages = list[dict[str, Any]]

# How often each kind of document and each kind of exchange in a conversation is drawn.
DOCUMENT_WEIGHTS = {"conversation": 42, "story": 12, "encyclopedia": 10, "pronoun": 16, "capital": 4,
                    "everyday": 4}
EXCHANGE_WEIGHTS = {"calculator": 30, "encyclopedia": 24, "capital": 8, "dictionary": 14, "pronoun": 12,
                    "repeat": 6, "story": 4, "small_talk": 4, "decline": 3}
OPERATIONS = {"add": add, "subtract": sub, "multiply": mul, "divide": floordiv}
TOOLSETS = {("calculator", "dictionary"): 6, ("calculator",): 1, ("dictionary",): 1, (): 2}


def tool_schema(name: str, description: str, argument: str) -> dict[str, Any]:
    """A function with one string argument, as OpenAI's and Hugging Face's `tools` describe it."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function",
            "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = {
    "calculator": tool_schema("calculator", "Work out an arithmetic expression.", "expression"),
    "dictionary": tool_schema("dictionary", "Look up what a word means.", "word"),
}


@dataclass(frozen=True)
class Entry:
    """One thing the encyclopedia explains: its question form, its explanations, what each must hold."""

    name: str
    ask: str
    key: tuple[str, ...]
    say: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """Whether an answer holds every key; `a|b` in a key means either."""
        text = answer.lower()
        return all(any(part.lower() in text for part in key.split("|")) for key in self.key)


class Pronoun(NamedTuple):
    """A sentence with a pronoun, a question about it, and the answer."""

    text: str
    ask: str
    answer: str


@cache
def data(name: str) -> dict[str, Any]:
    """One of the files in `data/`, parsed."""
    return tomllib.loads(files(__package__).joinpath("data", f"{name}.toml").read_text("utf-8"))


@cache
def encyclopedia() -> tuple[Entry, ...]:
    """Every entry of every encyclopedia file."""
    tables = (data(f"encyclopedia_{theme}") for theme in ("nature", "life", "computing"))
    return tuple(Entry(name, entry["ask"], tuple(entry["key"]), tuple(entry["say"]))
                 for table in tables for name, entry in table.items())


def capitals() -> dict[str, str]:
    """Country, as it stands in "the capital of ...", to capital."""
    return data("capitals")["capitals"]


def is_held_out(text: str) -> bool:
    """Whether this text, one in ten of all texts, never occurs in training."""
    return zlib.crc32(text.encode()) % 10 == 0


def draw(rng: Random, make: Callable[[], Any], held_out: bool, text: Callable[[Any], str] = str) -> Any:
    """Draw from `make` until the text of what comes is (or is not) one that is held out."""
    while is_held_out(text(item := make())) != held_out:
        pass
    return item


class Writer:
    """Writes one document after another from a seed.

    Args:
        seed: of the one random generator behind every choice.
        held_out: ask with the wordings, operands, words and sentences that training never shows.
    """

    def __init__(self, seed: int, *, held_out: bool = False) -> None:
        self.rng = Random(seed)
        self.held_out = held_out
        self.wordings = "held_out" if held_out else "train"

    def pick(self, weights: dict[Any, int]) -> Any:
        """A key of `weights`, as often as its weight says."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def document(self) -> str:
        """A document of a random kind, closed by the end-of-text token."""
        kind = self.pick(DOCUMENT_WEIGHTS)
        return getattr(self, f"{kind}_document")() + END_OF_TEXT

    # Plain prose

    def characters(self) -> dict[str, str]:
        """Two characters with their pronouns, as variables for the grammar: hero.he, friend.him, ..."""
        table = data("stories")["characters"]
        people = [{"name": name, "kind": kind, "he": he} for kind, he, names in
                  (("girl", "she", table["girls"]), ("boy", "he", table["boys"])) for name in names]
        variables = {}
        first = self.rng.choice(people if self.rng.random() < 0.65 else table["animals"])
        second = self.rng.choice([p for p in people if p["name"] != first["name"]])
        for role, person in (("hero", first), ("friend", second)):
            he = person["he"]
            variables |= {role: person["name"], f"{role}.kind": person["kind"], f"{role}.he": he,
                          f"{role}.him": {"he": "him", "she": "her", "it": "it"}[he],
                          f"{role}.his": {"he": "his", "she": "her", "it": "its"}[he]}
        return variables

    def story(self) -> tuple[str, str]:
        """A story and the name of whom it is about."""
        table, who = data("stories"), self.characters()
        skeletons = table["skeletons"]
        if who["hero.kind"] in ("girl", "boy"):
            skeletons = skeletons + table["child_skeletons"]
        text = expand(self.rng.choice(skeletons), table["rules"] | who, self.rng)
        # A quoted sentence whose speaker follows ends in a comma, wherever else its rule is used.
        return re.sub(r'\." (?=said|called|whispered|answered)', '," ', text), who["hero"]

    def story_document(self) -> str:
        """A story by itself."""
        return self.story()[0]

    def encyclopedia_document(self) -> str:
        """A question with its answer in running text, or two explanations in a row."""
        entry = self.rng.choice(encyclopedia())
        if self.rng.random() < 0.7:
            return f"{self.question('encyclopedia', ask=entry.ask)} {self.rng.choice(entry.say)}"
        return " ".join(self.rng.sample(entry.say, 2))

    def capital_document(self) -> str:
        """A few sentences on the capitals of countries."""
        chosen = self.rng.sample(sorted(capitals()), self.rng.randint(2, 5))
        sentence = data("questions")["capital"]["prose"]
        return " ".join(self.fill(self.rng.choice(sentence), country=c, capital=capitals()[c])
                        for c in chosen)

    def everyday_document(self) -> str:
        """A few everyday sentences."""
        continuations = data("everyday")["continuations"]
        starts = self.rng.sample(sorted(continuations), self.rng.randint(2, 6))
        return " ".join(f"{start} {self.pick(continuations[start])}." for start in starts)

    def pronoun_document(self) -> str:
        """A pronoun, the question what it means, and the answer, in running text."""
        return " ".join(self.pronoun())

    def pronoun(self) -> Pronoun:
        """A sentence whose pronoun means one of two things, and a question that asks which."""
        table = data("pronouns")

        def make() -> Pronoun:
            kind = self.pick({"it": 2, "she_he": 1})
            frame, who = self.rng.choice(table[kind]), self.characters()
            while kind == "she_he" and {who["hero.he"], who["friend.he"]} != {"he", "she"}:
                who = self.characters()
            joined = "\n".join((frame["text"], frame["ask"], frame["answer"]))
            return Pronoun(*expand(joined, table["rules"] | who, self.rng).split("\n"))

        return draw(self.rng, make, self.held_out, lambda item: item.text)

    # Conversations: each exchange returns the messages that it adds

    def conversation_document(self) -> str:
        """One to three exchanges, in which tools may be on offer."""
        tools = self.pick(TOOLSETS)
        kinds = [self.pick(EXCHANGE_WEIGHTS) for _ in range(self.pick({1: 6, 2: 3, 3: 1}))]
        messages = [m for kind in kinds for m in getattr(self, f"{kind}_exchange")(tools)]
        return render_chat(POCKET_CHAT_TEMPLATE, messages, tools=[TOOLS[name] for name in tools])

    def question(self, topic: str, **variables: str) -> str:
        """One of the topic's wordings, of training or held out."""
        return self.fill(self.rng.choice(data("questions")[topic][self.wordings]), **variables)

    def fill(self, template: str, **variables: str) -> str:
        """The template with the variables in their slots."""
        return expand(template, variables, self.rng)

    def encyclopedia_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What is ...?"""
        entry = self.rng.choice(encyclopedia())
        return exchange(self.question("encyclopedia", ask=entry.ask), self.rng.choice(entry.say))

    def capital_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What is the capital of ...?"""
        country, capital = self.rng.choice(sorted(capitals().items()))
        reply = self.rng.choice(data("questions")["capital"]["reply"])
        return exchange(self.question("capital", country=country),
                        self.fill(reply, country=country, capital=capital))

    def story_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Tell me a story."""
        story, hero = self.story()
        return exchange(self.question("story", hero=hero), story)

    def pronoun_exchange(self, tools: tuple[str, ...]) -> Messages:
        """A sentence and who is meant in it."""
        text, ask, answer = self.pronoun()
        return exchange(f"{text} {ask}", answer)

    def repeat_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Say this again: names, numbers and made-up words, which can only be copied."""
        words = [self.pick({self.made_up_word(): 1, self.characters()["hero"]: 1, str(self.operand()): 1})
                 for _ in range(self.rng.randint(2, 6))]
        text = " ".join(words)
        return exchange(self.question("repeat", text=text), text)

    def drill_document(self) -> str:
        """A row of numbers, names and made-up words, said several times over: practice in copying.

        A word after a space falls into other tokens than the same word after a quotation mark, as which a
        tool call needs it. So every other drill says each word of a row of made-up words plainly and in
        quotes, and half of the others set the row in another way each time.
        """
        if self.rng.random() < 0.5:
            words = [self.made_up_word() for _ in range(self.rng.randint(4, 16))]
            return " ".join(f'{word} "{word}"' for word in words)
        makers = [lambda: str(self.operand()), self.made_up_word, lambda: self.characters()["hero"]]
        if self.rng.random() < 0.6:
            makers = [self.rng.choice(makers)]
        row = [self.rng.choice(makers)() for _ in range(self.rng.randint(1, 8))]
        settings = [" ".join, ", ".join, "\n".join, lambda row: " ".join(f'"{item}"' for item in row)]
        if self.rng.random() < 0.5:
            settings = [self.rng.choice(settings)]
        return "\n".join(self.rng.choice(settings)(row) for _ in range(self.rng.randint(2, 5)))

    def small_talk_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Hello, thank you, who are you?"""
        topic = self.rng.choice(data("everyday")["chat"])
        return exchange(self.rng.choice(topic["say"]), self.rng.choice(topic["reply"]))

    def decline_exchange(self, tools: tuple[str, ...]) -> Messages:
        """A question that only an honest "I do not know" answers."""
        table, rules = data("everyday")["decline"], data("everyday")["rules"]
        ask = self.rng.choice(table["held_out_say" if self.held_out else "say"])
        return exchange(expand(ask, rules, self.rng), self.rng.choice(table["reply"]))

    def calculator_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Arithmetic, through the calculator where there is one."""
        table = data("tools")["calculator"]
        operation = self.rng.choice(list(OPERATIONS))
        a, b = draw(self.rng, lambda: self.operands(operation), self.held_out)
        ask = self.rng.choice(table[operation][self.wordings]).format(a=a, b=b)
        result = OPERATIONS[operation](a, b)
        reply = table[operation]["reply"].format(a=a, b=b, result=result)
        if "calculator" in tools:
            call = {"expression": f"{a} {table[operation]['symbol']} {b}"}
            return tool_exchange(ask, "calculator", call, str(result), reply)
        easy = operation in ("add", "multiply") and max(a, b) < 10
        return exchange(ask, reply if easy else self.rng.choice(table["without"]))

    def operand(self) -> int:
        """A number of one to four digits, each length equally likely."""
        digits = self.rng.randint(1, 4)
        return self.rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)

    def operands(self, operation: str) -> tuple[int, int]:
        """Two operands; a division is by less than a hundred and comes out even."""
        if operation != "divide":
            return self.operand(), self.operand()
        b = self.rng.randint(1, 9 if self.rng.random() < 0.5 else 99)
        return b * max(self.operand() // b, 2), b

    def made_up_word(self) -> str:
        """A word that no dictionary holds, but this corpus's own."""
        table = data("tools")["dictionary"]

        def make() -> str:
            parts = ["start", "middle", "join", "end"] if self.rng.random() < 0.8 else \
                ["start", "middle", "join", "middle", "join", "end"]
            return "".join(self.rng.choice(table[part]) for part in parts)

        return draw(self.rng, make, self.held_out)

    def dictionary_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What a made-up word means, through the dictionary where there is one."""
        table = data("tools")["dictionary"]
        word = self.made_up_word()
        ask = self.fill(self.rng.choice(table[self.wordings]), word=word)
        if "dictionary" not in tools:
            return exchange(ask, self.fill(self.rng.choice(table["without"]), word=word))
        meaning = " ".join(self.rng.choice(table[part]) for part in ("size", "thing", "use"))
        reply = self.fill(self.rng.choice(table["reply"]), word=word, meaning=meaning)
        return tool_exchange(ask, "dictionary", {"word": word}, meaning, reply)


def exchange(user: str, assistant: str) -> Messages:
    """A question and its answer."""
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def tool_exchange(user: str, tool: str, arguments: dict[str, str], result: str, reply: str) -> Messages:
    """A question, the call, its result, and the answer that uses it."""
    call = {"type": "function", "function": {"name": tool, "arguments": arguments}}
    return [{"role": "user", "content": user},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": result},
            {"role": "assistant", "content": reply}]


def documents(seed: int = 0) -> Iterator[str]:
    """The course's text, document by document, without end."""
    writer = Writer(seed)
    while True:
        yield writer.document()


def training_documents(seed: int = 0, *, drill_every: int = 4) -> Iterator[str]:
    """What the models read: `documents`, and every so-manieth time a drill instead.

    A small model discovers late that what stood before can be copied, which names, operands and
    tool results ask of it. Text that repeats itself shows it early.
    """
    text, drill = documents(seed), Writer(seed)
    for number in count(1):
        yield drill.drill_document() + END_OF_TEXT if number % drill_every == 0 else next(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Print documents of the training text, to read them or to keep them."""
    parser = Parser(prog="python -m course_lib corpus", description=main.__doc__)
    parser.add_argument("--documents", type=in_range(0), default=10, help="how many (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="which text (default: 0, that of the training)")
    args = parser.parse_args(argv)
    for text in islice(documents(args.seed), args.documents):
        print(text)
    return 0
