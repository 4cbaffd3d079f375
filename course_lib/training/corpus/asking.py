"""How people ask: a wording of the data files that is not held out, typed the way people type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from random import Random

from course_lib.training.corpus.facts import data
from course_lib.training.corpus.grammar import SLOT, expand

WORD = re.compile(r"[A-Za-z]{4,}")
BLANK = "\x00{}\x00"  # stands for a variable until the wording is chosen
BLANKS = re.compile(r"\x00\w+\x00")
UNHEARD = re.compile(r"[^\w+*/=\x00-]")
HYPHEN = re.compile(r"(?<!\x00)-|-(?!\x00)")  # a minus stands between two numbers


def choose_wording(rng: Random, wordings: Sequence[str], held_out: Sequence[str], **variables: str) -> str:
    """One of the wordings, with its variables filled in; never one that reads like a held-out one."""
    blanks = {name: BLANK.format(name) for name in variables}
    forbidden = forms(tuple(held_out))
    while form(text := expand(rng.choice(wordings), blanks, rng)) in forbidden:
        pass
    for name, blank in blanks.items():
        text = text.replace(blank, variables[name])
    return text


@cache
def forms(wordings: tuple[str, ...]) -> frozenset[str]:
    """The `form` of each wording, its slots taken as variables."""
    return frozenset(form(SLOT.sub(lambda slot: BLANK.format(slot[2]), wording)) for wording in wordings)


def form(text: str) -> str:
    """The letters and signs of a wording, without spaces, marks and capitals; every variable alike."""
    return HYPHEN.sub("", UNHEARD.sub("", BLANKS.sub("\x00", text).lower()))


def as_typed(text: str, rng: Random, *, keep: str = "", habits: float = 1.0) -> str:
    """`text` as one of many people might type it: a greeting before it, a word after it, no capital letters, no
    question mark, a slip.

    Args:
        keep: a part in which no slip is made.
        habits: how often each habit shows, in [0, 1]; 0 leaves the text alone.
    """
    if not re.search(r"\w", text):  # somebody types a smile
        return text
    if rng.random() < 0.3 * habits:
        text = rng.choice(data("questions")["register"]["before"]) + decapitalized(text, keep)
    if rng.random() < 0.2 * habits:
        text = text.rstrip("?.!") + rng.choice(data("questions")["register"]["after"]) + rng.choice(["", "?", "."])
    if rng.random() < 0.07 * habits:
        text = with_slip(text, rng, keep)
    if rng.random() < 0.3 * habits:
        text = text.rstrip("?.!")
    if (chance := rng.random()) < 0.35 * habits:
        return text.lower()
    return text.upper() if chance > 1 - 0.01 * habits else text[:1].upper() + text[1:]


def decapitalized(text: str, keep: str) -> str:
    """The first letter small, unless a name or a word such as I or DNA begins there."""
    second = text[1:2]
    return text if text.startswith((keep or "I ", "I ")) or second.isupper() else text[:1].lower() + text[1:]


def with_slip(text: str, rng: Random, keep: str = "") -> str:
    """One word typed with a letter too few, doubled, or in the wrong order; words of `keep` are spared."""
    words = [match for match in WORD.finditer(text) if match[0] not in keep]
    if not words:
        return text
    word = rng.choice(words)
    i = rng.randrange(word.start() + 1, word.end() - 1)
    slips = (text[:i] + text[i + 1:], text[:i] + text[i] + text[i:], text[:i] + text[i + 1] + text[i] + text[i + 2:])
    return rng.choice(slips)
