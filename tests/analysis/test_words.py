"""Words by kind on tables made by hand, and what the rows of pocket know: the finding, its controls, its exceptions."""

import re
from collections import Counter
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from course_lib import load
from course_lib.analysis.geometry import nearest
from course_lib.analysis.long_texts import course_text, token_losses
from course_lib.analysis.words import (
    mean_cosine,
    opposites_cosines,
    own_kind,
    share_by_chance,
    share_by_kind,
    word_groups,
)
from course_lib.display.map_view import word_map
from course_lib.training.corpus import documents

GROUPS = {"east": {"a": 1, "b": 4}, "north": {"c": 0, "d": 2, "e": 5}}
TABLE = torch.tensor([[0.0, 2], [1, 0], [1, 9], [7, 7], [3, 1], [5, 1]])


def nearest_words(table, groups, word, k=5):
    """The k words of the groups whose rows point most nearly the way the word's does."""
    ids = {name: id for words in groups.values() for name, id in words.items()}
    names = list(ids)
    return [names[j] for j, _ in nearest(table[list(ids.values())], names.index(word), k)]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def pocket():
    return load("pocket", device="cpu")


@pytest.fixture(scope="module")
def table(pocket):
    return pocket.model.embed_tokens.weight.detach().double()


@pytest.fixture(scope="module")
def groups(pocket):
    return word_groups(pocket.tokenizer)


@pytest.fixture(scope="module")
def text():
    """About 400,000 characters of the training text."""
    return "".join(islice(documents(seed=0), 1000))


@pytest.fixture(scope="module")
def never(pocket):
    """Ids of the bytes that the training text, which is plain ASCII, does not contain."""
    return [pocket.tokenizer.mergeable_ranks[bytes([byte])] for byte in range(128, 256)]


def test_own_kind_by_hand():
    counts = own_kind(TABLE, GROUPS, k=2)
    assert counts == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 0}
    assert share_by_kind(counts, GROUPS, k=2) == {"east": 0.5, "north": pytest.approx(2 / 6)}
    assert share_by_chance(GROUPS) == {"east": 1 / 4, "north": 2 / 4}
    assert nearest_words(TABLE, GROUPS, "e", k=2) == ["b", "a"]


def test_own_kind_in_the_whole_table_counts_rows_of_no_group_as_wrong():
    counts = own_kind(TABLE, GROUPS, k=3, whole=True)
    assert counts == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 0}


def test_own_kind_asks_the_function_that_it_is_given():
    assert own_kind(TABLE, GROUPS, lambda rows, i, k: [(0, 1.0), (1, 1.0)], k=2) == {
        "a": 2, "b": 2, "c": 0, "d": 0, "e": 0}


def test_word_groups_leave_out_what_has_no_row_or_two_kinds():
    ids = {" cat": [7], " red": [8, 9]}
    found = word_groups(SimpleNamespace(encode_ordinary=lambda word: ids.get(word, [1, 2])))
    assert found["animals"] == {"cat": 7} and found["colours"] == {}
    assert share_by_kind({"cat": 1}, found, k=2) == {"animals": 0.5}


def test_mean_cosine_against_torch():
    rows = random(5, 3)
    pairs = [F.cosine_similarity(rows[i], rows[j], dim=0).item() for i in range(5) for j in range(5) if i != j]
    assert mean_cosine(rows) == pytest.approx(sum(pairs) / len(pairs))


def test_pockets_rows_know_kinds_and_random_rows_do_not(table, groups):
    def mean(counts):
        return sum(counts.values()) / (5 * len(counts))

    counts = own_kind(table, groups)
    control = own_kind(random(*table.shape), groups)
    assert mean(counts) > 0.7 and mean(control) < 0.25
    share, chance = share_by_kind(counts, groups), share_by_chance(groups)
    assert all(share[kind] > 3 * chance[kind] for kind in groups)
    assert 0 in counts.values(), "there are exceptions"


def test_opposites_lie_closer_than_other_adjectives(pocket, table):
    opposites, others = opposites_cosines(table, pocket.tokenizer)
    assert opposites > others + 0.05


def test_rows_that_training_never_looked_up_point_one_way(table, groups, text, never):
    assert max(text.encode()) < 128
    assert mean_cosine(table[never]) > 0.95 > 0.5 > mean_cosine(table[list(groups["animals"].values())])


def test_one_training_step_pushes_rows_that_are_never_the_answer_the_same_way(pocket, never):
    """The table is the LM head, too: a step lowers the score of every token that did not come next."""
    ids = course_text(pocket.tokenizer, 256)[None]
    weight = pocket.model.embed_tokens.weight
    [gradient] = torch.autograd.grad(token_losses(pocket.model(ids), ids).mean(), weight)
    assert mean_cosine(gradient[never]) > 0.9


def across_kinds(table, members):
    """Mean cosine of all pairs of words of different kinds."""
    units = F.normalize(table[[id for *_, id in members]], dim=-1)
    differ = torch.tensor([[one != other for other, *_ in members] for one, *_ in members])
    return (units @ units.T)[differ].mean().item()


@pytest.mark.parametrize("left_out", ["none", "first names"])
def test_rare_words_of_different_kinds_lie_closer_than_common_ones(table, groups, text, left_out):
    seen = Counter(re.findall(r"\w+", text))
    members = sorted(((kind, word, id) for kind, words in groups.items() if kind != left_out
                      for word, id in words.items()), key=lambda member: seen[member[1]])
    quarter = len(members) // 4
    assert across_kinds(table, members[:quarter]) > across_kinds(table, members[-quarter:]) + 0.05


def test_most_neighbours_of_another_kind_are_rare_words(table, groups, text):
    seen = Counter(re.findall(r"\w+", text))
    kind_of = {word: kind for kind, words in groups.items() for word in words}
    rarer = set(sorted(kind_of, key=lambda word: seen[word])[: len(kind_of) // 2])
    strangers = [near for word in kind_of for near in nearest_words(table, groups, word)
                 if kind_of[near] != kind_of[word]]
    assert sum(stranger in rarer for stranger in strangers) > 0.6 * len(strangers)


def test_names_animals_and_function_words_have_regions_of_their_own_on_the_map(table, groups):
    three = {kind: groups[kind] for kind in ("first names", "animals", "function words")}

    def at_home(table):
        """The share of words that lie nearest to the centre of their own kind."""
        clouds = [torch.tensor(list(names.values())) for names in word_map(table, three).points.values()]
        centres = torch.stack([cloud.mean(0) for cloud in clouds])  # (3, 2)
        right = sum((torch.cdist(cloud, centres).argmin(1) == i).sum().item() for i, cloud in enumerate(clouds))
        return right / sum(map(len, clouds))

    assert at_home(table) > 0.9 and at_home(random(*table.shape)) < 0.6
