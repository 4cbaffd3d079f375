"""A small template grammar: `{rule}` stands for one of its alternatives, chosen at random."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random

SLOT = re.compile(r"\{(\^?)([\w.]+)(?::(\d+))?\}")


def expand(template: str, rules: Mapping[str, Sequence[str] | str], rng: Random) -> str:
    """Fill every slot of `template`, and the slots of what fills it.

    `{rule}` draws an alternative; `{rule:1}` draws once per text and repeats it, `{rule:2}` differs
    from it where it can; `{^rule}` makes the first letter a capital. A rule that is a plain string
    is a variable.

    Raises:
        KeyError: a slot names no rule.

    >>> expand("{^pet:1} and {pet:1}, {pet:2}", {"pet": ["a cat", "a dog"]}, Random(1))
    'A cat and a cat, a dog'
    """
    chosen: dict[tuple[str, str], str] = {}

    def draw(rule: str) -> str:
        options = rules[rule]
        return fill(options if isinstance(options, str) else rng.choice(options))

    def replace(match: re.Match[str]) -> str:
        capital, rule, number = match.groups()
        if number is None:
            text = draw(rule)
        else:
            if (rule, number) not in chosen:
                taken = {text for (other, _), text in chosen.items() if other == rule}
                drawn = (draw(rule) for _ in range(20))
                fresh = next((text for text in drawn if text not in taken), None)
                chosen[rule, number] = draw(rule) if fresh is None else fresh
            text = chosen[rule, number]
        return text[:1].upper() + text[1:] if capital else text

    def fill(text: str) -> str:
        return SLOT.sub(replace, text)

    return fill(template)
