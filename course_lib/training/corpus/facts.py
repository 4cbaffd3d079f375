"""What the corpus is written from: the files in `data/`, parsed, and what is kept out of training."""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from importlib.resources import files
from operator import getitem
from random import Random
from typing import Any, NamedTuple

ENCYCLOPEDIA = ("encyclopedia_nature", "encyclopedia_life", "encyclopedia_computing", "encyclopedia_models")
STORIES = ("stories_home", "stories_town", "stories_wild", "stories_tales", "stories_any")


@dataclass(frozen=True)
class Entry:
    """One thing the encyclopedia explains: its question form, its explanations, what each must hold.

    `also` are other names for it; `works` and `useful` say whether one can ask how it works and what it is for.
    """

    name: str
    ask: str
    key: tuple[str, ...]
    say: tuple[str, ...]
    also: tuple[str, ...] = ()
    works: bool = False
    useful: bool = False

    def is_right(self, answer: str) -> bool:
        """Whether an answer holds every key; `a|b` in a key means either."""
        text = answer.lower()
        return all(any(part.lower() in text for part in key.split("|")) for key in self.key)


class Story(NamedTuple):
    """The plan of a story: who can be in it, what it is about, its text, the rules of its file."""

    title: str
    cast: str
    about: tuple[str, ...]
    text: str
    rules: dict[str, list[str]]


@cache
def data(name: str) -> dict[str, Any]:
    """One of the files in `data/`, parsed."""
    return tomllib.loads(files(__package__).joinpath("data", f"{name}.toml").read_text("utf-8"))


@cache
def texts(file: str, *keys: str, further: bool = False) -> tuple[Any, ...]:
    """A list of a data file; further: and what `further.toml` adds to it, which only tuning reads."""
    found = tuple(reduce(getitem, keys, data(file)))
    return found + tuple(reduce(lambda table, key: table.get(key, {}), (file, *keys), data("further"))) if further \
        else found


@cache
def encyclopedia() -> tuple[Entry, ...]:
    """Every entry of every encyclopedia file."""
    names = data("aliases")
    entries = ((name, entry) for file in ENCYCLOPEDIA for name, entry in data(file).items())
    return tuple(Entry(name, entry["ask"], tuple(entry["key"]), tuple(entry["say"]),
                       tuple(entry.get("also", names["also"].get(name, ()))),
                       name in names["how"]["works"], name in names["how"]["for"])
                 for name, entry in entries)


def capitals() -> dict[str, str]:
    """Country, as it stands in "the capital of ...", to capital."""
    return data("capitals")["capitals"]


@cache
def continents() -> dict[str, str]:
    """Country to continent."""
    return {country: name for name, countries in data("capitals")["continents"].items() for country in countries}


def people() -> dict[str, list]:
    """Names of girls, boys, women and men, and animals with kind, name and pronoun."""
    return data("words")["people"]


@cache
def stories() -> tuple[Story, ...]:
    """Every story plan, the simple ones of `stories.toml` first."""
    short = data("stories")
    plans = [Story(f"{cast} story {number}", cast, ("{hero}",), text, short["rules"])
             for cast, kind in (("any", "skeletons"), ("child", "child_skeletons"))
             for number, text in enumerate(short[kind])]
    for file in STORIES:
        rules = data("words")["rules"] | data(file).get("rules", {})
        plans += [Story(story["title"], story["cast"], tuple(story["about"]), story["text"], rules)
                  for story in data(file)["story"]]
    return tuple(plans)


def short_stories() -> tuple[Story, ...]:
    """The plans of `stories.toml`: simple stories of five to ten short sentences."""
    return tuple(plan for plan in stories() if plan.about == ("{hero}",))


@cache
def stories_about_anything() -> tuple[Story, ...]:
    """The plans whose hero may be any word of a list: those about "a {anything:1}", "an old {toy:1}" and the like."""
    return tuple(plan for plan in stories() if re.fullmatch(r"a (\w+ )?\{\w+:1\}", plan.about[0]))


def is_held_out(text: str) -> bool:
    """Whether this text, one in ten of all texts, never occurs in training."""
    return zlib.crc32(text.encode()) % 10 == 0


def draw(rng: Random, make: Callable[[], Any], held_out: bool, text: Callable[[Any], str] = str) -> Any:
    """Draw from `make` until the text of what comes is (or is not) one that is held out."""
    while is_held_out(text(item := make())) != held_out:
        pass
    return item
