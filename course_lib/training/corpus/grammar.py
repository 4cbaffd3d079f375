"""A small template grammar: slots that draw from a list, and choices written out on the spot.

    {rule}      one alternative of the list called rule; in one text, none comes again before all have come
    {rule:1}    drawn once in a text and repeated; {rule:2} differs from it where it can
    {^rule}     the same with a capital first letter
    [a|b|c]     one of these; they may hold slots and further choices, and [very |] is a word that may be missing
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

Rules = Mapping[str, Sequence[str] | str]
PIECE = re.compile(r"\{(\^?)([\w.]+)(?::(\d+))?\}|([\[\]|])|([^\[\]|{]+|\{)")
SLOT = re.compile(r"\{(\^?)([\w.]+)(?::(\d+))?\}")

# Where "a" meets a vowel sound, or "an" does not. A word in the first list may follow the letter a itself.
ARTICLE = re.compile(r"\b([Aa])n? (?=(\w[\w'-]*))")
NO_NOUN = frozenset("a am an and are as at i if in is it of on or".split())
CONSONANT = re.compile(r"(?:eu|ewe|uni(?!n)|use|usu|ut[ei]|one(?!\w)|once|ukul|ufo|u-)", re.IGNORECASE)
SILENT_H = re.compile(r"(?:hour|honest|honou?r|heir)", re.IGNORECASE)


class Slot(NamedTuple):
    """`{^rule:number}`."""

    capital: bool
    rule: str
    number: str | None


class Choice(NamedTuple):
    """`[a|b|c]`, each alternative parsed."""

    alternatives: tuple[Template, ...]


Template = tuple[str | Slot | Choice, ...]


@cache
def parse(text: str) -> Template:
    """A template as a row of plain text, slots and choices.

    Raises:
        ValueError: a bracket is not closed, or never opened.

    >>> parse("a {pet:1}[ is asleep|]")
    ('a ', Slot(capital=False, rule='pet', number='1'), Choice(alternatives=((' is asleep',), ())))
    """
    levels: list[list[list]] = [[[]]]  # open choices, innermost last; each a list of alternatives
    for match in PIECE.finditer(text):
        capital, rule, number, mark, plain = match.groups()
        if mark == "[":
            levels.append([[]])
        elif mark == "|" and len(levels) > 1:
            levels[-1].append([])
        elif mark == "]" and len(levels) > 1:
            alternatives = levels.pop()
            levels[-1][-1].append(Choice(tuple(map(tuple, alternatives))))
        elif mark:
            raise ValueError(f"{mark!r} without an open bracket in {text!r}")
        else:
            levels[-1][-1].append(plain or Slot(bool(capital), rule, number))
    if len(levels) > 1:
        raise ValueError(f"a bracket is not closed in {text!r}")
    return tuple(levels[0][0])


def expand(template: str, rules: Rules, rng: Random) -> str:
    """Fill every slot of `template` and make every choice, also inside what fills a slot.

    A rule that is a plain string is a variable. The alternatives of a list are drawn like cards from a
    pack, which is complete again when it has been used up.

    Raises:
        KeyError: a slot names no rule.
        ValueError: brackets do not match.

    >>> expand("{^pet:1} and {pet:1}[,|,] {pet:2}", {"pet": ["a cat", "a dog"]}, Random(1))
    'A cat and a cat, a dog'
    >>> expand("{pet}, {pet}; {pet}, {pet}", {"pet": ["a {color} cat", "a dog"], "color": ["red", "blue"]}, Random(1))
    'a red cat, a dog; a blue cat, a dog'
    """
    chosen: dict[tuple[str, str], str] = {}
    unused: dict[str, list[str]] = {}

    def fill(parts: Template) -> str:
        return "".join(part if isinstance(part, str)
                       else fill(rng.choice(part.alternatives)) if isinstance(part, Choice)
                       else slot(part) for part in parts)

    def draw(rule: str) -> str:
        options = rules[rule]
        if isinstance(options, str):
            text = options
        else:
            left = unused[rule] = unused.get(rule) or list(options)
            text = left.pop(rng.randrange(len(left)))
        return fill(parse(text)) if "{" in text or "[" in text else text

    def slot(part: Slot) -> str:
        text = draw(part.rule) if part.number is None else numbered(part.rule, part.number)
        return text[:1].upper() + text[1:] if part.capital else text

    def numbered(rule: str, number: str) -> str:
        if (rule, number) not in chosen:
            taken = {text for (other, _), text in chosen.items() if other == rule}
            drawn = (draw(rule) for _ in range(20))
            fresh = next((text for text in drawn if text not in taken), None)
            chosen[rule, number] = draw(rule) if fresh is None else fresh
        return chosen[rule, number]

    return fill(parse(template))


def with_articles(text: str) -> str:
    """The text with "a" before a consonant sound and "an" before a vowel sound.

    >>> with_articles("A owl saw a hour, an unicorn and a onion.")
    'An owl saw an hour, a unicorn and an onion.'
    """
    def replace(match: re.Match[str]) -> str:
        letter, word = match.groups()
        if word.lower() in NO_NOUN:
            return match[0]
        vowel = (word[0] in "aeiouAEIOU" and not CONSONANT.match(word)) or bool(SILENT_H.match(word))
        return f"{letter}n " if vowel else f"{letter} "

    return ARTICLE.sub(replace, text)
