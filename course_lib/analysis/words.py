"""Words of known kinds, and how much of the kinds the rows of an embedding table know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.analysis.geometry import nearest, single_token_words
from course_lib.training.corpus import people

Groups = Mapping[str, Mapping[str, int]]  # kind of word -> word -> id
Nearest = Callable[[Tensor, int, int], list[tuple[int, float]]]

KINDS = {
    "animals": "cat dog horse cow elephant whale fish bird owl penguin bee ant spider frog snake bat camel fox rabbit "
               "bear mouse duck squirrel goat sheep hen deer donkey goose pig mole",
    "function words": "the a an of to in and or but is are was were it he she they that this with for from on at by "
                      "as not",
    "verbs": "said asked called walked ran went came took gave put stood sat looked found made held opened closed "
             "carried climbed laughed whispered answered nodded smiled",
    "first names": "",  # those of the training text
    "days and months": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday March April May June September "
                       "October November December",
    "colours": "red blue green yellow brown black white purple pink grey golden silver",
    "food": "bread cheese honey salt chocolate tea apple rice milk soup cake pear plum nut sugar butter",
    "feelings": "happy sad glad proud tired hungry scared worried curious bored brave shy",
}
OPPOSITES = ("hot cold,happy sad,big small,good bad,long short,soft hard,warm cool,wide narrow,dry wet,old young,"
             "slow fast,dark bright,high low,heavy light,early late,near far,strong weak,black white,loud quiet,"
             "deep shallow,open closed,thick thin,right wrong,sweet sour")


def word_groups(tokenizer: Any) -> dict[str, dict[str, int]]:
    """Words of eight kinds with their ids; a word of several tokens has no row, and one of two kinds is left out."""
    names = people()
    words = {kind: listed.split() for kind, listed in KINDS.items()}
    words["first names"] = [name for group in ("girls", "boys", "women", "men") for name in names[group]]
    times = Counter(word for listed in words.values() for word in listed)
    return {kind: single_token_words(tokenizer, [word for word in listed if times[word] == 1])
            for kind, listed in words.items()}


def own_kind(table: Tensor, groups: Groups, nearest: Nearest = nearest, k: int = 5, *,
             whole: bool = False) -> dict[str, int]:
    """For each word of the groups, how many of its k nearest among all of them are of its own kind.

    Args:
        table: (V, D).
        nearest: called as `course_lib.analysis.geometry.nearest` is.
        whole: look for the k nearest in the whole table instead; a row of no group is of no kind.
    """
    if whole:
        return {word: sum(row in words.values() for row, _ in nearest(table, id, k))
                for words in groups.values() for word, id in words.items()}
    members = [(kind, word, id) for kind, words in groups.items() for word, id in words.items()]
    rows = table[[id for *_, id in members]]
    return {word: sum(members[j][0] == kind for j, _ in nearest(rows, i, k))
            for i, (kind, word, _) in enumerate(members)}


def share_by_kind(counts: Mapping[str, int], groups: Groups, k: int = 5) -> dict[str, float]:
    """What `own_kind` counted, as the mean share of the k nearest, for each kind that has words."""
    return {kind: sum(counts[word] for word in words) / (k * len(words)) for kind, words in groups.items() if words}


def share_by_chance(groups: Groups) -> dict[str, float]:
    """For each kind its share of the other words: what `share_by_kind` would be if the rows knew nothing."""
    everybody = sum(map(len, groups.values()))
    return {kind: (len(words) - 1) / (everybody - 1) for kind, words in groups.items() if words}


def mean_cosine(rows: Tensor) -> float:
    """Mean cosine of all pairs of different rows (N, D).

    >>> round(mean_cosine(torch.tensor([[1.0, 0], [0, 2], [3, 0]])), 6)
    0.333333
    """
    units = F.normalize(rows, dim=-1)
    cosines = units @ units.T  # (N, N)
    return ((cosines.sum() - cosines.trace()) / (len(rows) * (len(rows) - 1))).item()


def opposites_cosines(table: Tensor, tokenizer: Any) -> tuple[float, float]:
    """Mean cosine of adjectives with their opposites, and with the opposites of the others."""
    pairs = [pair.split() for pair in OPPOSITES.split(",")]
    ids = single_token_words(tokenizer, [word for pair in pairs for word in pair])
    known = [pair for pair in pairs if set(pair) <= set(ids)]
    first, second = (F.normalize(table[[ids[pair[i]] for pair in known]], dim=-1) for i in (0, 1))
    cosines = first @ second.T  # (pairs, pairs), opposites on the diagonal
    others = cosines[~torch.eye(len(known), dtype=torch.bool)]
    return cosines.diagonal().mean().item(), others.mean().item()
