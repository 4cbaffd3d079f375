"""Writes the documents of the corpus from a seed: facts, conversations, and the texts of `prose`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import add, floordiv, mul, sub
from typing import Any, NamedTuple

from course_lib.chat_template import POCKET_CHAT_TEMPLATE, render_chat
from course_lib.training.corpus.asking import as_typed, choose_wording, with_slip
from course_lib.training.corpus.facts import (
    Entry,
    capitals,
    continents,
    data,
    draw,
    encyclopedia,
    stories_about_anything,
)
from course_lib.training.corpus.grammar import expand, with_articles
from course_lib.training.corpus.prose import Prose

END_OF_TEXT = "<|endoftext|>"
Messages = list[dict[str, Any]]

PLAIN = 10  # the first wordings of a list are the plainest; people use them most
OPERATIONS = {"add": add, "subtract": sub, "multiply": mul, "divide": floordiv}
TOOLSETS = {("calculator", "dictionary"): 6, ("calculator",): 1, ("dictionary",): 1, (): 2}
BETWEEN_TURNS = "\x1e"  # a turn may have several lines


class Mix(NamedTuple):
    """How often each kind of text is drawn.

    Attributes:
        documents, exchanges: weights of the kinds of documents, and of the kinds of exchanges in a conversation.
        drill_every: each time so many documents have come, the last of them is a drill in copying.
        usual: how often, in [0, 1], small talk gets one of the first two replies of its list, which are the usual ones.
        further: people ask also in the wordings of `further.toml`.
    """

    documents: Mapping[str, int]
    exchanges: Mapping[str, int]
    drill_every: int
    usual: float = 0.0
    further: bool = False


PRETRAINING = Mix(
    documents={"conversation": 70, "story": 6, "encyclopedia": 6, "pronoun": 9, "dialogue": 4, "capital": 2,
               "everyday": 2, "long": 1},
    exchanges={"encyclopedia": 32, "capital": 15, "country": 2, "calculator": 24, "dictionary": 17, "pronoun": 9,
               "repeat": 2, "story": 12, "small_talk": 26, "decline": 3, "unknown": 1},
    drill_every=8)
# Afterwards: more conversation, and in it other wordings.
TUNING = Mix(
    documents={"conversation": 74, "story": 6, "encyclopedia": 8, "pronoun": 6, "dialogue": 3, "capital": 1,
               "everyday": 1, "long": 1},
    exchanges={"encyclopedia": 28, "capital": 14, "country": 2, "calculator": 26, "dictionary": 18, "pronoun": 10,
               "repeat": 2, "story": 16, "small_talk": 30, "decline": 3, "unknown": 1},
    drill_every=8, usual=0.6, further=True)


def tool_schema(name: str, description: str, argument: str) -> dict[str, Any]:
    """A function with one string argument, as OpenAI's and Hugging Face's `tools` describe it."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function",
            "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = {
    "calculator": tool_schema("calculator", "Work out an arithmetic expression.", "expression"),
    "dictionary": tool_schema("dictionary", "Look up what a word means.", "word"),
}


