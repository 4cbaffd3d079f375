"""Writes plain text from a seed: stories, everyday sentences, pronouns, and rows to be copied."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from course_lib.training.corpus.facts import Story, data, draw, people, short_stories, stories, texts
from course_lib.training.corpus.grammar import expand, with_articles

FORMS = {"he": ("him", "his", "himself"), "she": ("her", "her", "herself"), "it": ("it", "its", "itself")}


class Pronoun(NamedTuple):
    """A sentence with a pronoun, a question about it, and the answer."""

    text: str
    ask: str
    answer: str


class Prose:
    """Writes texts, one after another, from a seed.

    Args:
        seed: of the one random generator behind every choice.
        held_out: ask with the wordings, plans, operands, words and sentences that training never shows.
        further: ask also with what `further.toml` adds.
    """

    def __init__(self, seed: int, *, held_out: bool = False, further: bool = False) -> None:
        self.rng = Random(seed)
        self.held_out = held_out
        self.further = further

    def texts(self, file: str, *keys: str) -> Sequence[Any]:
        """A list of a data file, as long as this writer knows it."""
        return texts(file, *keys, further=self.further)

    def pick(self, weights: Mapping[Any, int]) -> Any:
        """A key of `weights`, as often as its weight says."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def fill(self, template: str, **variables: str) -> str:
        """The template with the variables in their slots."""
        return expand(template, variables, self.rng)

    def characters(self, cast: str = "any") -> dict[str, str]:
        """Three characters with their pronouns, as variables for the grammar: hero.he, friend.him, other.kind, ...

        Args:
            cast: child, adult, animal, or any: one of the three, children most often.
        """
        cast = self.pick({"child": 5, "animal": 3, "adult": 1}) if cast == "any" else cast
        names = people()
        if cast == "animal":
            chosen = self.rng.sample(names["animals"], 3)
        else:
            kinds = {"girl": "girls", "boy": "boys"} if cast == "child" else {"woman": "women", "man": "men"}
            everybody = [(name, kind) for kind, table in kinds.items() for name in names[table]]
            chosen = [{"name": name, "kind": kind, "he": "she" if kind in ("girl", "woman") else "he"}
                      for name, kind in self.rng.sample(everybody, 3)]
        variables = {}
        for role, person in zip(("hero", "friend", "other"), chosen):
            him, his, itself = FORMS[person["he"]]
            variables |= {role: person["name"], f"{role}.kind": person["kind"], f"{role}.he": person["he"],
                          f"{role}.him": him, f"{role}.his": his, f"{role}.self": itself}
        return variables

    def story(self, plan: Story | None = None, about: str | None = None) -> tuple[str, str]:
        """A story, of a plan that training does (or does not) show, and what it is about in a few words.

        Args:
            about: one of the plan's; None: any.
        """
        plan = plan or self.story_plan(stories())
        rules = plan.rules | self.characters(plan.cast)
        joined = expand(f"{about or self.rng.choice(plan.about)}\n{plan.text}", rules, self.rng)
        about, text = with_articles(joined).split("\n", 1)
        # A quoted sentence whose speaker follows ends in a comma, wherever else its rule is used.
        return re.sub(r'\." (?=said|called|whispered|answered)', '," ', text), about

    def story_plan(self, plans: Sequence[Story]) -> Story:
        """One of the plans that training does (or does not) show."""
        return draw(self.rng, lambda: self.rng.choice(plans), self.held_out, lambda plan: plan.title)

    def story_document(self) -> str:
        """A story by itself."""
        return self.story()[0]

    def short_story_document(self) -> str:
        """One of the simpler stories."""
        return self.story(self.rng.choice(short_stories()))[0]

    def long_document(self) -> str:
        """An everyday text of a few hundred words; only what its beginning says tells how it ends."""
        table = data("everyday_long")
        text = self.rng.choice(table["text"])["text"]
        rules = data("words")["rules"] | table.get("rules", {}) | self.characters("adult")
        return with_articles(expand(text, rules, self.rng))

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
            frame, who = self.rng.choice(self.texts("pronouns", kind)), self.characters("child")
            while kind == "she_he" and who["hero.he"] == who["friend.he"]:
                who = self.characters("child")
            joined = "\n".join((frame["text"], frame["ask"], frame["answer"]))
            return Pronoun(*expand(joined, table["rules"] | who, self.rng).split("\n"))

        return draw(self.rng, make, self.held_out, lambda item: item.text)

    def name(self) -> str:
        """A child's or an animal's."""
        return self.characters()["hero"]

    def operand(self) -> int:
        """A number of one to four digits, each length equally likely."""
        digits = self.rng.randint(1, 4)
        return self.rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)

    def made_up_word(self) -> str:
        """A word that no dictionary holds, but this corpus's own."""
        table = data("tools")["dictionary"]

        def make() -> str:
            parts = ["start", "middle", "join", "end"] if self.rng.random() < 0.8 else \
                ["start", "middle", "join", "middle", "join", "end"]
            return "".join(self.rng.choice(table[part]) for part in parts)

        return draw(self.rng, make, self.held_out)

    def drill_document(self) -> str:
        """A row of numbers, names and made-up words, said several times over: practice in copying.

        A word after a space falls into other tokens than the same word after a quotation mark, as which a
        tool call needs it. So every other drill says each word of a row of made-up words plainly and in
        quotes, and half of the others set the row in another way each time.
        """
        if self.rng.random() < 0.5:
            words = [self.made_up_word() for _ in range(self.rng.randint(4, 16))]
            return " ".join(f'{word} "{word}"' for word in words)
        makers = [lambda: str(self.operand()), self.made_up_word, self.name]
        if self.rng.random() < 0.6:
            makers = [self.rng.choice(makers)]
        row = [self.rng.choice(makers)() for _ in range(self.rng.randint(1, 8))]
        settings = [" ".join, ", ".join, "\n".join, lambda row: " ".join(f'"{item}"' for item in row)]
        if self.rng.random() < 0.5:
            settings = [self.rng.choice(settings)]
        return "\n".join(self.rng.choice(settings)(row) for _ in range(self.rng.randint(2, 5)))
