"""The questions of the evaluation: wordings, numbers, words and sentences that training never showed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from course_lib.chat_template import POCKET_CHAT_TEMPLATE, render_chat
from course_lib.training.corpus import TOOLS, Entry, Writer, capitals, data, encyclopedia, held_out_wordings
from course_lib.training.corpus.asking import choose_wording

SEED = 2
CALL = re.compile("<tool_call>.*</tool_call>", re.DOTALL)
STORY_TOKENS = 200
DECLINE = re.compile(
    r"not (?:know|tell|have|see|say|look|connected|counted)|know (?:nothing|nobody|no )|only (?:know|guess)"
    r"|nobody (?:can|told|tells|knows)|cannot|hidden from me|never know|have to guess|offline|news does not"
    r"|no (?:way|clock|calendar|window|internet|map|idea|news)|than I (?:can|could)\b|that is open|not the next"
    r"|all that I know",
    re.IGNORECASE)
HEADING = re.compile(r"^(?:(?:Here|This) is )?(?:a|the) story (?:about|of) [^.:]*[.:] *", re.IGNORECASE)


class Question(NamedTuple):
    """A prompt, whether an answer to it is right, and the family of wordings that it belongs to."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    is_right: Callable[[str], bool]
    max_tokens: int = 48
    family: str = ""


def user(text: str) -> list[dict[str, Any]]:
    """A conversation of one question."""
    return [{"role": "user", "content": text}]


def in_each_wording(writer: Writer, topic: str, wordings: str = "train") -> Iterator[tuple[str, Callable[..., str]]]:
    """The held-out wordings of a topic, one after another without end, each with what puts a thing into it."""
    for family in cycle(held_out_wordings(topic, wordings)):
        yield family, lambda family=family, **variables: choose_wording(writer.rng, [family], (), **variables)


def named(entry: Entry) -> dict[str, str]:
    """The variables of a wording that asks for an entry."""
    return {"ask": entry.ask, "name": entry.name}


def encyclopedia_questions(writer: Writer, *, wordings: str = "train") -> Iterator[Question]:
    """Each entry once, the wordings in turn; right means that the answer holds the entry's keys."""
    entries = [entry for entry in encyclopedia() if wordings != "works" or entry.works]
    for entry, (family, worded) in zip(shuffled(writer, entries), in_each_wording(writer, "encyclopedia", wordings)):
        yield Question(user(worded(**named(entry))), None, entry.is_right, family=family)


def capital_questions(writer: Writer) -> Iterator[Question]:
    """Each country once, the wordings in turn; right means that the capital's name occurs."""
    for country, (family, worded) in zip(shuffled(writer, sorted(capitals())), in_each_wording(writer, "capital")):
        yield Question(user(worded(country=country)), None, names(capitals()[country]), family=family)


def follow_up_questions(writer: Writer) -> Iterator[Question]:
    """A second question that says only what is new ("and of Kenya?"), of capitals and things in turn, without end."""
    countries, entries = sorted(capitals()), encyclopedia()
    worded = {topic: in_each_wording(writer, topic, "follow_up") for topic in ("capital", "encyclopedia")}
    while True:
        first, second = writer.rng.sample(countries, 2)
        before = [*user(writer.capital_question(first)),
                  {"role": "assistant", "content": writer.country_reply("capital", first)}]
        family, put = next(worded["capital"])
        yield Question(before + user(put(country=second)), None, names(capitals()[second]), family=family)
        first, second = writer.rng.sample(entries, 2)
        before = [*user(writer.encyclopedia_question(first)),
                  {"role": "assistant", "content": writer.rng.choice(first.say)}]
        family, put = next(worded["encyclopedia"])
        yield Question(before + user(put(**named(second))), None, second.is_right, family=family)


def tool_questions(writer: Writer, tool: str) -> Iterator[Question]:
    """Unseen operands or words, without end; right means the call is exact, from its first tag to its last."""
    while True:
        question, called, *_ = getattr(writer, f"{tool}_exchange")(tuple(TOOLS))
        call = CALL.search(render_chat(POCKET_CHAT_TEMPLATE, [called]))[0]
        yield Question([question], list(TOOLS.values()), call.__eq__)


def pronoun_questions(writer: Writer) -> Iterator[Question]:
    """Unseen sentences, without end; right means the very answer."""
    while True:
        item = writer.pronoun()
        yield Question(user(f"{item.text} {item.ask}"), None, lambda answer, right=item.answer: answer == right)


def story_questions(writer: Writer) -> Iterator[Question]:
    """Stories about all kinds of things, without end; right means that the story itself, and not only a heading that
    repeats the request, speaks of what was asked for.
    """
    things = data("words")["rules"]["anything"]
    for family, worded in in_each_wording(writer, "story"):
        thing = writer.rng.choice(things)
        about = writer.fill("[a|the|an old|a little] " + thing)
        in_story = names(thing.split()[-1])
        yield Question(user(worded(about=about)), None, lambda answer, in_story=in_story: in_story(told(answer)),
                       STORY_TOKENS, family)


def small_talk_questions(writer: Writer) -> Iterator[Question]:
    """Each remark once; right means that the answer has a word that a sensible one would have."""
    for item in shuffled(writer, data("held_out")["small_talk"]["items"]):
        pattern = re.compile("|".join(rf"\b{re.escape(word)}" for word in item["expect"]), re.IGNORECASE)
        yield Question(user(item["say"]), None, lambda answer, pattern=pattern: bool(pattern.search(answer)))


def decline_questions(writer: Writer) -> Iterator[Question]:
    """What nobody could know, each once; right means that the model says that it does not know."""
    for wording in shuffled(writer, held_out_wordings("decline")):
        yield Question(user(wording), None, lambda answer: bool(DECLINE.search(answer)))


def told(answer: str) -> str:
    """A story without a heading such as "Here is a story about a lamp."

    >>> told("A story about a lamp: It was dark.")
    'It was dark.'
    """
    return HEADING.sub("", answer.strip())


def names(what: str) -> Callable[[str], bool]:
    """Whether an answer holds these words as whole ones, in the singular or the plural, capitals or not.

    >>> [names("hat")(text) for text in ("Two hats!", "That was then.")]
    [True, False]
    """
    pattern = re.compile(rf"(?<!\w){re.escape(what)}(?:e?s)?(?!\w)", re.IGNORECASE)
    return lambda answer: bool(pattern.search(answer))


def shuffled(writer: Writer, items: Sequence[Any]) -> list[Any]:
    """The items in the order that the writer's seed gives."""
    return writer.rng.sample(items, len(items))


def kinds(seed: int) -> dict[str, Iterator[Question]]:
    """The questions of every kind, in the order that the seed gives."""
    def writer() -> Writer:
        return Writer(seed, held_out=True)

    return {"encyclopedia": encyclopedia_questions(writer()),
            "how it works": encyclopedia_questions(writer(), wordings="works"),
            "capitals": capital_questions(writer()), "follow-ups": follow_up_questions(writer()),
            "calculator": tool_questions(writer(), "calculator"),
            "dictionary": tool_questions(writer(), "dictionary"), "pronouns": pronoun_questions(writer()),
            "stories asked for": story_questions(writer()), "small talk": small_talk_questions(writer()),
            "declines": decline_questions(writer())}