class Writer(Prose):
    """Writes one document after another from a seed.

    Args:
        seed, held_out: as for `Prose`.
        mix: of the documents.
    """

    def __init__(self, seed: int, *, held_out: bool = False, mix: Mix = PRETRAINING) -> None:
        super().__init__(seed, held_out=held_out, further=mix.further)
        self.mix = mix

    def document(self) -> str:
        """A document of a random kind, closed by the end-of-text token."""
        kind = self.pick(self.mix.documents)
        return getattr(self, f"{kind}_document")() + END_OF_TEXT

    def encyclopedia_document(self) -> str:
        """A question with its answer in running text, or two explanations in a row."""
        entry = self.rng.choice(encyclopedia())
        if self.rng.random() < 0.6:
            return f"{self.encyclopedia_question(entry)} {self.rng.choice(entry.say)}"
        return " ".join(self.rng.sample(entry.say, 2))

    def capital_document(self) -> str:
        """A few sentences on the capitals of countries."""
        chosen = self.rng.sample(sorted(capitals()), self.rng.randint(2, 5))
        return " ".join(self.country_reply("capital", country, "prose") for country in chosen)

    # Conversations: each exchange returns the messages that it adds

    def conversation_document(self) -> str:
        """One to three exchanges, in which tools may be on offer."""
        tools = self.pick(TOOLSETS)
        kinds = [self.pick(self.mix.exchanges) for _ in range(self.pick({1: 6, 2: 3, 3: 1}))]
        messages = [m for kind in kinds for m in getattr(self, f"{kind}_exchange")(tools)]
        return render_chat(POCKET_CHAT_TEMPLATE, messages, tools=[TOOLS[name] for name in tools])

    def dialogue_document(self) -> str:
        """A conversation in which what the user said earlier counts."""
        turns = self.dialogue()
        messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
        return render_chat(POCKET_CHAT_TEMPLATE, messages)

    def dialogue(self) -> list[str]:
        """The turns of a conversation, the user's first."""
        table = data("dialogues")
        turns = self.rng.choice(table["dialogue"])["turns"]
        rules = data("words")["rules"] | table["rules"] | self.characters()
        return with_articles(expand(BETWEEN_TURNS.join(turns), rules, self.rng)).split(BETWEEN_TURNS)

    def question(self, topic: str, wordings: str = "train", *, keep: str = "", **variables: str) -> str:
        """A question in one of the topic's wordings, as somebody types it; held out: in one that training lacks.

        Args:
            wordings: a list of the topic in `questions.toml`; `held_out.toml` calls "train" "wordings".
            keep: a part of the question that is typed without a slip.
        """
        held_out = held_out_wordings(topic, wordings) if self.held_out else left_out_wordings(topic, wordings)
        return self.worded(self.texts("questions", topic, wordings), held_out, keep, **variables)

    def worded(self, train: Sequence[str], held_out: Sequence[str], keep: str = "", **variables: str) -> str:
        """A training wording as somebody types it, or a held-out one as it is written."""
        if self.held_out:
            return choose_wording(self.rng, held_out, (), **variables)
        if self.rng.random() < 0.2:
            train = train[:PLAIN]
        return as_typed(choose_wording(self.rng, train, held_out, **variables), self.rng, keep=keep)

    def encyclopedia_question(self, entry: Entry, wordings: str = "train") -> str:
        """What is ...? By any of its names, and now and then how it works or what it is for."""
        if self.held_out:
            return self.question("encyclopedia", wordings, ask=entry.ask, name=entry.name)
        if wordings == "train" and self.rng.random() < 0.2:
            wordings = "works" if entry.works else "for" if entry.useful else "train"
        name = self.rng.choice(entry.also) if entry.also and self.rng.random() < 0.25 else \
            entry.name if self.rng.random() < 0.3 else entry.ask
        if self.rng.random() < 0.03:
            name = with_slip(name, self.rng)
        return self.question("encyclopedia", wordings, keep=name, ask=name)

    def encyclopedia_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What is ...? And now and then: and what is ...?"""
        entry = self.rng.choice(encyclopedia())
        messages = exchange(self.encyclopedia_question(entry), self.rng.choice(entry.say))
        while self.rng.random() < 0.2:
            entry = self.rng.choice(encyclopedia())
            messages += exchange(self.encyclopedia_question(entry, "follow_up"), self.rng.choice(entry.say))
        return messages

    def capital_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What is the capital of ...? And of ...?"""
        messages, wordings = [], "train"
        for country in self.rng.sample(sorted(capitals()), self.pick({1: 6, 2: 3, 3: 1})):
            messages += exchange(self.capital_question(country, wordings), self.country_reply("capital", country))
            wordings = "follow_up"
        return messages

    def capital_question(self, country: str, wordings: str = "train") -> str:
        """What is the capital of ...? With or without the country's article."""
        bare = country.removeprefix("the ") if self.rng.random() < 0.3 else country
        return self.question("capital", wordings, keep=bare, country=bare)

    def country_reply(self, topic: str, country: str, reply: str = "reply") -> str:
        """A sentence on a country: its capital, its continent or both, as this list of the topic says it."""
        text = self.fill(self.rng.choice(data("questions")[topic][reply]), country=country,
                         capital=capitals()[country], continent=continents()[country])
        return text.replace("..", ".")  # after D.C.

    def country_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Where is this country? Which country is this the capital of?"""
        country = self.rng.choice(sorted(capitals()))
        capital = capitals()[country]
        kind, asked = self.rng.choice([("", country), ("capital_", capital)])
        wording = self.rng.choice(data("questions")["country"][f"{kind}train"])
        question = self.fill(wording, country=country, capital=capital).replace("..", ".")  # after D.C.
        reply = self.country_reply("country", country, f"{kind}reply")
        return exchange(as_typed(question, self.rng, keep=asked), reply)

    def story_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Tell me a story, most often about something that could as well be something else."""
        if self.rng.random() < 0.2:
            return exchange(self.question("story", "plain"), self.story()[0])
        if self.rng.random() < 0.2:
            story, about = self.story()
        else:
            plan = self.story_plan(stories_about_anything())
            story, about = self.story(plan, plan.about[0])
        if self.rng.random() < 0.4:
            story = f"{self.fill(self.rng.choice(data('questions')['story']['opening']), about=about)} {story}"
        return exchange(self.question("story", about=about, keep=about), story)

    def pronoun_exchange(self, tools: tuple[str, ...]) -> Messages:
        """A sentence and who is meant in it."""
        item = self.pronoun()
        return exchange(f"{item.text} {item.ask}", item.answer)

    def repeat_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Say this again: names, numbers and made-up words, which can only be copied."""
        makers = (self.made_up_word, self.name, lambda: str(self.operand()))
        text = " ".join(self.rng.choice(makers)() for _ in range(self.rng.randint(2, 6)))
        wordings = data("questions")["repeat"]["train"]
        held_out = held_out_wordings("repeat")
        chosen = (held_out, ()) if self.held_out else (wordings, held_out)
        return exchange(choose_wording(self.rng, *chosen, text=text), text)

    def small_talk_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Hello, thank you, who are you?"""
        table = data("small_talk")
        topic = self.rng.choice(self.texts("small_talk", "talk"))
        rules = data("words")["rules"] | table.get("rules", {}) | self.characters()
        usual = self.mix.usual and self.rng.random() < self.mix.usual
        parts = topic["say"], topic["reply"][:2] if usual else topic["reply"]
        say, reply = (with_articles(expand(self.rng.choice(part), rules, self.rng)) for part in parts)
        return exchange(as_typed(say, self.rng, habits=0.5), reply)

    def decline_exchange(self, tools: tuple[str, ...]) -> Messages:
        """A question that only an honest "I do not know" answers."""
        table, rules = data("everyday")["decline"], data("everyday")["rules"]
        if self.held_out:
            return exchange(self.rng.choice(held_out_wordings("decline")), self.rng.choice(table["reply"]))
        question = expand(self.rng.choice(table["say"]), rules, self.rng)
        return exchange(as_typed(question, self.rng), self.rng.choice(table["reply"]))

    def unknown_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What is ...? Something that the encyclopedia does not have."""
        known = {name.lower() for entry in encyclopedia() for name in (entry.name, *entry.also)}
        thing = self.rng.choice([word for word in data("words")["rules"]["anything"] if word not in known])
        about = with_articles(f"a {thing}")
        return exchange(self.question("encyclopedia", ask=about, name=thing, keep=about),
                        self.fill(self.rng.choice(data("questions")["unknown"]["reply"]), about=about))

    def calculator_exchange(self, tools: tuple[str, ...]) -> Messages:
        """Arithmetic, through the calculator where there is one."""
        table = data("tools")["calculator"]
        operation = self.rng.choice(list(OPERATIONS))
        a, b = draw(self.rng, lambda: self.operands(operation), self.held_out)
        wordings = self.texts("tools", "calculator", operation, "train")
        question = self.worded(wordings, held_out_wordings("calculator", operation), a=str(a), b=str(b))
        result = OPERATIONS[operation](a, b)
        reply = table[operation]["reply"].format(a=a, b=b, result=result)
        if "calculator" in tools:
            call = {"expression": f"{a} {table[operation]['symbol']} {b}"}
            return tool_exchange(question, "calculator", call, str(result), reply)
        easy = operation in ("add", "multiply") and max(a, b) < 10
        return exchange(question, reply if easy else self.rng.choice(table["without"]))

    def operands(self, operation: str) -> tuple[int, int]:
        """Two operands; a division is by less than a hundred and comes out even."""
        if operation != "divide":
            return self.operand(), self.operand()
        b = self.rng.randint(1, 9 if self.rng.random() < 0.5 else 99)
        return b * max(self.operand() // b, 2), b

    def dictionary_exchange(self, tools: tuple[str, ...]) -> Messages:
        """What a made-up word means, through the dictionary where there is one."""
        table = data("tools")["dictionary"]
        word = self.made_up_word()
        question = self.worded(self.texts("tools", "dictionary", "train"), held_out_wordings("dictionary"), keep=word, word=word)
        # The dictionary needs the word as it is spelled, whatever as_typed did to its case.
        question = re.sub(word, word, question, flags=re.IGNORECASE)
        if "dictionary" not in tools:
            return exchange(question, self.fill(self.rng.choice(table["without"]), word=word))
        meaning = " ".join(self.rng.choice(table[part]) for part in ("size", "thing", "use"))
        reply = self.fill(self.rng.choice(table["reply"]), word=word, meaning=meaning)
        return tool_exchange(question, "dictionary", {"word": word}, meaning, reply)


def held_out_wordings(topic: str, wordings: str = "train") -> Sequence[str]:
    """The wordings of a topic that training never shows, under the name of the list they answer to; () if none."""
    found = data("held_out").get(topic, {}).get({"train": "wordings"}.get(wordings, wordings), ())
    return found["wordings"] if isinstance(found, dict) else found


def left_out_wordings(topic: str, wordings: str = "train") -> Sequence[str]:
    """The held-out wordings of a topic, and those that training leaves out although nobody is asked them."""
    return [*held_out_wordings(topic, wordings), *data("held_out")["not_asked"].get(topic, {}).get(wordings, ())]


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
